#!/usr/bin/env bash
# Wireshark's view of a simulated rack's packets: every field of docs/understand/protocol.md,
# section 1, against the bytes of the capture.
set -uo pipefail
cd "$(dirname "$0")/../.."
. tests/lacks.sh
needs python3 tshark
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
SWITCHBACK=${SWITCHBACK:-target/release/switchback} python3 tests/e2e/dissector.py "$work"
