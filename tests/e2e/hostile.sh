#!/usr/bin/env bash
# Hostile peers on the ports of real processes: they cost bounded memory and no service.
set -euo pipefail
command -v python3 >/dev/null || { echo "skipped: python3 is missing (apt-get install python3)"; exit 77; }
exec python3 "$(dirname "$0")/hostile.py"
