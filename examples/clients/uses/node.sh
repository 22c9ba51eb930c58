#!/usr/bin/env bash
# Everyday uses of Node libraries, each with its result: node.sh HOST PORT. They need Node 20.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${BUILD_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/switchback-examples}/uses-node
mkdir -p "$build"
if ! cmp -s "$here/package.json" "$build/installed"; then
    cp "$here/package.json" "$build/"
    (cd "$build" && npm install --silent --no-audit --no-fund --ignore-scripts)
    cp "$here/package.json" "$build/installed"
fi
# Node looks for libraries beside the program.
cp "$here/uses.mjs" "$build/"
exec node "$build/uses.mjs" "$@"
