#!/usr/bin/env bash
# The original YCSB against HOST PORT: loads, runs workload A, and checks every value that is read.
# With PHASE=read it reads each record of an earlier run once, and checks it.
#   RECORDS=1000 OPERATIONS=10000 THREADS=8 PHASE=all|read run.sh HOST PORT [-p property=value ...]
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

# Runs a phase; at least the first argument's number of reads must have been verified.
verified() {
    local least=$1 out found
    shift
    out=$(checked "$@")
    echo "$out"
    found=$(sed -n 's/^\[VERIFY\], Return=OK, //p' <<<"$out")
    [ "${found:-0}" -ge "$least" ] ||
        { echo "${found:-0} values were verified, $least should have been" >&2; exit 1; }
}

if [ "${PHASE:-all}" = all ]; then
    echo "== load"
    checked -load "$@"
    echo "== workload A"
    verified 1 -t "$@"
else
    echo "== every record, once"
    export OPERATIONS=${RECORDS:-1000} THREADS=1
    verified "$OPERATIONS" -t -p readproportion=1 -p updateproportion=0 \
        -p requestdistribution=sequential "$@"
fi
