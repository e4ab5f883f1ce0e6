#!/bin/sh
# Builds the container image and runs it, in a storage of its own that is gone afterwards.
#
#   hack/check-image.sh
#
# Needs buildah and no daemon. Run by root it needs no namespaces either: the program is run in a chroot.
set -eu

work=$(mktemp -d)
b() { buildah --root "$work/root" --runroot "$work/run" --storage-driver vfs "$@"; }
trap 'b rm --all >/dev/null 2>&1 || true; rm -rf "$work"' EXIT

b build --isolation chroot -f deploy/Containerfile -t checked bin
container=$(b from --pull-never checked)

user=$(b inspect --type image --format '{{.OCIv1.Config.User}}' checked)
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
echo "image: user $user, $said"
