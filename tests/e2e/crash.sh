#!/usr/bin/env bash
# kill -9 of each process under load, checked record by record.
set -euo pipefail
command -v python3 >/dev/null || { echo "skipped: python3 is missing (apt-get install python3)"; exit 77; }
exec python3 "$(dirname "$0")/crash.py"
