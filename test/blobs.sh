#!/bin/bash
# blobs.sh: runs the tests of large messages against versitygw, a stricter S3 server than s3rver:
# `node test/run.js blobs`. It checks lengths and SHA-256 of bodies, and knows the hashes of objects.
#
# versitygw is built from the Go module proxy, in two minutes, so the script needs Go 1.24 or later
# and the network, and npm test leaves it out. VERSITYGW names an existing binary. Arguments name
# other tests to run.

set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
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

versitygw=${VERSITYGW:-}
if [ -z "$versitygw" ]; then
  GOBIN=$folder GOFLAGS=-mod=mod go install github.com/versity/versitygw/cmd/versitygw@latest
  versitygw=$folder/versitygw
fi

AWS_ACCESS_KEY_ID=test$$
AWS_SECRET_ACCESS_KEY=$(head -c 20 /dev/urandom | od -An -tx1 | tr -d ' \n')
export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
port=${PORT:-3988}
# A folder of the backend is a bucket.
mkdir -p "$folder/data/messages" "$folder/meta"
ROOT_ACCESS_KEY=$AWS_ACCESS_KEY_ID ROOT_SECRET_KEY=$AWS_SECRET_ACCESS_KEY \
  "$versitygw" --port "127.0.0.1:$port" --region us-east-1 --quiet posix --sidecar "$folder/meta" \
  "$folder/data" >"$folder/log" 2>&1 &
server=$!
for _ in $(seq 100); do
  if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then break; fi
  kill -0 "$server" || { cat "$folder/log"; exit 1; }
  sleep 0.1
done

if [ $# -eq 0 ]; then set -- "$root/test/e2e/large-messages.test.js"; fi
TEST_S3_URL="http://127.0.0.1:$port" node --test --test-reporter=spec "$@"
