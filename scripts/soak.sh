#!/usr/bin/env bash
# Runs the simulator over seed after seed, each with another rack, other faults and another load,
# and with every scheme. A violation prints what was promised, how it was broken, and the command
# that repeats it.
#   SECONDS_MAX=600 make soak          ends after ten minutes
#   SEEDS=20000 make soak              these seeds, from FIRST (0) on: of four schemes 80,000 runs;
#                                      goes on after a violation, and counts
#   ARGS='--scheme farreach' ...       goes to the simulator
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --quiet -p switchback-sim
binary="${CARGO_TARGET_DIR:-target}/release/switchback-sim"
read -ra more <<< "${ARGS:-}"
echo "commit $(git describe --always --dirty 2> /dev/null || echo unknown)"
if [ -n "${SEEDS:-}" ]; then
    first="${FIRST:-0}"
    echo "seeds $first to $((first + SEEDS - 1))"
    exec "$binary" --seeds "$first..$((first + SEEDS))" --keep-going "${more[@]}"
fi
first=$(($(date +%s) * 1000)) # seeds that were never run
minutes=$(awk -v seconds="${SECONDS_MAX:-86400}" 'BEGIN { print seconds / 60 }')
echo "from seed $first on, for $minutes minutes"
exec "$binary" --from "$first" --minutes "$minutes" "${more[@]}"
