#!/usr/bin/env bash
# Every test there is, what fails fastest first. What only computes runs beside what mostly waits.
# Goes on after a failure, so that one run shows them all.
# Each step passes, fails or is skipped; `cargo test` counts one by one. tests/skips.txt says what
# may be skipped.
set -uo pipefail
cd "$(dirname "$0")/.."
export SWITCHBACK="${CARGO_TARGET_DIR:-$PWD/target}/release/switchback"

passed=0 failed=0
failures=()
log=$(mktemp -d)
# What can't run here appends a line.
export SWITCHBACK_SKIPS=$log/skips
: >"$SWITCHBACK_SKIPS"
aside=
trap '[ -z "$aside" ] || kill -- "-$aside" 2>/dev/null; rm -rf "$log"' EXIT

skipped() { cut -f 1 "$SWITCHBACK_SKIPS" | sort -u | wc -l; }
title() { printf '\n== %s (%s)\n' "$1" "$(date +%T)"; }

# A step that passes or fails as a whole; exit code 77 says that it can't run here, which it must
# have recorded.
step() {
    local name=$1 code before
    shift
    title "$name"
    before=$(skipped)
    "$@" </dev/null
    code=$?
    if [ $code = 0 ]; then
        passed=$((passed + 1))
    elif [ $code != 77 ] || [ "$(skipped)" = "$before" ]; then
        failed=$((failed + 1)); failures+=("$name (exit code $code)"); echo "FAILED: $name"
    fi
    return $code
}

# A step with a runner that prints `test result: ok. 3 passed; 0 failed; 1 ignored;` for each
# binary. A test that can't run here passes as far as that knows, and has recorded that it was
# skipped.
counted() {
    local name=$1 code sums before output=$log/counted.$BASHPID
    shift
    title "$name"
    before=$(skipped)
    "$@" </dev/null 2>&1 | tee "$output"
    code=${PIPESTATUS[0]}
    sums=$(awk '/^test result: / { for (i = 1; i < NF; i++) { if ($(i + 1) ~ /^passed/) p += $i
        if ($(i + 1) ~ /^failed/) f += $i } } END { print p + 0, f + 0 }' "$output")
    read -r p f <<<"$sums"
    passed=$((passed + p - ($(skipped) - before))) failed=$((failed + f))
    if [ "$code" != 0 ]; then
        # Not compiled, or crashed before it could count.
        if [ "$f" = 0 ]; then failed=$((failed + 1)); fi
        failures+=("$name (exit code $code)")
        grep -E '^test .* FAILED$' "$output" | while read -r line; do echo "FAILED: $line"; done
    fi
    return "$code"
}

# Steps that wait more than they compute, two at a time, the longest first if they are given so.
# Each one's output is shown when all have ended.
in_pairs() {
    title "$# steps, two at a time"
    export log
    printf '%s\n' "$@" | xargs -P 2 -I{} bash -c '
        begin=$SECONDS out=$log/$(basename "$1")
        SWITCHBACK_SKIPS=$out.skips "$1" </dev/null >"$out" 2>&1
        echo "$? $((SECONDS - begin))" >"$out.ended"' in_pairs {}
    for script in "$@"; do step "$script" ended "$script"; done
}

# Shows what a step of `in_pairs` wrote, and returns its exit code.
ended() {
    local out code seconds
    out=$log/$(basename "$1")
    read -r code seconds <"$out.ended"
    if [ -e "$out" ]; then cat "$out"; fi
    echo "$1: $seconds s"
    if [ -e "$out.skips" ]; then cat "$out.skips" >>"$SWITCHBACK_SKIPS"; fi
    return "$code"
}

# What a `cargo test` would run, two binaries at a time, since the last test of each often runs
# alone; the longest first. Each one's output is shown when it has ended.
two_binaries() {
    "$@" --no-run --message-format=json-render-diagnostics | python3 -c '
import json, os, sys
for line in sys.stdin:
    message = json.loads(line) if line.startswith("{") else {}
    if message.get("executable") and message["profile"]["test"]:
        package = message["package_id"].split("#")[1].split("@")[0]
        print(package, os.path.dirname(message["manifest_path"]), message["executable"])
' >"$log/binaries"
    if [ "${PIPESTATUS[0]}" != 0 ]; then return 1; fi
    cat <(grep /swarm- "$log/binaries") <(grep -v /swarm- "$log/binaries") |
        xargs -P 2 -L 1 bash -c '
        cd "$2" && output=$(CARGO_PKG_NAME=$1 "$3" --quiet 2>&1); code=$?
        printf "%s: exit code %s\n%s\n" "${3##*/}" "$code" "$output"
        exit "$code"' two_binaries
}

