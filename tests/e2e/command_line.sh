#!/usr/bin/env bash
# The program as operators meet it: the ready line, signals and exit codes, messages, what is there
# after a restart, ctl, the example.
set -uo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=checks.bash
. tests/e2e/checks.bash
. tests/lacks.sh
needs redis-cli curl

work=$(mktemp -d)
pid=
load=
cleanup() {
    [ -z "$load" ] || kill "$load" 2>/dev/null
    [ -z "$pid" ] || kill -9 "$pid" 2>/dev/null
    if mountpoint -q "$work/small"; then umount -l "$work/small"; fi
    rm -rf "$work"
}
trap cleanup EXIT

holds() { grep -q -- "$1" "$2" || { echo "  '$1' is not in:"; sed 's/^/  | /' "$2"; return 1; }; }
equal() { [ "$1" = "$2" ] || { echo "  '$1' is not '$2'"; return 1; }; }

is_ready() { grep -q '^ready' "$work/out"; }
has_begun() { is_ready || ! kill -0 "$pid" 2>/dev/null; }
# Starts a rack in a directory and waits until it is ready, has ended, or is stuck; sets pid.
begin() {
    local data=$1
    shift
    : >"$work/out" # the last one's line is not this one's
    "$program" up --data "$data" --resp 127.0.0.1:0 --metrics 127.0.0.1:0 "$@" \
        >"$work/out" 2>"$work/err" &
    pid=$!
    eventually has_begun
}
# Starts the rack, which must get ready; sets pid, resp, metrics.
up() {
    begin "$work/data" --nodes 2 "$@"
    resp=$(sed -n 's/^ready resp=\(.*\) metrics=.*/\1/p' "$work/out")
    metrics=$(sed -n 's/^ready resp=.* metrics=\(.*\)/\1/p' "$work/out")
    [ -n "$resp" ] && [ -n "$metrics" ] || { cat "$work/out" "$work/err"; exit 1; }
}
# Stops it, and sets code.
down() { kill "-${1:-TERM}" "$pid"; wait "$pid"; code=$?; pid=; }
redis() { redis-cli -h "${resp%:*}" -p "${resp##*:}" "$@"; }
ctl() { "$program" ctl --metrics "$metrics" "$@"; }
says() { holds "$1" <(ctl "${@:2}" 2>&1); }
# How many lines of what ctl says have a word.
counts() { equal "$(ctl "$3" | grep -cw "$1")" "$2"; }

up
check 'stdout has one line' equal "$(wc -l <"$work/out")" 1
check 'no hints without a terminal' equal "$(wc -c <"$work/err")" 0
check 'SET answers' equal "$(redis set greeting hello)" OK
for key in $(seq 200); do echo "SET key:$key value:$key"; done | redis >/dev/null
check 'status says that it serves' eventually says 'serving' status
check 'status as JSON' holds '"scheme": "farreach"' <(ctl status -o json)
check 'the chain is served' eventually counts serving 1 chains
check 'the switch serves' eventually counts serves 1 switches
check 'partitions are listed' holds '"first_key": "0*"' <(ctl partitions --json)
# Reads a key, and looks at the first that is cached: a busy machine may take more than one round.
hottest_is() {
    for _ in $(seq 500); do echo 'GET key:7'; done | redis >/dev/null
    ctl cached --limit 5 | sed -n 2p >"$work/cached"
    holds "$1" "$work/cached"
}
check 'the hottest key is the first that is cached' eventually hottest_is '^key:7 '
check '... with its count, age, dirtiness and size' eventually hottest_is \
    '^key:7  *[01]  *[1-9][0-9,]*  *[0-9.]* [a-z]*s  *\(yes\|no\)  *12 '
check '... in JSON, too' holds '"count": [1-9]' <(ctl cached --limit 1 --json)
check 'nodes are up' eventually counts up 2 nodes
# What a command of ctl says while a key is asked for; the gateway counts one request in 64.
while_hot() {
    for _ in $(seq 2000); do echo 'GET key:7'; done | redis >/dev/null
    ctl "${@:2}" >"$work/seen" 2>&1 && holds "$1" "$work/seen"
}
first_hot() { while_hot . hot --limit 1 --json && holds '"key": "key:7"' "$work/seen"; }
check 'the hottest key now is the first' eventually first_hot
check '... with its rate, share and that it is cached' eventually while_hot \
    '^key:7  *[1-9][0-9,]*  *[0-9.]* %.* yes$' hot
