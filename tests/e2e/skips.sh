#!/usr/bin/env bash
# A skip is recorded, counted, and fails unless it is listed and the machine lacks what it was
# skipped for.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
# shellcheck source=checks.bash
. tests/e2e/checks.bash
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

printf '%s\n' '# comment' 'switchback-a/b::* | no-such-command | it needs that' \
    'switchback-a/c::d | sh | it needs that' >"$work/list"
# A test that is skipped for want of something, as scripts/skips.sh sees it.
skipped() {
    (SWITCHBACK_SKIPS=$work/record && . tests/lacks.sh && : >"$work/record" && skip "$@") >/dev/null
    scripts/skips.sh "$work/record" "$work/list" >"$work/out"
}
says() { grep -qx -- "$1" "$work/out" || { cat "$work/out"; return 1; }; }
refused() { ! skipped "$@"; }

: >"$work/record"
check 'nothing skipped is right' scripts/skips.sh "$work/record" "$work/list"
check 'what is listed and lacking may be skipped' skipped switchback-a/b::test no-such-command
check '... with the reason' says \
    'skipped: switchback-a/b::test, without no-such-command: it needs that'
check 'a test that is not listed may not' refused switchback-a/b no-such-command
check '... and is named' says "FAILED: switchback-a/b was skipped .*list doesn't allow"
check 'nor for want of something else' refused switchback-a/b::test another-command
check 'nor if nothing is lacking' refused switchback-a/c::d sh
check '... which is said' says 'FAILED: .* for want of sh, which this machine has'
# A script that needs something, as scripts/test.sh runs it.
printf '#!/bin/sh\n. tests/lacks.sh\nneeds sh no-such-command\necho ran\n' >"$work/script"
export SWITCHBACK_SKIPS=$work/record
: >"$work/record"
sh "$work/script" >"$work/out"
check 'a script without what it needs ends with 77' [ $? = 77 ]
check '... and is recorded under its name' grep -qx "$work/script	no-such-command" "$work/record"
[ "$failures" = 0 ]
