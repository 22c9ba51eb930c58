#!/usr/bin/env bash
# The OCI image, of the small kind: that it is what the specification says, always the same, and
# runs. (make image makes the full one.)
set -euo pipefail
# shellcheck source=../lacks.sh
. "$(dirname "$0")/../lacks.sh"
needs python3
! lacks podman || skip "$0: a container" podman
exec python3 "$(dirname "$0")/image.py"
