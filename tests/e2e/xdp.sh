#!/usr/bin/env bash
# A rack of real processes whose switch is the kernel: a gateway, nodes and a switch host in network namespaces. As root.
set -euo pipefail
skip() { echo "skipped: $*"; exit 77; }
[ "$(id -u)" = 0 ] || skip 'it needs root for network namespaces and BPF; run: sudo env "PATH=$PATH" tests/e2e/xdp.sh'
for command in python3 unshare ip; do
    command -v "$command" >/dev/null || skip "$command is missing (apt-get install python3 util-linux iproute2)"
done
# All of it lives in namespaces of this one command: networks, mounts and processes end with it, however it ends.
alone=(unshare --net --mount --pid --fork --kill-child --mount-proc)
"${alone[@]}" sh -c 'mount -t tmpfs tmpfs /run && ip netns add probe' 2>/dev/null ||
    skip 'namespaces may not be made here (in a container: docker run --privileged)'
"${alone[@]}" python3 "$(dirname "$0")/xdp.py" "$@"
