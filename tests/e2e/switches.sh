#!/usr/bin/env bash
# Switches of real processes are taken out of service, and back, while clients write.
set -euo pipefail
# shellcheck source=../lacks.sh
. "$(dirname "$0")/../lacks.sh"
needs python3
exec python3 "$(dirname "$0")/switches.py"
