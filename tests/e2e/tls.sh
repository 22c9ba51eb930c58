#!/usr/bin/env bash
# TLS at the gateway with redis-cli and redis-benchmark: certificates are renewed under load, and
# wrong ones refused.
set -uo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=checks.bash
. tests/e2e/checks.bash
# shellcheck source=../lacks.sh
. tests/lacks.sh
needs redis-cli openssl

work=$(mktemp -d)
pid=
loads=()
cleanup() {
    for process in $pid ${loads[@]+"${loads[@]}"}; do kill -9 "$process" 2>/dev/null; done
    rm -rf "$work"
}
trap cleanup EXIT

holds() { grep -q -- "$1" "$2" || { echo "  '$1' is not in:"; sed 's/^/  | /' "$2"; return 1; }; }
equal() { [ "$1" = "$2" ] || { echo "  '$1' is not '$2'"; return 1; }; }

# A CA, and a certificate that it issues.
authority() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 \
        -subj "/CN=$1" \
        -keyout "$work/$1.key" -out "$work/$1.crt" 2>/dev/null
}
issue() { # CA, name
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$2" \
        -keyout "$work/$2.key" -out "$work/$2.csr" 2>/dev/null
    openssl x509 -req -in "$work/$2.csr" -CA "$work/$1.crt" -CAkey "$work/$1.key" \
        -CAcreateserial -days 30 \
        -extfile <(echo subjectAltName=DNS:localhost,IP:127.0.0.1) -out "$work/$2.crt" 2>/dev/null
}
authority ca
authority other
issue ca gateway
issue ca client
issue ca renewed
issue other stranger

cat >"$work/rack.toml" <<END
[rack]
metrics = "127.0.0.1:0"
[nodes]
count = 2
[gateway]
resp = "127.0.0.1:0"
tls_certificate = "gateway.crt"
tls_key = "gateway.key"
tls_client_ca = "ca.crt"
tls_resp = "127.0.0.1:0"
END
check 'config check reads the certificates' "$program" config check "$work/rack.toml"
sed 's/"gateway.key"/"client.key"/' "$work/rack.toml" >"$work/wrong.toml"
check 'a key of another certificate is a mistake' equal \
    "$("$program" config check "$work/wrong.toml" >/dev/null 2>"$work/err"; echo $?)" 1
check 'which config check names' holds "client.key isn't the private key of the certificate in" \
    "$work/err"
check 'and so does the start' equal \
    "$("$program" up --config "$work/wrong.toml" >/dev/null 2>"$work/err"; echo $?)" 1
check 'with the same words' holds "can't serve TLS: .*client.key isn't the private key" "$work/err"

"$program" up --config "$work/rack.toml" >"$work/out" 2>"$work/err" &
pid=$!
eventually grep -q '^ready' "$work/out"
plain=$(sed -n 's/^ready resp=[^ ]*:\([0-9]*\) .*/\1/p' "$work/out")
metrics=$(sed -n 's/^ready .*metrics=\([^ ]*\) .*/\1/p' "$work/out")
tls=$(sed -n 's/^ready .*tls=[^ ]*:\([0-9]*\)$/\1/p' "$work/out")
[ -n "$plain" ] && [ -n "$tls" ] || { cat "$work/out" "$work/err"; exit 1; }
shown() {
    redis-cli -p "$tls" --tls --cacert "$work/$1.crt" --cert "$work/$2.crt" --key "$work/$2.key" \
        "${@:3}" 2>&1
}

check 'SET over TLS' equal "$(shown ca client set greeting hello)" OK
check 'GET over TLS, with RESP3' equal "$(shown ca client -3 get greeting)" hello
check 'plain text beside it' equal "$(redis-cli -p "$plain" get greeting)" hello
check 'a client without a certificate is refused' \
    eval '! redis-cli -p "$tls" --tls --cacert "$work/ca.crt" get greeting 2>&1 | grep -q hello'
check 'one of another CA, too' eval '! shown ca stranger get greeting | grep -q hello'
check 'plain text at the TLS port gets nothing' eval \
    '! timeout 10 redis-cli -p "$tls" get greeting 2>&1 | grep -q hello'
refused() {
    curl -s "http://$metrics/metrics" |
        grep '^switchback_gateway_errors_total{kind="tls"} [3-9]'
}
check 'each is counted' eventually refused

# Renewed under load: not one of the connections is dropped. The load has no end of its own, since
# a busy machine may take any time to renew; redis-benchmark ends at the first error.
for commands in set get; do
    redis-benchmark -p "$tls" --tls --cacert "$work/ca.crt" \
        --cert "$work/client.crt" --key "$work/client.key" \
        -t "$commands" -n 1000000000 -c 10 -P 16 -d 128 -q >"$work/load-$commands" 2>&1 &
    loads+=("$!")
done
received() {
    curl -s "http://$metrics/metrics" |
        awk '/^switchback_gateway_received_bytes_total/ { sum += $2 } END { printf "%.0f", sum }'
}
# Whether the gateway has got a megabyte more than these bytes.
goes_on() { [ "$(received)" -gt $(($1 + 1000000)) ]; }
run() { for process in "$@"; do kill -0 "$process" || return; done; }
check 'there is load' eventually goes_on "$(received)"
kill -HUP "$pid"
check 'a reload is told' eventually grep -q 'certificates read again' "$work/err"
cp "$work/stranger.crt" "$work/gateway.crt"
kill -HUP "$pid"
check 'a certificate without its key is refused' eventually \
    grep -q 'old certificates stay in force: .*gateway.key' "$work/err"
check 'and the old one serves' equal "$(shown ca client get greeting)" hello
cp "$work/renewed.crt" "$work/gateway.crt"
cp "$work/renewed.key" "$work/gateway.key"
kill -HUP "$pid"
# The gateway refuses this client, so only what it is shown counts, and not its exit code.
shown_to_all() { openssl s_client -connect "127.0.0.1:$tls" </dev/null 2>/dev/null; }
subject() { [[ $(shown_to_all) == *'CN = renewed'* ]]; }
check 'the renewed certificate is shown' eventually subject
check 'the load goes on' eventually goes_on "$(received)"
check 'the load was still running' run "${loads[@]}"
kill "${loads[@]}"
wait "${loads[@]}" 2>/dev/null
loads=()
check 'the load has seen no error' equal "$(cat "$work"/load-* | grep -ci error)" 0
expires=$(date -d "$(openssl x509 -noout -enddate -in "$work/renewed.crt" | cut -d= -f2)" +%s)
found=$(curl -s "http://$metrics/metrics" |
    sed -n 's/^switchback_gateway_certificate_expiry_timestamp_seconds //p')
check 'its expiry is a metric' equal "$found" "$expires"
kill "$pid"
wait "$pid"
check 'SIGTERM stops it' equal "$?" 0
pid=

exit $((failures > 0))
