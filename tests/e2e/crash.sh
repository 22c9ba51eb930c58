#!/usr/bin/env bash
# kill -9 of each process under load, checked record by record.
set -euo pipefail
# shellcheck source=../lacks.sh
. "$(dirname "$0")/../lacks.sh"
needs python3
exec python3 "$(dirname "$0")/crash.py"
