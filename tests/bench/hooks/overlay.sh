#!/usr/bin/env bash
# Plain overlayfs under fsbench.py, all layers on OVL (an ext4): what one below a session costs by itself. Each fold makes
# the upper one more layer, as a container engine does.
: "${OVL:?}" "${MNT:?}"
layers() { ls "$OVL" | sed -n 's/^l\([0-9]*\)$/\1/p' | sort -rn; }
case $1 in
 mount)
  mapfile -t l < <(layers)
  lower=$(printf ":$OVL/l%s" "${l[@]:1}"); rm -rf "$OVL/work"; mkdir -p "$OVL/work" "$MNT"
  mount -t overlay overlay -o "lowerdir=${lower#:},upperdir=$OVL/l${l[0]},workdir=$OVL/work,xino=on,index=off,redirect_dir=on" "$MNT";;
 unmount) umount "$MNT";;
 reset) ! mountpoint -q "$MNT" || umount "$MNT"; rm -rf "$OVL"; mkdir -p "$OVL/l0" "$OVL/l1"; "$0" mount;;
 cold) "$0" unmount || exit 1; mkdir "$OVL/l$(($(layers | head -1) + 1))"; sync; echo 3 > /proc/sys/vm/drop_caches; "$0" mount;;
 fold|fork) "$0" unmount && mkdir "$OVL/l$(($(layers | head -1) + 1))" && "$0" mount;;
 store) echo "$OVL";;
esac
