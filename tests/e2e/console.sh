#!/usr/bin/env bash
# The web console: its vendored files are what the lock file names, and a browser sees, works and is
# told what is right.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../lacks.sh
. "$here/../lacks.sh"
needs python3
if lacks npm; then skip "$0: vendored files" npm; else "$here/../../crates/console/vendored.sh"; fi
needs chromium chromedriver
build=${BUILD_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/switchback-examples}/console
if ! cmp -s "$here/console.txt" "$build/installed"; then
    python3 -m venv "$build"
    # All of them are listed: what axe-playwright-python asks for beside its one file is a browser
    # of its own.
    "$build/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$here/console.txt"
    cp "$here/console.txt" "$build/installed"
fi
exec "$build/bin/python" "$here/console.py"
