#!/usr/bin/env bash
# tour.sh: the main job on real input: ntr's own sources in a workspace; compiled, forked, wrecked, rolled back, diffed.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
export NTR_STORE
NTR_STORE=$(mktemp -d "${TMPDIR:-/tmp}/ntr-tour.XXXXXX")
work=$(mktemp -d "${TMPDIR:-/tmp}/ntr-tour-src.XXXXXX")
cleanup() {
	ntr daemon stop >/dev/null 2>&1 || true
	rm -rf "$NTR_STORE" "$work"
}
trap cleanup EXIT
say() { printf '\n\033[1m# %s\033[0m\n' "$1"; }
show() { printf '$ %s\n' "$*"; "$@"; }

say "A copy of ntr's own sources becomes a session"
tar -C "$top" --exclude=./build --exclude=./.git -cf - . | tar -C "$work" -xf -
[ ! -d "$top/build/libfuse" ] || { mkdir -p "$work/build" && cp -a "$top/build/libfuse" "$work/build/"; }
show ntr new tour --from "$work"

say "Compile it inside /workspace; what sticks from call to call is the directory, the exports, the files"
show ntr run -s tour -c 'cmake -S . -B build/ws -G Ninja -DNTR_TESTS=OFF -DNTR_FUSE_PREFIX=$PWD/build/libfuse/prefix >/dev/null && ninja -C build/ws | tail -1'
show ntr run -s tour -c 'cd build/ws && export BUILT=yes && ls -l cli/ntr'
show ntr run -s tour -c 'echo "still in $PWD, BUILT=$BUILT"; ./cli/ntr version | head -1'

say "A call that changes nothing makes no commit"
show ntr run -s tour -- ls
show ntr log -s tour

say "Fork it (nothing is copied), wreck the fork"
show ntr fork tour wreck
show ntr run -s wreck -c 'rm -rf /workspace/*; ls -a /workspace'
show ntr diff -s wreck --name-status tour wreck | head -5 || true
echo "  … the origin still has $(ntr run -s tour -c 'ls /workspace | wc -l') entries"

say "Roll it back"
show ntr rollback -s wreck --steps 1
show ntr run -s wreck -c 'cd /workspace/build/ws && ninja && ./cli/ntr version | head -1'

say "Change one line and see it as a patch"
show ntr run -s wreck -c 'sed -i "1s/.*/# ntr, as an agent left it/" /workspace/README.md'
show ntr diff -s wreck wreck~1 wreck || true

cat <<'EOF'

That was ntr. Go on with:
  ntr run -s mine -c 'echo hello > file'     a session of your own (made on first use)
  ntr new app --from ~/src/app               a project of yours
  ntr log, ntr diff, ntr fork, ntr rollback  each has --help with examples
  ntr export -s app --dir out                take the result home
EOF
