#!/usr/bin/env bash
# A rack of real processes whose switch is the kernel: a gateway, nodes and a switch host in network
# namespaces. As root.
set -euo pipefail
# shellcheck source=../lacks.sh
. "$(dirname "$0")/../lacks.sh"
needs python3 namespaces bpf
# All of it lives in namespaces of this one command: networks, mounts and processes end with it,
# however it ends.
alone=(unshare --net --mount --pid --fork --kill-child --mount-proc)
"${alone[@]}" python3 "$(dirname "$0")/xdp.py" "$@"
