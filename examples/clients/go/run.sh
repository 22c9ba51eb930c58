#!/usr/bin/env bash
# go-redis: run.sh HOST PORT
set -euo pipefail
cd "$(dirname "$0")"
# Since 1.21 go gets the toolchain that go.mod asks for.
if ! command -v go >/dev/null || [[ $(go env GOVERSION) =~ ^go1\.(1?[0-9]|20)(\.|$) ]]; then
    echo "it needs Go 1.21 or newer (https://go.dev/dl)"
    exit 77
fi
build=${BUILD_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/switchback-examples}/go
mkdir -p "$build"
go build -o "$build/smoke" .
exec "$build/smoke" "$@"
