#!/usr/bin/env bash
# check.sh: builds the manifests and validates them against the schemas of two Kubernetes versions.
#
#   ops/kubernetes/check.sh              needs kubectl or kustomize; names a missing tool
#   ops/kubernetes/check.sh --install    only gets kubernetes-validate, from PyPI into node_modules/.cache/kubernetes-tools
#
# Exit code 0: no fault was found. No cluster is needed. The schemas are in the package.
set -euo pipefail
cd "$(dirname "$0")"
tools="$PWD/../../node_modules/.cache/kubernetes-tools"
PATH="$PATH:$PWD/../../node_modules/.cache/helm-tools/bin"
package=kubernetes-validate==1.37.0
versions=(1.30 1.37)

case "${1:-}" in
  '') ;;
  --install)
    if [ "$(cat "$tools/installed" 2>/dev/null)" != "$package" ]; then
      python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --only-binary :all: \
        --upgrade --target "$tools" "$package"
      echo "$package" >"$tools/installed"
    fi
    exit 0
    ;;
  *)
    sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
    exit 64
    ;;
esac

if command -v kubectl >/dev/null; then
  build=(kubectl kustomize)
elif command -v kustomize >/dev/null; then
  build=(kustomize build)
else
  echo 'ops/kubernetes: not checked, there is no kubectl or kustomize here'
  exit 0
fi
built=$(mktemp)
trap 'rm -f "$built"' EXIT
"${build[@]}" . >"$built"
echo "ops/kubernetes: $(grep -c '^kind:' "$built") objects"

if [ ! -e "$tools/installed" ]; then
  echo 'ops/kubernetes: not validated: ops/kubernetes/check.sh --install gets kubernetes-validate'
  exit 0
fi
for version in "${versions[@]}"; do
  PYTHONPATH="$tools" python3 -m kubernetes_validate --strict --quiet -k "$version" "$built"
  echo "ops/kubernetes: valid for Kubernetes $version"
done
