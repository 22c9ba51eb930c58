#!/usr/bin/env bash
# Several gateways on one key are safe.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=../lacks.sh
. tests/lacks.sh
needs python3
exec python3 tests/e2e/gateways.py
