#!/usr/bin/env bash
# redis-py: run.sh HOST PORT
here=$(dirname "$0")
exec "$here/../venv.sh" "$here" smoke.py "$@"
