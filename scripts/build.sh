#!/usr/bin/env bash
# Builds the product and the laboratory, with what cargo is given: `scripts/build.sh --quiet`. Each
# by itself: what is built together shares its features, and only the laboratory has those that
# switch mechanisms off.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t laboratory < <(sed -n 's/^name = "\(switchback-.*\)"$/-p\n\1/p' lab/*/Cargo.toml)
cargo build --release "$@"
cargo build --release "$@" "${laboratory[@]}"
