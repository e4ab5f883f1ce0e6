#!/bin/sh
# Writes a kubeconfig with a client certificate for the manager as a static pod. The certificate names the service account of
# deploy/rbac, so the same role bindings and levels of priority and fairness apply. It is valid for DAYS days (365).
#
#   ./kubeconfig.sh /etc/kubernetes/pki/ca.crt /etc/kubernetes/pki/ca.key https://10.0.0.10:6443 /etc/kubernetes/minikcm.conf
#
# The file is replaced atomically. If root runs the script, only root and the group of the static pod may read the file. Without a fourth
# argument the kubeconfig goes to the standard output.
#
# With kubeadm:
#   kubectl -n kube-system get configmap kubeadm-config -o jsonpath='{.data.ClusterConfiguration}' >kubeadm.yaml
#   (umask 077; kubeadm kubeconfig user --config=kubeadm.yaml --client-name=system:serviceaccount:kube-system:controller-manager \
#     --org=system:serviceaccounts --org=system:serviceaccounts:kube-system >/etc/kubernetes/minikcm.conf)
#   chgrp 10267 /etc/kubernetes/minikcm.conf; chmod 0640 /etc/kubernetes/minikcm.conf
set -eu
if [ $# -lt 3 ] || [ $# -gt 4 ]; then
	echo "usage: $0 ca.crt ca.key https://server:port [kubeconfig]" >&2
	exit 2
fi
ca=$1 ca_key=$2 server=$3 file=${4-}
group=10267 # of the static pod
umask 077
work=$(mktemp -d)
trap 'rm -rf "$work" ${file:+"$file.new"}' EXIT

# openssl also writes to stderr when it succeeds.
quietly() {
	"$@" 2>"$work/stderr" || { cat "$work/stderr" >&2; echo "no kubeconfig written: $1 $2 failed" >&2; exit 1; }
}

quietly openssl ecparam -name prime256v1 -genkey -noout -out "$work/key"
quietly openssl req -new -key "$work/key" -out "$work/csr" \
	-subj '/O=system:serviceaccounts/O=system:serviceaccounts:kube-system/CN=system:serviceaccount:kube-system:controller-manager'
cat >"$work/extensions" <<EXT
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth
EXT
serial=$(openssl rand -hex 16)
quietly openssl x509 -req -in "$work/csr" -CA "$ca" -CAkey "$ca_key" -set_serial "0x$serial" \
	-days "${DAYS:-365}" -sha256 -extfile "$work/extensions" -out "$work/crt"

inline() { base64 <"$1" | tr -d '\n'; }
cat >"$work/kubeconfig" <<CONFIG
apiVersion: v1
kind: Config
clusters:
- name: kubernetes
  cluster:
    server: $server
    certificate-authority-data: $(inline "$ca")
users:
- name: controller-manager
  user:
    client-certificate-data: $(inline "$work/crt")
    client-key-data: $(inline "$work/key")
contexts:
- name: controller-manager@kubernetes
  context: {cluster: kubernetes, user: controller-manager}
current-context: controller-manager@kubernetes
CONFIG

if [ -z "$file" ]; then
	cat "$work/kubeconfig"
	exit
fi
cp "$work/kubeconfig" "$file.new"
if [ "$(id -u)" = 0 ]; then
	chgrp "$group" "$file.new"
	chmod 0640 "$file.new"
fi
mv "$file.new" "$file"
