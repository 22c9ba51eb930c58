#!/usr/bin/env bash
# Says what was skipped, and fails for what mustn't be: a test that the list doesn't have with what
# it was lacking, or on a machine that has it. Usage: skips.sh RECORD [LIST]; RECORD has lines of
# test, tab, what is lacking (tests/lacks.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=../tests/lacks.sh
. tests/lacks.sh
record=$1 list=${2:-tests/skips.txt}

# Why a test may be skipped for want of something; fails if it may not.
allowed() {
    local pattern lacking why
    while IFS='|' read -r pattern lacking why; do
        pattern=${pattern%"${pattern##*[! ]}"}
        # shellcheck disable=SC2254
        case $1 in $pattern) [ "${lacking// /}" != "$2" ] || { echo "${why# }"; return; } ;; esac
    done < <(grep -v '^#' "$list")
    return 1
}

refused=0
while IFS=$'\t' read -r name lacking; do
    if ! why=$(allowed "$name" "$lacking"); then
        echo "FAILED: $name was skipped for want of $lacking, which $list doesn't allow"
        refused=1
    elif ! lacks "$lacking"; then
        echo "FAILED: $name was skipped for want of $lacking, which this machine has"
        refused=1
    else
        echo "skipped: $name, without $lacking: $why"
    fi
done < <(sort -u "$record")
exit $refused
