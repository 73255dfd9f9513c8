#!/usr/bin/env bash
# nodes.sh: runs tests on other versions of Node, with fast paths and without:
#
#   bash test/nodes.sh                          unit, contract and security suites on Node 22 and 24
#   bash test/nodes.sh unit/fast-paths …        these suites or files
#   NODES="20 22" bash test/nodes.sh            other versions
#   bash test/nodes.sh --install                only fetches them
#
# A version comes from the npm registry, as the package `node-<platform>-<arch>` (90 to 130 MB), into
# node_modules/.cache/nodes/. It stays there until `npm ci`. The fast paths use private fields of
# Node, and each version may rename them: then the guards must notice, and these tests say which.
set -euo pipefail
cd "$(dirname "$0")/.."

versions=${NODES:-22 24}
tests=("$@")
[ ${#tests[@]} -gt 0 ] || tests=(unit contract security)
package=node-$(node -p 'process.platform + "-" + process.arch')
failed=()

for version in $versions; do
  folder=node_modules/.cache/nodes/$version
  binary=$folder/node_modules/$package/bin/node
  if [ ! -x "$binary" ]; then
    mkdir -p "$folder"
    npm install --prefix "$folder" --no-save --no-package-lock --no-audit --no-fund \
      --ignore-scripts --loglevel=error "$package@$version"
  fi
  [ "${tests[0]}" != --install ] || continue
  for paths in on off; do
    echo "Node $("$binary" --version), FANFARE_FAST_PATHS=$paths: ${tests[*]}"
    # Tests start servers with the Node that runs them, and some tools with `node` of the PATH.
    PATH="$PWD/$folder/node_modules/$package/bin:$PATH" FANFARE_FAST_PATHS=$paths \
      "$binary" test/run.js "${tests[@]}" || failed+=("$version/$paths")
  done
done

[ ${#failed[@]} -eq 0 ] || { echo "failed: ${failed[*]}" >&2; exit 1; }
