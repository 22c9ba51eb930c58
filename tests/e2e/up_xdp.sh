#!/usr/bin/env bash
# `switchback up --datapath xdp`: racks whose switch is the kernel, on networks of their own; killed, two at a time. As root.
set -euo pipefail
skip() { echo "skipped: $*"; exit 77; }
[ "$(id -u)" = 0 ] || skip 'it needs root for network namespaces and BPF; run: sudo env "PATH=$PATH" tests/e2e/up_xdp.sh'
for command in python3 unshare ip redis-cli setpriv; do
    command -v "$command" >/dev/null || skip "$command is missing (apt-get install python3 util-linux iproute2 redis-tools)"
done
# A machine of this test's own, so that what is left behind on it can be told from what others do meanwhile.
alone=(unshare --net --mount --pid --fork --kill-child --mount-proc)
"${alone[@]}" unshare --net true 2>/dev/null || skip 'namespaces may not be made here (in a container: docker run --privileged)'
"${alone[@]}" python3 "$(dirname "$0")/up_xdp.py" "$@"
