#!/usr/bin/env bash
# Libraries that use transactions and scripts, in an environment of its own: run.sh HOST PORT
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${BUILD_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/switchback-examples}/libraries
if ! cmp -s "$here/requirements.txt" "$build/installed"; then
    python3 -m venv "$build"
    "$build/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
    cp "$here/requirements.txt" "$build/installed"
fi
exec "$build/bin/python" "$here/libraries.py" "$@"
