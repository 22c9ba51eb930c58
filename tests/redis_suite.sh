#!/usr/bin/env bash
# Runs test files of Redis' own suite against a rack, and compares what passes with the list in
# tests/redis_suite.txt.
set -uo pipefail
source=${REDIS_SOURCE:+$(realpath -m -- "$REDIS_SOURCE")}
cd "$(dirname "$0")/.."
# shellcheck source=e2e/checks.bash
. tests/e2e/checks.bash

version=7.0.15
files=(unit/type/string unit/type/incr unit/expire unit/keyspace unit/protocol unit/multi
    unit/bitops unit/bitfield)
# The suite's external mode: one database, on after an error; nothing that needs DEBUG, replicas, or
# keys in several slots.
options=(--singledb
    --durable --ignore-encoding --ignore-digest --tags '-needs:debug -needs:repl -cluster:skip')
# What Switchback says of a command, or of several keys, that it refuses.
refusals='is not supported by Switchback|no write spans|script of several keys'
# What it says of an option that can't be set, or of a limit.
options_and_limits='CONFIG SET failed|number of arguments for CONFIG SET|proto-max-bulk-len'
# The test before was refused, and left its connection in MULTI.
left_in_multi="MULTI calls can not be nested|WATCH inside MULTI|'OK' to equal or match 'QUEUED'"
list=tests/redis_suite.txt
# A file takes up to 25 seconds on two cores.
seconds_each=300

usage() {
    cat <<'HELP'
Usage: REDIS_SOURCE=DIR tests/redis_suite.sh [--update] [--out DIR]

Runs eight test files of Redis 7.0.15 as they are against a rack on free ports in a temporary
directory, once with `transactions = "refuse"` in rack.toml and once with "batch", about a minute
each. Prints how many tests passed by file, and why the others didn't: Switchback refused a command
by its name, or named the option that can't be set or the limit; or the test follows one that was
refused and left its connection in MULTI. Those that are left are listed as `other`. The suite
leaves out tests by their tags, or whole groups, which count as one: what needs DEBUG, replicas,
several databases, or a server that it starts itself.

Fails if a test of tests/redis_suite.txt doesn't pass; says which pass and aren't there.

  --update         rewrites tests/redis_suite.txt: what passes now
  --out DIR        leaves what the suite printed in DIR

  REDIS_SOURCE     an unpacked source of Redis 7.0.15; it isn't compiled or changed
  SWITCHBACK       the program (target/release/switchback)

Needs tclsh. Exit code: 0 all listed tests passed, 1 not all, 77 can't be done here (and what to do
about that).

Examples:
  curl -O https://download.redis.io/releases/redis-7.0.15.tar.gz && tar -xf redis-7.0.15.tar.gz
  make redis-suite REDIS_SOURCE=redis-7.0.15
  make redis-suite REDIS_SOURCE=redis-7.0.15 ARGS='--out /tmp/suite'
  REDIS_SOURCE=redis-7.0.15 tests/redis_suite.sh --update && git diff tests/redis_suite.txt
HELP
}

cannot() { printf '%s\n' "$@" >&2; exit 77; }

update='' out=''
while [ $# -gt 0 ]; do
    case $1 in
    --update) update=yes ;;
    --out) [ $# -gt 1 ] || { usage >&2; exit 2; }; out=$2; shift ;;
    -h | --help) usage; exit ;;
    *) usage >&2; exit 2 ;;
    esac
    shift
done

mend="Get it with \`apt-get source redis\` on Debian 12 (needs a deb-src line in apt's sources), or from
https://download.redis.io/releases/redis-$version.tar.gz, and say where it is: REDIS_SOURCE=DIR"
[ -n "$source" ] ||
    cannot "REDIS_SOURCE is not set: which directory has the source of Redis $version?" "$mend"
[ -e "$source/tests/test_helper.tcl" ] ||
    cannot "$source has no tests/test_helper.tcl: it is no source of Redis." "$mend"
found=$(sed -n 's/^#define REDIS_VERSION "\(.*\)"/\1/p' "$source/src/version.h" 2>/dev/null)
[ "$found" = $version ] ||
    cannot "$source is Redis ${found:-of an unknown version}, not $version." "$mend"
command -v tclsh >/dev/null || cannot "tclsh is missing: apt-get install tcl"
[ -x "$program" ] || cannot "no program at $program: run \`make build\` first, or set SWITCHBACK"

