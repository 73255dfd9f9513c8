#!/usr/bin/env bash
# by-hand.sh: does with the server's image what an engine would do, without an engine.
#
#   docker/by-hand.sh              needs root on Linux, and the network or npm's cache
#
# 1. Takes the context as docker/Dockerfile.dockerignore leaves it, runs the installation of the stage `modules`, and copies what
#    the stage `server` copies into an empty root, with Node and the libraries that it links. The root has no shell.
# 2. Runs ENTRYPOINT and CMD there: the root read-only, /tmp in memory, user and group of USER, no capability, no new privileges,
#    in network, process and mount namespaces of its own.
# 3. Runs the health check inside, sends a message through the public port, sends STOPSIGNAL, and waits for the drain.
#
# What differs from an engine: Node is this machine's, and the files of Debian around it are missing.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo 'by-hand: needs root' >&2; exit 77; }
unshare --mount --net --pid --fork true 2>/dev/null || { echo 'by-hand: no namespaces to be had' >&2; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
image=$work/root
file=docker/Dockerfile
# The lines of the stage `server`, continued ones joined.
stage=$(sed -e ':a; /\\$/{N; s/\\\n *//; ba}' "$file" | sed -n '/^FROM .* AS server$/,$p')
line() { sed -n "s/^$1 //p" <<<"$stage" | head -1; }
# A command in its JSON form.
words() { node -e 'for (const word of JSON.parse(process.argv[1])) console.log(word)' "$(line "$1")"; }
step() { echo "by-hand: $*"; }

step 'the context'
mkdir -p "$work/context" "$image"/{tmp,proc,dev,etc}
mapfile -t included < <(sed -n 's/^!//p' docker/Dockerfile.dockerignore)
git ls-files -z --cached --others --exclude-standard -- "${included[@]}" |
  xargs -0 tar -cf - | tar -xf - -C "$work/context"

step 'npm ci --omit=dev, as in the stage modules'
mkdir -p "$work/modules"
cp "$work/context"/{package.json,package-lock.json,.npmrc} "$work/modules"
(cd "$work/modules" && npm ci --omit=dev --prefer-offline --silent)

step 'COPY of the stage server'
folder=$image$(line WORKDIR)
mkdir -p "$folder"
cp -r "$work/modules/node_modules" "$folder"
# One COPY has several files, the other one folder with its target.
sed -n 's/^COPY \([^-].*\) \.\/$/\1/p' <<<"$stage" | tr ' ' '\n' | while read -r name; do cp "$work/context/$name" "$folder"; done
sed -n 's/^COPY \([^-][^ ]*\) \.\/\(..*\)$/\1 \2/p' <<<"$stage" | while read -r from to; do cp -r "$work/context/$from" "$folder/$to"; done

step 'Node and its libraries'
node=$(readlink -f "$(command -v node)")
mkdir -p "$image/usr/local/bin"
cp "$node" "$image/usr/local/bin/node"
ldd "$node" | grep -o '/[^ ]*' | while read -r library; do install -D "$(readlink -f "$library")" "$image$library"; done
tini=$(command -v tini-static || true)
if [ -z "$tini" ] && command -v apt-get >/dev/null; then
  (cd "$work" && apt-get download -qq tini >/dev/null 2>&1 && dpkg-deb -x tini_*.deb tini) && tini=$work/tini/usr/bin/tini-static
fi
mapfile -t command < <(words ENTRYPOINT; words CMD)
if [ -x "$tini" ]; then
  cp "$tini" "$image/usr/local/bin/tini"
else
  step 'no tini to be had: Node is process 1'
  command=("${command[@]:2}")
fi
[ ! -e "$image/bin/sh" ] || { echo 'by-hand: there is a shell' >&2; exit 1; }
chmod -R go+rX,a-w "$image"
chmod 1777 "$image/tmp"
sums() { (cd "$image" && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum); }
before=$(sums)

mapfile -t settings < <(line ENV | tr ' ' '\n')
mapfile -t health < <(words 'HEALTHCHECK.*CMD')
IFS=: read -r uid gid < <(line USER)
inside=$(line WORKDIR)

# What an engine prepares before the first process, which then has neither root nor the rest of this machine.
cat >"$work/start.sh" <<'INNER'
set -euo pipefail
image=$1
shift
mount --make-rprivate /
mount --bind "$image" "$image"
mount -o remount,bind,ro,nosuid,nodev "$image"
mount -t tmpfs -o size=16m,mode=1777 tmpfs "$image/tmp"
mount -t proc proc "$image/proc"
mount -t tmpfs -o mode=755 tmpfs "$image/dev"
for one in null zero urandom random; do touch "$image/dev/$one"; mount --bind "/dev/$one" "$image/dev/$one"; done
ip link set lo up
exec "$@"
INNER
clean=(env -i "${settings[@]}" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  WORKERS=2 LOG_FORMAT=json FANFARE_DRAIN_DELAY_MS=0 FANFARE_RECONNECT_WINDOW_MS=500)
enter=(setpriv --no-new-privs unshare "--root=$image" "--wd=$inside" "--setuid=$uid" "--setgid=$gid")

step "start: ${command[*]}"
"${clean[@]}" unshare --mount --net --pid --fork --kill-child bash "$work/start.sh" "$image" "${enter[@]}" "${command[@]}" \
  >"$work/log" 2>&1 &
outer=$!
trap 'kill -KILL $outer 2>/dev/null || true; rm -rf "$work"' EXIT
for _ in $(seq 300); do
  grep -q '"fanfare is ready' "$work/log" && break
  kill -0 $outer 2>/dev/null || { cat "$work/log"; exit 1; }
  sleep 0.1
done
first=$(ps -o pid= --ppid "$outer" | tr -d ' ')
within() { "${clean[@]}" nsenter --target "$first" --mount --net --pid "$@"; }

step 'every process: the user of the image, no capability, no new privileges'
for pid in "$first" $(ps -o pid= --ppid "$first") $(ps -eo pid=,ppid= | awk -v one="$(ps -o pid= --ppid "$first" | head -1 | tr -d ' ')" '$2 == one { print $1 }'); do
  status=$(grep -E '^(Name|Uid|Gid|CapEff|CapPrm|NoNewPrivs):' "/proc/$pid/status" | tr -s '\t' ' ')
  for wanted in "Uid: $uid $uid $uid $uid" "Gid: $gid $gid $gid $gid" 'CapEff: 0000000000000000' 'CapPrm: 0000000000000000' 'NoNewPrivs: 1'; do
    grep -qx "$wanted" <<<"$status" || { echo "by-hand: process $pid has not \"$wanted\":" "$status" >&2; exit 1; }
  done
done

step "health check: ${health[*]}"
within "${enter[@]}" "${health[@]}"
step 'the root is read-only'
within "${enter[@]}" node -e '
  const { writeFileSync } = require("node:fs");
  for (const path of ["/x", "src/x.js", "/usr/local/bin/x", "/etc/x"])
    try { writeFileSync(path, ""); console.log(path, "was written"); process.exitCode = 1; }
    catch ({ code }) { if (code !== "EROFS" && code !== "EACCES") throw code; }'
step 'a message through the public port'
nsenter --target "$first" --net node loadtest/hello.js

step "stop: $(line STOPSIGNAL)"
kill -s "$(line STOPSIGNAL)" "$first"
code=0
wait $outer || code=$?
[ $code = 0 ] || { tail -3 "$work/log"; echo "by-hand: exit code $code" >&2; exit 1; }
! grep -E '"level":(50|60|"error"|"fatal")' "$work/log" || { echo 'by-hand: errors in the log' >&2; exit 1; }
[ "$before" = "$(sums)" ] || { echo 'by-hand: files of the image have changed' >&2; exit 1; }
step 'drained, exit code 0, no file of the image has changed'
