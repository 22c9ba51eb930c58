#!/usr/bin/env bash
# go-redis: run.sh HOST PORT
set -euo pipefail
cd "$(dirname "$0")"
# Go 1.21 or newer gets the toolchain that go.mod asks for, where a distribution has not turned that
# off.
export GOTOOLCHAIN=${GOTOOLCHAIN:-auto}
build=${BUILD_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/switchback-examples}/go
mkdir -p "$build"
go build -o "$build/smoke" .
exec "$build/smoke" "$@"