work=$(mktemp -d)
rack='' suite=''
stop() { # a process of this script
    [ -n "$1" ] || return 0
    kill "$1" 2>/dev/null
    wait "$1" 2>/dev/null
}
# A command in the background and `wait` let Ctrl-C come through at once; `timeout` passes on the
# signal to the suite.
trap 'stop "$suite"; stop "$rack"; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# The suite writes beside itself.
mkdir "$work/redis"
cp -r "$source/tests" "$work/redis/tests"
ln -s "$source/src" "$work/redis/src"
out=${out:-$work/out}
mkdir -p "$out" || exit 1
out=$(realpath "$out")
results=$work/results
: >"$results"

up() { # refuse or batch: starts a rack, and sets rack and port
    local address
    cat >"$work/rack.toml" <<TOML
[rack]
data = "$work/data-$1"
metrics = "127.0.0.1:0"
[gateway]
resp = "127.0.0.1:0"
transactions = "$1"
TOML
    "$program" up --config "$work/rack.toml" >"$work/ready" 2>"$out/$1.rack.log" &
    rack=$!
    eventually grep -q '^ready ' "$work/ready"
    address=$(sed -n 's/^ready resp=\([^ ]*\) .*/\1/p' "$work/ready")
    [ -n "$address" ] || { echo "the rack doesn't start:"; cat "$out/$1.rack.log"; exit 1; }
    port=${address##*:}
}

# Makes lines of the suite's output for one file: passed, refused, option, follows, other or left
# out; the test's name; what it said.
judge() { # the output, the file
    sed 's/\x1b\[[0-9;]*m//g' "$1" |
        LC_ALL=C awk -v OFS='\t' -v place=" in tests/$2.tcl" -v refusals="$refusals" \
            -v options="$options_and_limits" -v left="$left_in_multi" '
        function finish() {
            if (name == "") return
            # Of an error that is no failed comparison the first line lacks ten characters, the
            # second one is whole.
            said = (line[2] != "" && substr(line[2], 11) == line[1]) ? line[2] : line[1]
            gsub(/[\t\r]/, " ", said)
            why = all ~ refusals ? "refused" : all ~ options ? "option" : "other"
            if (why == "other" && all ~ left) why = "follows"
            print why, name, substr(said, 1, 160)
            name = ""
        }
        / The End$/ { exit } # what follows repeats the errors
        /^\[([a-z]+|[0-9]+\/[0-9]+ done)\]: / { finish() }
        /^\[ok\]: / {
            sub(/^\[ok\]: /, "")
            sub(/ \([0-9]+ ms\)$/, "")
            print "passed", $0, ""
            next
        }
        /^\[ignore\]: / { sub(/^\[ignore\]: /, ""); print "left out", $0, ""; next }
        /^\[(err|exception)\]: / {
            sub(/^\[[a-z]+\]: /, "")
            name = $0
            if ((at = index(name, place)) && at + length(place) > length(name))
                name = substr(name, 1, at - 1)
            all = ""; lines = 0; delete line
            next
        }
        name != "" { all = all "\n" $0; line[++lines] = $0 }
        END { finish() }'
}

run() { # refuse or batch: every file
    local mode=$1 file output
    up "$mode"
    for file in "${files[@]}"; do
        output=$out/$mode.${file//\//.}
        # Tcl reads the tests by the locale, which must not be that of who runs this.
        (cd "$work/redis" && LC_ALL=C.UTF-8 exec timeout -k 10 $seconds_each \
            tclsh tests/test_helper.tcl --host 127.0.0.1 --port "$port" "${options[@]}" \
            --single "$file") \
            </dev/null >"$output" 2>&1 &
        suite=$!
        wait "$suite"
        suite=''
        if ! grep -aq ' The End$' "$output"; then
            echo "FAILED: $file did not come to its end with \"$mode\":"
            grep -a -m 1 'exception' "$output" || tail -5 "$output"
            failures=$((failures + 1))
        fi
        judge "$output" "$file" | sed "s|^|$mode\t$file\t|" >>"$results"
    done
    if ! kill -0 "$rack" 2>/dev/null; then
        echo "FAILED: the rack ended before the suite:"
        tail -5 "$out/$mode.rack.log"
        failures=$((failures + 1))
    fi
    stop "$rack"
    rack=''
}

table() {
    LC_ALL=C awk -F '\t' -v files="${files[*]}" '
        function row(what, a, b, c, d) {
            text = sprintf("%-18s %8s %12s %8s %12s", what, a, b, c, d)
            sub(/ +$/, "", text)
            print text
        }
        function pair(what, key) { row(what, "", n["refuse", key] + 0, "", n["batch", key] + 0) }
        $3 == "left out" { n[$1, $3]++; next }
        {
            passed = $3 == "passed" ? "passed" : "failed"
            n[$1, $2, passed]++
            n[$1, passed]++
            if (passed == "failed") n[$1, $3]++
        }
        END {
            row("", "refuse", "", "batch", "")
            row("file", "passed", "not passed", "passed", "not passed")
            count = split(files, file, " ")
            for (i = 1; i <= count; i++)
                row(file[i], n["refuse", file[i], "passed"] + 0, n["refuse", file[i], "failed"] + 0,
                    n["batch", file[i], "passed"] + 0, n["batch", file[i], "failed"] + 0)
            row("total", n["refuse", "passed"] + 0, n["refuse", "failed"] + 0,
                n["batch", "passed"] + 0, n["batch", "failed"] + 0)
            pair("  refused by name", "refused")
            pair("  option, limit", "option")
            pair("  left in MULTI", "follows")
            pair("  other", "other")
            pair("left out by tags", "left out")
        }' "$results"
}

# Neither passed nor refused by name. What happened in both runs is said once.
others() {
    LC_ALL=C awk -F '\t' '
        $3 == "other" {
            key = $2 "\t" $4 "\t" $5
            if (!(key in modes)) order[++count] = key
            modes[key] = modes[key] (modes[key] == "" ? "" : ",") $1
        }
        END {
            for (i = 1; i <= count; i++) {
                split(order[i], part, "\t")
                printf "other: %s, %s: %s\n    %s\n", modes[order[i]], part[1], part[2], part[3]
            }
        }' "$results"
}

# What passed, as the list has it: a line a test. Of a name that a file has twice there are two
# lines.
passing() {
    LC_ALL=C awk -F '\t' -v OFS='\t' -v files="${files[*]}" '
        BEGIN { count = split(files, file, " "); for (i = 1; i <= count; i++) place[file[i]] = i }
        $3 == "passed" { key = $2 "\t" $4; keys[key]; n[$1, key]++ }
        END {
            for (key in keys) {
                split(key, part, "\t")
                refuse = n["refuse", key] + 0; batch = n["batch", key] + 0
                for (i = 1; i <= refuse || i <= batch; i++) {
                    modes = i > batch ? "refuse" : i > refuse ? "batch" : "refuse,batch"
                    print place[part[1]], modes, part[1], part[2]
                }
            }
        }' "$results" | LC_ALL=C sort -t $'\t' -k1,1n -k4,4 -k2,2r | cut -f2-
}

# A line for each run that a test of a list passes in, sorted.
by_mode() {
    LC_ALL=C awk -F '\t' -v OFS='\t' \
        '!/^#/ && NF { n = split($1, mode, ","); for (i = 1; i <= n; i++) print mode[i], $2, $3 }' |
        LC_ALL=C sort
}

for mode in refuse batch; do run "$mode"; done
table
others
passing >"$work/passing"

if [ -n "$update" ]; then
    [ "$failures" = 0 ] || { echo "$list stays as it is"; exit 1; }
    {
        echo "# Tests of Redis $version that pass: with which \`transactions\` of [gateway], in which file, their names; tabs between."
        echo "# A name that a file has twice has two lines. tests/redis_suite.sh compares them, and with --update rewrites this."
        cat "$work/passing"
    } >"$work/list" && cp "$work/list" "$list" || exit 1
    echo "$list: $(grep -vc '^#' "$list") tests"
    exit
fi

[ -e "$list" ] || { echo "FAILED: there is no $list: make it with --update"; exit 1; }
by_mode <"$list" >"$work/listed"
by_mode <"$work/passing" >"$work/now"
while IFS=$'\t' read -r mode file name; do
    said=$(NAME=$name LC_ALL=C awk -F '\t' -v OFS='\t' -v at="$mode/$file" '
        BEGIN { name = ENVIRON["NAME"] }
        $1 "/" $2 == at && $4 == name && $3 != "passed" { print $5; exit }' \
        "$results")
    echo "FAILED: $mode, $file: $name"
    echo "    ${said:-it did not run}"
    failures=$((failures + 1))
done < <(LC_ALL=C comm -23 "$work/listed" "$work/now")
LC_ALL=C comm -13 "$work/listed" "$work/now" | while IFS=$'\t' read -r mode file name; do
    echo "not listed, passes: $mode, $file: $name"
done
[ "$failures" = 0 ] && echo "every test of $list passed"
