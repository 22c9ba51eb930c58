#!/usr/bin/env bash
# Real Redis clients against an embedded rack: redis-cli, redis-benchmark, redis-py, go-redis,
# Jedis, and the original YCSB.
set -uo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=checks.bash
. tests/e2e/checks.bash
. tests/lacks.sh
needs redis-cli
directory=$(mktemp -d)
trap 'kill "$rack" 2>/dev/null; wait "$rack" 2>/dev/null; rm -rf "$directory"' EXIT
# Starts a rack, and sets rack, host, port, metrics.
up() {
    : >"$directory/ready"
    "$program" up --data "$directory/data" --resp 127.0.0.1:0 --metrics 127.0.0.1:0 "$@" \
        >"$directory/ready" 2>"$directory/log" &
    rack=$!
    eventually test -s "$directory/ready"
    address=$(sed -n 's/^ready resp=\([^ ]*\) .*/\1/p' "$directory/ready")
    metrics=$(sed -n 's/^ready .* metrics=//p' "$directory/ready")
    [ -n "$address" ] || { echo "the rack doesn't start:"; cat "$directory/log"; exit 1; }
    host=${address%:*} port=${address##*:}
}
up --sync none
passed=0 failed=0
check() {
    local name=$1 code
    shift
    "$@" >"$directory/out" 2>&1 </dev/null
    code=$?
    case $code in
    0) passed=$((passed + 1)); echo "ok      $name" ;;
    *) failed=$((failed + 1)); echo "FAILED  $name (exit code $code)"; tail -20 "$directory/out" ;;
    esac
}
round_trip() {
    [ "$(redis-cli -p "$port" set greeting hello)" = OK ] &&
        [ "$(redis-cli -p "$port" get greeting)" = hello ] &&
        [ "$(redis-cli -3 -p "$port" incrby counter 5)" = 5 ] &&
        redis-cli -p "$port" hset h f v | grep -q 'not supported'
}
scan() {
    redis-cli -p "$port" flushall &&
        for key in $(seq 300); do echo "set scanned:$key 1"; done |
        redis-cli -p "$port" >/dev/null &&
        [ "$(redis-cli -p "$port" --scan | sort -u | wc -l)" = 300 ] &&
        [ "$(redis-cli -p "$port" dbsize)" = 300 ]
}
bench() {
    redis-benchmark -p "$port" -q -n 100000 -P 16 -c 50 -d 128 -r 1000 -t ping,set,get,incr,mset |
        tr '\r' '\n' | grep -c 'requests per second'
}
check 'redis-cli' round_trip
check 'redis-cli --scan, DBSIZE, FLUSHALL' scan
check 'redis-benchmark' bench
for client in python libraries go java; do
    if [ "$client" = go ] && lacks go-1.21; then skip "$0: $client" go-1.21; continue; fi
    redis-cli -p "$port" flushall >/dev/null
    check "$client" "examples/clients/$client/run.sh" "$host" "$port"
done
redis-cli -p "$port" flushall >/dev/null

# YCSB A: taken by the cache, stored by RocksDB at the end, and every record is read back from
# there.
sum() {
    curl -s "http://$metrics/metrics" |
        awk -v name="^$1" '$0 ~ name { sum += $2 } END { print sum + 0 }'
}
absorbed() {
    local before after
    before=$(sum switchback_absorbed_writes_total)
    OPERATIONS=60000 examples/ycsb/run.sh "$host" "$port" || return
    after=$(sum switchback_absorbed_writes_total)
    echo "$((after - before)) writes were absorbed"
    [ "$((after - before))" -ge 1000 ]
}
stored() {
    kill "$rack" && wait "$rack" || return
    up --cache-records 16
    PHASE=read examples/ycsb/run.sh "$host" "$port" && [ "$(redis-cli -p "$port" dbsize)" = 1000 ]
}
# Clients that are made for Redis Cluster, with a gateway that passes for one.
cluster() {
    kill "$rack" && wait "$rack" || return
    printf '[gateway]\ncluster = "emulated"\n' >"$directory/cluster.toml"
    up --config "$directory/cluster.toml" --sync none || return
    [ "$(redis-cli -c -p "$port" set greeting hello)" = OK ] &&
        redis-cli --cluster check "$host:$port" | grep -q 'All 16384 slots covered' &&
        examples/clients/venv.sh examples/clients/python cluster.py "$host" "$port"
}
check 'redis-cli -c and RedisCluster of redis-py' cluster
redis-cli -p "$port" flushall >/dev/null
kill "$rack" && wait "$rack"
up --sync none
check 'YCSB A, absorbed by the cache' absorbed
check 'YCSB A, every record read back after a restart' stored
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
