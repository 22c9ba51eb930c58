#!/usr/bin/env bash
# Measurements on racks of processes: every read checked, the switch killed, and nothing left
# behind, not even by kill -9.
set -uo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=checks.bash
. tests/e2e/checks.bash
work=$(mktemp -d)
bench=
cleanup() {
    [ -z "$bench" ] || kill -9 "$bench" 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT

json() {
    python3 -c '
import json, sys
run = json.load(open(sys.argv[1]))["runs"][0]
sys.exit(not eval(sys.argv[2], {"run": run}))' "$work/json" "$1"
}
# How many parts of racks in the directory there are.
parts() {
    local count=0 file arguments
    for file in /proc/[0-9]*/cmdline; do
        # A process may end while it is looked at.
        { mapfile -d '' -t arguments <"$file"; } 2>/dev/null || continue
        case ${arguments[*]-} in
        "$program "[sn]*" --config $work/data/switchback-bench-"*/rack.toml*)
            count=$((count + 1))
            ;;
        esac
    done
    echo $count
}
none() { [ "$(parts)" = 0 ]; }
all() { [ "$(parts)" = 5 ]; }
empty() { [ -z "$(ls -A "$work/data")" ]; }

options=(--links processes --schemes farreach --nodes 4 --node-capacity 2000 --records 5000
    --cache-records 500 --preload --workload a --data "$work/data")
run() { "$program" bench "${options[@]}" "$@" >"$work/out" 2>"$work/err"; }
check 'a run' run --warmup 0.5 --seconds 5 --verify --json "$work/json"
check 'every value read was right' json 'run["mismatches"] == 0 and run["verified"] > 1000'
check 'the cache answered, and every node' json \
    'run["hit_ratio"] > 0.3 and len(run["node_ops"]) == 4 and min(run["node_ops"]) > 0'
check 'it was full before' json \
    'not any("were cached before" in objection for objection in run["objections"])'
check 'its directory is gone' empty
check 'its processes have ended' none

for signal in INT KILL; do
    # A shell without job control lets background processes ignore Ctrl-C.
    env --default-signal=INT "$program" bench "${options[@]}" --seconds 60 \
        >"$work/out" 2>"$work/err" &
    bench=$!
    check 'a switch and four nodes are processes' eventually all
    kill -"$signal" "$bench"
    wait "$bench" 2>/dev/null
    bench=
    check "they end with a bench that gets SIG$signal" eventually none
    check 'and so does what they stored' eventually empty
done

"$program" lab experiment 9 --measured --quick --out "$work/results" >"$work/out" 2>"$work/err"
check 'a switch that is killed is recovered from' \
    grep -q 'in all, ms: modelled [0-9.]*, measured [0-9.]*[1-9]' "$work/out"
[ "$failures" = 0 ]
