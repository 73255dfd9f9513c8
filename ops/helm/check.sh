#!/usr/bin/env bash
# check.sh: checks the chart, and that ops/kubernetes/ is what it renders. No cluster is needed.
#
#   ops/helm/check.sh              lint, then eight files of values on three versions of Kubernetes
#   ops/helm/check.sh --write      writes what the chart renders into ops/kubernetes/
#   ops/helm/check.sh --install    only gets the tools, into node_modules/.cache/helm-tools
#
# It needs helm, and for the schemas kubeconform. --install builds helm, kubeconform and kustomize with Go (some minutes) unless
# they are on the PATH, and takes the schemas from the package that ops/kubernetes/check.sh installs. Exit code 0: no fault was
# found. A missing tool is named.
set -euo pipefail
cd "$(dirname "$0")/../.."
tools=node_modules/.cache/helm-tools
schemas=node_modules/.cache/kubernetes-tools/kubernetes_validate/kubernetes-json-schema
chart=ops/helm/fanfare
PATH="$PATH:$PWD/$tools/bin"
versions=(1.30.0 1.34.0 1.37.0)
kinds=(configmap-v1 service-v1 serviceaccount-v1 deployment-apps-v1 poddisruptionbudget-policy-v1
  horizontalpodautoscaler-autoscaling-v2 networkpolicy-networking-v1 ingress-networking-v1)

# In a clone, the rules of the chart are links to ops/prometheus/, and helm writes a line about each.
render() {
  helm template fanfare "$chart" --namespace fanfare "$@" 2> >(grep -v 'found symbolic link' >&2)
}

install_tools() {
  mkdir -p "$tools/bin"
  local wanted=(helm=helm.sh/helm/v3/cmd/helm@v3.22.0 kubeconform=github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0
    kustomize=sigs.k8s.io/kustomize/kustomize/v5@v5.7.1)
  for one in "${wanted[@]}"; do
    command -v "${one%%=*}" >/dev/null && continue
    command -v go >/dev/null || { echo "ops/helm: no ${one%%=*} here, and no Go to build it" >&2; return 1; }
    (cd "$tools" && GOBIN="$PWD/bin" go install "${one#*=}")
  done
  bash ops/kubernetes/check.sh --install
  for version in "${versions[@]}"; do
    mkdir -p "$tools/schemas/v$version"
    # kubeconform resolves references between files by their places, not by their ids.
    for kind in _definitions "${kinds[@]}"; do
      # shellcheck disable=SC2016
      sed 's|"/api/_definitions.json|"_definitions.json|; s|"$id": "https:[^"]*"|"$comment": ""|' \
        "$schemas/v$version-local-strict/$kind.json" >"$tools/schemas/v$version/$kind.json"
    done
  done
}

# The rendered objects, one a file, without what only Helm uses: its labels, and a hash that kustomize puts into names.
# Settings go into fanfare.env, of which kustomize makes a ConfigMap.
write_manifests() {
  local to=$1 work file
  work=$(mktemp -d)
  render --kube-version "${versions[-1]}" --values ops/kubernetes/values.yaml --output-dir "$work" >/dev/null
  for file in "$work"/fanfare/templates/*.yaml; do
    sed -e '/^---$/d; /^# Source: /d' -e '/app.kubernetes.io\/\(instance\|version\|managed-by\):/d; /helm.sh\/chart:/d' \
      -e '/^      annotations:$/,/checksum\/settings/d' "$file" |
      if [ "$(basename "$file")" = configmap.yaml ]; then
        sed -n '1p; /^data:/,$p' | sed -e '/^data:/d; s/^  //' -e 's/^\([A-Z_]*\): "\?\([^"]*\)"\?$/\1=\2/' >"$to/fanfare.env"
      else
        cat >"$to/$(basename "$file")"
      fi
  done
  rm -r "$work"
}

case "${1:-}" in
  --install) install_tools; exit ;;
  --write) write_manifests ops/kubernetes; exit ;;
  '') ;;
  *) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 64 ;;
esac

if ! command -v helm >/dev/null; then
  echo 'ops/helm: not checked, there is no helm here: ops/helm/check.sh --install gets it'
  exit 0
fi

fresh=$(mktemp -d)
trap 'rm -r "$fresh"' EXIT
cp -r ops/kubernetes/. "$fresh"
write_manifests "$fresh"
diff -r ops/kubernetes "$fresh" || { echo 'ops/kubernetes is not what the chart renders: ops/helm/check.sh --write' >&2; exit 1; }
echo 'ops/kubernetes: what the chart renders'

# The templates do not ask for the version of Kubernetes, so what they render is the same for all.
mkdir "$fresh/rendered"
for values in "$chart"/ci/*-values.yaml; do
  name=$(basename "$values" -values.yaml)
  helm lint "$chart" --strict --quiet --kube-version "${versions[0]}" --values "$values" 2> >(grep -v 'found symbolic link' >&2)
  render --kube-version "${versions[0]}" --values "$values" >"$fresh/rendered/$name.yaml"
  echo "$name: $(grep -c '^kind:' "$fresh/rendered/$name.yaml") objects"
done
if [ ! -d "$tools/schemas" ] || ! command -v kubeconform >/dev/null; then
  echo 'ops/helm: not validated: ops/helm/check.sh --install gets kubeconform and schemas'
  exit 0
fi
for version in "${versions[@]}"; do
  kubeconform -strict -summary -kubernetes-version "$version" \
    -schema-location "$tools/schemas/{{.NormalizedKubernetesVersion}}/{{.ResourceKind}}{{.KindSuffix}}.json" \
    -schema-location 'ops/helm/schemas/{{.ResourceKind}}{{.KindSuffix}}.json' "$fresh/rendered"
  echo "ops/helm: valid for Kubernetes $version"
done
