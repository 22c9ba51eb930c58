#!/usr/bin/env bash
# Runs the README's commands on a machine that has nothing yet.
set -euo pipefail
# shellcheck source=root.bash
. "$(dirname "$0")/root.bash"

usage() {
    cat <<'HELP'
Usage: scripts/fresh.sh [debian-12|ubuntu-24.04] [run|test]     (debian-12, run)

Makes a fresh system with debootstrap in a directory (it has make and git, nothing else), clones
HEAD into it, and does there what the README says:

  run   `make run`: waits until redis-cli can SET and GET, stops it (exit code 0), and starts it a
        second time
  test  `make test`

and prints how long each took. The Rust toolchain and the ccache directory are lent to it (set
CCACHE_DIR to an empty directory to measure without); everything else it gets from its distribution
and the registries.

As root, on Debian or Ubuntu. Exit code: 0 passed, 1 failed, 77 can't be done here (and what to do
about that).

  RUST=DIR         the toolchain that is lent (what `rustc --print sysroot` says)
  FRESH_DIR=DIR    where the system is made (TMPDIR, or /tmp); it takes 15 GB and is removed at the
                   end
  MIRROR=URL       the archive, instead of deb.debian.org or archive.ubuntu.com

Examples:
  scripts/fresh.sh                            Debian 12: from nothing to SET and GET
  scripts/fresh.sh debian-12 test             every test, on Debian 12
  sudo RUST=$(rustc --print sysroot) FRESH_DIR=/var/tmp scripts/fresh.sh ubuntu-24.04 run
HELP
}

fail() { printf '%s\n' "$@" >&2; exit 1; }
cannot() { printf '%s\n' "$@" >&2; exit 77; }

system=debian-12 command=run
for argument in "$@"; do
    case $argument in
    debian-12 | ubuntu-24.04) system=$argument ;;
    run | test) command=$argument ;;
    -h | --help) usage; exit ;;
    *) usage >&2; exit 2 ;;
    esac
done
choose_system "$system"

# In the directory of this run: the fresh system, and how long each step took.
work=${FRESH_WORK:-} root=${FRESH_WORK:-}/root

# Runs a command, and keeps how long it took under a name; also if it fails, which ends the script.
timed() {
    step=$1 begin=$SECONDS
    shift
    printf '\n== %s (%s)\n' "$step" "$(date +%T)"
    "$@"
    took ''
}
took() {
    [ -z "$step" ] || printf '%6d s  %s\n' $((SECONDS - begin)) "$step$1" >>"$work/times"
    step=
}
step=

# --- The second half: this script again, in namespaces for mounts and processes that end with it,
# however it ends. ---

mount_all() {
    # A mount of its own for /, without which no test could make namespaces.
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount -t sysfs sysfs "$root/sys"
    mount --rbind /dev "$root/dev"
    mkdir -p "$root/opt/rust" "$root/root/.cache/ccache"
    mount --bind "$FRESH_RUST" "$root/opt/rust"
    mount -o remount,bind,ro "$root/opt/rust"
    [ ! -d "$FRESH_CCACHE" ] || mount --bind "$FRESH_CCACHE" "$root/root/.cache/ccache"
}

# Waits until `make run` says that it serves.
start() {
    # The job below would empty it later, perhaps after it was asked whether it serves.
    : >"$work/out"
    "${inside[@]}" make run >"$work/out" &
    make=$!
    until grep -q '^ready' "$work/out"; do
        kill -0 "$make" 2>/dev/null || { wait "$make"; return; }
        sleep 0.1
    done
}

# SIGINT to the rack, which is all that `make` runs; make's exit code is then the rack's.
stop() {
    # shellcheck disable=SC2046
    kill -INT $(cat "/proc/$make/task/$make/children")
    wait "$make"
}

answers() { # what redis-cli must say, then its arguments
    local wanted=$1 got
    shift
    got=$("${inside[@]}" redis-cli -p 6380 "$@")
    [ "$got" = "$wanted" ] || { echo "redis-cli $*: '$got' instead of '$wanted'"; return 1; }
}

if [ -n "$work" ]; then
    trap 'took ": FAILED"' EXIT
    mount_all
    # Nothing of this environment but proxies.
    mapfile -t proxies < <(env | grep -iE '^(https?|ftp|no)_proxy=')
    inside=(chroot "$root"
        env -i HOME=/root TERM="${TERM:-dumb}" LANG=C.UTF-8 ${proxies[@]+"${proxies[@]}"}
        PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
        sh -c 'cd /root/switchback && exec "$@"' sh)
    if [ "$command" = test ]; then
        timed 'make test' "${inside[@]}" make test
        exit
    fi
    timed 'make run, until it serves' start
    "${inside[@]}" apt-get install -y -qq --no-install-recommends redis-tools >"$work/log" 2>&1 ||
        fail "$(cat "$work/log")"
    timed 'SET' answers OK set greeting hello
    timed 'GET' answers hello get greeting
    timed 'SIGINT, until it has ended with 0' stop
    timed 'make run again, until it serves' start
    timed 'GET again' answers hello get greeting
    timed 'SIGINT again, until it has ended with 0' stop
    exit
fi

# --- The first half: what it needs, and the system. ---

may_make_root || exit 77
unshare --mount --pid --fork true 2>/dev/null ||
    cannot "Namespaces may not be made here. In a container: docker run --privileged."
rust=${RUST:-$(rustc --print sysroot 2>/dev/null || true)}
[ -x "$rust/bin/cargo" ] ||
    cannot "There is no Rust toolchain to lend. With one from https://rustup.rs: RUST=\$(rustc --print sysroot) $0 $*"
ccache=$(ccache -k cache_dir 2>/dev/null) || ccache=none

checkout=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
commit=$(git -C "$checkout" rev-parse HEAD)
git -C "$checkout" diff --quiet HEAD || echo "(What isn't committed is not in it.)" >&2

work=$(mktemp -d "${FRESH_DIR:-${TMPDIR:-/tmp}}/switchback-fresh.XXXXXX") root=$work/root
second=
# The mounts are in the namespace of the second half, so nothing that is lent can be reached from
# here.
clean() {
    if [ -n "$second" ]; then
        # Its first process, with which all others end; unshare waits for that.
        # shellcheck disable=SC2046
        kill -KILL $(cat "/proc/$second/task/$second/children") 2>/dev/null || true
        wait "$second" 2>/dev/null || true
    fi
    rm -rf --one-file-system "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM HUP

make_system() {
    make_root "$root" make,git
    git clone --quiet --no-hardlinks --no-checkout "$checkout" "$root/root/switchback"
    git -C "$root/root/switchback" checkout --quiet --detach "$commit"
}

timed "$system with ${commit:0:12} in $work" make_system
# Job control, without which it would begin with SIGINT ignored.
set -m
FRESH_WORK=$work FRESH_RUST=$rust FRESH_CCACHE=$ccache unshare \
    --mount --pid --fork --kill-child --mount-proc \
    bash "$0" "$system" "$command" </dev/null &
second=$!
code=0
wait "$second" || code=1
second=
printf '\n%s, %s:\n' "$system" "$commit"
cat "$work/times"
exit $code
