#!/bin/sh
# Builds a program from the module that pins it and shows that it is getting on.
#
#   hack/build.sh OUTPUT MODULE_DIR PACKAGE LDFLAGS USUAL_TIME
#
# OUTPUT appears when it is whole, so that make can use it as a stamp and a program that runs is not disturbed.
set -eu

output=$1 module=$2 package=$3 ldflags=$4 usual=$5
name=$(basename "$output")
root=$(pwd)
mkdir -p "$(dirname "$output")"

new=$root/$output.new
log=$(mktemp)
build=
# Ended by Ctrl-C, leave no compiler behind.
trap 'rm -f "$log" "$new"; [ -z "$build" ] || kill "$build" 2>/dev/null || true' EXIT
trap 'exit 130' INT TERM

echo "building $name from $package: about $usual the first time on 2 cores, seconds later"
start=$(date +%s)
(cd "$module" && CGO_ENABLED=0 GOWORK=off exec go build -v -trimpath -ldflags "$ldflags" -o "$new" "$package") >"$log" 2>&1 &
build=$!

# A line every 15 s is enough for a terminal and not too much for a CI log.
ticks=0
while kill -0 "$build" 2>/dev/null; do
	sleep 0.2
	ticks=$((ticks + 1))
	[ $((ticks % 75)) -ne 0 ] ||
		echo "  $name: $(($(date +%s) - start)) s, $(grep -c 'downloading' "$log" || true) modules downloaded, $(grep -vc '^go: ' "$log" || true) packages compiled"
done

if ! wait "$build"; then
	build=
	echo "building $name has gone wrong:" >&2
	grep -E '^(go: |#|[^ ]+:[0-9]+)' "$log" | grep -v downloading >&2 || tail -n 20 "$log" >&2
	exit 1
fi
build=
mv "$new" "$output"
echo "built $output in $(($(date +%s) - start)) s"
