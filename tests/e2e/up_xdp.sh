#!/usr/bin/env bash
# `switchback up --datapath xdp`: racks whose switch is the kernel, on networks of their own;
# killed, two at a time. As root.
set -euo pipefail
# shellcheck source=../lacks.sh
. "$(dirname "$0")/../lacks.sh"
needs python3 redis-cli setpriv namespaces bpf
# A machine of this test's own, so that what is left behind on it can be told from what others do
# meanwhile.
alone=(unshare --net --mount --pid --fork --kill-child --mount-proc)
"${alone[@]}" python3 "$(dirname "$0")/up_xdp.py" "$@"
