# What cannot be taken in or given out: named, the status 1, and nothing of it left behind.
load bad_common

setup() { ntr_setup; }

# Whatever was refused has left no session and no damage.
teardown()
{
	local status=0
	[[ -z ${CLEAN:-} ]] || { ntr fsck && [[ -z $(ntr sessions --json) ]]; } || status=1
	ntr_teardown && return $status
}

# tar NAME PYTHON: an archive of entries, each a name and the attributes of its TarInfo.
tar_of()
{
	/usr/bin/python3 - "$1" "[$2]" <<-'END'
		import io, sys, tarfile
		from tarfile import SYMTYPE, LNKTYPE, CHRTYPE, BLKTYPE, DIRTYPE, FIFOTYPE
		with tarfile.open(sys.argv[1], "w", format=tarfile.PAX_FORMAT) as t:
		    for name, kw in eval(sys.argv[2]):
		        i = tarfile.TarInfo(name); data = kw.pop("data", b"x")
		        for k, v in kw.items(): setattr(i, k, v)
		        i.size = len(data) if i.type == tarfile.REGTYPE else 0
		        t.addfile(i, io.BytesIO(data))
	END
}

# refused WHY ENTRIES: with the entry that is at fault (the last one) named
refused()
{
	tar_of bad.tar "$2"
	run -1 ntr new bad --from bad.tar
	assert_message "import 'bad.tar'" "$1" 'nothing was imported'
	run -1 bash -c 'ntr new bad --from - <bad.tar'
	assert_message "$1" 'nothing was imported'
}

@test "hostile names in a tar" {
	CLEAN=1
	refused "entry '../evil': it has '..' in its name" '("ok", {}), ("../evil", {})'
	refused "it has '..' in its name" '("a/../../evil", {})'
	refused "it has '..' in its name" '("a/..", dict(type=DIRTYPE))'
	refused "entry '/etc/evil': it has an absolute name" '("/etc/evil", {})'
	refused "entry 'l/evil': it lies below what is no directory" '("l", dict(type=SYMTYPE, linkname="/tmp")), ("l/evil", {})'
	refused "it lies below what is no directory" '("f", {}), ("f/x", {})'
	refused 'stands in the tar before as something else' '("f/x", {}), ("f", {})'
	refused "it has a name of more than 255 bytes" '("n" * 256, {})'
	refused "has '..' in its name" '("c\033[31m\n/../x", {})'
	refute_output --partial $'\033'
	refute [ -e ../evil ]
	refute [ -e /etc/evil ]
	refute [ -e /tmp/evil ]
}

@test "hard links in a tar that lead out, nowhere, or to a directory" {
	CLEAN=1
	refused "entry 'h': it is a hard link to what the tar does not hold" '("h", dict(type=LNKTYPE, linkname="../../etc/passwd"))'
	refused 'a hard link to what the tar does not hold' '("h", dict(type=LNKTYPE, linkname="/etc/passwd"))'
	refused 'a hard link to what the tar does not hold' '("h", dict(type=LNKTYPE, linkname="later")), ("later", {})'
	refused 'a hard link to what the tar does not hold' \
		'("l", dict(type=SYMTYPE, linkname="/etc")), ("h", dict(type=LNKTYPE, linkname="l/passwd"))'
	refused 'a hard link to a directory' '("d", dict(type=DIRTYPE)), ("h", dict(type=LNKTYPE, linkname="d"))'
}

@test "overlayfs's own markers in a tar" {
	CLEAN=1
	refused "entry 'w': it is an overlayfs whiteout" '("w", dict(type=CHRTYPE, devmajor=0, devminor=0))'
	local name
	for name in trusted.overlay.opaque trusted.overlay.redirect trusted.overlay.metacopy user.overlay.opaque user.overlay.redirect \
		user.overlay.whiteout; do
		refused 'it carries an attribute of overlayfs' \
			"('d', dict(type=DIRTYPE, pax_headers={'SCHILY.xattr.$name': 'y'}))"
	done
}

@test "owners and devices that cannot be kept" {
	CLEAN=1
	refused 'it has an owner that is no 32-bit number' '("f", dict(uid=2**32 + 5))'
	[[ $(id -u) == 0 ]] || refused 'a device, which only root can take in' '("zero", dict(type=CHRTYPE, devmajor=1, devminor=5))'
}

@test "a damaged tar, and what is no tar" {
	CLEAN=1
	echo garbage >g.tar
	: >empty.tar
	head -c 100000 /dev/urandom >noise.tar
	tar_of whole.tar '("f", dict(data=b"y" * 100000))'
	head -c 50000 whole.tar >cut.tar
	gzip -c whole.tar | head -c 60 >cut.tar.gz
	{ gzip -c whole.tar | head -c 40; echo noise; } >bad.tar.gz
	for f in g.tar empty.tar noise.tar cut.tar cut.tar.gz bad.tar.gz /dev/null; do
		run -1 ntr new bad --from "$f"
		assert_output --regexp '^ntr: .+; nothing was imported'
	done
}

