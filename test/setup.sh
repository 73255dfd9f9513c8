#!/usr/bin/env bash
# setup.sh: what the tests need beside Node: a real Redis, HAProxy and nginx, Prometheus with exporters, Chromium, PHP, and `ip`, `iptables` and
# `sysctl` for network namespaces.
#
# Installs what is missing by apt, and does nothing where nothing is. Debian starts a package's service as it installs it;
# the tests start their own, so policy-rc.d keeps apt from starting any. What already runs is left alone.
set -euo pipefail

# Two tools that Debian does not have; without them the files of docker/ are checked in part.
bash "$(dirname "$0")/../docker/check.sh" --install || echo 'test:setup: no hadolint and compose tool to be had' >&2
# The same for ops/kubernetes. The manifests are built with kubectl or kustomize, if one is installed.
bash "$(dirname "$0")/../ops/kubernetes/check.sh" --install || echo 'test:setup: no kubernetes-validate to be had' >&2

# Building helm takes some minutes, so it is not done here. `.ci/long` does it.
if ! command -v helm >/dev/null && [ ! -x "$(dirname "$0")/../node_modules/.cache/helm-tools/bin/helm" ]; then
  echo 'test:setup: no helm, so e2e/helm is skipped: ops/helm/check.sh --install builds it with Go'
fi

# Node 26, for tests of the public port and of the fast paths. `npm test` fetches it if it is absent.
bash "$(dirname "$0")/nodes.sh" --install || echo 'test:setup: no other version of Node to be had' >&2

declare -A package_of=(
  [redis-server]=redis-server
  [redis-cli]=redis-tools
  [haproxy]=haproxy
  [nginx]=nginx-light
  [promtool]=prometheus
  [prometheus-node-exporter]=prometheus-node-exporter
  [prometheus-redis-exporter]=prometheus-redis-exporter
  [ip]=iproute2
  [iptables]=iptables
  [sysctl]=procps
  [shellcheck]=shellcheck
  [chromium]=chromium
  [php]=php-cli
  [initdb]=postgresql
)

# Debian keeps these outside a normal user's PATH.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin:$(echo /usr/lib/postgresql/*/bin | tr ' ' :)"
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
