#!/usr/bin/env bash
# A rack of real processes in network namespaces of its own, killed, paused and partitioned under load; what its clients saw is checked.
# As root. NEMESIS_SECONDS says for how long (30), NEMESIS_SEED which faults (any).
set -euo pipefail
# shellcheck source=../lacks.sh
. "$(dirname "$0")/../lacks.sh"
needs python3 namespaces
# All of it lives in namespaces of this one command: networks, mounts and processes end with it, however it ends.
alone=(unshare --net --mount --pid --fork --kill-child --mount-proc)
"${alone[@]}" python3 "$(dirname "$0")/nemesis.py"
