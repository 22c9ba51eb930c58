#!/usr/bin/env bash
# Import from a redis-server that is written to, and export to one, both with kill -9 in the midst;
# both over TLS.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=../lacks.sh
. tests/lacks.sh
needs python3 openssl
exec python3 tests/e2e/migrate.py
