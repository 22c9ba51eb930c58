#!/usr/bin/env bash
# What the Debian package is made from: that all of it is there, and fits. (make deb ARGS=test
# installs it.)
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
# shellcheck source=checks.bash
. tests/e2e/checks.bash
staged=${CARGO_TARGET_DIR:-target}/release/deb
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Files that the package takes, and those that are staged for it.
taken() {
    python3 - "${CARGO_TARGET_DIR:-target}" <<'PYTHON'
import glob, os, sys, tomllib
package = tomllib.load(open("crates/cli/Cargo.toml", "rb"))["package"]["metadata"]["deb"]
target = sys.argv[1] + "/"
for pattern, _, _ in package["assets"] + [[package["changelog"].removeprefix("../../"), "", ""]]:
    is_built = pattern.startswith("target/")
    pattern = target + pattern[7:] if is_built else os.path.join("crates/cli", pattern)
    found = glob.glob(pattern)
    print("\n".join(map(os.path.normpath, found)) or f"nothing is {pattern}")
PYTHON
}
equal() { [ "$1" = "$2" ] || { echo "  '$1' is not '$2'"; return 1; }; }
is_in() { grep -qx -- "$1" "$2"; }

check 'it is staged' scripts/deb.sh stage
taken | sort >"$work/taken"
check 'all that the package takes is there' equal "$(grep '^nothing is' "$work/taken")" ''
find "$staged" -type f | sort >"$work/staged"
check 'and all that is staged is taken' equal "$(comm -23 "$work/staged" "$work/taken")" ''
for unit in examples/systemd/*.service; do
    check "${unit##*/} is in it" is_in "$staged/units/${unit##*/}" "$work/taken"
done
check 'units run the program where the package has it' \
    equal "$(sed -n 's/^ExecStart\(Pre\)\?=\([^ ]*\) .*/\2/p' "$staged"/units/*.service | sort -u)" \
    /usr/bin/switchback
check 'and else only what every system has' \
    equal "$(sed -n 's/^Exec\(Reload\|Stop\)=\([^ ]*\) .*/\2/p' "$staged"/units/*.service | sort -u)" \
    /bin/sh
check 'and as the user that it makes' \
    equal "$(sed -n 's/^User=//p' "$staged"/units/*.service | sort -u)" \
    "$(sed -n 's/.*--gecos .* \([a-z]*\)$/\1/p' contrib/deb/postinst)"
check 'its rack.toml is right' "$program" config check "$staged/rack.toml"
check 'its data is where units may write' \
    equal "$(sed -n 's/^data = "\([^"]*\)".*/\1/p' "$staged/rack.toml")" \
    "/var/lib/$(sed -n 's/^StateDirectory=//p' "$staged/units/switchback.service")"
for script in contrib/deb/postinst contrib/deb/prerm contrib/deb/postrm; do
    check "$script can be read by sh" sh -n "$script"
done
# Who has the copyright of the vendored files, as their licenses say, and not in the package's.
unnamed() {
    sed -n 's/^ *Copyright \((c) \)\?\([0-9].*\)/\2/p' crates/console/vendor/licenses.txt |
        grep -vxFf <(sed -n 's/^Copyright: //p' contrib/deb/copyright)
}
check 'its copyright names those who have it of the vendored files' equal "$(unnamed)" ''
check 'completions can be read by bash' bash -n "$staged/completions/switchback"
[ "$failures" = 0 ]
