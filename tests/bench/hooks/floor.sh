#!/usr/bin/env bash
# overlayfs over floorfs under fsbench.py: what a session's layers cost when the versions below cost nothing. FLOORFS: the
# program, NTR_URING=0: over /dev/fuse. A fold copies the upper into floorfs (not timed) and empties it; only what has been
# folded once can be changed and folded again, so it serves the group "tree" (and those that never fold).
: "${OVL:?}" "${MNT:?}" "${FLOORFS:?}"
low=$OVL/low
layer() { mkdir -p "$OVL/up" "$OVL/work" "$MNT"; mount -t overlay overlay -o "lowerdir=$low,upperdir=$OVL/up,workdir=$OVL/work,xino=on,index=off" "$MNT"; }
drop() { ! mountpoint -q "$MNT" || umount "$MNT"; }
fold() { drop && cp -a "$OVL/up/." "$low" && rm -rf "$OVL/up" "$OVL/work"; }
case $1 in
 mount) mountpoint -q "$low" || exit 1; layer;;
 unmount) drop; ! mountpoint -q "$low" || umount "$low";;
 reset)
  "$0" unmount; rm -rf "$OVL"; mkdir -p "$low"
  if [ "${NTR_URING:-1}" = 0 ]; then "$FLOORFS" -s "$low" </dev/null >/dev/null 2>&1
  else chrt -i 0 "$FLOORFS" -o io_uring "$low" </dev/null >/dev/null 2>&1; fi
  layer;;
 cold) fold; sync; echo 3 > /proc/sys/vm/drop_caches; layer;;
 fold|fork) fold; layer;;
 store) echo "$OVL";;
esac
