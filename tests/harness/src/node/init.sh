# Runs as process 1 of the node's own process, mount and network namespaces; `$1` is the node's directory.
# When it ends, the kernel ends everything on the node and unmounts everything below it.
set -eu
cd "$1"
# Nothing the node writes below these reaches the machine's own files.
mount -t tmpfs -o mode=0755 tmpfs /run
mount -t tmpfs -o mode=0755 tmpfs "$1/state"
mkdir -p "$1/state/kubelet" /run/lock
echo 1 >/proc/sys/net/ipv4/ip_forward

containerd --config "$1/containerd.toml" >"$1/containerd.log" 2>&1 &
n=0
until ctr --address "$1/containerd.sock" version >/dev/null 2>&1; do
    n=$((n + 1))
    if [ $n -gt 600 ]; then
        echo "containerd does not answer"
        tail -n 20 "$1/containerd.log"
        exit 1
    fi
    sleep 0.05
done
# The image of every pod's sandbox must be there before the kubelet makes the first one.
ctr --address "$1/containerd.sock" --namespace k8s.io images import "$1/busybox.tar"

"$KUBE_PROXY" --kubeconfig "$1/proxy.kubeconfig" --hostname-override "$NODE_NAME" --proxy-mode iptables \
    --masquerade-all --conntrack-max-per-core 0 --oom-score-adj 0 \
    --healthz-bind-address 127.0.0.1:10256 --metrics-bind-address 127.0.0.1:10249 >"$1/kube-proxy.log" 2>&1 &
"$KUBELET" --config "$1/kubelet.yaml" --kubeconfig "$1/kubelet.kubeconfig" --hostname-override "$NODE_NAME" \
    --node-ip "$NODE_IP" --root-dir "$1/state/kubelet" --cert-dir "$1/state/certs" >"$1/kubelet.log" 2>&1 &
kubelet=$!
wait $kubelet || true
echo "the kubelet ended"
tail -n 20 "$1/kubelet.log"
exit 1
