#!/bin/sh
# The part of the upstream image's entry point that compose.yaml relies on: the first start makes the cluster, its
# owner POSTGRES_USER with the password in POSTGRES_PASSWORD_FILE, and the database POSTGRES_DB.
set -eu

if [ "${1:-}" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
    rmdir "$PGDATA" 2>/dev/null || :
    if [ -e "$PGDATA" ] || [ -L "$PGDATA" ]; then
        echo "postgres: $PGDATA holds something, but PG_VERSION in it is missing or empty: no cluster that can be started." >&2
        echo "postgres: Nothing was changed. Restore the volume, or move what is there away to begin with an empty database." >&2
        exit 1
    fi
    fresh="$PGDATA.new" # whole or not at all: a start that is killed begins anew
    rm -rf "$fresh"
    mkdir -m 0700 "$fresh"
    # shellcheck disable=SC2086 - several options
    initdb -D "$fresh" -U "$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" $POSTGRES_INITDB_ARGS >/dev/null
    echo 'host all all all scram-sha-256' >>"$fresh/pg_hba.conf"
    echo "listen_addresses = '*'" >>"$fresh/postgresql.conf"
    printf 'CREATE DATABASE "%s";\n' "$POSTGRES_DB" | postgres --single -D "$fresh" -c log_min_messages=warning postgres >/dev/null
    mv "$fresh" "$PGDATA"
fi
exec "$@"
