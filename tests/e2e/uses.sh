#!/usr/bin/env bash
# Everyday uses of libraries (examples/clients/uses): which of the 28 work with each setting of `transactions`, and that
# none goes wrong without saying so.
set -uo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=checks.bash
. tests/e2e/checks.bash
# shellcheck source=../lacks.sh
. tests/lacks.sh
needs node-20 npm

work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null; rm -rf "$work"' EXIT
equal() { [ "$1" = "$2" ] || { echo "  '$1' is not '$2'"; return 1; }; }

# Runs all uses with a setting; prints those that don't work.
uses() {
    printf '[rack]\nmetrics = "127.0.0.1:0"\n[nodes]\ncount = 2\n[gateway]\nresp = "127.0.0.1:0"\ntransactions = "%s"\n' \
        "$1" >"$work/rack.toml"
    # The redirection empties the file only once the background shell runs; until then it says that the last rack is ready.
    rm -f "$work/out"
    "$program" up --config "$work/rack.toml" --data "$work/data" >"$work/out" 2>"$work/err" &
    pid=$!
    eventually grep -q '^ready' "$work/out"
    address=$(sed -n 's/^ready resp=\([^ ]*\) .*/\1/p' "$work/out")
    [ -n "$address" ] || { cat "$work/out" "$work/err"; exit 1; }
    examples/clients/uses/run.sh "${address%:*}" "${address##*:}" >"$work/$1" 2>"$work/$1.err"
    code=$?
    kill "$pid"
    wait "$pid"
    pid=
    cat "$work/$1"
}
failing() { grep -v ': works$' "$work/$1" | sed 's/: .*//' | LC_ALL=C sort | paste -sd ';'; }

lists='bullmq;celery;limits, moving window;rq'
several='aiocache;bullmq;celery;django, set_many;django-redis, set_many;dogpile.cache;'
several+='keyv, setMany, getMany, clear;limits, moving window;limits, sliding window;rq'
uses refuse
check 'refuse: none goes wrong silently' equal "$code" 0
check 'refuse: 28 were tried' equal "$(wc -l <"$work/refuse")" 28
check 'refuse: what is refused' equal "$(failing refuse)" "$several"
uses batch
check 'batch: none goes wrong silently' equal "$code" 0
check 'batch: 28 were tried' equal "$(wc -l <"$work/batch")" 28
check 'batch: only lists, sets and streams are refused' equal "$(failing batch)" "$lists"
exit $((failures > 0))
