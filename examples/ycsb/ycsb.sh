# Sourced by run.sh and report.sh: builds the binding, and `ycsb ARGUMENTS` runs the original client
# against $host and $port.
build=${BUILD_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/switchback-examples}/ycsb
mkdir -p "$build"
mvn -q -B -f "$here/pom.xml" -DbuildDirectory="$build" package

ycsb() {
    java -cp "$build/classes:$build/lib/*" site.ycsb.Client "$@" \
        -db switchback.RespClient -P "$here/workloada" -threads "${THREADS:-8}" \
        -p resp.host="$host" -p resp.port="$port" \
        -p recordcount="${RECORDS:-1000}" -p operationcount="${OPERATIONS:-10000}"
}
