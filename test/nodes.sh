#!/usr/bin/env bash
# nodes.sh: runs tests on other versions of Node, with fast paths and without:
#
#   bash test/nodes.sh                          unit, contract and security suites on all tested lines
#   bash test/nodes.sh unit/fast-paths …        these suites or files
#   NODES="20 26.10.0" bash test/nodes.sh       other versions
#   bash test/nodes.sh --quick                  what `npm test` runs, on Node 26
#   bash test/nodes.sh --install                only fetches what `--quick` needs
#
# A version comes from the npm registry, as the package `node-<platform>-<arch>` (90 to 130 MB), into
# node_modules/.cache/nodes/. It stays there until `npm ci`. The fast paths use private fields of
# Node, and each version may rename them: then the guards must notice, and these tests say which.
# A new line also changes documented behaviour of Node's HTTP server and drops deprecated fields, so
# the newest one runs the tests of the public port and of `npm run dev`, too.
set -euo pipefail
cd "$(dirname "$0")/.."

VERSIONS="20 22 24 26"
# `npm test` runs everything on the Node that you have, and a part on this one.
NEWEST=26
FAST_PATHS=(unit/fast-paths unit/frame-reader unit/websocket unit/socket-listeners contract/fast-paths)
HTTP=(unit/http-server unit/handshake unit/handshakes unit/plain-http unit/last-answers security/handshake)
package=node-$(node -p 'process.platform + "-" + process.arch')
logs=$(mktemp -d)
jobs=()
failed=()
# bash starts background jobs deaf to Ctrl-C.
trap '[ ${#jobs[@]} -eq 0 ] || kill "${jobs[@]}" 2>/dev/null || true; rm -rf "$logs"' EXIT

folder_of() { echo "$PWD/node_modules/.cache/nodes/$1/node_modules/$package/bin"; }

install() {
  for version in $1; do
    [ ! -x "$(folder_of "$version")/node" ] || continue
    mkdir -p "node_modules/.cache/nodes/$version"
    npm install --prefix "node_modules/.cache/nodes/$version" --no-save --no-package-lock \
      --no-audit --no-fund --ignore-scripts --loglevel=error "$package@$version"
  done
}

# run VERSION/on|off TEST…: in a subshell, because `exec` lets a signal for the job reach the tests.
run() (
  folder=$(folder_of "${1%/*}")
  paths=${1#*/}
  shift
  echo "Node $("$folder/node" --version), FANFARE_FAST_PATHS=$paths: $*"
  # Tests start servers with the Node that runs them, and some tools with `node` of the PATH.
  PATH="$folder:$PATH" FANFARE_FAST_PATHS=$paths exec "$folder/node" test/run.js "$@"
)

# pair VERSION/on|off VERSION/on|off TEST…: two runs side by side, as these tests mostly wait.
pair() {
  local names=("$1" "$2") i
  run "$1" "${@:3}" >"$logs/0" 2>&1 &
  jobs=($!)
  run "$2" "${@:3}" >"$logs/1" 2>&1 &
  jobs+=($!)
  for i in 0 1; do
    wait "${jobs[$i]}" || failed+=("${names[$i]}")
    cat "$logs/$i"
  done
  jobs=()
}

case "${1:-}" in
  --install) install "${NODES:-$NEWEST}" ;;
  --quick)
    install "$NEWEST"
    pair $NEWEST/on $NEWEST/off "${HTTP[@]}" "${FAST_PATHS[@]}" e2e/dev
    ;;
  *)
    install "${NODES:-$VERSIONS}"
    [ $# -gt 0 ] || set -- unit contract security
    for version in ${NODES:-$VERSIONS}; do
      for paths in on off; do
        run "$version/$paths" "$@" || failed+=("$version/$paths")
      done
    done
    ;;
esac

[ ${#failed[@]} -eq 0 ] || { echo "failed: ${failed[*]}" >&2; exit 1; }
