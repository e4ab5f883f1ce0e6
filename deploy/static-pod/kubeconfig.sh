#!/bin/sh
# Writes a kubeconfig with a client certificate for the manager as a static pod. The certificate names the service account of
# deploy/rbac, so the same bindings hold, and the same levels of priority and fairness. It is good for DAYS days (365).
#
#   umask 027
#   ./kubeconfig.sh /etc/kubernetes/pki/ca.crt /etc/kubernetes/pki/ca.key https://10.0.0.10:6443 >/etc/kubernetes/minikcm.conf
#   chown root:65532 /etc/kubernetes/minikcm.conf
#
# With kubeadm the same can be had with:
#   kubeadm kubeconfig user --client-name=system:serviceaccount:kube-system:controller-manager \
#     --org=system:serviceaccounts --org=system:serviceaccounts:kube-system >/etc/kubernetes/minikcm.conf
set -eu
if [ $# -ne 3 ]; then
	echo "usage: $0 ca.crt ca.key https://server:port" >&2
	exit 2
fi
ca=$1 ca_key=$2 server=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

openssl ecparam -name prime256v1 -genkey -noout -out "$work/key" 2>/dev/null
openssl req -new -key "$work/key" -out "$work/csr" \
	-subj '/O=system:serviceaccounts/O=system:serviceaccounts:kube-system/CN=system:serviceaccount:kube-system:controller-manager'
cat >"$work/extensions" <<EXT
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth
EXT
openssl x509 -req -in "$work/csr" -CA "$ca" -CAkey "$ca_key" -set_serial "0x$(openssl rand -hex 16)" \
	-days "${DAYS:-365}" -sha256 -extfile "$work/extensions" -out "$work/crt" 2>/dev/null

inline() { base64 <"$1" | tr -d '\n'; }
cat <<CONFIG
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
