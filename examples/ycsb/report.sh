#!/usr/bin/env bash
# The original YCSB on racks of processes with capped RocksDB nodes: schemes in turn, workloads A,
# B, C, F and D, beside our own generator with the same workload, capacity and number of requests
# under way. Writes ycsb.csv and ycsb.md to a directory.
#   NODES=4 CAPACITY=500 RECORDS=20000 CACHE=1000 THREADS=32 SECONDS_EACH=20 report.sh [OUT]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
for tool in java mvn; do
    command -v "$tool" >/dev/null || {
        echo "skipped: $tool is missing (apt-get install openjdk-17-jdk-headless maven)"
        exit 77
    }
done
program=${SWITCHBACK:-$(command -v switchback || echo "$here/../../target/release/switchback")}
[ -x "$program" ] || {
    echo "no program at $program: run \`make build\` first, or set SWITCHBACK" >&2
    exit 1
}
out=${1:-ycsb-report}
nodes=${NODES:-4} capacity=${CAPACITY:-500} cache=${CACHE:-1000}
seconds=${SECONDS_EACH:-20} warm_up=${WARM_UP:-20}
export RECORDS=${RECORDS:-20000} THREADS=${THREADS:-32} OPERATIONS=100000000
export SWITCHBACK=$program NODE_CAPACITY=$capacity
# shellcheck source=ycsb.sh
. "$here/ycsb.sh" || { echo "skipped: maven can't get YCSB (no network?)"; exit 77; }
mkdir -p "$out"
work=$(mktemp -d)
rack=
stop() {
    if [ -n "$rack" ]; then kill -TERM "$rack" 2>/dev/null && wait "$rack" 2>/dev/null || true; fi
    rack=
}
trap 'stop; rm -rf "$work"' EXIT

# A record is one field of 114 B, under its name and their lengths: 128 B. An update is one SET.
shape=(-p fieldcount=1 -p fieldlength=114 -p writeallfields=true)
proportions() {
    case $1 in
    a) echo "-p readproportion=0.5 -p updateproportion=0.5" ;;
    b) echo "-p readproportion=0.95 -p updateproportion=0.05" ;;
    c) echo "-p readproportion=1 -p updateproportion=0" ;;
    d)
        echo "-p readproportion=0.95 -p updateproportion=0 -p insertproportion=0.05" \
            "-p requestdistribution=latest"
        ;;
    f) echo "-p readproportion=0.5 -p updateproportion=0 -p readmodifywriteproportion=0.5" ;;
    esac
}

# A file for a rack on ports that are probably free, outside of the range that sockets without a
# port take theirs from.
describe() {
    local base=$((10000 + RANDOM % 20000))
    {
        printf '[rack]\nscheme = "%s"\ndata = "%s"\n' "$1" "$work/data"
        printf 'metrics = "127.0.0.1:%s"\nswitch_timeout_ms = 5000\n' "$base"
        printf '[cache]\nrecords = %s\nclasses = [[128, %s]]\n' "$cache" "$cache"
        printf '[controller]\nlisten = "127.0.0.1:%s"\n' $((base + 1))
        printf '[gateway]\nresp = "127.0.0.1:%s"\ndurability = "memory"\n' $((base + 2))
        printf '[nodes]\nblock_cache_mb = 64\nmemtable_mb = 32\n'
        printf '[[switch]]\naddress = "127.0.0.1:%s"\n' $((base + 3))
        for ((n = 0; n < nodes; n++)); do
            printf '[[node]]\naddress = "127.0.0.1:%s"\n' $((base + 4 + n))
        done
    } >"$work/rack.toml"
    host=127.0.0.1 port=$((base + 2))
}

start() {
    for _ in 1 2 3; do
        rm -rf "$work/data"
        describe "$1"
        "$here/../rack/start.sh" "$work/rack.toml" >"$work/ready" 2>"$work/rack.log" &
        rack=$!
        for _ in $(seq 600); do
            grep -q '^ready resp=' "$work/ready" && return 0
            kill -0 "$rack" 2>/dev/null || break
            sleep 0.1
        done
        stop
    done
    cat "$work/rack.log" >&2
    return 1
}

# What YCSB says of a figure, with all its decimals; empty if it doesn't.
figure() { sed -n "s/^\[$1\], $2, //p" "$work/ycsb" | head -1; }

