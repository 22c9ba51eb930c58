#!/usr/bin/env bash
# Whether the console's vendored files are those of the packages that package-lock.json names: npm
# takes a package only with the lock file's SHA-512. `vendored.sh update` copies them, after a
# change of package.json.
set -euo pipefail
cd "$(dirname "$0")/vendor"
packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT
cp package.json "$packages"
if [ "${1-}" != update ]; then cp package-lock.json "$packages"; fi
npm "$([ "${1-}" = update ] && echo install || echo ci)" --prefix "$packages" \
    --ignore-scripts --no-audit --no-fund --silent
from=$packages/node_modules

# Each file, and where it is in its package.
files="
preact.js  preact/dist/preact.mjs
htm.js     htm/dist/htm.mjs
uplot.js   uplot/dist/uPlot.iife.min.js
uplot.css  uplot/dist/uPlot.min.css
"
for name in htm preact uplot; do
    printf '== %s\n' "$name"
    cat "$from/$name/LICENSE"
    echo
done >"$packages/licenses.txt"
if [ "${1-}" = update ]; then
    while read -r file source; do [ -z "$file" ] || cp "$from/$source" "$file"; done <<<"$files"
    cp "$packages/licenses.txt" "$packages/package-lock.json" .
fi
failed=0
differs() {
    echo "crates/console/vendor/$1 is not what its package has: vendored.sh update, and read the change" >&2
    failed=1
}
while read -r file source; do
    [ -z "$file" ] || cmp -s "$file" "$from/$source" || differs "$file"
done <<<"$files"
cmp -s licenses.txt "$packages/licenses.txt" || differs licenses.txt
exit $failed
