#!/usr/bin/env bash
# check.sh: are the files in this folder valid? As far as the tools for it are here.
#
#   docker/check.sh          reads them
#   docker/check.sh --run    and runs haproxy.cfg before two servers on one Redis, without containers: messages between
#                            them, a drain, forged addresses. About 15 s; each test has a time limit, free ports, and stops what it started.
set -euo pipefail
cd "$(dirname "$0")"
PATH="$PATH:/usr/sbin:/usr/local/sbin"

if command -v haproxy >/dev/null; then
  haproxy -c -q -f ../ops/haproxy/haproxy.cfg
  echo 'haproxy.cfg: valid'
else
  echo 'haproxy.cfg: not checked, there is no haproxy here'
fi
for file in *.compose.yml; do
  if docker compose version >/dev/null 2>&1; then
    docker compose -f "$file" config --quiet
    echo "$file: valid"
  else
    echo "$file: not checked, there is no docker compose here"
  fi
done

if [ "${1:-}" = --run ]; then
  node --test --test-reporter=spec ../test/e2e/proxy.test.js
fi
