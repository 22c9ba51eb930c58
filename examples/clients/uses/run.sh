#!/usr/bin/env bash
# Everyday uses of Python and Node libraries, each with its result: run.sh HOST PORT. Exits non-zero
# if one of them goes wrong without saying so.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
"$here/python.sh" "$@"
python=$?
"$here/node.sh" "$@"
node=$?
exit $((python | node))