checked() {
    ycsb "$@" "${shape[@]}" >"$work/ycsb" 2>"$work/ycsb.err" ||
        { cat "$work/ycsb.err" >&2; exit 1; }
    if grep -E '^\[[A-Z-]*FAILED\]|Return=(ERROR|NOT_FOUND|UNEXPECTED_STATE)' "$work/ycsb" \
        >"$work/failed"; then
        cat "$work/failed" >&2
        echo "some operations failed" >"$work/remark"
    fi
}

# Our own generator, with an embedded rack of the same nodes: operations a second.
ours() {
    "$program" bench --workload "$2" --schemes "$1" --nodes "$nodes" --node-capacity "$capacity" \
        --records "$RECORDS" --cache-records "$cache" --outstanding "$THREADS" \
        --warmup "$warm_up" --seconds "$seconds" \
        --json "$work/ours.json" >/dev/null
    sed -n 's/^ *"throughput_ops": \([0-9.]*\).*/\1/p' "$work/ours.json" | head -1
}

commit=$(git -C "$here" rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
columns=kind,generator,scheme,servers,node_capacity_ops,workload,threads,seconds
echo "$columns,throughput_ops,read_mean_us,read_p99_us,write_mean_us,write_p99_us,load,commit" \
    >"$out/ycsb.csv"
declare -A ops
baselines=(nocache writearound netcache) schemes=(nocache writearound netcache farreach)
# A row: generator, scheme, workload, operations a second, four latencies.
row() {
    local load
    load=$(cut -d' ' -f1 /proc/loadavg)
    echo "measured,$1,$2,$nodes,$capacity,$3,$THREADS,$seconds,$4,$5,$6,$7,$8,$load,$commit" \
        >>"$out/ycsb.csv"
}
for scheme in "${schemes[@]}"; do
    echo "== $scheme" >&2
    start "$scheme"
    checked -load -p maxexecutiontime=600
    # A rack learns what is hot; those without a cache get the same.
    checked -t $(proportions a) -p maxexecutiontime="$warm_up" -p dataintegrity=true
    for workload in a b c f d; do
        # New records of workload D are in no other workload's way afterwards: it is the last.
        # shellcheck disable=SC2046
        checked -t $(proportions "$workload") -p maxexecutiontime="$seconds" -p dataintegrity=true
        write=UPDATE
        [ "$workload" = d ] && write=INSERT
        ops[ycsb,$scheme,$workload]=$(figure OVERALL 'Throughput(ops\/sec)')
        row ycsb "$scheme" "$workload" "${ops[ycsb,$scheme,$workload]}" \
            "$(figure READ 'AverageLatency(us)')" "$(figure READ '99thPercentileLatency(us)')" \
            "$(figure $write 'AverageLatency(us)')" "$(figure $write '99thPercentileLatency(us)')"
        echo "   $workload: ${ops[ycsb,$scheme,$workload]} ops/s" >&2
    done
    stop
    for workload in a b c f d; do
        ops[ours,$scheme,$workload]=$(ours "$scheme" "$workload")
        row 'switchback bench' "$scheme" "$workload" "${ops[ours,$scheme,$workload]}" '' '' '' ''
    done
done

over() { awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.2f", a / b; else printf "-" }'; }
whole() { awk -v a="${1:-0}" 'BEGIN { printf "%.0f", a }'; }
{
    echo "Operations a second (measured): the original YCSB, and in brackets \`switchback bench\`"
    echo
    echo "| workload$(printf ' | %s' "${schemes[@]}")$(printf ' | x %s' "${baselines[@]}") |"
    echo "| ---$(printf ' | ---:%.0s' "${schemes[@]}" "${baselines[@]}") |"
    for workload in a b c f d; do
        line="| $workload |"
        for scheme in "${schemes[@]}"; do
            line+=" $(whole "${ops[ycsb,$scheme,$workload]}")"
            line+=" ($(whole "${ops[ours,$scheme,$workload]}")) |"
        done
        for other in "${baselines[@]}"; do
            line+=" $(over "${ops[ycsb,farreach,$workload]}" "${ops[ycsb,$other,$workload]}")"
            line+=" ($(over "${ops[ours,farreach,$workload]}" "${ops[ours,$other,$workload]}")) |"
        done
        echo "$line"
    done
    echo
    echo "$nodes nodes of $capacity requests/s, $RECORDS records of 128 B, a cache of $cache that learned for $warm_up s, $THREADS requests under way,"
    echo "$seconds s each; YCSB 0.17.0 over a gateway and a rack of processes, our generator on an embedded rack. Commit $commit."
    if [ -s "$work/remark" ]; then cat "$work/remark"; fi
} >"$out/ycsb.md"
cat "$out/ycsb.md"
