#!/usr/bin/env bash
# The Kubernetes manifests: valid, with a right rack.toml, and a rack that serves if its pods run as
# they say.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../lacks.sh
. "$here/../lacks.sh"
needs python3 redis-cli
build=${BUILD_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/switchback-examples}/kubernetes
if ! cmp -s "$here/kubernetes.txt" "$build/installed"; then
    python3 -m venv "$build"
    "$build/bin/pip" install --quiet --disable-pip-version-check -r "$here/kubernetes.txt"
    cp "$here/kubernetes.txt" "$build/installed"
fi
exec "$build/bin/python" "$here/kubernetes.py"
