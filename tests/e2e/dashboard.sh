#!/usr/bin/env bash
# The dashboard in contrib/grafana: each of its queries finds something in a Prometheus that scrapes
# a real rack.
set -euo pipefail
# shellcheck source=../lacks.sh
. "$(dirname "$0")/../lacks.sh"
needs python3 prometheus
exec python3 "$(dirname "$0")/dashboard.py"