@test "what looks hostile and is not is kept as it is" {
	tar_of ok.tar '("l", dict(type=SYMTYPE, linkname="../../../etc/passwd")), (".wh.x", {}), (".wh..wh..opq", {}),
		("./a//b/./c", {}), ("f", dict(data=b"one")), ("f", dict(data=b"two")), ("n" * 255, {}), ("..a", {}),
		("hl", dict(type=LNKTYPE, linkname="l")), ("d/" * 500 + "x", {}), ("a\nb", {}), ("p", dict(type=FIFOTYPE))'
	ntr new ok --from ok.tar
	run ntr run -s ok -c 'readlink l hl; cat f; stat -c "%A %h" l; ls -A a/b; [ -p p ] && [ -f .wh.x ] && [ -f ..a ] && [ -f $'"'a\nb'"' ] && echo all'
	assert_output $'../../../etc/passwd\n../../../etc/passwd\ntwolrwxrwxrwx 2\nc\nall'
}

@test "unreadable and special files in a directory" {
	mkdir t
	echo x >t/x
	mkfifo t/fifo
	/usr/bin/python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("t/sock")'
	timeout 20 "$NTR_BIN/ntr" new ok --from t
	run ntr run -s ok -c '[ -p fifo ] && [ -S sock ] && cat x'
	assert_output x
	ntr rm ok
	mkdir -p t/sub/deep
	echo s >t/sub/deep/secret
	if [[ $(id -u) == 0 ]]; then
		mknod t/sub/deep/null c 1 3
		ntr new dev --from t
		run ntr run -s dev -c 'echo gone > sub/deep/null; stat -c %t:%T sub/deep/null'
		assert_output --partial 1:3
		ntr rm dev
		mknod t/sub/deep/w c 0 0
		run -1 ntr new bad --from t
		assert_message "import 't/sub/deep/w'" 'it is an overlayfs whiteout' 'remove'
	else
		chmod 0 t/sub/deep/secret
		run -1 ntr new bad --from t
		assert_message "import 't/sub/deep/secret'" 'Permission denied' 'run as a user who may read it'
		chmod 644 t/sub/deep/secret
		chmod 0 t/sub
		run -1 ntr new bad --from t
		assert_message "import 't/sub'" 'Permission denied'
		chmod 755 t/sub
	fi
	rm -f t/sub/deep/w
	setfattr -n user.overlay.opaque -v y t/x || skip "no user attributes here"
	run -1 ntr new bad --from t
	assert_message "import 't/x'" 'it carries an attribute of overlayfs'
	run ntr sessions --json
	assert_output ""
	ntr fsck
}

@test "sources that are not there" {
	CLEAN=1
	run -1 ntr new x --from ./nothere
	assert_output --partial 'ntr: new: --from ./nothere: No such file or directory'
	run -1 ntr new x --from nothere
	assert_message "'nothere'"
	mkdir d
	run -2 ntr new x --from d --root relative
	assert_message "'relative' cannot be the workspace's root" 'give an absolute path'
	run -2 ntr new x --root /
	assert_message "'/' cannot be the workspace's root"
	run -2 ntr new x --root /a/../b
	assert_message "cannot be the workspace's root"
	for root in /usr "$(dirname "$(realpath /bin/bash)")" /proc; do
		run -2 ntr new x --root "$root"
		assert_message "the workspace's root $root would hide /" 'give a path of its own'
	done
}

@test "export: a target that is not empty, cannot be made, cannot be written" {
	ntr run -c 'echo 1 > f; mkdir d; echo 2 > d/g'
	mkdir full
	touch full/mine
	run -1 ntr export --dir full
	assert_message 'ntr: export: full is not empty' 'give a new or empty directory'
	assert_equal "$(ls -A full)" mine
	run -1 ntr export -s nosuch --dir made
	assert_file_not_exists made
	mkdir empty
	run -1 ntr export -s nosuch --dir empty
	rmdir empty
	run -1 ntr export --dir full/mine
	assert_output --partial 'ntr: export: full/mine: Not a directory'
	run -1 ntr export --dir full/mine/x
	assert_output --partial 'ntr: export: '
	run -1 ntr export --tar nothere/x.tar
	assert_output --partial 'ntr: export: nothere/x.tar: No such file or directory'
	run -1 ntr export --tar full
	assert_output --partial 'ntr: export: full: Is a directory'
	echo mine >x.tar
	run -1 ntr export -s nobody --tar x.tar
	assert_equal "$(<x.tar)" mine
	assert_equal "$(ls)" $'full\nx.tar'
	run -1 ntr export --tar /dev/full
	assert_message 'No space left on device' 'free some space'
	if [[ $(id -u) != 0 ]]; then
		mkdir -m 555 ro
		run -1 ntr export --dir ro
		assert_output --partial 'ntr: '
		assert_output --partial 'Permission denied'
		run -1 ntr export --dir ro/x
		assert_output --partial 'ntr: export: ro/x: Permission denied'
	fi
	ntr export --dir new/deep
	assert_equal "$(<new/deep/d/g)" 2
}
