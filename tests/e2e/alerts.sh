#!/usr/bin/env bash
# The rules of alerts: each fires when it must, and not otherwise. (That their metrics exist:
# crates/rack/src/metrics.)
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
. tests/lacks.sh
needs promtool
# shellcheck source=checks.bash
. tests/e2e/checks.bash
rules=contrib/prometheus/switchback.rules.yml tests=contrib/prometheus/switchback.rules.test.yml
# Whether the tests have the alert fire (an alert is expected) and be silent (none is).
fires() { grep -A 1 "alertname: $1$" "$tests" | grep -q 'exp_alerts:$'; }
is_silent() { grep -q "alertname: $1, exp_alerts: \[\]" "$tests"; }

check 'the rules are valid' promtool check rules "$rules"
check 'they do what their tests say' promtool test rules "$tests"
for alert in $(sed -n 's/^ *- alert: //p' "$rules"); do
    check "$alert has a test in which it fires" fires "$alert"
    check "... and one in which it doesn't" is_silent "$alert"
    check '... and is in docs/run/operations.md' grep -q "^| \`$alert\` |" docs/run/operations.md
done
[ "$failures" = 0 ]
