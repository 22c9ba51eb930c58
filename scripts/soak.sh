#!/usr/bin/env bash
# Runs the simulator over seed after seed, each with another rack, other faults and another load. A violation prints what was promised,
# how it was broken, and the command that repeats it. SECONDS_MAX=600 ends it after ten minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --quiet --bin switchback
binary="${CARGO_TARGET_DIR:-target}/release/switchback"
first=$(($(date +%s) * 1000)) # seeds that nobody has run yet
minutes=$(awk -v seconds="${SECONDS_MAX:-86400}" 'BEGIN { print seconds / 60 }')
echo "from seed $first on, for $minutes minutes"
exec "$binary" sim --from "$first" --minutes "$minutes"
