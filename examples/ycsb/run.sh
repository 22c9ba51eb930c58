#!/usr/bin/env bash
# The original YCSB against HOST PORT: loads, runs workload A, and checks every value that is read.
#   RECORDS=1000 OPERATIONS=10000 THREADS=8 run.sh HOST PORT [-p property=value ...]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
host=$1 port=$2
shift 2
# shellcheck source=ycsb.sh
. "$here/ycsb.sh"

# A status other than OK, or a value other than the one that was written, is a failure.
checked() {
    local out
    out=$(ycsb "$@" 2>"$build/stderr") || { cat "$build/stderr" >&2; exit 1; }
    grep -E '^\[(OVERALL|READ|UPDATE|INSERT|VERIFY)\], (RunTime|Throughput|Operations|Average|99th|Return)' <<<"$out"
    if grep -E '^\[[A-Z-]*FAILED\]|Return=(ERROR|NOT_FOUND|UNEXPECTED_STATE)' <<<"$out"; then
        cat "$build/stderr" >&2
        exit 1
    fi
}

echo "== load"
checked -load "$@"
echo "== workload A"
out=$(checked -t "$@")
echo "$out"
grep -q '^\[VERIFY\], Return=OK' <<<"$out" || { echo "nothing was verified" >&2; exit 1; }
