#!/usr/bin/env bash
# try-deb.sh: installs a .deb, uses it, removes and purges it, on a copy of this machine that is gone afterwards.
#
#   ops/release/try-deb.sh release/fanfare_0.3.0_all.deb       as root on Debian or Ubuntu
#
# The copy is an overlay over /, in mount, process and network namespaces of its own, so dpkg and the package's scripts run for
# real, and this machine keeps its files. systemd does not run there: the script starts the unit's ExecStart by hand, as the unit's
# user, in its folder and with its settings, without capabilities and new privileges. systemd-analyze reads the unit.
# Exit code 77: something is missing to try it here.
# shellcheck disable=SC2015,SC2016
set -euo pipefail
skip() { echo "try-deb: $*" >&2; exit 77; }
[ -f "${1:-}" ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 64; }
deb=$(readlink -f "$1")
[ "$(id -u)" = 0 ] || skip 'needs root'
command -v dpkg >/dev/null && command -v adduser >/dev/null || skip 'no dpkg and adduser here'

if [ -z "${TRY_DEB_INSIDE:-}" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  unshare --mount bash -c 'mount -t tmpfs tmpfs "$1" && mkdir "$1"/{u,w,m} &&
    mount -t overlay overlay -o "lowerdir=/,upperdir=$1/u,workdir=$1/w" "$1/m"' - "$work" 2>/dev/null || skip 'no overlay to be had'
  mkdir -p "$work/tools"
  cp "$0" "$work/tools/try-deb.sh"
  TRY_DEB_INSIDE=$work TRY_DEB_NODE=$(readlink -f "$(command -v node)") \
    unshare --mount --net --pid --fork --kill-child bash "$work/tools/try-deb.sh" "$deb"
  exit
fi

if [ "$TRY_DEB_INSIDE" != inside ]; then
  work=$TRY_DEB_INSIDE
  script=$(cat "$0")
  mount --make-rprivate /
  mount -t tmpfs tmpfs "$work"
  mkdir "$work"/{u,w,m}
  mount -t overlay overlay -o "lowerdir=/,upperdir=$work/u,workdir=$work/w" "$work/m"
  cp "$deb" "$work/m/root/fanfare.deb"
  echo "$script" >"$work/m/root/try-deb.sh"
  mount -t proc proc "$work/m/proc"
  mount --rbind /dev "$work/m/dev"
  mount -t tmpfs tmpfs "$work/m/run"
  mount -t tmpfs tmpfs "$work/m/tmp"
  chmod 1777 "$work/m/tmp"
  ip link set lo up
  TRY_DEB_INSIDE=inside exec chroot "$work/m" bash /root/try-deb.sh /root/fanfare.deb
fi

# From here on, / is the copy.
step() { echo "try-deb: $*"; }
die() { echo "try-deb: $*" >&2; exit 1; }
export DEBIAN_FRONTEND=noninteractive PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
cd /root
dpkg --purge fanfare >/dev/null 2>&1 || true
rm -rf /etc/fanfare
if ! dpkg-query -W -f '${Status}' nodejs 2>/dev/null | grep -q ' installed'; then
  step "this machine's Node as the package nodejs"
  mkdir -p node/DEBIAN node/usr/bin
  ln -s "$TRY_DEB_NODE" node/usr/bin/node
  printf 'Package: nodejs\nVersion: %s\nArchitecture: all\nMaintainer: x <x@x>\nDescription: x\n' \
    "$("$TRY_DEB_NODE" -p 'process.versions.node')" >node/DEBIAN/control
  dpkg-deb --build node nodejs.deb >/dev/null && dpkg -i nodejs.deb >/dev/null
fi

step "install: $(dpkg-deb -f fanfare.deb Package Version Architecture | tr '\n' ' ')"
dpkg -i fanfare.deb >/root/dpkg.log 2>&1 || { cat /root/dpkg.log; exit 1; }
[ "$(fanfare --version)" = "$(dpkg-deb -f fanfare.deb Version)" ] || die 'fanfare --version'
[ "$(stat -c '%U:%G %a' /etc/fanfare/fanfare.env)" = 'root:fanfare 640' ] || die 'modes of /etc/fanfare/fanfare.env'
[ "$(stat -c '%U:%G %a' /etc/fanfare/jwt-secret)" = 'root:fanfare 640' ] || die 'modes of /etc/fanfare/jwt-secret'
grep -qxE '[0-9a-f]{64}' /etc/fanfare/jwt-secret || die 'the key'
fanfare-settings check >/dev/null || die 'the settings'
! setpriv --reuid=nobody --clear-groups cat /etc/fanfare/jwt-secret 2>/dev/null || die 'anybody can read the key'
if dpkg --verify fanfare | grep -v '^$'; then die 'files differ from the package'; fi
unit=/usr/lib/systemd/system/fanfare.service
if command -v systemd-analyze >/dev/null; then
  said=$(systemd-analyze verify $unit 2>&1) && [ -z "$said" ] || die "systemd-analyze verify: $said"
  systemd-analyze security --offline=true --threshold=20 --no-pager $unit >/dev/null || die 'systemd-analyze security'
fi

of_unit() { sed -n "s/^$1=//p" $unit; }
start() {
  local settings
  mapfile -t settings < <(grep -E '^[A-Z_]+=' "$(of_unit EnvironmentFile | sed 's/^-//')"; of_unit Environment)
  (
    cd "$(of_unit WorkingDirectory)"
    # shellcheck disable=SC2046
    exec env -i PATH="$PATH" "${settings[@]}" setpriv "--reuid=$(of_unit User)" "--regid=$(of_unit Group)" --init-groups \
      --no-new-privs --bounding-set=-all --inh-caps=-all $(of_unit ExecStart)
  ) >/root/log 2>&1 &
  server=$!
  for _ in $(seq 300); do
    grep -q 'fanfare is ready' /root/log && return
    kill -0 $server 2>/dev/null || { cat /root/log; die 'the server has ended'; }
    sleep 0.1
  done
  die 'the server is not ready'
}
stop() {
  kill -TERM $server
  wait $server || die "the server ended with $?"
}
echo 'FANFARE_DRAIN_DELAY_MS=0' >>/etc/fanfare/fanfare.env
echo 'FANFARE_RECONNECT_WINDOW_MS=1000' >>/etc/fanfare/fanfare.env

step "run as $(of_unit User): $(of_unit ExecStart)"
start
fanfare-settings doctor --live
[ "$(stat -c %U "/proc/$server")" = fanfare ] || die 'the user of the process'
cat >/root/client.mjs <<'JS'
import { WebSocket } from '/usr/lib/fanfare/node_modules/ws/wrapper.mjs';
const [token] = process.argv.slice(2);
const refused = new WebSocket('ws://127.0.0.1:3000/ws');
const [code] = await new Promise((resolve) => {
  refused.on('open', () => refused.send('{"type":"join","room":"lobby"}'));
  refused.on('close', (...args) => resolve(args));
  refused.on('error', () => resolve(['refused']));
});
console.log(`without a token: ${code}`);
const socket = new WebSocket(`ws://127.0.0.1:3000/ws?token=${token}`);
socket.on('open', () => socket.send('{"type":"join","room":"lobby"}'));
socket.on('message', (data) => {
  const { type, room, payload, reconnectAfterMs } = JSON.parse(String(data));
  if (type === 'joined') socket.send('{"type":"message","room":"lobby","payload":"hello"}');
  if (type === 'message') console.log(`received in ${room}: ${payload}`);
  if (reconnectAfterMs !== undefined) console.log('told when to return');
});
socket.on('close', (code) => console.log(`closed with ${code}`));
JS
token=$(fanfare-settings token --user ann --rooms '*' | tail -1)
node client.mjs "$token" >/root/client.log 2>&1 &
client=$!
for _ in $(seq 100); do grep -q received /root/client.log && break; sleep 0.1; done
grep -qx 'received in lobby: hello' /root/client.log || { cat /root/client.log; die 'no message'; }
step 'SIGTERM: drain'
stop
wait $client || true
sed 's/^/  client: /' /root/client.log
grep -qx 'closed with 1012' /root/client.log || die 'the client was not closed with 1012'

step 'install again: settings and key stay'
key=$(cat /etc/fanfare/jwt-secret)
dpkg -i --force-confold fanfare.deb >/root/dpkg.log 2>&1 || { cat /root/dpkg.log; exit 1; }
[ "$key" = "$(cat /etc/fanfare/jwt-secret)" ] || die 'the key has changed'
grep -qx 'FANFARE_DRAIN_DELAY_MS=0' /etc/fanfare/fanfare.env || die 'the settings have changed'
start
stop

step 'remove: settings stay'
dpkg -r fanfare >/root/dpkg.log 2>&1 || { cat /root/dpkg.log; exit 1; }
[ ! -e /usr/lib/fanfare ] && [ ! -e /usr/bin/fanfare ] && [ ! -e $unit ] || die 'files are left'
[ -e /etc/fanfare/fanfare.env ] && [ -e /etc/fanfare/jwt-secret ] || die 'the settings are gone'
step 'purge'
dpkg -P fanfare >/root/dpkg.log 2>&1 || { cat /root/dpkg.log; exit 1; }
[ ! -e /etc/fanfare ] || die '/etc/fanfare is left'
step 'installed, run, drained, removed, purged'
