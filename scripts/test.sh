#!/usr/bin/env bash
# Every test there is, in the order in which they fail fastest. Goes on after a failure, so that one run shows them all.
# Each step passes, fails or is skipped; `cargo test` and the datapath's tests count one by one.
set -uo pipefail
cd "$(dirname "$0")/.."
export SWITCHBACK="${CARGO_TARGET_DIR:-$PWD/target}/release/switchback"

passed=0 failed=0 skipped=0
failures=()
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT

title() { printf '\n== %s (%s)\n' "$1" "$(date +%T)"; }

# A step that passes or fails as a whole; exit code 77 says that it can't run here.
step() {
    local name=$1 code
    shift
    title "$name"
    "$@" </dev/null
    code=$?
    case $code in
    0) passed=$((passed + 1)) ;;
    77) skipped=$((skipped + 1)); echo "skipped: $name" ;;
    *) failed=$((failed + 1)); failures+=("$name (exit code $code)"); echo "FAILED: $name" ;;
    esac
    return $code
}

# A step with a runner that prints `test result: ok. 3 passed; 0 failed; 1 ignored;` for each binary. A test that can't run here passes
# and says so in a line of its own.
counted() {
    local name=$1 code sums
    shift
    title "$name"
    "$@" </dev/null 2>&1 | tee "$log/counted"
    code=${PIPESTATUS[0]}
    sums=$(awk '/^test result: / { for (i = 1; i < NF; i++) { if ($(i + 1) ~ /^passed/) p += $i
        if ($(i + 1) ~ /^failed/) f += $i; if ($(i + 1) ~ /^ignored/) s += $i } }
        /^skipped: / { p--; s++ } END { print p + 0, f + 0, s + 0 }' "$log/counted")
    read -r p f s <<<"$sums"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    if [ "$code" != 0 ]; then
        # Not compiled, or crashed before it could count.
        if [ "$f" = 0 ]; then failed=$((failed + 1)); fi
        failures+=("$name (exit code $code)")
        grep -E '^test .* FAILED$' "$log/counted" | while read -r line; do echo "FAILED: $line"; done
    fi
    return "$code"
}

scripts_in() { if compgen -G "$1" >/dev/null; then for script in $1; do step "$script" "$script"; done; fi; }

step 'format of the Rust sources' cargo fmt --all -- --check
step 'clippy' cargo clippy --release --quiet --workspace --all-targets -- -D warnings
step 'fuzzing targets compile' cargo check --release --quiet --manifest-path fuzz/Cargo.toml \
    --target-dir "${CARGO_TARGET_DIR:-target}"
if [ -x datapath/check.sh ]; then step 'datapath: format, warnings, sanitizers, BPF' datapath/check.sh; fi
if step 'build' cargo build --release --quiet --workspace; then
    counted 'tests' cargo test --release --workspace --no-fail-fast --quiet
    scripts_in 'tests/e2e/*.sh'
fi

title 'result'
for failure in ${failures[@]+"${failures[@]}"}; do echo "FAILED: $failure"; done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
