#!/usr/bin/env bash
# netns.sh: as many client machines as one likes, on one machine: isolated networks, each with ports of its own.
#
#   sudo loadtest/netns.sh [--networks 4] [--connections 15000] [--seconds 30] [--workers N]
#                          [--port-range "1024 65535"] [--port N] [--results DIR] [-- more options of the swarm]
#
#   this machine                                            network namespaces
#   server 10.204.0.1:PORT    10.204.1.1 <---- veth ----> 10.204.1.2 fanfare-PID-1: its own port range, a swarm
#                             10.204.2.1 <---- veth ----> 10.204.2.2 fanfare-PID-2: the same
#
# A connection needs a port of its client. A namespace is a machine of its own as far as ports go, so N of them have
# N times as many. Each runs the swarm's connect and endurance phases, and all must be connected at the same time.
#
# --connections   in each network
# --seconds       endurance: how long all of them hold
# --results       where the reports go; without, loadtest/results
# --port          of a server that runs already and listens on all addresses; without, one is started for the run
#
# Needs root and `ip`. Ends after LIMIT_SECONDS at the latest, and takes away whatever it has made. Exit code 0: no failure.
set -euo pipefail

LIMIT_SECONDS=600
# The networks that a run may take, each with /16. Runs at the same time take one each.
FIRST_NETWORK=204 LAST_NETWORK=219
here="$(cd "$(dirname "$0")" && pwd)"

networks=4 connections=15000 seconds=30 workers='' port_range='1024 65535' port='' results="$here/results"
usage() {
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"
  exit 0
}
# A wrong command line starts nothing.
refuse() {
  echo "netns.sh: $1 (--help lists the options)" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case "$1" in
    --help) usage ;;
    --) shift; break ;;
    --networks | --connections | --seconds | --workers | --port-range | --port | --results)
      [ $# -ge 2 ] || refuse "$1 needs a value" ;;
    --*) refuse "unknown option: $1" ;;
  esac
  case "$1" in
    --networks) networks="$2" ;;
    --connections) connections="$2" ;;
    --seconds) seconds="$2" ;;
    --workers) workers="$2" ;;
    --port-range) port_range="$2" ;;
    --port) port="$2" ;;
    --results) results="$2" ;;
    *) refuse "unexpected argument: $1" ;;
  esac
  shift 2
done
for number in "$networks" "$connections" "$seconds" "${workers:-1}" "${port:-1}"; do
  [[ "$number" =~ ^[1-9][0-9]*$ ]] || refuse "$number is not a whole number above 0"
done
[ "$networks" -le 250 ] || refuse 'at most 250 networks'
[ "$(id -u)" -eq 0 ] || { echo 'netns.sh: network namespaces need root' >&2; exit 1; }
command -v ip >/dev/null || { echo 'netns.sh: ip is missing: npm run test:setup' >&2; exit 1; }

# A run that was killed with SIGKILL leaves its namespaces and its address. Their names contain its
# pid, so the next run can remove them.
is_run() { tr '\0' ' ' 2>/dev/null <"/proc/$1/cmdline" | grep -q 'netns\.sh'; }
remove_dead_runs() {
  local name pid address
  while read -r name _; do
    pid="${name#fanfare-}" pid="${pid%-*}"
    if is_run "$pid"; then continue; fi
    ip netns delete "$name" 2>/dev/null || true
    ip link delete "ff$pid-${name##*-}" 2>/dev/null || true
  done < <(ip netns list | grep -E '^fanfare-[0-9]+-[0-9]+( |$)')
  while read -r address pid; do
    is_run "$pid" || ip addr delete "$address" dev lo 2>/dev/null || true
  done < <(ip -o -4 addr show dev lo | sed -n 's/.* inet \(10\.[0-9.]*\/32\) .* lo:\([0-9]*\)\\.*/\1 \2/p')
}

