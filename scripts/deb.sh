#!/usr/bin/env bash
# Makes a Debian package of the program that was built: target/debian/switchback_*.deb.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'HELP'
Usage: scripts/deb.sh [stage | build [REVISION] | test]        (build)

  stage   puts what the package holds beside the program into target/release/deb: units, man pages,
          completions
  build   the same, and makes the package with cargo-deb; REVISION is Debian's (1)
  test    builds two revisions, and installs, upgrades, removes and purges them in a clean Debian
          12; runs lintian. It needs root, debootstrap and lintian.

MIRROR=URL is the archive that the clean system is made from, instead of deb.debian.org.
HELP
}

fail() { printf '%s\n' "$@" >&2; exit 1; }

target=${CARGO_TARGET_DIR:-target}
program=$target/release/switchback staged=$target/release/deb

stage() {
    [ -x "$program" ] || fail "no program at $program: run \`make build\` first"
    rm -rf "$staged"
    mkdir -p "$staged"/{units,man,completions}
    # In a package it is where the distribution's programs are.
    for unit in examples/systemd/*.service; do
        sed 's|/usr/local/bin/|/usr/bin/|' "$unit" >"$staged/units/${unit##*/}"
    done
    "$program" man "$staged/man"
    gzip --best --no-name "$staged"/man/*.1
    "$program" completions bash >"$staged/completions/switchback"
    "$program" completions fish >"$staged/completions/switchback.fish"
    "$program" completions zsh >"$staged/completions/_switchback"
    # Every setting with its default; the data where the units look.
    "$program" config example |
        sed 's|^data = "switchback-data"     #|data = "/var/lib/switchback"  #|; s|"switchback-data/|"/var/lib/switchback/|' \
            >"$staged/rack.toml"
    grep -q '^data = "/var/lib/switchback"' "$staged/rack.toml" ||
        fail "the example of rack.toml names no data to move"
    gzip --best --no-name --stdout CHANGELOG.md >"$staged/changelog.gz"
    # Debian's own form of it.
    cat >"$staged/changelog.Debian" <<CHANGELOG
switchback ($(version)-$revision) unstable; urgency=medium

  * What changed is in changelog.gz beside this file.

 -- The Switchback authors <switchback@localhost>  $(git log -1 --format=%cD 2>/dev/null || date -R)
CHANGELOG
}

version() { sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml; }

build() {
    command -v cargo-deb >/dev/null || fail "cargo-deb is missing: cargo install --locked cargo-deb"
    command -v dpkg-shlibdeps >/dev/null ||
        fail "dpkg-shlibdeps is missing: apt-get install dpkg-dev"
    stage
    cargo deb --no-build --strip --quiet --package switchback --deb-revision "$revision"
}

revision=1
case ${1:-build} in
stage) stage ;;
build) revision=${2:-1}; build ;;
test) exec scripts/deb_test.sh ;;
-h | --help) usage ;;
*) usage >&2; exit 2 ;;
esac
