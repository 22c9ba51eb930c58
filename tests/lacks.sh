# shellcheck shell=sh
# Sourced by tests, in any POSIX shell: what this machine lacks, and tests that can't run for want
# of it.
# A skip is a line in the file that SWITCHBACK_SKIPS names: test, what is lacking. scripts/test.sh
# reads it, and tests/skips.txt says which are legitimate. crates/testing is the same for tests in
# Rust.

# Whether this machine lacks something: one of these, or a command. It looks at the machine, never
# at Switchback, so that a defect can't pass for a machine that is too small.
lacks() {
    case $1 in
    # Kernel 6.1 with its types, CAP_NET_ADMIN and CAP_SYS_ADMIN (bits 12 and 21).
    bpf)
        effective=$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status)
        ! { [ $((0x$effective >> 12 & 1)) = 1 ] && [ $((0x$effective >> 21 & 1)) = 1 ] &&
            [ -e /sys/kernel/btf/vmlinux ] &&
            [ "$(printf '6.1\n%s\n' "$(uname -r)" | sort -V | head -n 1)" = 6.1 ]; }
        ;;
    bpffs) ! may_mount bpf ;;
    clang-19-sanitizers)
        ! echo 'int main(void) { return 0; }' |
            clang-19 -fsanitize=address,undefined -x c - -o /dev/null 2>/dev/null
        ;;
    go-1.21) ! command -v go >/dev/null || go env GOVERSION | grep -qE '^go1\.(1?[0-9]|20)(\.|$)' ;;
    ipv6) ! grep -qs '^0*1 ' /proc/net/if_inet6 ;;
    mounts) ! may_mount tmpfs ;;
    # AddressSanitizer's runtime of the Rust compiler itself, for fuzzing: no nightly is needed
    # beside it.
    rust-sanitizer)
        ! ls "$(rustc --print sysroot 2>/dev/null)"/lib/rustlib/*/lib/librustc-*_rt.asan.a \
            >/dev/null 2>&1
        ;;
    # CAP_NET_RAW (bit 13), to listen to other programs' packets.
    net-raw)
        effective=$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status)
        [ $((0x$effective >> 13 & 1)) = 0 ]
        ;;
    node-20)
        ! command -v node >/dev/null ||
            ! node --version | grep -qE '^v([2-9][0-9]|[1-9][0-9]{2})\.'
        ;;
    # For 10,000 connections of one process.
    open-files) [ "$(ulimit -Hn)" != unlimited ] && [ "$(ulimit -Hn)" -lt 10500 ] ;;
    # (A command of this name comes with util-linux everywhere.)
    x86_64) [ "$(uname -m)" != x86_64 ] ;;
    namespaces)
        ! unshare --net --mount --pid --fork --kill-child --mount-proc \
            sh -c 'mount -t tmpfs tmpfs /run && ip netns add probe' 2>/dev/null
        ;;
    *) ! command -v "$1" >/dev/null 2>&1 ;;
    esac
}

may_mount() { # a type of file system
    on=$(mktemp -d)
    mount -t "$1" "$1" "$on" 2>/dev/null && umount "$on"
    mounted=$?
    rmdir "$on"
    return $mounted
}

# Records that a test, or a part of one, is skipped: its name, what is lacking.
skip() {
    echo "skipped: $1 (lacking: $2)"
    [ -z "${SWITCHBACK_SKIPS:-}" ] || printf '%s\t%s\n' "$1" "$2" >>"$SWITCHBACK_SKIPS"
}

# Ends this script as skipped if any of these is lacking.
needs() {
    for thing in "$@"; do
        if lacks "$thing"; then
            skip "$0" "$thing"
            exit 77
        fi
    done
}
