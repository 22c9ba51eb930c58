#!/usr/bin/env bash
# Libraries that use transactions and scripts: run.sh HOST PORT
here=$(dirname "$0")
exec "$here/../venv.sh" "$here" libraries.py "$@"