total=$((networks * connections))
# A worker holds 19,000; they do not share quite evenly.
workers="${workers:-$(((total + 14999) / 15000))}"
work="$(mktemp -d)"
server='' swarms=()
# The server and its workers, and all that runs in the namespaces.
started() {
  [ -z "$server" ] || echo "$server" "$(cat "/proc/$server/task/$server/children")"
  for ((i = 1; i <= networks; i++)); do ip netns pids "fanfare-$$-$i"; done
}
cleanup() {
  trap - EXIT
  local left
  left="$(started 2>/dev/null || true)"
  for pid in $left; do kill -KILL "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  for ((i = 1; i <= networks; i++)); do
    ip link delete "ff$$-$i" 2>/dev/null || true
    ip netns delete "fanfare-$$-$i" 2>/dev/null || true
  done
  ip addr delete "$NETWORK.0.1/32" dev lo 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

remove_dead_runs
# The address is this run's claim on its network: the kernel refuses to add it twice.
NETWORK=''
for ((second = FIRST_NETWORK; second <= LAST_NETWORK; second++)); do
  if ip -o addr show | grep -q " 10\.$second\."; then continue; fi
  if ip addr add "10.$second.0.1/32" dev lo label "lo:$$" 2>/dev/null; then
    NETWORK="10.$second"
    break
  fi
done
if [ -z "$NETWORK" ]; then
  echo "netns.sh: 10.$FIRST_NETWORK.0.0/16 to 10.$LAST_NETWORK.0.0/16 are in use on this machine" >&2
  exit 1
fi
for ((i = 1; i <= networks; i++)); do
  name="fanfare-$$-$i"
  ip netns add "$name"
  ip link add "ff$$-$i" type veth peer name eth0 netns "$name"
  ip addr add "$NETWORK.$i.1/30" dev "ff$$-$i"
  ip link set "ff$$-$i" up
  ip netns exec "$name" sh -c "
    ip link set lo up && ip addr add $NETWORK.$i.2/30 dev eth0 && ip link set eth0 up &&
    ip route add default via $NETWORK.$i.1 && sysctl -qw net.ipv4.ip_local_port_range='$port_range'"
done
echo "netns: $networks networks x $connections connections = $total, ports $port_range in each"

metrics=()
if [ -z "$port" ]; then
  env HOST="$NETWORK.0.1" PORT=0 METRICS_HOST="$NETWORK.0.1" METRICS_PORT=0 WORKERS="$workers" FANFARE_LIMITS=off \
    LOG_LEVEL=info FANFARE_DRAIN_DELAY_MS=0 node "$here/../src/main.js" >"$work/server.log" 2>&1 &
  server=$!
  for ((i = 0; i < 300; i++)); do
    ready="$(grep -m1 'fanfare is ready' "$work/server.log" || true)"
    [ -n "$ready" ] && break
    kill -0 "$server" 2>/dev/null || { cat "$work/server.log" >&2; exit 1; }
    sleep 0.1
  done
  [ -n "$ready" ] || { echo 'netns.sh: the server is not ready after 30 s' >&2; exit 1; }
  port="$(sed 's/.*"port":\([0-9]*\).*/\1/' <<<"$ready")"
  # One scrapes for all.
  metrics=(--metrics "http://$NETWORK.0.1:$(sed 's/.*"metricsPort":\([0-9]*\).*/\1/' <<<"$ready")/metrics")
  echo "netns: server with $workers workers at $NETWORK.0.1:$port"
fi

mkdir -p "$results"
stamp="$(date -u +%Y-%m-%dT%H%M%S)"
reports=()
for ((i = 1; i <= networks; i++)); do
  report="$results/netns-$stamp-$i"
  reports+=("$report.json")
  ip netns exec "fanfare-$$-$i" timeout --foreground --kill-after=10 "$LIMIT_SECONDS" \
    node "$here/swarm.js" --target "ws://$NETWORK.0.1:$port/ws" --connections "$connections" \
    --phases connect,endurance --endurance "$seconds" --report "$report" "${metrics[@]}" "$@" \
    > >(sed -u "s/^/[$i] /") 2>&1 &
  swarms+=($!)
  metrics=()
done
failed=0
for pid in "${swarms[@]}"; do wait "$pid" || failed=1; done

node --input-type=module - "$total" "${reports[@]}" <<'JS' || failed=1
import { existsSync, readFileSync } from 'node:fs';
const [total, ...paths] = process.argv.slice(2);
const words = (number) => number.toLocaleString('en-US');
const runs = paths.filter((path) => existsSync(path)).map((path) => JSON.parse(readFileSync(path, 'utf8')));
const sum = (value) => runs.reduce((all, run) => all + value(run), 0);
const opened = sum(({ connections }) => connections.peak);
const failures = sum((run) => run.failures.reduce((all, { count }) => all + count, 0));
const seen = Math.max(0, ...runs.flatMap(({ metrics }) => metrics.map(({ values }) => values.websocket_connections_total ?? 0)));
console.log(`\nnetns: ${words(opened)} of ${words(Number(total))} connections opened, ${words(failures)} failures, in ${runs.length} of ${paths.length} networks`);
const isCounted = runs.some(({ metrics }) => metrics.length > 0);
if (isCounted) console.log(`netns: ${words(seen)} at once, as the server counts`);
process.exit(opened === Number(total) && failures === 0 && (!isCounted || seen === Number(total)) ? 0 : 1);
JS
if [ "$failed" -eq 0 ]; then echo 'netns: held'; else echo 'netns: failed'; fi
exit "$failed"
