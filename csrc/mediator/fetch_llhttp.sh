#!/bin/sh
# Fetch llhttp 9.4.3 as C: it is vendored in the sdist of httptools 0.9.0 (MIT), which is pinned by
# hash. Usage: fetch_llhttp.sh PYTHON DIRECTORY. Does nothing, and needs no network, once DIRECTORY
# holds it.
set -eu

python=$1
into=$2
name=httptools-0.9.0
sha256=d484ebb7e3a3f3597b0f645fbd1b85633674ca808c1f5ba11c2caf7c66f5c8b6

[ -f "$into/.$sha256" ] && exit 0
mkdir -p "$into"
work=$(mktemp -d "$into/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM

printf '%s\n' "httptools==0.9.0 --hash=sha256:$sha256" >"$work/pin.txt"
"$python" -m pip download -q --disable-pip-version-check --no-deps --no-binary :all: \
	--require-hashes -r "$work/pin.txt" -d "$work"
printf '%s  %s\n' "$sha256" "$work/$name.tar.gz" | sha256sum -c --quiet -
tar -xzf "$work/$name.tar.gz" -C "$work" --no-same-owner "$name/vendor/llhttp"
rm -rf "$into/llhttp"
mv "$work/$name/vendor/llhttp" "$into/llhttp"
touch "$into/.$sha256"
