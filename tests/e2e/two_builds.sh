#!/usr/bin/env bash
# A rack's processes are replaced one by one under load, by those of another build: of the program
# of commit OLD, which is built first, if that is set; else of this very program.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=../lacks.sh
. tests/lacks.sh
needs python3
old=${SWITCHBACK:-$PWD/target/release/switchback}
if [ -n "${OLD:-}" ]; then
    tree=$PWD/target/two-builds/$OLD
    [ -e "$tree" ] || git worktree add --quiet --detach "$tree" "$OLD"
    (cd "$tree" && CARGO_TARGET_DIR=$tree/target cargo build --release --quiet -p switchback)
    old=$tree/target/release/switchback
fi
exec python3 tests/e2e/two_builds.py "$old"
