#!/usr/bin/env bash
# isolated-clients.sh: starts N networks, each with its own subnet and a load client, and one server in all of them.
#
#   docker/isolated-clients.sh [--networks 4] [--connections 25000] [--subnets 172.30] [--results DIR] [-- more options of the swarm]
#
#   fanfare-clients-1   172.30.1.0/24   client, 64,512 ports of its own ----+
#   fanfare-clients-2   172.30.2.0/24   client, the same -------------------+---- the server of clients.compose.yml
#
# --connections  of each client
# --subnets      first half of the addresses: NETWORK becomes the third number, so at most 250 networks
# --results      folder for each client's report and log; loadtest/results/isolated by default
#
# Without more options: `--phases connect,endurance`, so that all are connected at the same time for a minute. The script removes
# everything it creates, also if it is interrupted or runs into LIMIT_SECONDS. Exit code 0: every client's run passed. The same
# without Docker: loadtest/netns.sh.
set -euo pipefail

LIMIT_SECONDS=900
here="$(cd "$(dirname "$0")" && pwd)"
compose=(docker compose -f "$here/clients.compose.yml")

usage() {
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"
  exit "$1"
}

networks=4 connections=25000 subnets=172.30 results="$here/../loadtest/results/isolated"
while [ $# -gt 0 ]; do
  case "$1" in
    --help) usage 0 ;;
    --)
      shift
      break
      ;;
    --networks | --connections | --subnets | --results)
      [ $# -ge 2 ] || usage 64 >&2
      printf -v "${1#--}" '%s' "$2"
      shift 2
      ;;
    *) usage 64 >&2 ;;
  esac
done
[[ "$networks" =~ ^[0-9]+$ && "$connections" =~ ^[0-9]+$ ]] || usage 64 >&2
if [ "$networks" -lt 1 ] || [ "$networks" -gt 250 ]; then usage 64 >&2; fi
[ $# -gt 0 ] || set -- --phases connect,endurance

server=''
# shellcheck disable=SC2317 # Called by the trap.
clean_up() {
  local i
  for ((i = 1; i <= networks; i++)); do
    docker rm --force "fanfare-clients-$i" >/dev/null 2>&1 || true
    [ -z "$server" ] || docker network disconnect --force "fanfare-clients-$i" "$server" >/dev/null 2>&1 || true
    docker network rm "fanfare-clients-$i" >/dev/null 2>&1 || true
  done
  "${compose[@]}" down --timeout 35 >/dev/null 2>&1 || true
}
trap clean_up EXIT
trap 'exit 130' INT TERM

"${compose[@]}" build
"${compose[@]}" up --detach --wait fanfare
server="$("${compose[@]}" ps --quiet fanfare)"

for ((i = 1; i <= networks; i++)); do
  docker network create --internal --subnet "$subnets.$i.0/24" "fanfare-clients-$i" >/dev/null
  docker network connect --alias fanfare "fanfare-clients-$i" "$server"
done
for ((i = 1; i <= networks; i++)); do
  docker run --detach --name "fanfare-clients-$i" --network "fanfare-clients-$i" \
    --sysctl 'net.ipv4.ip_local_port_range=1024 65535' --ulimit nofile=65536:65536 \
    fanfare-loadtest --target ws://fanfare:3000/ws --connections "$connections" \
    --metrics http://fanfare:9090/metrics --report loadtest/results/report "$@" >/dev/null
done
echo "$networks clients of $connections connections each are under way"

mkdir -p "$results"
failed=0
end=$((SECONDS + LIMIT_SECONDS))
for ((i = 1; i <= networks; i++)); do
  left=$((end - SECONDS))
  code="$(timeout "$((left > 1 ? left : 1))" docker wait "fanfare-clients-$i")" || code='not done in time'
  docker logs "fanfare-clients-$i" >"$results/client-$i.log" 2>&1 || true
  for kind in html json; do
    docker cp "fanfare-clients-$i:/fanfare/loadtest/results/report.$kind" "$results/client-$i.$kind" >/dev/null 2>&1 || true
  done
  echo "client $i: exit code $code"
  [ "$code" = 0 ] || failed=1
done
echo "logs and reports: $results"
exit "$failed"
