#!/usr/bin/env bash
# Fuzzes every target, or those named, SECONDS_EACH long (60), one more at a time than there are
# cores, or JOBS (0: all). What ends a target is in fuzz/artifacts/TARGET afterwards. `--minimize`
# first makes fuzz/corpus/TARGET small: what it keeps is committed. SEED makes a run repeatable as
# far as it gets in its time. Needs the compiler's own sanitizer runtime (rustup's has it); without
# one it exits with 77, which is a skip.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${SECONDS_EACH:-60}
seed=${SEED:-0} # 0: another one each time
jobs=${JOBS:-$(($(nproc) + 1))}
target_dir=${CARGO_TARGET_DIR:-$PWD/target}/fuzz
host=$(rustc -vV | sed -n 's/^host: //p')
programs=$target_dir/$host/release
# What grows while fuzzing; fuzz/corpus holds what it begins with.
grown=$target_dir/corpus
memory_mb=2048
files_max=32
bytes_max=4096

# shellcheck source=../tests/lacks.sh
. tests/lacks.sh
needs rust-sanitizer

minimize=
if [ "${1:-}" = --minimize ]; then
    minimize=yes
    shift
fi
targets=("$@")
if [ ${#targets[@]} = 0 ]; then
    for source in fuzz/fuzz_targets/*.rs; do targets+=("$(basename "$source" .rs)"); done
fi

# The flags that cargo-fuzz would pass. They are the compiler's own, so a stable one is told to take
# them.
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-sanitizer-coverage-stack-depth \
    -Zsanitizer=address -Ccodegen-units=1 --cfg fuzzing -Cdebug-assertions"
# With --target they don't reach build scripts.
cargo build --release --quiet --locked --manifest-path fuzz/Cargo.toml --target "$host" \
    --target-dir "$target_dir" \
    "${targets[@]/#/--bin=}"
if [ "$seconds" = 0 ] && [ -z "$minimize" ]; then exit 0; fi

fuzz() {
    local name=$1 log=$target_dir/$1.log
    mkdir -p "$grown/$name" "fuzz/corpus/$name" "fuzz/artifacts/$name"
    if ! "$programs/$name" -seed="$seed" -max_total_time="$seconds" -rss_limit_mb=$memory_mb \
        -timeout=10 -max_len=$bytes_max -len_control=0 \
        -print_final_stats=1 -verbosity=1 -artifact_prefix="fuzz/artifacts/$name/" \
        "$grown/$name" "fuzz/corpus/$name" >"$log" 2>&1; then
        echo "$name: FAILED"
        grep -aE 'panicked at|ERROR: |SUMMARY|Test unit written' "$log" | head -20
        tail -40 "$log"
        return 1
    fi
    echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs," \
        "$(grep -a ' cov: ' "$log" | tail -1 | sed 's/.* cov: \([0-9]*\).*/\1/') edges"
}

# The smallest inputs that together reach all that is reached, as many as are kept.
minimize() {
    local name=$1 small
    small=$(mktemp -d)
    "$programs/$name" -merge=1 -rss_limit_mb=$memory_mb -timeout=10 \
        "$small" "$grown/$name" "fuzz/corpus/$name" \
        >"$target_dir/$name.merge.log" 2>&1
    rm -rf "fuzz/corpus/$name"
    mkdir -p "fuzz/corpus/$name"
    # Long inputs come first: they reach most.
    (cd "$small" && find . -type f -size -5k -printf '%s %f\n' | sort -rn | head -$files_max |
        cut -d' ' -f2) |
        while read -r file; do cp "$small/$file" "fuzz/corpus/$name/"; done
    rm -rf "$small"
    echo "$name: $(find "fuzz/corpus/$name" -type f | wc -l) inputs," \
        "$(du -bs "fuzz/corpus/$name" | cut -f1) bytes"
}

export -f fuzz minimize
export seconds seed programs grown target_dir memory_mb files_max bytes_max
action=${minimize:+minimize}
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I{} bash -c "${action:-fuzz} {}"
