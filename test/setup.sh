#!/usr/bin/env bash
# setup.sh: what the tests need beside Node: a real Redis, HAProxy and nginx, promtool, `ip` for network namespaces, and
# Chromium for the reports.
#
# Installs what is missing by apt, and does nothing where nothing is. Debian starts a package's service as it installs it;
# the tests start their own, so policy-rc.d keeps apt from starting any. What already runs is left alone.
set -euo pipefail

declare -A package_of=(
  [redis-server]=redis-server
  [redis-cli]=redis-tools
  [haproxy]=haproxy
  [nginx]=nginx-light
  [promtool]=prometheus
  [ip]=iproute2
  [chromium]=chromium
)

# Debian keeps these outside a normal user's PATH.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
missing=()
for command in "${!package_of[@]}"; do
  command -v "$command" >/dev/null || missing+=("${package_of[$command]}")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo 'test:setup: everything is there'
  exit 0
fi

if ! command -v apt-get >/dev/null; then
  echo "test:setup: no apt-get here; install these by hand: ${missing[*]}" >&2
  exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo 'test:setup: needs root or sudo to install packages' >&2; exit 1; }
  as_root=(sudo)
fi

policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\n# Of Fanfare test:setup, for as long as apt runs.\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
  "${as_root[@]}" chmod +x "$policy"
  trap '"${as_root[@]}" rm -f "$policy"' EXIT
fi

echo "test:setup: installing ${missing[*]}"
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
