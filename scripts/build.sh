#!/usr/bin/env bash
# Builds the product and the laboratory: each by itself, since crates that are built together share their features.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release "$@" -p switchback
cargo build --release "$@" -p switchback-lab -p switchback-sim -p switchback-model
