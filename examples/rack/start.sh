#!/usr/bin/env bash
# Starts a rack of one process a part on this host, says how to talk to it, and stops it on Ctrl-C.
# Usage: start.sh [RACK_TOML]     SWITCHBACK=/path/to/switchback chooses the program. Ends with 1 if
# a record could not be brought to its node.
# NODE_CAPACITY=OPS caps each node at OPS requests a second, to play slower servers.
set -uo pipefail
# A process group for each part: Ctrl-C is for this script alone, which stops them in order.
set -m

here=$(cd "$(dirname "$0")" && pwd)
config=${1:-$here/rack.toml}
program=${SWITCHBACK:-$(command -v switchback || echo "$here/../../target/release/switchback")}
[ -x "$program" ] || {
    echo "no program at $program: run \`make build\` first, or set SWITCHBACK" >&2
    exit 1
}
"$program" config check "$config" >&2 || exit 1

# The controller's, where `ctl` asks: that of [rack], the first in the file.
metrics=$(sed -n 's/^metrics *= *"\([^"]*\)".*/\1/p' "$config" | head -1)
capacity=(${NODE_CAPACITY:+--capacity "$NODE_CAPACITY"})
logs=$(mktemp -d)
pids=()
names=()

# Ends one part and waits for it.
end() {
    kill -TERM "$1" 2>/dev/null && wait "$1" 2>/dev/null
}

# The gateway first, so that nothing new is cached; then every cached record goes to its node; the
# controller, which sees to that, last.
stop() {
    trap '' INT TERM
    echo "stopping" >&2
    local last=$((${#pids[@]} - 1)) drained=0
    if [ "$last" -ge 0 ]; then
        if [ "${names[$last]}" = gateway ]; then end "${pids[$last]}"; fi
        "$program" ctl drain --metrics "${metrics:-127.0.0.1:9464}" >&2 || drained=1
        for ((i = last; i >= 0; i--)); do end "${pids[$i]}"; done
    fi
    rm -rf "$logs"
    return $drained
}

# Starts a part: its name, then its arguments.
start() {
    local name=$1
    shift
    "$program" "$@" --config "$config" >"$logs/$name.out" 2>"$logs/$name.err" &
    pids+=($!)
    names+=("$name")
}

# Waits until a part says `ready`, or shows why it doesn't.
ready() {
    local name=${names[$1]} pid=${pids[$1]}
    for _ in $(seq 300); do
        grep -q '^ready' "$logs/$name.out" 2>/dev/null && return 0
        if ! kill -0 "$pid" 2>/dev/null; then
            echo "$name ended:" >&2
            cat "$logs/$name.err" >&2
            return 1
        fi
        sleep 0.1
    done
    echo "$name is not ready after 30 s:" >&2
    cat "$logs/$name.err" >&2
    return 1
}

trap 'stop; exit' INT TERM
switches=$(grep -c '^\[\[switch\]\]' "$config")
nodes=$(grep -c '^\[\[node\]\]' "$config")
start controller controller
for ((n = 0; n < nodes; n++)); do start "node-$n" node --index "$n" "${capacity[@]}"; done
for ((s = 0; s < switches; s++)); do start "switch-$s" switch --index "$s"; done
start gateway gateway
for ((i = 0; i < ${#pids[@]}; i++)); do ready "$i" || { stop; exit 1; }; done

cat "$logs/gateway.out"
for ((i = 0; i < ${#pids[@]}; i++)); do
    printf '  %-12s pid %s\n' "${names[$i]}" "${pids[$i]}" >&2
done
resp=$(sed -n 's/^ready resp=\([^ ]*\).*/\1/p' "$logs/gateway.out")
cat >&2 <<HELP
Try, in another terminal:
  redis-cli -h ${resp%:*} -p ${resp##*:} set greeting hello
  $program ctl status${metrics:+ --metrics $metrics}
  kill -9 the pid of the switch that serves: the other takes over, and nothing is lost
Ctrl-C stops everything.
HELP

# Until Ctrl-C; a part that dies is reported, and the rack goes on without it.
while :; do
    wait -n -p ended "${pids[@]}" 2>/dev/null
    code=$?
    [ -n "${ended:-}" ] || break
    for ((i = 0; i < ${#pids[@]}; i++)); do
        if [ "${pids[$i]}" = "$ended" ]; then
            echo "${names[$i]} ended with $code:" >&2
            cat "$logs/${names[$i]}.err" >&2
            unset "pids[$i]" "names[$i]"
        fi
    done
    pids=("${pids[@]}") names=("${names[@]}")
    [ ${#pids[@]} -gt 0 ] || break
done
