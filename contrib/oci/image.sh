#!/usr/bin/env bash
# Makes an OCI image of the program that was built, without pulling one: target/switchback.oci.tar.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=../../scripts/root.bash
. scripts/root.bash

usage() {
    cat <<'HELP'
Usage: contrib/oci/image.sh [full | small] [IMAGE.tar]       (full, target/switchback.oci.tar)

  full   a minimal Debian 12 (debootstrap, as root) with the program and what it needs: has a
         shell, and gets Debian's updates when it is made anew. The Kubernetes manifests need it.
  small  only the program and the libraries of this machine that it is linked with; no shell
HELP
}

fail() { printf '%s\n' "$@" >&2; exit 1; }

kind=full
case ${1:-full} in
full | small) kind=${1:-full} ;;
-h | --help) usage; exit ;;
*) usage >&2; exit 2 ;;
esac
target=${CARGO_TARGET_DIR:-target}
image=${2:-$target/switchback.oci.tar}
program=$target/release/switchback
[ -x "$program" ] || fail "no program at $program: run \`make build\` first"
version=$("$program" --version | cut -d' ' -f2)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root

# What every image has: the program, its user and its directory, which layout.py makes the user's.
furnish() {
    mkdir -p "$root"/{etc,tmp,usr/bin,var/lib/switchback}
    chmod 1777 "$root/tmp"
    strip -o "$root/usr/bin/switchback" "$program"
    echo 'switchback:x:10001:10001::/var/lib/switchback:/usr/sbin/nologin' >>"$root/etc/passwd"
    echo 'switchback:x:10001:' >>"$root/etc/group"
}

if [ "$kind" = full ]; then
    choose_system debian-12
    may_make_root || exit 77
    # With the libraries that the Debian package asks for.
    make_root "$root" libelf1,libstdc++6,zlib1g
    # This machine's way to the network, lists and caches of packages aren't part of an image.
    rm -rf "$root"/etc/{resolv.conf,hosts,machine-id,hostname} \
        "$root"/etc/apt/apt.conf.d/99this-machine \
        "$root"/usr/local/share/ca-certificates/* "$root"/var/{cache,log}/* \
        "$root"/var/lib/apt/lists/* \
        "$root"/usr/share/{doc,man,locale,info}/* "$root"/{dev,proc,sys,run}/*
    mkdir -p "$root"/var/cache/apt/archives/partial "$root"/var/lib/apt/lists/partial
else
    mkdir -p "$root"
    # Libraries, and the loader, where they are.
    while read -r library; do
        mkdir -p "$root${library%/*}"
        cp -L "$library" "$root$library"
    done < <(ldd "$program" | grep -o '/[^ ]*')
fi
furnish
contrib/oci/layout.py "$root" "$work/image.tar" switchback "$version"
mv "$work/image.tar" "$image"
size=$(du -h "$image" | cut -f1)
echo "$image ($size): podman load -i $image && podman run --rm switchback:$version --version"
