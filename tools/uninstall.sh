#!/usr/bin/env bash
# uninstall.sh: removes what tools/setup.sh installed. Stores (your sessions) stay where they are.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
list=$top/build/install/install_manifest.txt
[ -f "$list" ] || { echo "uninstall: nothing was installed from $top" >&2; exit 1; }
while read -r f; do
	[ -e "$f" ] || continue
	rm -f "$f" && echo "removed $f"
	rmdir --ignore-fail-on-non-empty "$(dirname "$f")" 2>/dev/null || true
done < <(cat "$list"; echo)
