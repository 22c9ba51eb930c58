#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
#
# Checks the C sources: format, warnings of two compilers, sanitizers, the kernel's verifier. What
# this machine can't check is skipped.
set -eu
cd "$(dirname "$0")"
# shellcheck source=../tests/lacks.sh
. ../tests/lacks.sh

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
step() { printf '%s\n' "datapath: $*"; }

if lacks clang-format-19; then
    skip "$0: format" clang-format-19
else
    step "format"
    clang-format-19 --dry-run --Werror ./*.h ./*.c tests/*.c
fi

for compiler in gcc clang-19; do
    if lacks $compiler; then
        skip "$0: $compiler" $compiler
        continue
    fi
    step "$compiler: warnings are errors"
    # shellcheck disable=SC2086
    $compiler -std=gnu11 -O3 $warnings -c native.c -o "$out/native-$compiler.o"
    # shellcheck disable=SC2086
    $compiler -std=gnu11 -O3 $warnings -DSWITCHBACK_ABLATIONS -c native.c \
        -o "$out/native-$compiler.o"
    if [ $compiler = clang-19 ] && lacks clang-19-sanitizers; then
        skip "$0: sanitizers of clang-19" clang-19-sanitizers
        continue
    fi
    step "$compiler: random packets under the address and undefined-behaviour sanitizers"
    # (Not under the thread sanitizer: it knows no fences, which the seqlocks are made of.)
    # shellcheck disable=SC2086
    $compiler -std=gnu11 -O1 -g $warnings -fsanitize=address,undefined -fno-sanitize-recover=all \
        -pthread \
        -DSWITCHBACK_ABLATIONS native.c tests/replay.c -o "$out/replay"
    "$out/replay" "${PACKETS:-100000}" "${SEED:-1}"
done

if lacks clang-19; then
    skip "$0: BPF" clang-19
    exit 0
fi
# bpf ARCHITECTURE PROGRAM: as libbpf names architectures.
# shellcheck disable=SC2086
bpf() {
    clang-19 -target bpf -mcpu=v3 -O2 -g $warnings -D__TARGET_ARCH_"$1" \
        -I"/usr/include/$(uname -m)-linux-gnu" \
        -c "$2.bpf.c" -o "$out/$2.bpf.o"
}
step "clang-19 -target bpf: refused for arm64, whose memory order isn't implemented"
if bpf arm64 xdp 2> "$out/refused" ||
    ! grep -q 'memory order .* only implemented for x86' "$out/refused"; then
    cat "$out/refused"
    echo "xdp.bpf.c compiles for arm64, or fails for another reason"
    exit 1
fi
if [ "$(uname -m)" != x86_64 ]; then
    skip "$0: BPF" x86_64
    exit 0
fi
step "clang-19 -target bpf"
for program in xdp measure; do
    bpf x86 $program
done

for thing in bpf bpffs bpftool; do
    if lacks $thing; then
        skip "$0: verifier" $thing
        exit 0
    fi
done
step "the kernel's verifier"
name=switchback-check-$$
mkdir "$out/bpffs"
mount -t bpf bpf "$out/bpffs"
pins=$out/bpffs
if ! bpftool prog loadall "$out/xdp.bpf.o" "$pins/$name" > "$out/log" 2>&1; then
    tail -n 40 "$out/log"
    exit 1
fi
step "passed: $(ls "$pins/$name" | tr '\n' ' ')"
