#!/usr/bin/env bash
# Licenses, sources and duplicates of all dependencies, by deny.toml. Needs cargo-deny
# (`cargo install --locked cargo-deny`); without it this exits with 77, which is a skip.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/lacks.sh

needs cargo-deny
cargo deny check bans licenses sources