# Runs a function of steps at a low priority beside the steps that follow. `beside_ended` waits for
# it, shows its output and adds what it counted.
beside() {
    set -m # A process group of its own, which the end of this script ends.
    (
        renice -n 10 "$BASHPID" >/dev/null
        passed=0 failed=0 failures=() SWITCHBACK_SKIPS=$log/beside.skips
        : >"$SWITCHBACK_SKIPS"
        "$1"
        {
            echo "$passed $failed"
            for failure in ${failures[@]+"${failures[@]}"}; do echo "$failure"; done
        } >"$log/beside.counts"
    ) </dev/null >"$log/beside" 2>&1 &
    aside=$!
    set +m
}

beside_ended() {
    local p=0 f=1 theirs=('the steps beside the others ended early')
    wait "$aside"
    aside=
    cat "$log/beside"
    cat "$log/beside.skips" >>"$SWITCHBACK_SKIPS"
    if [ -e "$log/beside.counts" ]; then
        { read -r p f; mapfile -t theirs; } <"$log/beside.counts"
    fi
    passed=$((passed + p)) failed=$((failed + f)) failures+=(${theirs[@]+"${theirs[@]}"})
}

# The laboratory by itself, as in scripts/build.sh.
mapfile -t laboratory < <(sed -n 's/^name = "\(switchback-.*\)"$/-p\n\1/p' lab/*/Cargo.toml)
# With this feature the pipeline can leave mechanisms out, as these tests do.
mapfile -t leaving_out < <(grep -lE 'ABLATIONS|ablations' crates/datapath/tests/*.rs |
    sed 's|.*/|--test\n|; s|\.rs$||')
product_tests=(cargo test --release --quiet --no-fail-fast)
laboratory_tests=(cargo test --release "${laboratory[@]}" --quiet)
left_out_tests=(cargo test --release -p switchback-datapath
    --features ablations "${leaving_out[@]}" --quiet --no-fail-fast)

programs() {
    scripts/build.sh --quiet && "${product_tests[@]}" --no-run &&
        "${laboratory_tests[@]}" --no-run &&
        "${left_out_tests[@]}" --no-run
}

computing() {
    if [ -x datapath/check.sh ]; then
        step 'datapath: format, warnings, sanitizers, BPF' datapath/check.sh
    fi
    # All at once, with one seed, so that a commit that passed passes again; make fuzz draws others,
    # for longer.
    step 'fuzzing, 30 s a target' env SECONDS_EACH=30 SEED=1 JOBS=0 scripts/fuzz.sh
    counted 'tests: mechanisms left out' "${left_out_tests[@]}"
    counted 'tests: laboratory' two_binaries "${laboratory_tests[@]}"
}

step 'format of the Rust sources' cargo fmt --all -- --check
step 'format of the fuzz targets' cargo fmt --manifest-path fuzz/Cargo.toml -- --check
step 'clippy' cargo clippy --release --quiet --all-targets -- -D warnings
step 'clippy: laboratory' cargo clippy --release --quiet "${laboratory[@]}" \
    --all-targets -- -D warnings
step 'dependencies: licenses, sources, duplicates' scripts/deny.sh
if step 'build' programs; then
    beside computing
    counted 'tests' "${product_tests[@]}"
    mapfile -t slow_first < <(printf '%s\n' tests/e2e/{clients,crash,nemesis}.sh tests/e2e/*.sh |
        awk '!seen[$0]++')
    in_pairs "${slow_first[@]}"
    beside_ended
fi

title 'result'
if ! scripts/skips.sh "$SWITCHBACK_SKIPS" >"$log/judged"; then
    failures+=('what was skipped (see above)') failed=$((failed + 1))
fi
cat "$log/judged"
for failure in ${failures[@]+"${failures[@]}"}; do echo "FAILED: $failure"; done
echo "$passed passed, $failed failed, $(grep -c '^skipped: ' "$log/judged") skipped"
[ "$failed" = 0 ]
