#!/usr/bin/env bash
# Backups of a rack that is written to, and what is restored from them, both with a kill -9 in the
# midst.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=../lacks.sh
. tests/lacks.sh
needs python3
exec python3 tests/e2e/backup.py
