#!/usr/bin/env bash
# Wireshark's view of a simulated rack's packets: every field of docs/protocol.md, section 1, against the bytes of the capture.
set -uo pipefail
cd "$(dirname "$0")/../.."
for command in tshark python3; do
    command -v "$command" >/dev/null || { echo "skipped: $command is missing (apt-get install tshark python3)"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
SWITCHBACK=${SWITCHBACK:-target/release/switchback} python3 tests/e2e/dissector.py "$work"
