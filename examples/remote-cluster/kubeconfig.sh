#!/bin/sh
# Makes a kubeconfig with which a renderhub hub may render on the cluster that kubectl points at, and may do nothing else there.
# Needs kubectl and a user of that cluster who may make and label the namespace and is its administrator; applying the manifest again
# changes nothing.
set -eu
# So that [a-z] below means these letters everywhere.
LC_ALL=C
export LC_ALL

usage() {
  cat <<USAGE
usage: kubeconfig.sh [--namespace NAME] [--server URL] [--duration TIME | --long-lived] [--out FILE] [--manifest FILE]

  --namespace NAME  namespace that the Jobs run in (renderhub-jobs)
  --server URL      address at which the hub reaches the API server (that of the current context of kubectl)
  --duration TIME   lifetime of the token, such as 24h; the cluster may give less (720h)
  --long-lived      a token without an end, in a Secret beside the account; it ends when that Secret is deleted
  --out FILE        where the kubeconfig goes (NAME.kubeconfig)
  --manifest FILE   what is applied first (role.yaml beside this script)
USAGE
}

fail() {
  printf 'kubeconfig.sh: %s\n' "$*" >&2
  exit 1
}

namespace=renderhub-jobs
server=
duration=720h
long_lived=false
out=
manifest=$(dirname -- "$0")/role.yaml
while [ $# -gt 0 ]; do
  option=$1
  shift
  case $option in
    --long-lived) long_lived=true; continue ;;
    -h | --help) usage; exit 0 ;;
    --namespace | --server | --duration | --out | --manifest) [ $# -gt 0 ] || fail "$option needs a value" ;;
    *) usage >&2; fail "unknown option $option" ;;
  esac
  case $option in
    --namespace) namespace=$1 ;;
    --server) server=$1 ;;
    --duration) duration=$1 ;;
    --out) out=$1 ;;
    --manifest) manifest=$1 ;;
  esac
  shift
done
out=${out:-$namespace.kubeconfig}

# The name goes into a manifest: nothing but a DNS label may get there.
case $namespace in
  '' | -* | *- | *[!a-z0-9-]*) fail "--namespace $namespace is no name of a namespace" ;;
esac
[ ${#namespace} -le 63 ] || fail "--namespace $namespace is too long"

of_cluster() {
  kubectl config view --raw --minify --flatten --output "jsonpath={.clusters[0].cluster.$1}"
}

# What the hub would refuse is refused here, before anything is made.
authority=$(of_cluster certificate-authority-data)
name=$(of_cluster tls-server-name)
[ -n "$authority" ] || fail "the current context holds no certificate authority, and the hub trusts none that it is not given"
case $name in
  *[!A-Za-z0-9.:-]*) fail "tls-server-name of the current context is no name" ;;
esac
[ -n "$server" ] || server=$(of_cluster server)
server=${server%/}
case $server in
  https://?*) host=${server#https://} ;;
  *) fail "the hub connects by https only, and $server is something else" ;;
esac
case $host in
  */*) fail "the hub takes no server with a path; $server is in front of the API server and not the API server itself" ;;
  *[!A-Za-z0-9.:\[\]-]*) fail "$server is no URL of an API server" ;;
  localhost | localhost:* | localhost.*) fail "the hub would find itself at $server; give its own name with --server" ;;
  127.* | "[::1]"*)
    printf 'kubeconfig.sh: %s leads back to the machine that uses it: give --server, unless the hub has --cluster-allow-cidrs\n' "$server" >&2 ;;
esac

sed "s/renderhub-jobs/$namespace/g" "$manifest" | kubectl apply --filename - >&2

if $long_lived; then
  kubectl apply --filename - >&2 <<SECRET
apiVersion: v1
kind: Secret
metadata:
  name: renderhub-token
  namespace: $namespace
  annotations:
    kubernetes.io/service-account.name: renderhub
type: kubernetes.io/service-account-token
SECRET
  token=
  tries=60
  while [ -z "$token" ] && [ $tries -gt 0 ]; do
    token=$(kubectl --namespace "$namespace" get secret renderhub-token \
      --output 'go-template={{with .data}}{{with .token}}{{. | base64decode}}{{end}}{{end}}')
    [ -n "$token" ] || sleep 1
    tries=$((tries - 1))
  done
  [ -n "$token" ] || fail "the cluster puts no token into the Secret renderhub-token"
  ends="when the Secret renderhub-token in $namespace is deleted"
else
  # Both from one answer: the cluster may have given less than was asked for.
  answer=$(kubectl --namespace "$namespace" create token renderhub --duration "$duration" \
    --output 'jsonpath={.status.expirationTimestamp} {.status.token}')
  ends=${answer%% *}
  token=${answer#* }
fi

# Nobody but the owner reads it, whatever was there before.
umask 077
rm -f -- "$out"
cat >"$out" <<KUBECONFIG
apiVersion: v1
kind: Config
current-context: renderhub
clusters:
  - name: renderhub
    cluster:
      server: "$server"
      certificate-authority-data: "$authority"
${name:+      tls-server-name: "$name"
}contexts:
  - name: renderhub
    context:
      cluster: renderhub
      user: renderhub
users:
  - name: renderhub
    user:
      token: "$token"
KUBECONFIG

cat >&2 <<NEXT

$out is made. Its token ends: $ends.

On the hub, for a RenderCluster (HUB is the namespace of the kubeconfigs, renderhub-system unless the chart was told another):

  kubectl --namespace HUB create secret generic NAME --from-file=value=$out
  kubectl apply --filename rendercluster.yaml      # with kubeConfig.secretRef.name: NAME and renderNamespace: $namespace

and the same with "--dry-run=client --output yaml | kubectl replace --filename -" to put a new one in the place of an old one.
Then remove the file.
NEXT
