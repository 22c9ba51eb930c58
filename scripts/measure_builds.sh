#!/usr/bin/env bash
# This build's gateway beside that of an earlier commit: `scripts/measure_builds.sh COMMIT DIRECTORY
# [OPTION...]` builds the commit there, starts both, has a console watch this one, and hands the
# options to `switchback bench redis`, which asks them in turn. Made for scripts/figures.sh.
set -euo pipefail
commit=$1 directory=$2
shift 2
source=$PWD
cd "$directory"
git clone --quiet "$source" earlier
git -C earlier checkout --quiet "$commit"
(cd earlier && CARGO_TARGET_DIR=$PWD/target cargo build --release --quiet -p switchback) >&2
racks=()
trap 'kill "${racks[@]}"' EXIT
rack() { # NAME PROGRAM GATEWAY METRICS
    printf '[rack]\nmetrics = "%s"\n[gateway]\nresp = "%s"\n' "$4" "$3" >"$1.toml"
    "$2" up --config "$1.toml" --data "$1" --durability everysec >/dev/null 2>"$1.log" &
    racks+=($!)
}
rack before earlier/target/release/switchback 127.0.0.1:6390 127.0.0.1:9474
rack now switchback 127.0.0.1:6380 127.0.0.1:9464
sleep 5
curl --silent --no-buffer http://127.0.0.1:9464/live >/dev/null &
racks+=($!)
switchback bench redis --beside 127.0.0.1:6390 --gateway 127.0.0.1:6380 "$@"
