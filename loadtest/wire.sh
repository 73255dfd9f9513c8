#!/usr/bin/env bash
# wire.sh: a broadcast over a wire instead of loopback. The server is in a network namespace of its own, and a rate
# limits what it sends; the clients of the benchmark are outside.
#
#   sudo loadtest/wire.sh [--rates "none 10gbit 1gbit"] [--workers 2] [--payload 100] [--members 1000]
#                         [--save PATH] [-- more options of bench/run.js]
#
#   namespace fanfare-wire-PID                                            this machine
#   server 10.203.0.2:3000, tc at its end: tbf rate RATE  <---- veth ---->  10.203.0.1, the clients
#
# --rates    one run for each, `none` without a limit. The kernel must have tbf (tc qdisc add … tbf)
# --members  1000 or 5000: the workload saturated-N of bench/run.js
# --save     PATH-RATE.md and PATH-RATE.json; without, loadtest/results/wire-RATE
#
# After each run it prints what the wire carried: bytes and packets with all headers, and how often tbf held them back.
# A veth pair copies nothing and has no interrupts. Segmentation offload is on, as with a network card.
# Needs root and `ip`. Takes away whatever it has made. Exit code 0: every run was measured.
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
rates='none 10gbit 1gbit' workers=2 payload=100 members=1000 save="$here/results/wire"
# A wrong command line starts nothing.
refuse() {
  echo "wire.sh: $1 (--help lists the options)" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case "$1" in
    --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    --) shift; break ;;
    --rates | --workers | --payload | --members | --save) [ $# -ge 2 ] || refuse "$1 needs a value" ;;
    --*) refuse "unknown option: $1" ;;
    *) refuse "unexpected argument: $1" ;;
  esac
  case "$1" in
    --rates) rates="$2" ;;
    --workers) workers="$2" ;;
    --payload) payload="$2" ;;
    --members) members="$2" ;;
    --save) save="$2" ;;
  esac
  shift 2
done
[ "$(id -u)" -eq 0 ] || { echo 'wire.sh: network namespaces need root' >&2; exit 1; }
command -v ip >/dev/null || { echo 'wire.sh: ip is missing: npm run test:setup' >&2; exit 1; }

space="fanfare-wire-$$" link="fw$$" work="$(mktemp -d)" server=''
cleanup() {
  trap - EXIT
  for pid in $(ip netns pids "$space" 2>/dev/null || true); do kill -KILL "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  ip link delete "$link" 2>/dev/null || true
  ip netns delete "$space" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

if ip -o addr show | grep -q ' 10\.203\.0\.'; then
  echo 'wire.sh: 10.203.0.0/30 is in use on this machine' >&2
  exit 1
fi
ip netns add "$space"
ip link add "$link" type veth peer name eth0 netns "$space"
ip addr add 10.203.0.1/30 dev "$link"
ip link set "$link" up
inside() { ip netns exec "$space" "$@"; }
inside ip link set lo up
inside ip addr add 10.203.0.2/30 dev eth0
inside ip link set eth0 up
mkdir -p "$(dirname "$save")"

start_server() {
  (exec ip netns exec "$space" env HOST=10.203.0.2 PORT=3000 METRICS_PORT=0 WORKERS="$workers" FANFARE_LIMITS=off \
    LOG_LEVEL=info FANFARE_DRAIN_DELAY_MS=0 node "$here/../src/main.js") >"$work/server.log" 2>&1 &
  server=$!
  for ((i = 0; i < 300; i++)); do
    grep -q 'fanfare is ready' "$work/server.log" && return
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  cat "$work/server.log" >&2
  exit 1
}
sent() { inside cat "/sys/class/net/eth0/statistics/$1"; }

for rate in $rates; do
  start_server
  inside tc qdisc delete dev eth0 root 2>/dev/null || true
  # The burst holds one millisecond of 10 Gb/s.
  [ "$rate" = none ] || inside tc qdisc add dev eth0 root tbf rate "$rate" burst 1500kb latency 100ms
  [ "$rate" = none ] || inside tc qdisc show dev eth0
  before=$(sent tx_bytes)
  node "$here/bench/run.js" --only none --url ws://10.203.0.2:3000 --profile fanfare --server-pid "$server" \
    --name "wire $rate" --workloads "saturated-$members" --payload "$payload" --sources 0 --save "$save-$rate" "$@"
  echo "wire.sh: $rate: $(($(sent tx_bytes) - before)) bytes from the server in all runs of this rate"
  inside tc -s qdisc show dev eth0 | sed 's/^/  /'
  kill -TERM "$server"
  wait "$server" || true
done
