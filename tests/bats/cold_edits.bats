# What file_write, file_edit and put make and leave is the same whether the session is live, where the kernel does it, or not,
# where they write into the tree: groups of setgid directories, default ACLs, set-id bits, capabilities.
load common

setup() { ntr_setup; }
teardown() { ntr_teardown; }

is_root() { [ "$(id -u)" -eq 0 ]; }

# look SESSION [PATH…]: modes, owners, ACLs and other attributes of all that is there.
look() {
	local s=$1
	shift
	ntr run -s "$s" -- bash -c 'LC_ALL=C; find "$@" -not -type l | sort | while IFS= read -r f; do
		stat -c "%A %u %g %n" "$f"; getfacl -cpn "$f"; getfattr -dm - -e hex "$f"; done' bash "${@:-.}"
}

# same PATH… : what `work SESSION`, which the test defines, does is the same in two forks of base, one live, one not.
same() {
	local s
	for s in live cold; do ntr fork base "$s" >/dev/null; done
	ntr run -s live -- true
	for s in live cold; do work "$s" >/dev/null; done
	assert_equal "$(is_live live) $(is_live cold)" "True False"
	look live "$@" >live.seen
	look cold "$@" >cold.seen
	diff -u live.seen cold.seen
	ntr fsck
}
is_live() { ntr sessions --json | /usr/bin/python3 -c 'import json,sys; print(*(d["live"] for d in map(json.loads, sys.stdin) if d["name"] == sys.argv[1]))' "$1"; }

write() { ntr tool -s "$1" file_write "{\"path\":\"$2\",\"content\":\"${3-new}\"}" >/dev/null; }
edit() { ntr tool -s "$1" file_edit "{\"path\":\"$2\",\"old_string\":\"old\",\"new_string\":\"new\"}" >/dev/null; }

# Directories that hand something down, of every kind, in the session base. An ordinary user's session has no other ids.
directories() {
	local who=12
	is_root || who=$(id -u)
	ntr run -s base -c "mkdir plain group acl both least narrow
		chmod 2775 group both; setfacl -dm u:$who:rwx,g:$who:r-x acl both; setfacl -dm u::rwx,g::r-x,o::- least
		setfacl -dm u:$who:rwx,m::r-x,u::r-x,o::- narrow; setfacl -m u:$who:r plain"
	! is_root || ntr run -s base -c 'chgrp 100 group both'
}

# made SESSION DIR…: files and directories in each.
made() {
	local s=$1 d mode
	shift
	for d; do
		write "$s" "$d/w"
		write "$s" "$d/sub/deep/w"
		write "$s" "$d/empty" ''
		ntr put -s "$s" - "$d/sub/put" <<<x
		for mode in 644 600 755 4755 2755 6775 2644; do
			echo x >"src"
			chmod "$mode" src
			ntr put -s "$s" src "$d/put$mode"
		done
		: >src
		ntr put -s "$s" src "$d/put-empty"
	done
}

@test "new files and directories inherit groups and ACLs as in a live session" {
	directories
	work() { made "$1" plain group acl both least narrow; }
	same
	grep -q '^drwxr-sr-x .* ./group/sub/deep$' cold.seen
	grep -q '^default:user:' cold.seen
	! is_root || grep -q ' 0 100 ./both/sub/deep/w$' cold.seen
}

@test "they do so under an umask, and in the workspace's own directory" {
	directories
	ntr run -s base -c 'umask 027'
	is_root && ntr run -s base -c 'chgrp 100 .; setfacl -dm u:12:rwx .'
	ntr run -s base -c 'chmod 2777 .'
	work() { made "$1" . acl both narrow; }
	same
}

# Where the kernel takes set-id bits at a write depends on who writes, and of the group's on the execute bit.
@test "what is written over loses set-id bits and capabilities as in a live session" {
	ntr run -s base -c 'for how in write edit put cut same; do for mode in 4755 2755 6755 2745 2644 7777 1644 4600; do
		echo old >$how-$mode; chmod $mode $how-$mode; done; done
		for how in write edit put same; do echo old >$how-acl; setfacl -m u:'$(id -u)':rwx $how-acl; chmod u+s $how-acl; setfattr -n user.a -v 1 $how-acl; done'
	is_root && ntr run -s base -c 'for how in write edit put cut same; do echo old >$how-cap; setcap cap_net_raw+ep $how-cap; echo old >$how-100; chgrp 100 $how-100; chmod 6775 $how-100; done'
	work() {
		local f
		echo new >src
		: >none
		echo old >old
		for f in $(ntr run -s base -- ls); do
			case $f in
			write-*) write "$1" "$f" ;;
			edit-*) edit "$1" "$f" ;;
			put-*) ntr put -s "$1" src "$f" ;;
			cut-*) ntr put -s "$1" none "$f" ;;
			same-*) write "$1" "$f" 'old\n' ;;
			esac
		done
	}
	same
	grep -q '^security.capability' cold.seen || ! is_root # of same-cap
	[ "$(grep -c '^security.capability' cold.seen)" -le 1 ]
}

# Without CAP_FSETID, as in some containers, root's writes take set-id bits, too.
@test "root without the right to keep set-id bits loses them as in a live session" {
	is_root || skip "needs root"
	directories
	ntr run -s base -c 'mkdir o; for mode in 4755 2755 2745 6644; do echo old >o/$mode; chmod $mode o/$mode; echo old >o/g$mode; chgrp 100 o/g$mode; chmod $mode o/g$mode; done'
	ntr daemon stop
	less() { setpriv --bounding-set=-fsetid --inh-caps=-fsetid "$@"; }
	less ntr run -s base -- true
	work() {
		local f
		made "$1" plain group both
		for f in {,g}{4755,2755,2745,6644}; do write "$1" "o/$f"; done
	}
	same
	grep -q '^-rwxr-xr-x 0 100 ./o/g4755$' cold.seen
}

@test "the directory that bears a host directory inherits, too" {
	local d mounts=() dirs=(plain group acl both least)
	directories
	mkdir "$TEST_DIR/host"
	ntr fork base made
	ntr run -s made -- python3 -c 'import os, sys
for d in sys.argv[1:]: os.mkdir(d + "/m", 0o755), os.mkdir(d + "/m/n", 0o755)' "${dirs[@]}"
	ntr fork base cold
	for d in "${dirs[@]}"; do mounts+=(--mount "/workspace/$d/m/n=$TEST_DIR/host"); done
	ntr run -s cold "${mounts[@]}" -- true
	for d in "${dirs[@]}"; do ntr run -s cold --mount "/workspace/$d/m/n=" -- true; done
	look made "${dirs[@]}" >made.seen
	look cold "${dirs[@]}" >cold.seen
	diff -u made.seen cold.seen
	grep -q '^drwxr-sr-x .* both/m/n$' cold.seen
}