check 'a frame of top has it, too' eventually while_hot '^key:7 ' top --once
# On a terminal of its own, until `q`.
top_ends() {
    rm -f "$work/keys"
    mkfifo "$work/keys"
    TERM=xterm NO_COLOR=1 script -qec "$program ctl --metrics $metrics top" /dev/null \
        <"$work/keys" >"$work/top" &
    load=$!
    exec 3>"$work/keys"
    eventually holds 'cached  *[0-9]' "$work/top"
    printf q >&3
    wait "$load"
    ended=$?
    load=
    exec 3>&-
    equal "$ended" 0
}
check 'top shows frames on a terminal until q' top_ends
check '... and leaves it as it was' equal \
    "$(grep -c $'\e\\[?1049h' "$work/top")" "$(grep -c $'\e\\[?1049l' "$work/top")"
check 'what has happened is listed' holds 'epoch' <(ctl events)
check '... in JSON, too' holds '"unix_seconds": [1-9]' <(ctl events --limit 3 --json)
check 'a snapshot is taken' holds '^durable' <(ctl snapshot)
check 'a drain brings records home' holds 'brought to their nodes' <(ctl drain)
check 'it serves after a drain' equal "$(redis get key:17)" value:17
is_healthy() { equal "$(curl -s "http://$metrics/healthz")" serving; }
check 'it is healthy' eventually is_healthy
curl -s "http://$metrics/metrics" >"$work/metrics"
check 'metrics count reads' holds \
    '^switchback_switch_requests_total{switch="0",verb="read"} [1-9]' "$work/metrics"
check 'every metric has help and a type' \
    equal "$(grep -c '^# HELP' "$work/metrics")" "$(grep -c '^# TYPE' "$work/metrics")"
for name in $(sed -n 's/^# TYPE \([^ ]*\) .*/\1/p' "$work/metrics"); do
    grep -q "\`$name\`" docs/run/operations.md || echo "$name"
done >"$work/undocumented"
check 'every metric is in docs/run/operations.md' equal "$(cat "$work/undocumented")" ''
check 'a web page may not command' \
    equal "$(curl -s -o /dev/null -w '%{http_code}' -X POST -H 'Origin: http://x' \
        "http://$metrics/drain")" 403
"$program" up --data "$work/data2" --resp "$resp" --metrics 127.0.0.1:0 >"$work/out2" 2>"$work/err2"
check 'a taken port is an error' equal "$?" 1
check '... that names it' holds "$resp" "$work/err2"
"$program" up --data "$work/data" --resp 127.0.0.1:0 --metrics 127.0.0.1:0 --nodes 2 \
    >"$work/out2" 2>"$work/err2"
check 'data in use is an error' equal "$?" 1
check '... that names the directory' holds "$work/data" "$work/err2"
(ulimit -f 8 && "$program" up --data "$work/data3" --resp 127.0.0.1:0 --metrics 127.0.0.1:0 \
    >"$work/out2" 2>"$work/err2")
check 'a limit on the size of files is an error' equal "$?" 1
check '... that names it' holds 'File too large' "$work/err2"
down TERM
check 'SIGTERM ends with 0' equal "$code" 0

up --hints
check 'data is there at the next start' equal "$(redis get key:200)" value:200
check 'hints name redis-cli' holds "redis-cli -h ${resp%:*} -p ${resp##*:}" "$work/err"
redis set last words >/dev/null
down INT
check 'SIGINT ends with 0' equal "$code" 0
up
check 'the last write is there, too' equal "$(redis get last)" words
# Until the cache has it; what it absorbs from then on is in the spool only.
last_is_cached() {
    for _ in $(seq 500); do echo 'SET last words'; done | redis >/dev/null
    says '^last ' cached
}
check 'a key that is written often is cached' eventually last_is_cached
for _ in $(seq 100); do echo 'SET last words'; done | redis >/dev/null
{ kill -9 "$pid" && wait "$pid"; } 2>/dev/null
timeout 60 "$program" up --data "$work/data" --resp 127.0.0.1:0 --metrics 127.0.0.1:0 --nodes 2 \
    --durability memory >"$work/out" 2>"$work/err"
check 'a spool that holds something is not passed over' equal "$?" 1
check '... and what would be right is said' holds 'start once with --durability everysec' \
    "$work/err"
up
check 'data is there after kill -9' equal "$(redis get last)" words
redis set last two >/dev/null
# Both signals are pending when it goes on: the second one comes before anything can have been
# flushed.
is_stopped() { [ -z "$(grep -L '^State:.T' "/proc/$pid/task/"*/status)" ]; }
kill -STOP "$pid"
eventually is_stopped # A thread that still runs would take the first signal before the second.
kill -INT "$pid"; kill -TERM "$pid"
down CONT
check 'a second signal ends it at once, with 130' equal "$code" 130
check '... and it says so' holds 'told twice' "$work/err"
up
check '... and what was not flushed is there at the next start' equal "$(redis get last)" two
down
up --durability memory
check '... and after an orderly end nothing needs the spool' equal "$(redis get last)" two
down
check 'no rack answers then' holds 'no rack answers' <(ctl status 2>&1)

"$program" up --data "$work/data" --resp 127.0.0.1:0 --metrics 127.0.0.1:0 --nodes 4 \
    >"$work/out" 2>"$work/err"
check 'another number of nodes is an error' equal "$?" 1
check '... that says what would be right' holds \
    'made with 2 nodes and can.t be opened with 4: say --nodes 2' "$work/err"
check '... and makes nothing' equal "$(ls "$work/data" | grep -c '^node-')" 2
printf '[rack]\npartitions = 512\n' >"$work/parts.toml"
"$program" up --config "$work/parts.toml" --data "$work/data" --resp 127.0.0.1:0 \
    --metrics 127.0.0.1:0 --nodes 2 \
    >"$work/out" 2>"$work/err"
check 'another number of partitions is an error' equal "$?" 1
check '... that says what would be right' holds \
    'made with 256 partitions and can.t be opened with 512: say partitions' "$work/err"

# Drains at once, while hot keys are written: each has its end, and none spoils another's or the
# shutdown.
up
redis-benchmark -h "${resp%:*}" -p "${resp##*:}" -t set -n 1000000000 -r 100 -P 16 -c 20 -q \
    >/dev/null 2>&1 &
load=$!
eventually says 'key:' cached
ctl drain >"$work/drain1" 2>&1 &
first=$!
ctl drain >"$work/drain2" 2>&1
codes=$?
wait "$first"
check 'two drains at once succeed' equal "$codes $?" '0 0'
check '... and one says what it brought' holds '^[1-9][0-9,]* records brought' \
    <(cat "$work/drain1" "$work/drain2")
ctl drain >/dev/null 2>&1 &
first=$!
ctl drain >/dev/null 2>&1 &
sleep 0.2
down
check 'a shutdown meanwhile ends with 0' equal "$code" 0
wait "$first"
kill "$load" 2>/dev/null
wait "$load" 2>/dev/null
load=

# A snapshot that can't be stored: the file that it would be written to is a directory.
up
# The name is taken while a snapshot is being written.
eventually mkdir "$work/data/controller/snapshot.new"
ctl snapshot >"$work/snapshot" 2>&1 &
first=$!
check 'status says why snapshots are not stored' \
    eventually says "the controller can't use $work/data/controller/snapshot.new" status
rmdir "$work/data/controller/snapshot.new"
wait "$first"
check '... and goes on once it can' holds '^durable' "$work/snapshot"
check '... with the error gone' eventually counts "can't use" 0 status
down

# The reader has gone before anything is printed: `| head` may go after the last line was.
mkfifo "$work/pipe"
: <"$work/pipe" &
exec 3>"$work/pipe"
wait "$!"
"$program" bench --schemes nocache --records 1000 --warmup 0 --seconds 0.5 >&3 2>"$work/err"
check 'what only prints ends with its reader' equal "$?" 141
exec 3>&-
check '... without a word' equal "$(cat "$work/err")" ''
"$program" config example >/dev/full 2>"$work/err"
check '... and fails if it can not print' equal "$?" 1
check '... with the reason' holds '^error: writing to stdout: No space left' "$work/err"
: >"$work/out"
"$program" up -vv --data "$work/data" --resp 127.0.0.1:0 --metrics 127.0.0.1:0 --nodes 2 \
    > >(head -1 >"$work/out") 2> >(true) &
pid=$!
eventually test -s "$work/out"
resp=$(sed -n 's/^ready resp=\(.*\) metrics=.*/\1/p' "$work/out")
metrics=$(sed -n 's/^ready resp=.* metrics=\(.*\)/\1/p' "$work/out")
check 'what serves does not need one' equal "$(redis set no listener)" OK
check '... whatever it does' holds '^durable' <(ctl snapshot 2>&1)
down
check '... to its end' equal "$code" 0

# Somewhere between these what is made can't be written to: by nodes, or by the controller.
if lacks mounts; then
    skip "$0: nearly full disks" mounts
else
    mkdir "$work/small"
    mount -t tmpfs -o size=64m switchback-test "$work/small"
    for kib in 200 4000 12000 20000 28000; do
        mount -o "remount,size=${kib}k" "$work/small"
        small="$work/small/$kib"
        begin "$small" --nodes 4
        if is_ready; then
            down
            echo "ok: with $kib KiB it serves"
        else
            kill -9 "$pid" 2>/dev/null # only if it is stuck
            wait "$pid"
            code=$? pid=
            check "with $kib KiB it is an error" equal "$code" 1
            check '... that says what is short, and where' \
                holds "^error: .*\(node [0-3].* no space left on the device that holds $small/node-[0-3]\|$small/controller.* no space is left\)" \
                "$work/err"
            check '... once' equal "$(grep -c '^error:' "$work/err")" 1
        fi
        rm -rf "${small:?}"
    done
    umount "$work/small"
fi

# Few files: clients that say nothing can't take those that the nodes need.
printf '#!/bin/sh\nulimit -n 700; exec "%s" "$@"\n' "$program" >"$work/limited"
chmod +x "$work/limited"
unlimited=$program
program=$work/limited
up
program=$unlimited
crowd() {
    python3 - "${resp%:*}" "${resp##*:}" <<'END'
import socket, sys
connect = lambda: socket.create_connection(sys.argv[1:], timeout=120)
first = connect()
crowd = [connect() for _ in range(800)]
assert crowd[-1].recv(100) == b"-ERR max number of clients reached\r\n"
first.sendall(b"SET key value\r\n")
assert first.recv(100) == b"+OK\r\n"
END
}
check 'a crowd is told that there are too many, and others are served' crowd
check 'the log says how many there may be, and how to have more' holds \
    'it takes [0-9]* clients instead of 10000: LimitNOFILE=' "$work/err"
down
check 'it ends in good order' equal "$code" 0

cp -r "$work/data" "$work/data4"
rm "$work/data4/controller/directory"
timeout 60 "$program" up --data "$work/data4" --resp 127.0.0.1:0 --metrics 127.0.0.1:0 --nodes 2 \
    >"$work/out" 2>"$work/err"
check 'without the controller directory it ends' equal "$?" 1
check '... and says what the nodes lack' holds \
    "can't serve: node 0: .* give it its own rack's controller directory" "$work/err"

printf '[rack]\nshceme = "x"\npartitions = 3\n' >"$work/bad.toml"
"$program" up --config "$work/bad.toml" >"$work/out" 2>"$work/err"
check 'a wrong file is a mistake of usage' equal "$?" 2
check 'every mistake has its place' holds \
    'bad.toml:2:1: \[rack\] has no key "shceme"; did you mean "scheme"?' "$work/err"
check '... the second as well' holds \
    'bad.toml:3:14: \[rack\] partitions = 3 is not a power of two' "$work/err"
"$program" up --xdp-mode generic >"$work/out" 2>"$work/err"
check 'a mode without the datapath in the kernel is a mistake of usage' equal "$?" 2
check '... and says what it is for' holds '--datapath xdp' "$work/err"
"$program" config example >"$work/example.toml"
check 'the example is right' "$program" config check "$work/example.toml"
check 'the one-host rack is right' "$program" config check examples/rack/rack.toml
"$program" doctor --data "$work" >"$work/out" 2>&1
check 'the doctor knows the kernel' holds 'Linux' "$work/out"

# Some of these racks fail to write to their disks, as they are to.
"$program" lab sim --seeds 0..10 --scheme farreach >"$work/out" 2>"$work/err"
check 'simulated racks break no promise' equal "$?" 0
check '... and log none of the faults that were drawn' equal "$(cat "$work/err")" ''

echo
[ "$failures" = 0 ]
