#!/usr/bin/env bash
# What learning must not break, with real processes: a pass over all keys, and keys that are new at
# each request.
set -euo pipefail
# shellcheck source=../lacks.sh
. "$(dirname "$0")/../lacks.sh"
needs python3
exec python3 "$(dirname "$0")/learning.py"
