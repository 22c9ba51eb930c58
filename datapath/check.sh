#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
#
# Checks the C sources: format, warnings of two compilers, sanitizers, the kernel's verifier. What this machine can't check is
# said, with how to do it.
set -eu
cd "$(dirname "$0")"

out=$(mktemp -d)
pins=
cleanup() {
    if [ -n "$pins" ]; then
        rm -rf "${pins:?}/$name"
        umount "$pins"
    fi
    rm -rf "$out"
}
trap cleanup EXIT

warnings="-Wall -Wextra -Werror -Wconversion -Wshadow"
has() { command -v "$1" > /dev/null 2>&1; }
step() { printf '%s\n' "datapath: $*"; }
skip() { printf '%s\n' "skipped: $*"; }

if has clang-format-19; then
    step "format"
    clang-format-19 --dry-run --Werror ./*.h ./*.c tests/*.c
else
    skip "format; how to run: apt-get install clang-format-19"
fi

for compiler in gcc clang-19; do
    if ! has $compiler; then
        skip "$compiler; how to run: apt-get install $compiler"
        continue
    fi
    step "$compiler: warnings are errors"
    # shellcheck disable=SC2086
    $compiler -std=gnu11 -O3 $warnings -c native.c -o "$out/native-$compiler.o"
    if ! echo 'int main(void) { return 0; }' | $compiler -fsanitize=address,undefined -x c - -o "$out/links" 2> /dev/null; then
        skip "$compiler: sanitizers; how to run: apt-get install libclang-rt-19-dev (of clang-19)"
        continue
    fi
    step "$compiler: random packets under the address and undefined-behaviour sanitizers"
    # (Not under the thread sanitizer: it knows no fences, which the seqlocks are made of.)
    # shellcheck disable=SC2086
    $compiler -std=gnu11 -O1 -g $warnings -fsanitize=address,undefined -fno-sanitize-recover=all -pthread \
        native.c tests/replay.c -o "$out/replay"
    "$out/replay" "${PACKETS:-100000}" "${SEED:-1}"
done

if ! has clang-19 || [ ! -e /usr/include/bpf/bpf_helpers.h ]; then
    skip "BPF; how to run: apt-get install clang-19 libbpf-dev"
    exit 0
fi
step "clang-19 -target bpf"
# shellcheck disable=SC2086
for program in xdp measure; do
    clang-19 -target bpf -mcpu=v3 -O2 -g $warnings -I"/usr/include/$(uname -m)-linux-gnu" -c $program.bpf.c -o "$out/$program.bpf.o"
done

if [ "$(id -u)" != 0 ] || ! has bpftool; then
    skip "the verifier; how to run: as root, with bpftool installed"
    exit 0
fi
step "the kernel's verifier"
name=switchback-check-$$
pins=$out/bpffs
mkdir "$pins"
if ! mount -t bpf bpf "$pins" 2> "$out/mount"; then
    pins=
    skip "the verifier: no bpffs here ($(cat "$out/mount")); how to run: as root outside a container"
    exit 0
fi
if ! bpftool prog loadall "$out/xdp.bpf.o" "$pins/$name" > "$out/log" 2>&1; then
    tail -n 40 "$out/log"
    exit 1
fi
step "passed: $(ls "$pins/$name" | tr '\n' ' ')"
