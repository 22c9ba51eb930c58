#!/usr/bin/env bash
# switchback demo: kills without a terminal and by key, nothing lost, and nothing left behind
# however it ends.
set -euo pipefail
# shellcheck source=../lacks.sh
. "$(dirname "$0")/../lacks.sh"
needs python3
exec python3 "$(dirname "$0")/demo.py"
