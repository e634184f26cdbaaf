#!/usr/bin/env bash
# libfuse.sh PREFIX: a static libfuse >= 3.18 (for FUSE over io_uring) in PREFIX, unless it is there or the system's is
# new enough.
#
# It is Debian's own source package of a newer release, taken through the mirror that this machine already uses: a list
# file and folders of apt's in a temporary place, so nothing on the system changes, and apt checks the signed index and
# the hashes. Tested with 3.18.3-1. Where none can be had the script says so and exits 0: ntr then builds against the
# system's libfuse, and `ntr version` says that io_uring is absent.
set -euo pipefail
prefix=$(mkdir -p "${1:?usage: libfuse.sh PREFIX}" && cd "$1" && pwd)
[ -f "$prefix/lib/libfuse3.a" ] && exit 0
if pkg-config --atleast-version=3.18 fuse3 2>/dev/null; then exit 0; fi

give_up() {
	echo "libfuse: $1; building against the system's libfuse, without io_uring" >&2
	rm -rf "$prefix"
	exit 0
}

tmp=$(mktemp -d "${TMPDIR:-/tmp}/ntr-libfuse.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
mirror=$(apt-get indextargets --format '$(URI)' 'Created-By: Packages' 2>/dev/null |
	sed -n 's#^\(.*/debian\)/*dists/.*#\1#p' | head -1 || true)
if [ -z "$mirror" ]; then
	mirror=$(grep -rhoE '(https?|ftp|file|copy|mirror)[a-z+]*://?[^ ]+/debian/?( |$)' /etc/apt/sources.list \
		/etc/apt/sources.list.d 2>/dev/null | head -1 | tr -d ' ' || true)
fi
[ -n "$mirror" ] || give_up "no Debian mirror is configured for apt"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -f "$keys" ] || give_up "no $keys"
mkdir -p "$tmp/lists/partial" "$tmp/cache/archives/partial" "$tmp/src"
chmod 755 "$tmp" "$tmp/src"
# Check-Valid-Until: a mirror that stands still serves an index whose date has passed; it is signed all the same.
apt_opts=(-q -o Acquire::Check-Valid-Until=false -o Dir::Etc::sourcelist="$tmp/list.sources" -o Dir::Etc::sourceparts=/dev/null
	-o Dir::State::lists="$tmp/lists" -o Dir::Cache="$tmp/cache" -o APT::Sandbox::User=root)
version=
for suite in testing unstable; do
	printf 'Types: deb-src\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n' \
		"$mirror" "$suite" "$keys" >"$tmp/list.sources"
	apt-get "${apt_opts[@]}" update >"$tmp/log" 2>&1 || continue
	version=$(apt-cache "${apt_opts[@]}" showsrc fuse3 2>/dev/null | sed -n 's/^Version: //p' | sort -V | tail -1)
	if [ -n "$version" ] && dpkg --compare-versions "$version" ge 3.18; then break; fi
	version=
done
[ -n "$version" ] || give_up "no fuse3 >= 3.18 source package at $mirror"
echo "libfuse: building $version from Debian's source package"
(cd "$tmp/src" && apt-get "${apt_opts[@]}" source --download-only "fuse3=$version" >>"$tmp/log" 2>&1 &&
	dpkg-source --no-check -x fuse3_*.dsc tree >>"$tmp/log" 2>&1) || { tail -5 "$tmp/log" >&2; give_up "the source package did not unpack"; }
cd "$tmp/src/tree"
if ! { meson setup build --buildtype=release -Ddefault_library=static -Dexamples=false -Dutils=false -Dtests=false \
	-Denable-io-uring=true --prefix="$prefix" -Dlibdir=lib && ninja -C build install; } >>"$tmp/log" 2>&1; then
	tail -20 "$tmp/log" >&2
	give_up "it did not build"
fi
[ -f "$prefix/lib/libfuse3.a" ] || give_up "it built no static library"
