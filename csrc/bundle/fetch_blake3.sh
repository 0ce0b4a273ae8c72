#!/usr/bin/env bash
# fetch_blake3.sh DIR: puts the official C sources of BLAKE3, as Debian ships them inside
# librust-blake3-dev, into DIR. Every file is checked against blake3-<version>.sha256 beside this
# script; an unknown version is refused. Does nothing, and needs no network, once DIR is complete.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:?directory}
if [[ -e $dir/.done ]]; then
	exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(
	cd "$work"
	apt=(apt-get -qq -o APT::Sandbox::User=root)
	"${apt[@]}" download librust-blake3-dev 2>/dev/null ||
		{ "${apt[@]}" update && "${apt[@]}" download librust-blake3-dev; }
	dpkg -x librust-blake3-dev_*.deb tree
)
source=$(echo "$work"/tree/usr/share/cargo/registry/blake3-*/c)
version=$(sed -n 's/^#define BLAKE3_VERSION_STRING "\(.*\)"/\1/p' "$source/blake3.h")
sums=$here/blake3-$version.sha256
if [[ ! -e $sums ]]; then
	echo "hark: error: BLAKE3 $version is not a version this project knows" >&2
	echo "hark: hint: review it, then add csrc/bundle/blake3-$version.sha256" >&2
	exit 1
fi
(cd "$source" && sha256sum --quiet --strict -c "$sums")
rm -rf "$dir"
mkdir -p "$dir"
while read -r _ file; do
	cp "$source/$file" "$dir/$file"
done <"$sums"
touch "$dir/.done"
