#!/usr/bin/env bash
# The same commands to redis-server and to real racks: the replies must be the same bytes.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=../lacks.sh
. tests/lacks.sh
needs python3
needs redis-server
exec python3 tests/e2e/differential.py
