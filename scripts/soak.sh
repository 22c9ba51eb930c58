#!/usr/bin/env bash
# Runs the simulator over seed after seed, each with another rack, other faults and another load. Any failure prints the seed that
# repeats it. SECONDS_MAX=600 ends it after ten minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

end=$((SECONDS + ${SECONDS_MAX:-86400}))
round=0
while [ "$SECONDS" -lt "$end" ]; do
    round=$((round + 1))
    echo "== round $round"
    PROPTEST_CASES="${PROPTEST_CASES:-2000}" \
        cargo test --release --quiet -p switchback-sim -p switchback-core -p switchback-wire -p switchback-datapath
done
