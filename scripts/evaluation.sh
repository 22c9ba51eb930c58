#!/usr/bin/env bash
# Brings docs/measure/evaluation.md up to date with a run of `switchback lab experiment all --out DIR`:
#   scripts/evaluation.sh DIR
# What stands between <!-- NAME --> and <!-- end --> becomes DIR/NAME.md, and the figures that these name are copied
# to docs/measure/figures/. What the run left out stays as it is, and is named. The words around the tables are
# written by hand: read them again.
set -euo pipefail

if [ $# -ne 1 ] || [ ! -f "$1/goals.md" ]; then
    echo "usage: scripts/evaluation.sh DIR, where DIR is what switchback lab experiment wrote (it has goals.md)" >&2
    exit 2
fi
results="$(cd "$1" && pwd)"
cd "$(dirname "$0")/.."
document=docs/measure/evaluation.md
figures=docs/measure/figures
mkdir -p "$figures"

names="$(sed -n 's/^<!-- \([a-z0-9]*\) -->$/\1/p' "$document" | grep -v '^end$')"
for name in $names; do
    section="$results/$name.md"
    if [ ! -f "$section" ]; then
        echo "$name: not in $results, left as it is"
        continue
    fi
    awk -v begin="<!-- $name -->" -v section="$section" '
        $0 == begin {
            print
            while ((getline line < section) > 0) {
                gsub(/\]\(/, "](figures/", line)
                print line
            }
            skips = 1
        }
        $0 == "<!-- end -->" { skips = 0 }
        !skips' "$document" > "$document.new"
    mv "$document.new" "$document"
    sed -n 's/^!\[.*\](\(.*\.svg\))$/\1/p' "$section" | while read -r figure; do
        cp "$results/$figure" "$figures/$figure"
    done
    echo "$name: $(sed -n 's/^\(Commit [^:]*\):.*/\1/p' "$section" | head -1)"
done

# Figures that the document no longer shows.
for figure in "$figures"/*.svg; do
    grep -qF "(figures/${figure##*/})" "$document" || rm -- "$figure"
done
