#!/bin/bash
# schemathesis.sh: sends the requests that schemathesis derives from docs/openapi.yaml to a real
# server, and fails at an undocumented answer, or at a 5xx other than 503 and 504:
# `node test/run.js openapi`.
#
# schemathesis is installed from PyPI into a virtual environment in a temporary folder. So the script
# needs Python 3.10 or later and the network, and npm test leaves it out. VENV names an existing
# environment; MAX_EXAMPLES the requests for each operation and phase (100). With 100, some 1,800
# requests take a minute, and the installation 40 s.

set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
server=
# shellcheck disable=SC2317
finish() {
  if [ -n "$server" ]; then
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  rm -rf "$folder"
}
trap finish EXIT

venv=${VENV:-$folder/venv}
if [ ! -x "$venv/bin/schemathesis" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet 'schemathesis==4.32.5'
fi

secret=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
port=${PORT:-3987}
env -i PATH="$PATH" PORT="$port" HOST=127.0.0.1 METRICS_PORT=0 WORKERS=2 LOG_FORMAT=json \
  FANFARE_LIMITS=off FANFARE_HISTORY='h*=10/60s,0*=10/60s' FANFARE_PRESENCE='p*,0*' \
  FANFARE_AUTH=optional JWT_SECRET="$secret" API_KEYS="test $secret all" \
  node "$root/src/main.js" >"$folder/log" 2>&1 &
server=$!
for _ in $(seq 300); do
  if grep -q 'fanfare is ready' "$folder/log"; then break; fi
  kill -0 "$server"
  sleep 0.1
done

cd "$folder" # it leaves its cache there
"$venv/bin/schemathesis" run "$root/docs/openapi.yaml" --url "http://127.0.0.1:$port" \
  --header "Authorization: Bearer $secret" --max-examples "${MAX_EXAMPLES:-100}" \
  --checks all --phases examples,coverage,fuzzing --continue-on-failure --no-color "$@"
if grep -q '"level":[56]0' "$folder/log"; then
  grep '"level":[56]0' "$folder/log"
  exit 1
fi
