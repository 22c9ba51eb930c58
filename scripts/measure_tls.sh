#!/usr/bin/env bash
# What TLS costs a gateway: `scripts/measure_tls.sh DIRECTORY` starts a rack there that serves both,
# and has redis-benchmark ask both addresses in turn. Made for scripts/figures.sh.
set -euo pipefail
cd "$1"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
    -subj /CN=gateway -addext subjectAltName=IP:127.0.0.1 -keyout tls.key -out tls.crt 2>/dev/null
cat >rack.toml <<'END'
[gateway]
resp = "127.0.0.1:6380"
tls_resp = "127.0.0.1:6390"
tls_certificate = "tls.crt"
tls_key = "tls.key"
END
switchback up --config rack.toml --data data >/dev/null &
trap 'kill %1' EXIT
sleep 5
for pipeline in 16 1; do
    switchback bench redis --beside 127.0.0.1:6380 --gateway 127.0.0.1:6390 --cacert tls.crt \
        --keys 1000 --pipeline "$pipeline" --requests $((20000 * pipeline))
done
