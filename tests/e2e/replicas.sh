#!/usr/bin/env bash
# Nodes of real processes are killed, with their directories, while clients write.
set -euo pipefail
# shellcheck source=../lacks.sh
. "$(dirname "$0")/../lacks.sh"
needs python3
exec python3 "$(dirname "$0")/replicas.py"
