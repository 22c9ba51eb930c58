#!/usr/bin/env bash
# Runs every client's smoke test: run.sh HOST PORT
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
for client in python libraries go java; do
    "$here/$client/run.sh" "$@"
done
