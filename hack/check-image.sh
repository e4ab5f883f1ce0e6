#!/bin/sh
# Builds the container image and runs it, in a storage of its own that is gone afterwards. An archive of it must be found under the
# name that the manifests of deploy/ have.
#
#   hack/check-image.sh localhost/controller-manager:v0.0.0-dev
#
# Needs buildah and no daemon. Run by root it needs no namespaces either: the program is run in a chroot.
set -eu

image=$1
work=$(mktemp -d)
b() { buildah --root "$work/root" --runroot "$work/run" --storage-driver vfs "$@"; }
trap 'b rm --all >/dev/null 2>&1 || true; rm -rf "$work"' EXIT

b build --isolation chroot -f deploy/Containerfile -t "$image" bin
container=$(b from --pull-never "$image")

user=$(b inspect --type image --format '{{.OCIv1.Config.User}}' "$image")
case $user in
'' | 0 | 0:* | root | root:*) echo "the image runs as root: user '$user'" >&2; exit 1 ;;
esac

files=$(cd "$(b mount "$container")" && find . -type f)
if [ "$files" != ./controller-manager ]; then
	echo "the image holds other files than the program:" "$files" >&2
	exit 1
fi

said=$(b run --isolation chroot "$container" -- /controller-manager --version)
wanted=$(bin/controller-manager --version)
if [ "$said" != "$wanted" ]; then
	echo "the program in the image says '$said', want '$wanted'" >&2
	exit 1
fi

# What a node gets that imports the archive, and what its kubelet asks for.
b push "$image" "docker-archive:$work/image.tar"
archived=$(tar -xOf "$work/image.tar" manifest.json | sed 's/.*"RepoTags":\["\([^"]*\)"\].*/\1/')
for manifest in deploy/static-pod/controller-manager.yaml deploy/deployment/replicas/deployment.yaml; do
	wanted=$(sed -n 's/^ *\(- \)\{0,1\}image: \([^ ]*\).*/\2/p' $manifest)
	if [ "$archived" != "$wanted" ]; then
		echo "the archive holds '$archived', but $manifest asks for '$wanted'" >&2
		exit 1
	fi
done
echo "image: $archived, user $user, $said"
