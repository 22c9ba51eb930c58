#!/usr/bin/env bash
# Everyday uses of Python libraries, each with its result: python.sh HOST PORT
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/../venv.sh" "$here" uses.py "$@"
