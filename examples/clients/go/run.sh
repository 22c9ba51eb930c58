#!/usr/bin/env bash
# go-redis: run.sh HOST PORT
set -euo pipefail
cd "$(dirname "$0")"
build=${BUILD_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/switchback-examples}/go
mkdir -p "$build"
go build -o "$build/smoke" .
exec "$build/smoke" "$@"
