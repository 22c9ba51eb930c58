#!/usr/bin/env bash
# The Debian package in a clean Debian 12: installed, run, upgraded, removed, purged, and as lintian
# sees it.
# Exit code: 0 passed, 1 failed, 77 can't be done here (and what to do about that).
set -uo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=root.bash
. scripts/root.bash
# shellcheck source=../tests/e2e/checks.bash
. tests/e2e/checks.bash
choose_system debian-12
may_make_root || exit 77
command -v lintian >/dev/null ||
    { echo "lintian is missing: apt-get install lintian" >&2; exit 77; }

# In namespaces for mounts and processes, which end with it, however it ends.
if [ -z "${DEB_TEST_WORK:-}" ]; then
    work=$(mktemp -d)
    trap 'rm -rf --one-file-system "$work"' EXIT
    DEB_TEST_WORK=$work unshare --mount --pid --fork --kill-child --mount-proc "$0"
    exit
fi

work=$DEB_TEST_WORK root=$DEB_TEST_WORK/root
for revision in 1 2; do
    scripts/deb.sh build $revision || exit 1
    cp "${CARGO_TARGET_DIR:-target}"/debian/switchback_*-"$revision"_*.deb "$work" || exit 1
done
first=$(ls "$work"/switchback_*-1_*.deb) second=$(ls "$work"/switchback_*-2_*.deb)
echo "a clean Debian 12 in $root"
make_root "$root" adduser,systemd || exit 1
cp "$first" "$second" "$root/root/"
mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" || exit 1

inside=(chroot "$root"
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive)
inside() { "${inside[@]}" "$@"; }
apt() {
    inside apt-get -qq -o Dpkg::Use-Pty=0 "$@" >"$work/log" 2>&1 ||
        { tail -n 20 "$work/log"; return 1; }
}
equal() { [ "$1" = "$2" ] || { echo "  '$1' is not '$2'"; return 1; }; }
owner() { inside stat -c '%a %U:%G' "$1"; }
gone() {
    local path
    for path in "$@"; do
        [ ! -e "$root$path" ] || { echo "  $path is there"; return 1; }
    done
}
there() {
    local path
    for path in "$@"; do
        [ -e "$root$path" ] || { echo "  $path is missing"; return 1; }
    done
}
as() { local user=$1; shift; inside setpriv --reuid "$user" --regid "$user" --init-groups "$@"; }
# Whether a rack starts as its unit says (systemd doesn't run here), serves, and ends well.
serves() {
    local rack answer
    : >"$work/out"
    # No function, so that the process in the background is the rack itself.
    "${inside[@]}" setpriv --reuid switchback --regid switchback --init-groups switchback up \
        --config /etc/switchback/rack.toml >"$work/out" 2>"$work/err" &
    rack=$!
    for _ in $(seq 300); do
        grep -q '^ready' "$work/out" && break
        sleep 0.1
    done
    answer=$(inside switchback ctl status 2>&1)
    kill -TERM "$rack"
    wait "$rack" && grep -q serving <<<"$answer" ||
        { cat "$work/out" "$work/err"; echo "$answer"; return 1; }
}

check 'it is installed with what it needs' apt install "/root/${first##*/}"
check 'a user runs it' as daemon switchback --version
check 'its user may not log in' equal "$(inside getent passwd switchback | cut -d: -f6-)" \
    /var/lib/switchback:/usr/sbin/nologin
check 'its directory is its own' equal "$(owner /var/lib/switchback)" '750 switchback:switchback'
check 'rack.toml may hold a password' equal "$(owner /etc/switchback/rack.toml)" \
    '640 root:switchback'
check 'its user may read it, and it is right' as switchback switchback config check \
    /etc/switchback/rack.toml
check 'its data is where units may write' inside grep -q '^data = "/var/lib/switchback"' \
    /etc/switchback/rack.toml
check 'systemd takes the units' inside systemd-analyze verify --man=no switchback.service \
    switchback-controller.service switchback-gateway.service switchback-node@0.service \
    switchback-switch@0.service
check 'nothing is started by itself' gone \
    /etc/systemd/system/multi-user.target.wants/switchback.service
check 'completions and man pages are there' there \
    /usr/share/bash-completion/completions/switchback \
    /usr/share/man/man1/switchback-ctl-status.1.gz /usr/share/doc/switchback/copyright
check 'a rack serves' serves
check 'its data is where it should be' there /var/lib/switchback/controller

sed -i 's/^name = "rack" /name = "mine" /' "$root/etc/switchback/rack.toml"
inside chmod 600 /etc/switchback/rack.toml && inside chown switchback /etc/switchback/rack.toml
check 'it is upgraded' apt install "/root/${second##*/}"
check '... to the newer one' equal "$(inside dpkg-query -W -f '${Version}' switchback)" \
    "$(dpkg-deb -f "$second" Version)"
check '... and what was changed in rack.toml stays' equal \
    "$(inside sed -n 's/^name = "\([a-z]*\)" .*/\1/p' /etc/switchback/rack.toml)" mine
check '... and who may read it' equal "$(owner /etc/switchback/rack.toml)" \
    '600 switchback:switchback'
check '... and it serves what was there' serves

check 'it is removed' apt remove switchback
check '... the program' gone /usr/bin/switchback /lib/systemd/system/switchback.service \
    /usr/share/man/man1/switchback.1.gz
check '... but neither data nor rack.toml' there /var/lib/switchback/controller \
    /etc/switchback/rack.toml
check 'it is purged' apt purge switchback
check '... with data and rack.toml' gone /var/lib/switchback /etc/switchback
check '... and nothing of it is left' equal \
    "$(inside find / -xdev -iname '*switchback*' \
        -not -path '/root/*' -not -path '/proc/*' -not -path '/dev/*')" ''
check 'it is installed again' apt install "/root/${first##*/}"
check '... and serves' serves
check 'lintian is content' lintian --fail-on error,warning "$first"
[ "$failures" = 0 ]
