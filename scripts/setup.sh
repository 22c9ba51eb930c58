#!/usr/bin/env bash
# Installs what is missing on Debian and Ubuntu, as root; otherwise prints the one command that
# does.
# Usage: setup.sh run|test. Takes a few milliseconds when nothing is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

purpose=${1:-run}
fail() { printf '%s\n' "$@" >&2; exit 1; }
. tests/lacks.sh

has() { command -v "$1" >/dev/null 2>&1; }
# Not libclang-cpp, which is another library.
has_libclang() {
    local directory
    [ -z "${LIBCLANG_PATH:-}" ] || return 0
    for directory in /usr/lib/llvm-*/lib /usr/lib/*-linux-gnu /usr/lib /usr/local/lib; do
        if compgen -G "$directory/libclang.so*" >/dev/null ||
            compgen -G "$directory/libclang-[0-9]*.so*" >/dev/null; then
            return 0
        fi
    done
    return 1
}
has_certificates() {
    [ -n "${SSL_CERT_FILE:-}" ] || [ -e /etc/ssl/certs/ca-certificates.crt ] ||
        [ -e /etc/pki/tls/certs/ca-bundle.crt ]
}
# The BPF backend needs 15.
has_clang() {
    compgen -G '/usr/bin/clang-1[5-9]' >/dev/null ||
        compgen -G '/usr/bin/clang-2[0-9]' >/dev/null ||
        { has clang && [ "$(clang -dumpversion | cut -d. -f1)" -ge 15 ]; }
}
has_venv() { has python3 && python3 -c 'import ensurepip, venv' 2>/dev/null; }
# An older node isn't used, and Debian's npm brings 300 packages: it is asked for only beside one
# that is.
has_npm_for_node_20() { has npm || { lacks node-20 && ! offered 'nodejs>=20'; }; }
older() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n1)" != "$2" ]; }

# When it is needed, what it is, how to see that it is there (whatever brought it), and the packages
# that bring it, of which the first that apt offers is taken. `run?` and `test?` go on without: the
# build is slow, tests are skipped.
llvm() { printf "$1-%s${2-} " 19 18 17 16 15; }
libclang="$(llvm libclang -dev) libclang-dev"
table="
run   | a C++ compiler, make  | has c++ && has make                   | build-essential
run   | root certificates     | has_certificates                      | ca-certificates
run   | libclang              | has_libclang                          | $libclang
run   | pkg-config            | has pkg-config                        | pkg-config
run   | headers of libelf     | [ -e /usr/include/libelf.h ]          | libelf-dev
run   | headers of zlib       | [ -e /usr/include/zlib.h ]            | zlib1g-dev
run?  | ccache                | has ccache                            | ccache
test  | clang 15 or newer     | has_clang                             | $(llvm clang) clang
test  | headers of libbpf     | [ -e /usr/include/bpf/bpf_helpers.h ] | libbpf-dev
test  | redis-cli             | has redis-cli                         | redis-tools
test  | redis-server          | has redis-server                      | redis-server
test  | openssl               | has openssl                           | openssl
test  | python3               | has python3                           | python3
test  | python3's venv        | has_venv                              | python3-venv
test  | git                   | has git                               | git
test  | curl                  | has curl                              | curl
test  | ip                    | has ip                                | iproute2
test  | a JDK                 | has javac                             | default-jdk-headless
test  | maven                 | has mvn                               | maven
test? | node 20 or newer      | ! lacks node-20                       | nodejs>=20
test? | npm, for node 20      | has_npm_for_node_20                   | npm
test? | go 1.21 or newer      | ! lacks go-1.21                       | golang-go>=2:1.21
test? | clang-format 19       | has clang-format-19                   | clang-format-19
test? | clang 19              | has clang-19                          | clang-19
test? | clang 19's sanitizers | ! lacks clang-19-sanitizers           | libclang-rt-19-dev
test? | bpftool               | has bpftool                           | bpftool
test? | tshark                | has tshark                            | tshark
test? | prometheus, promtool  | has prometheus && has promtool        | prometheus
test? | chromium              | has chromium                          | chromium
test? | chromedriver          | has chromedriver                      | chromium-driver
"

# Whether apt has a package, NAME or NAME>=VERSION. Asking takes a while, so only about what is
# missing.
offered() {
    local version
    version=$(apt-cache madison "${1%%>=*}" 2>/dev/null | awk 'NR == 1 { print $3 }')
    [ -n "$version" ] &&
        { [ "${1%%>=*}" = "$1" ] || dpkg --compare-versions "$version" ge "${1#*>=}"; }
}
# The first package that is offered, without its version.
first_offered() {
    local name
    for name in "$@"; do
        if offered "$name"; then echo "${name%%>=*}"; return; fi
    done
}
joined() { local names; names=$(printf ', %s' "$@"); echo "${names#, }"; }

# What is missing, and what apt would install for it.
missing=() optional=() packages=()
sudo=$([ "$(id -u)" = 0 ] || echo 'sudo ')
log=$(mktemp)
trap 'rm -f "$log"' EXIT
update=
while IFS='|' read -r -u 3 when what seen names; do
    when=${when// /}
    case $when in run*) ;; test*) [ "$purpose" = test ] || continue ;; *) continue ;; esac
    ! eval "$seen" </dev/null || continue
    what=$(sed 's/^ *//; s/ *$//' <<<"$what")
    if [ "$when" = "${when%\?}" ]; then missing+=("$what"); else optional+=("$what"); fi
    has apt-get || continue
    if [ -z "$update" ] && ! compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; then
        update="apt-get update && "
        [ -n "$sudo" ] || apt-get update -qq >"$log" 2>&1 ||
            fail "apt-get update failed:" "$(tail -n 5 "$log")"
    fi
    # shellcheck disable=SC2086
    package=$(first_offered $names)
    # What is needed is asked for in any case, by its last name, so that apt says what is wrong.
    if [ -z "$package" ] && [ "$when" = "${when%\?}" ]; then package=${names##* }; fi
    [ -z "$package" ] || [[ " ${packages[*]-} " == *" $package "* ]] || packages+=("$package")
done 3<<<"$table"

# What is left to the user; said all at once.
todo=()
install="apt-get install -y --no-install-recommends ${packages[*]-}"
# c++ is linked at the end of an installation, after ccache has made its own links to the compilers
# it found.
[[ " ${packages[*]-} " != *" ccache "* ]] || install+=" && update-ccache-symlinks"
without="(Missing: $(joined "${optional[@]-}"). It works without: the build is slow, tests are "
without+="skipped.)"
if [ ${#packages[@]} = 0 ]; then
    [ ${#missing[@]} = 0 ] || fail "Missing: $(joined "${missing[@]}")." \
        "This is no Debian or Ubuntu, so install them by your system's own means."
    [ ${#optional[@]} = 0 ] || echo "$without" >&2
elif [ -z "$sudo" ]; then
    echo "installing ${packages[*]}" >&2
    export DEBIAN_FRONTEND=noninteractive
    # A mirror drops old versions, so a list that is a few weeks old may name what is gone: then it
    # is updated.
    sh -c "$install" >"$log" 2>&1 ||
        { apt-get update -qq >>"$log" 2>&1 && sh -c "$install" >>"$log" 2>&1; } ||
        fail "apt-get install failed:" "$(tail -n 20 "$log")"
elif [ ${#missing[@]} = 0 ]; then
    printf '%s\n' "$without" "To install what is missing: sudo sh -c '$update$install'" >&2
else
    todo+=("sudo sh -c '$update$install'")
fi

# Rust is the user's own, so it is never installed behind their back.
wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
from_web="curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y && . ~/.cargo/env"
if ! has cargo; then
    if offered rustup; then
        todo+=("${sudo}apt-get install -y rustup && rustup default stable")
    elif has curl || [[ " ${packages[*]-} " == *" curl "* ]]; then
        todo+=("$from_web")
    else
        todo+=("${sudo}apt-get install -y curl && $from_web")
    fi
elif older "$(cargo --version | cut -d' ' -f2)" "$wanted"; then
    if has rustup; then
        todo+=('rustup update stable && rustup default stable')
    else
        todo+=("$from_web")
    fi
fi
if [ ${#todo[@]} -gt 0 ]; then
    printf 'This machine lacks something (Rust %s or newer is needed). Run this, then try again:\n\n' \
        "$wanted" >&2
    commands=${todo[0]}
    for command in "${todo[@]:1}"; do commands+=" &&"$'\n'"    $command"; done
    printf '  %s\n\n' "$commands" >&2
    exit 1
fi
if [ "$purpose" = test ] && lacks rust-sanitizer; then
    echo "($(rustc --version) has no sanitizer, so fuzzing is skipped. One from https://rustup.rs" \
        "has, also a stable one.)" >&2
fi
for component in clippy fmt; do
    [ "$purpose" != test ] || cargo "$component" --version >/dev/null 2>&1 ||
        fail "cargo $component is missing. Install it, then try again:" "" \
        "  rustup component add clippy rustfmt" ""
done
