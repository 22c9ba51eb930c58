#!/usr/bin/env bash
# Directories that an older version wrote are opened, upgraded in place and right, wherever that is
# interrupted.
set -euo pipefail
# shellcheck source=../lacks.sh
. "$(dirname "$0")/../lacks.sh"
needs python3
exec python3 "$(dirname "$0")/upgrade.py"
