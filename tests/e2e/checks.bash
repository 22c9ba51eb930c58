# For the shell tests of this directory, which source it: the program, and checks that go on after a failure.
program=${SWITCHBACK:-$PWD/target/release/switchback}
failures=0

check() { # what, then a command that must succeed
    local what=$1
    shift
    if "$@"; then echo "ok: $what"; else echo "FAILED: $what"; failures=$((failures + 1)); fi
}
