#!/usr/bin/env bash
# Hostile peers on the ports of real processes: they cost bounded memory and no service.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=../lacks.sh
. tests/lacks.sh
needs python3
without=()
leave_out() { # a part, what is lacking
    skip "$0: $1" "$2"
    without+=(--without "$1")
}
if lacks net-raw; then leave_out fragments net-raw; fi
if lacks open-files; then leave_out connections open-files; fi
exec python3 tests/e2e/hostile.py ${without[@]+"${without[@]}"}
