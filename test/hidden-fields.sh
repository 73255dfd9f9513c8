#!/usr/bin/env bash
# hidden-fields.sh: runs tests once for each private field of Node, ws and ioredis that a fast path
# uses, with that field hidden:
#
#   bash test/hidden-fields.sh                          unit, contract and security suites
#   bash test/hidden-fields.sh unit/websocket …         these suites or files
#   FIELDS="fd kBuffer" bash test/hidden-fields.sh      these fields of helpers/hidden/fields.js
set -euo pipefail
cd "$(dirname "$0")/.."

list='import { FIELDS } from "./test/helpers/hidden/fields.js"; console.log(...Object.keys(FIELDS));'
fields=${FIELDS:-$(node --input-type=module --eval "$list")}
tests=("$@")
[ ${#tests[@]} -gt 0 ] || tests=(unit contract security)
failed=()

for field in $fields; do
  echo "TEST_HIDDEN_FIELD=$field: ${tests[*]}"
  TEST_HIDDEN_FIELD=$field node test/run.js "${tests[@]}" || failed+=("$field")
done

[ ${#failed[@]} -eq 0 ] || { echo "failed: ${failed[*]}" >&2; exit 1; }
