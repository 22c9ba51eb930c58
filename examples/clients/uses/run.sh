#!/usr/bin/env bash
# Everyday uses of Python and Node libraries, each with its result: run.sh HOST PORT. Exits non-zero if one of them goes
# wrong without saying so.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
"$here/../venv.sh" "$here" uses.py "$@"
python=$?
build=${BUILD_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/switchback-examples}/uses-node
mkdir -p "$build"
if ! cmp -s "$here/package.json" "$build/installed"; then
    cp "$here/package.json" "$build/"
    (cd "$build" && npm install --silent --no-audit --no-fund --ignore-scripts) || exit 1
    cp "$here/package.json" "$build/installed"
fi
# Node looks for libraries beside the program.
cp "$here/uses.mjs" "$build/"
node "$build/uses.mjs" "$@"
node=$?
exit $((python | node))
