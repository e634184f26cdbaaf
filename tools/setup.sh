#!/usr/bin/env bash
# setup.sh [--no-tour] [--prefix DIR]: installs what is missing, builds ntr, installs it, and shows it at work.
# Root installs to /usr/local, anybody else to ~/.local. tools/uninstall.sh takes it away again.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
tour=1 prefix=
while [ $# -gt 0 ]; do
	case $1 in
	--no-tour) tour=0 ;;
	--prefix) prefix=${2:?--prefix needs a folder}; shift ;;
	*) echo "usage: tools/setup.sh [--no-tour] [--prefix DIR]" >&2; exit 2 ;;
	esac
	shift
done
if [ -z "$prefix" ]; then
	if [ "$(id -u)" -eq 0 ]; then prefix=/usr/local; else prefix=$HOME/.local; fi
fi
cd "$top"
tools/packages.sh build run
tools/libfuse.sh build/libfuse/prefix
cmake --preset release -DNTR_TESTS=OFF -B build/install -DCMAKE_INSTALL_PREFIX="$prefix" >build/setup.log ||
	{ cat build/setup.log; exit 1; }
ninja -C build/install >build/setup.log || { cat build/setup.log; exit 1; }
cmake --install build/install >build/setup.log || { cat build/setup.log; exit 1; }
echo "setup: installed $("$prefix/bin/ntr" version | head -1) in $prefix"
if [ "$(command -v ntr || true)" != "$prefix/bin/ntr" ]; then
	echo "setup: $prefix/bin is not first in PATH: add it with  export PATH=\"$prefix/bin:\$PATH\""
fi
PATH=$prefix/bin:$PATH ntr doctor || {
	echo "setup: ntr is installed, but this machine lacks what the lines marked 'missing' name" >&2
	exit 1
}
[ "$tour" -eq 0 ] || PATH=$prefix/bin:$PATH tools/tour.sh
