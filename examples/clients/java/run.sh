#!/usr/bin/env bash
# Jedis: run.sh HOST PORT
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${BUILD_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/switchback-examples}/jedis
mkdir -p "$build"
mvn -q -B -f "$here/pom.xml" -DbuildDirectory="$build" package
exec java -cp "$build/classes:$build/lib/*" switchback.Smoke "$@"
