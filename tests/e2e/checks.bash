# For the shell tests of this directory, which source it: the program, and checks that go on after a
# failure.
program=${SWITCHBACK:-$PWD/target/release/switchback}
failures=0
# How long something that must happen may take, in seconds.
patience=120

check() { # what, then a command that must succeed
    local what=$1
    shift
    if "$@"; then echo "ok: $what"; else echo "FAILED: $what"; failures=$((failures + 1)); fi
}

eventually() { # a command that must succeed before long; what it prints is shown if it doesn't
    local end=$((SECONDS + patience))
    until "$@" >/dev/null 2>&1; do
        if [ "$SECONDS" -gt "$end" ]; then
            "$@"
            return
        fi
        sleep 0.1
    done
}
