#!/usr/bin/env bash
# Spines and leaves of real processes are killed while clients read what they wrote.
set -euo pipefail
# shellcheck source=../lacks.sh
. "$(dirname "$0")/../lacks.sh"
needs python3
exec python3 "$(dirname "$0")/copies.py"
