#!/bin/sh
# Ends with an error unless a folder has an etcd and a kube-apiserver of our Kubernetes version, any patch release of it.
#
#   hack/check-assets.sh DIR v1.37.1
set -eu

dir=$1 version=$2
minor=${version%.*}

fail() {
	echo "KUBEBUILDER_ASSETS=$dir: $1" >&2
	echo "Get a folder that fits with \`setup-envtest use ${minor#v}\`, or unset KUBEBUILDER_ASSETS to have etcd and kube-apiserver built." >&2
	exit 1
}

for program in etcd kube-apiserver; do
	[ -x "$dir/$program" ] || fail "it has no $program"
done
found=$("$dir/kube-apiserver" --version 2>&1 | sed -n 's/^Kubernetes //p') || true
case $found in
"$minor".*) ;;
*) fail "its kube-apiserver is ${found:-none that tells its version}, and this repository is for $minor" ;;
esac
