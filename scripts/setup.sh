#!/usr/bin/env bash
# Installs what is missing on Debian and Ubuntu, as root; otherwise prints the one command that does.
# Usage: setup.sh run|test. Takes a few milliseconds when nothing is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

purpose=${1:-run}
fail() { printf '%s\n' "$@" >&2; exit 1; }

# Commands rather than packages: whoever has a compiler from elsewhere needs none of ours.
has() { command -v "$1" >/dev/null 2>&1; }
# Not libclang-cpp, which is another library.
has_libclang() {
    local directory
    [ -z "${LIBCLANG_PATH:-}" ] || return 0
    for directory in /usr/lib/llvm-*/lib /usr/lib/*-linux-gnu /usr/lib /usr/local/lib; do
        if compgen -G "$directory/libclang.so*" >/dev/null || compgen -G "$directory/libclang-[0-9]*.so*" >/dev/null; then
            return 0
        fi
    done
    return 1
}
# The newest clang that the system offers; the BPF backend needs 15.
clang_here() {
    for version in 22 21 20 19 18 17 16 15; do
        if has "clang-$version"; then echo "clang-$version"; return; fi
    done
    if has clang && [ "$(clang -dumpversion | cut -d. -f1)" -ge 15 ]; then echo clang; fi
}
offered() { [ -n "$(apt-cache madison "$1" 2>/dev/null)" ]; }

missing=()
# RocksDB is C++ and its bindings are made by libclang.
{ has c++ && has make; } || missing+=(build-essential)
has_libclang || missing+=(libclang)
has ccache || missing+=(ccache)
# The loader of the kernel datapath, libbpf, is built from source on these.
has pkg-config || missing+=(pkg-config)
[ -e /usr/include/libelf.h ] || missing+=(libelf-dev)
[ -e /usr/include/zlib.h ] || missing+=(zlib1g-dev)
if [ "$purpose" = test ]; then
    clang=$(clang_here)
    [ -n "$clang" ] || missing+=(clang)
    compgen -G '/usr/bin/clang-format*' >/dev/null || missing+=(clang-format)
    [ -e /usr/include/bpf/bpf_helpers.h ] || missing+=(libbpf-dev)
    has redis-cli || missing+=(redis-tools)
    has redis-server || missing+=(redis-server)
    has python3 || missing+=(python3)
    has curl || missing+=(curl)
    has ip || missing+=(iproute2)
    has javac || missing+=(openjdk)
fi

# From what is missing to what this system calls it. Asking apt takes a while, so only now.
package() {
    local version
    case $1 in
    clang | clang-format)
        for version in 19 18 17 16 15; do
            if offered "$1-$version"; then echo "$1-$version"; return; fi
        done
        echo "$1"
        ;;
    libclang)
        for version in 19 18 17 16 15; do
            if offered "libclang-$version-dev"; then echo "libclang-$version-dev"; return; fi
        done
        echo libclang-dev
        ;;
    openjdk) echo default-jdk-headless ;;
    *) echo "$1" ;;
    esac
}

# What somebody else has to do; said all at once.
todo=()

if [ ${#missing[@]} -gt 0 ]; then
    has apt-get || fail "Missing: ${missing[*]}." \
        "This is no Debian or Ubuntu, so install them by your system's own means: a C++ compiler, make, libclang, ccache, pkg-config, the headers of" \
        "libelf and zlib (for the tests: clang 15 or newer, clang-format, libbpf headers, redis-cli, redis-server, python3, curl, iproute2, a JDK)."
    update=
    if ! compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; then update=yes; fi
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    if [ "$update" ] && [ "$(id -u)" = 0 ]; then
        apt-get update -qq >"$log" 2>&1 || fail "apt-get update failed:" "$(tail -n 5 "$log")"
    fi
    packages=()
    for name in "${missing[@]}"; do packages+=("$(package "$name")"); done
    command="apt-get install -y --no-install-recommends ${packages[*]}"
    if [ "$(id -u)" = 0 ]; then
        echo "installing ${packages[*]}" >&2
        export DEBIAN_FRONTEND=noninteractive
        # A mirror drops old versions, so a list that is a few weeks old may name what is gone: then, and only then, update it.
        $command >"$log" 2>&1 || { apt-get update -qq >>"$log" 2>&1 && $command >>"$log" 2>&1; } ||
            fail "apt-get install failed:" "$(tail -n 20 "$log")"
    elif [ "$update" ]; then
        todo+=("sudo sh -c 'apt-get update && $command'")
    elif [ "${missing[*]}" = ccache ]; then
        echo "(ccache is missing: RocksDB takes ten minutes to build, each time. sudo apt-get install ccache)" >&2
    else
        todo+=("sudo $command")
    fi
fi

# Rust is the user's own, so it is never installed behind their back.
wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
older() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n1)" != "$2" ]; }
from_web="curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y && . ~/.cargo/env"
if ! has cargo; then
    if offered rustup; then
        sudo=$([ "$(id -u)" = 0 ] || echo 'sudo ')
        todo+=("${sudo}apt-get install -y rustup && rustup default stable")
    elif has curl || [[ " ${missing[*]-} " == *" curl "* ]]; then
        todo+=("$from_web")
    else
        sudo=$([ "$(id -u)" = 0 ] || echo 'sudo ')
        todo+=("${sudo}apt-get install -y curl && $from_web")
    fi
elif older "$(cargo --version | cut -d' ' -f2)" "$wanted"; then
    if has rustup; then todo+=('rustup update stable && rustup default stable'); else todo+=("$from_web"); fi
fi
if [ ${#todo[@]} -gt 0 ]; then
    printf 'This machine lacks something (Rust %s or newer is needed). Run this, then try again:\n\n' "$wanted" >&2
    joined=${todo[0]}
    for command in "${todo[@]:1}"; do joined+=" &&"$'\n'"    $command"; done
    printf '  %s\n\n' "$joined" >&2
    exit 1
fi
for component in clippy fmt; do
    [ "$purpose" != test ] || cargo "$component" --version >/dev/null 2>&1 ||
        fail "cargo $component is missing. Install it, then try again:" "" "  rustup component add clippy rustfmt" ""
done
