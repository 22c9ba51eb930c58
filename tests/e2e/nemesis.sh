#!/usr/bin/env bash
# Racks of real processes in network namespaces of their own, killed, paused and partitioned under
# load; what their clients saw is checked. As root. NEMESIS_SECONDS says for how long each (30),
# NEMESIS_SHAPES which of nemesis.py's racks (all), NEMESIS_SEED which faults (any).
set -euo pipefail
# shellcheck source=../lacks.sh
. "$(dirname "$0")/../lacks.sh"
needs python3 namespaces
# All of it lives in namespaces of this one command: networks, mounts and processes end with it,
# however it ends.
alone=(unshare --net --mount --pid --fork --kill-child --mount-proc)
failures=0
for shape in ${NEMESIS_SHAPES:-farreach distreach replicas}; do
    "${alone[@]}" python3 "$(dirname "$0")/nemesis.py" "$shape" || failures=$((failures + 1))
done
[ "$failures" = 0 ]
