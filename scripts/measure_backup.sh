#!/usr/bin/env bash
# For how long backups have clients hold their writes back: `scripts/measure_backup.sh DIRECTORY`
# makes 20 of a rack there while redis-benchmark writes to it. Made for scripts/figures.sh.
set -euo pipefail
cd "$1"
switchback up --data data >/dev/null &
trap 'kill $(jobs -p)' EXIT
sleep 5
redis-benchmark -p 6380 -t set -r 20000 -d 400 -P 8 -n 1000000000 -q >/dev/null &
sleep 2
for n in $(seq 20); do switchback backup --data data --to "backup-$n"; done 2>&1 |
    sed -n 's/.*held their writes back for //p' | sort -n | xargs
