# Runs a Postgres and several Redis servers that accept only TLS, until standard input closes.
# Arguments: folder with certificates, folder of Postgres' programs, port of Postgres, first port of
# the Redis servers, their number. Prints "ready" when all respond.
set -eu
folder=$1 programs=$2 postgres_port=$3 redis_port=$4 redis_servers=$5
pids=
finish() {
    # shellcheck disable=SC2086
    kill -INT $pids 2>/dev/null || true
    wait
    rm -rf "$folder"
}
trap finish EXIT
"$programs/initdb" --pgdata "$folder/postgres" --username holdfast --encoding UTF8 --auth trust \
    --locale C.UTF-8 --no-sync >"$folder/initdb.log"
cat >"$folder/pg_hba.conf" <<END
local all all trust
hostssl all all all trust clientcert=verify-ca
END
cat >>"$folder/postgres/postgresql.conf" <<END
listen_addresses = '127.0.0.1'
port = $postgres_port
unix_socket_directories = '$folder'
max_connections = 300
hba_file = '$folder/pg_hba.conf'
ssl = on
ssl_cert_file = '$folder/server.pem'
ssl_key_file = '$folder/server-key.pem'
ssl_ca_file = '$folder/authority.pem'
END
echo "create database holdfast" | "$programs/postgres" --single -D "$folder/postgres" postgres \
    >"$folder/create.log" 2>&1
"$programs/postgres" -D "$folder/postgres" >"$folder/postgres.log" 2>&1 &
pids=$!
number=0
while [ $number -lt "$redis_servers" ]; do
    redis-server --port 0 --tls-port $((redis_port + number)) --bind 127.0.0.1 \
        --unixsocket "$folder/redis-$number.sock" --save '' --appendonly no --dir "$folder" \
        --tls-cert-file "$folder/server.pem" --tls-key-file "$folder/server-key.pem" \
        --tls-ca-cert-file "$folder/authority.pem" >"$folder/redis-$number.log" 2>&1 &
    pids="$pids $!"
    number=$((number + 1))
done
for log in "$folder/postgres.log" $(seq -f "$folder/redis-%g.log" 0 $((redis_servers - 1))); do
    attempts=0
    until grep -qi "ready to accept connections" "$log"; do
        attempts=$((attempts + 1))
        if [ $attempts -gt 300 ]; then
            cat "$log" >&2
            exit 1
        fi
        sleep 0.1
    done
done
echo ready
read -r _ || true
