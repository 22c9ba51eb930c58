#!/usr/bin/env bash
# Makes the figures of the pages about them: runs a block's command, and puts what it found into the
# page.
set -euo pipefail
cd "$(dirname "$0")/.."

# The pages, and where their pictures are.
pages=(docs/measure/evaluation.md docs/measure/performance.md)
pictures=docs/measure/figures

usage() {
    cat <<'HELP'
Usage: scripts/figures.sh --list | --check | [--from DIR] NAME...

A block of a page is

    <!-- generated: NAME: COMMAND -->
    Commit, date, machine, load, and the command
    what it found
    <!-- end -->

  NAME...      runs the commands of these blocks, one after the other, and replaces what stands
               between
  --from DIR   takes what an earlier `switchback lab experiment ... --out DIR` found instead of
               running it again
  --list       every block: name, page, command
  --check      fails if a table of a page stands in no block, or a block doesn't say where it comes
               from

OUT in a command is a directory that goes away afterwards. If the command leaves NAME.md there, that
is what is taken, with its pictures; otherwise it is what the command prints. A table that holds
definitions or inputs, no results, stands behind the line `<!-- definition -->`. Commands are run as
they are: `switchback` is this checkout's, built before by scripts/build.sh, and those with `sudo`
ask for a password.

Examples:
  scripts/figures.sh bench-4 pipeline
  switchback lab experiment all --out results &&
    scripts/figures.sh --from results goals exp1 exp2 exp3
HELP
}

fail() { printf '%s\n' "$@" >&2; exit 1; }

# Every block as page, name and command, tab between.
blocks() {
    local page
    for page in "${pages[@]}"; do
        sed -n "s|^<!-- generated: \([A-Za-z0-9-]*\): \(.*\) -->\$|$page\t\1\t\2|p" "$page"
    done
}

check() {
    local page wrong=0
    for page in "${pages[@]}"; do
        awk -v page="$page" '
            function say(what) { print page ":" FNR ": " what; wrong = 1 }
            /^<!-- generated: / {
                if (block) say("a block in a block: " block)
                if ($0 !~ /^<!-- generated: [A-Za-z0-9-]+: .+ -->$/)
                    say("not <!-- generated: NAME: COMMAND -->")
                if (names[$3]++) say("a second block " $3)
                block = $3; origin = 0
            }
            block && /^Commit [0-9a-f]+(-dirty)?, 20[0-9-]+, .*: `.+`$/ { origin = 1 }
            /^<!-- end -->$/ {
                if (!block) say("the end of no block")
                else if (!origin)
                    say("block " block " has no line \"Commit C, DATE, MACHINE: `COMMAND`\"")
                block = ""
            }
            /^\|/ && !table {
                table = 1
                if (!block && before != "<!-- definition -->") say("a table in no block")
            }
            !/^\|/ { table = 0 }
            NF { before = $0 }
            END { if (block) say("block " block " has no end"); exit wrong }' "$page" || wrong=1
    done
    local name
    name=$(blocks | cut -f 2 | sort | uniq -d)
    [ -z "$name" ] || { echo "more than one block $name"; wrong=1; }
    return $wrong
}

machine() {
    local model
    model=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
    echo "$(nproc) CPUs of ${model:-an unknown processor}, Linux $(uname -r | cut -d. -f 1,2)"
}

# Puts a block's commit, date, machine and command, then the file's text into its page.
put() { # page, name, origin, file
    awk -v begin="<!-- generated: $2: " -v origin="$3" -v file="$4" '
        index($0, begin) == 1 {
            print; print ""; print origin; print ""
            while ((getline line < file) > 0) print line
            skips = 1
        }
        $0 == "<!-- end -->" { if (skips) print ""; skips = 0 }
        !skips' "$1" >"$work/page"
    cat "$work/page" >"$1"
}

# What stood where NAME.md was left: without its own origin and title, headings below the page's,
# pictures beside it.
section() { # file, directory of the page
    local from picture prefix=${pictures#"$2/"}
    from=$(dirname "$1")
    sed "/^Commit [^ ]*: /d; /^# /d; s/^## /#### /; s|$from/||g; s|](\([^)/]*\.svg\))|]($prefix/\1)|" "$1" |
        cat -s | sed '1{/^$/d}; ${/^$/d}'
    sed -n 's/^!\[.*\](\([^)/]*\.svg\))$/\1/p' "$1" | while read -r picture; do
        cp "$from/$picture" "$pictures/$picture"
    done
}

generate() { # name
    local page name command out commit date where load said
    IFS=$'\t' read -r page name command < <(blocks | awk -F '\t' -v name="$1" '$2 == name') ||
        fail "no block $1"
    out=$work/out-$name
    mkdir -p "$out"
    commit=$(git describe --always --abbrev=12 --exclude='*') date=$(date -u +%F) load=
    # Documents change with every block that is made.
    [ -z "$(git status --porcelain -- . ':!*.md' ':!*.svg')" ] || commit+=-dirty
    if [ -n "$from" ]; then
        [ -f "$from/$name.md" ] || fail "$from has no $name.md"
        out=$from date=$(date -u -r "$from/$name.md" +%F)
    else
        echo "== $name: $command" >&2
        load=$(cut -d ' ' -f 1 /proc/loadavg)
        OUT=$out bash -c "${command//OUT/\"\$OUT\"}" | tee "$work/printed"
        load=", load $load to $(cut -d ' ' -f 1 /proc/loadavg)"
    fi
    where="$(machine)$load"
    if [ -f "$out/$name.md" ]; then
        # A program knows what it was built from and asked for, which may have been earlier, and
        # less.
        said=$(sed -n 's/^Commit \([^ ]*\): `\(.*\)`$/\1 \2/p' "$out/$name.md" | head -n 1)
        [ -z "$said" ] || commit=${said%% *}
        [ -z "$said" ] || [ -z "$from" ] || command=${said#* }
        section "$out/$name.md" "$(dirname "$page")" >"$work/text"
    else
        { echo '```text'; cat "$work/printed"; echo '```'; } >"$work/text"
    fi
    put "$page" "$name" "Commit $commit, $date, $where: \`$command\`" "$work/text"
}

from='' names=()
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) usage; exit ;;
    --list) blocks | awk -F '\t' '{ printf "%-14s %-22s %s\n", $2, $1, $3 }'; exit ;;
    --check) check; exit ;;
    --from) [ $# -gt 1 ] || { usage >&2; exit 2; }; from=$2; shift ;;
    -*) usage >&2; exit 2 ;;
    *) names+=("$1") ;;
    esac
    shift
done
[ ${#names[@]} -gt 0 ] || { usage >&2; exit 2; }
[ -z "$from" ] || from=$(cd "$from" && pwd)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PATH=${CARGO_TARGET_DIR:-$PWD/target}/release:$PATH
for name in "${names[@]}"; do generate "$name"; done
# Pictures that no page shows any more.
for picture in "$pictures"/*.svg; do
    grep -qF "${picture##*/})" "${pages[@]}" || rm -- "$picture"
done
check
