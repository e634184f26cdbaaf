#!/usr/bin/env bash
# packages.sh KIND…: makes sure that Debian packages of these kinds (run build test) are there. Root installs what is
# missing; anybody else is told the command.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
want=()
for kind in "$@"; do
	while read -r k name; do
		[ "$k" = "$kind" ] && want+=("$name")
	done <"$here/packages.txt"
done
missing=()
for p in "${want[@]}"; do
	dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" -ne 0 ]; then
	echo "setup: packages are missing; as root run:" >&2
	echo "  apt-get update && apt-get install -y ${missing[*]}" >&2
	exit 1
fi
command -v apt-get >/dev/null || { echo "setup: no apt-get here; install: ${missing[*]}" >&2; exit 1; }
echo "setup: installing ${#missing[@]} packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get -q update
apt-get -q install -y --no-install-recommends "${missing[@]}"
