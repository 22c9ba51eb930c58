#!/usr/bin/env bash
# Everyday uses of libraries (examples/clients/uses): which of the 28 work with each setting of
# `transactions`, and that none goes wrong without saying so. Those of Node libraries need a Node
# for them; the others don't.
set -uo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=checks.bash
. tests/e2e/checks.bash
# shellcheck source=../lacks.sh
. tests/lacks.sh
node=
if lacks node-20; then
    skip "$0: node" node-20
elif lacks npm; then
    skip "$0: node" npm
else
    node=yes
fi

work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null; rm -rf "$work"' EXIT
equal() { [ "$1" = "$2" ] || { echo "  '$1' is not '$2'"; return 1; }; }

# Starts a rack with a setting, and sets pid, host and port.
up() {
    printf '[rack]\nmetrics = "127.0.0.1:0"\n[nodes]\ncount = 2\n[gateway]\nresp = "127.0.0.1:0"\ntransactions = "%s"\n' \
        "$1" >"$work/rack.toml"
    # The redirection empties the file only once the background shell runs; until then it says that
    # the last rack is ready.
    rm -f "$work/out"
    "$program" up --config "$work/rack.toml" --data "$work/data" >"$work/out" 2>"$work/err" &
    pid=$!
    eventually grep -q '^ready' "$work/out"
    address=$(sed -n 's/^ready resp=\([^ ]*\) .*/\1/p' "$work/out")
    [ -n "$address" ] || { cat "$work/out" "$work/err"; exit 1; }
    host=${address%:*} port=${address##*:}
}
down() {
    kill "$pid"
    wait "$pid"
    pid=
}

names() { sed 's/: .*//' | LC_ALL=C sort | paste -sd ';'; }
# Runs the uses of a language's libraries, a number of them, of which these are refused with the
# setting that the rack has.
try() { # language, how many, setting, names
    local code
    "examples/clients/uses/$1.sh" "$host" "$port" >"$work/uses"
    code=$?
    cat "$work/uses"
    check "$1, $3: none goes wrong silently" equal "$code" 0
    check "$1, $3: $2 were tried" equal "$(wc -l <"$work/uses")" "$2"
    check "$1, $3: what is refused" equal "$(grep -v ': works$' "$work/uses" | names)" "$4"
}

several='aiocache;celery;django, set_many;django-redis, set_many;dogpile.cache;'
several+='limits, moving window;limits, sliding window;rq'
up refuse
try python 19 refuse "$several"
[ -z "$node" ] || try node 9 refuse 'bullmq;keyv, setMany, getMany, clear'
down
# Only lists, sets and streams are.
up batch
try python 19 batch 'celery;limits, moving window;rq'
[ -z "$node" ] || try node 9 batch bullmq
down
exit $((failures > 0))
