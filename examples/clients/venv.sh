#!/usr/bin/env bash
# A program in an environment of its own with what it requires: venv.sh DIRECTORY PROGRAM HOST PORT
set -euo pipefail
here=$(cd "$1" && pwd)
build=${BUILD_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/switchback-examples}/$(basename "$here")
if ! cmp -s "$here/requirements.txt" "$build/installed"; then
    python3 -m venv "$build"
    "$build/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
    cp "$here/requirements.txt" "$build/installed"
fi
exec "$build/bin/python" "$here/$2" "${@:3}"
