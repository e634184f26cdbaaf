# Stores that cannot be used: the wrong place, the wrong owner, a newer format, damage; and sockets that have no place.
load bad_common

setup() { ntr_setup; }
teardown() { ntr_teardown; }

# Both kinds of command say the same, run with its own status.
both_say()
{
	run -125 ntr run -- true
	assert_message "$@"
	run -1 ntr sessions
	assert_message "$@"
}

@test "a store that is a file, lies below one, or among foreign files" {
	echo mine >file
	NTR_STORE=$PWD/file both_say "file is no directory" '--store DIR or NTR_STORE'
	NTR_STORE=$PWD/file/x both_say 'file/x is no directory' '--store DIR or NTR_STORE'
	mkdir foreign
	touch foreign/mine
	NTR_STORE=$PWD/foreign both_say 'it is no store, and not empty' "it holds 'mine'" 'an empty folder'
	assert_equal "$(ls -A foreign)" mine
	assert_equal "$(<file)" mine
	NTR_STORE=/proc/ntr both_say "make the folder '/proc/ntr'" '--store DIR or NTR_STORE'
	run -2 ntr sessions --store ''
	assert_output --partial 'ntr: sessions: --store: the path is empty'
	ntr daemon stop
}

@test "a store that may not be written, or is another user's" {
	if [[ $(id -u) != 0 ]]; then
		NTR_STORE=/usr/ntr both_say "make the folder '/usr/ntr'" 'Permission denied' '--store DIR or NTR_STORE'
		[[ -x /root ]] || NTR_STORE=/root/ntr both_say 'cannot be reached: Permission denied' 'use a store of your own'
		return
	fi
	export NTR_STORE=$TEST_DIR/theirs XDG_RUNTIME_DIR=$TEST_DIR/theirs.run
	chmod 755 "$TEST_DIR"
	mkdir -m 700 "$NTR_STORE" "$XDG_RUNTIME_DIR"
	chown 65534:65534 "$NTR_STORE" "$XDG_RUNTIME_DIR"
	as=(setpriv --reuid=65534 --regid=65534 --clear-groups env HOME="$XDG_RUNTIME_DIR")
	"${as[@]}" unshare -Ur true 2>/dev/null || skip "user namespaces are refused here"
	"${as[@]}" ntr run -c 'echo 1 > f'
	"${as[@]}" ntr daemon stop
	XDG_RUNTIME_DIR=$TEST_DIR/run both_say "open store '$NTR_STORE'" 'it belongs to uid 65534, and this is uid 0' \
		'run ntr as its owner'
	assert_equal "$("${as[@]}" ntr run -- cat f)" 1
	"${as[@]}" ntr daemon stop
	export NTR_STORE=$TEST_DIR/store
	ntr run -c 'echo 2 > f'
	ntr daemon stop
	run -125 env XDG_RUNTIME_DIR="$TEST_DIR/theirs.run" "${as[@]}" ntr run -- true
	assert_message 'use a store of your own'
}

@test "an ordinary user where there is no /etc/mtab, which fusermount3 reads: mounts go all the same" {
	[[ $(id -u) == 0 ]] || skip "takes root to hide it"
	local as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
	"${as[@]}" unshare -Ur true 2>/dev/null || skip "user namespaces are refused here"
	chmod 755 "$TEST_DIR"
	mkdir -m 700 theirs
	chown 65534:65534 theirs
	export HOME=$PWD/theirs NTR_STORE=$PWD/theirs/store XDG_RUNTIME_DIR=$PWD/theirs/run
	export -f json
	cat >user <<-'END'
		set -e
		mkdir -m 700 "$XDG_RUNTIME_DIR" "$HOME/at"
		ntr run -s s -c 'echo 1 > f'
		ntr daemon stop
		ntr run -s s -- cat f
		kill -9 "$(ntr daemon status --json | json '["pid"]')"
		ntr run -s s -- cat f
		ntr mount s "$HOME/at"
		cat "$HOME/at/f"
		cd "$HOME/at"
		! ntr umount "$HOME/at" 2>"$HOME/busy"
		grep -o 'is in use' "$HOME/busy"
		cd /
		ntr umount "$HOME/at"
		ntr daemon stop
		! grep "$HOME/at" /proc/self/mounts
	END
	cat >hidden <<-'END'
		set -e
		mkdir etc
		mount -t tmpfs none etc
		mkdir etc/upper etc/work
		mount -t overlay -o lowerdir=/etc,upperdir=etc/upper,workdir=etc/work none /etc
		rm -f /etc/mtab
		"$@"
	END
	run -0 unshare -m --propagation private bash hidden "${as[@]}" bash "$PWD/user"
	assert_output $'1\n1\n1\nis in use'
}

@test "a store on a file system that is read-only" {
	inside <<-'END'
		ntr run -c 'echo 1 > f'
		ntr daemon stop
		mkdir ../sub; mv "$NTR_STORE" ../sub/store; export NTR_STORE=${NTR_STORE%/*}/sub/store
		mnt ro "${NTR_STORE%/*}"
		for c in 'run -- true'; do expect 125 'ntr: ' 'Read-only file system' '; ' -- ntr $c; done
		for c in sessions log fsck; do expect 1 'ntr: ' 'Read-only file system' '; ' -- ntr $c; done
		export NTR_STORE=${NTR_STORE%/*}/new
		expect 125 "make the folder '$NTR_STORE'" 'Read-only file system' '--store DIR or NTR_STORE' -- ntr run -- true
	END
}

@test "a newer format" {
	ntr sessions
	ntr daemon stop
	/usr/bin/python3 - "$NTR_STORE" <<-'END'
		# The record S is the log's first: its version, and the checksum of the record it lies in.
		import glob, struct, sys
		table = []
		for i in range(256):
		    for _ in range(8): i = 0x82F63B78 ^ i >> 1 if i & 1 else i >> 1
		    table.append(i)
		def crc(data):
		    c = 0xFFFFFFFF
		    for b in data: c = table[(c ^ b) & 255] ^ c >> 8
		    c ^= 0xFFFFFFFF
		    return ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF
		found = 0
		for name in glob.glob(sys.argv[1] + "/db/*.log"):
		    data, at = bytearray(open(name, "rb").read()), 0
		    while at + 7 <= len(data):
		        n, kind = struct.unpack_from("<HB", data, at + 4)
		        if not kind: break
		        body = at + 7 + (4 if 4 < kind < 9 else 0)
		        key = data.find(b"\x01\x01S", body, body + n)
		        if key >= 0:
		            value = key + 3
		            while data[value] & 128: value += 1
		            assert struct.unpack_from("<I", data, value + 1)[0] == 1
		            struct.pack_into("<I", data, value + 1, 2)
		            struct.pack_into("<I", data, at, crc(data[at + 6:body + n]))
		            found += 1
		        at = body + n
		    open(name, "wb").write(data)
		assert found == 1, found
	END
	both_say "open store '$NTR_STORE'" 'format version 2' 'newer ntr'
	ls "$NTR_STORE/db" >before
	run -1 ntr fsck
	assert_output --partial 'format version 2'
}

@test "damage of every kind of file: a message, never a crash, nothing made worse" {
	ntr run -c 'for i in $(seq 50); do echo $i > f$i; done; head -c 300000 /dev/urandom > big'
	ntr daemon stop
	ntr run -c 'echo 2 > f'
	ntr daemon stop
	cp -a "$NTR_STORE" good
	damage() # TEXT COMMAND: run in the database's folder
	{
		rm -rf "$NTR_STORE"
		cp -a good "$NTR_STORE"
		(cd "$NTR_STORE/db" && eval "$2")
		both_say "open database $NTR_STORE/db" "$1"
		run -1 ntr fsck
		assert_message "$1"
		refute grep -qi 'assert' "$NTR_STORE/ntrd.log"
	}
	damage 'CURRENT is missing' 'rm CURRENT'
	assert_output --partial 'brings it back'
	eval "$(sed 's/.*`\(.*\)`.*/\1/' <<<"$output")" # what the message advises
	assert_equal "$(ntr run -- cat f f50)" $'2\n50'
	ntr daemon stop
	damage 'Corruption' ': >CURRENT'
	damage 'No such file or directory' 'rm MANIFEST-*'
	damage 'Corruption' 'truncate -s 50 MANIFEST-*'
	damage 'Corruption' 'truncate -s 0 MANIFEST-*'
	damage 'Corruption' 'truncate -s 100 *.sst'
	damage 'Corruption' 'rm *.sst'
	local sst
	for sst in good/db/*.sst; do
		damage 'Corruption' "head -c $(stat -c %s "$sst") /dev/urandom >${sst##*/}"
	done
	assert_output --partial 'restore the store from a backup'
	rm -rf "$NTR_STORE"
	cp -a good "$NTR_STORE"
	rm "$NTR_STORE"/db/*
	both_say 'its database is empty, and commit number ' 'was safely in it' 'from a backup'
	ntr daemon stop
	rm -rf "$NTR_STORE"
	cp -a good "$NTR_STORE"
	rmdir "$NTR_STORE/versions" && touch "$NTR_STORE/versions"
	run -125 ntr run -- true
	assert_message 'versions' 'Not a directory'
	ntr daemon stop
	rm -rf "$NTR_STORE"
	cp -a good "$NTR_STORE"
	assert_equal "$(ntr run -- cat f f50)" $'2\n50'
}

@test "a damaged block is found when it is read, and nothing else suffers" {
	ntr run -c 'head -c 3000000 /dev/urandom > big; echo small > small'
	ntr daemon stop
	ntr sessions # what the log holds goes to files
	ntr daemon stop
	/usr/bin/python3 - "$(ls -S "$NTR_STORE"/db/*.sst | head -1)" <<-'P'
		import sys
		with open(sys.argv[1], "r+b") as f:
		    f.seek(1500000); f.write(b"damage here")
	P
	run ntr run -- cat small
	assert_output small
	run -1 ntr run -- cat big
	run -1 bash -c 'ntr cat big >big'
	run -1 ntr fsck
	run ntr run -c 'echo more >> small; cat small'
	assert_output $'small\nmore'
}

@test "a store path too long for a socket's address, and one of odd bytes" {
	local long; long=$(printf 'x%.0s' {1..200})
	for store in "$TEST_DIR/$long/$long/$long" "$TEST_DIR/ a:b,c\\d'\"\$x"$'\n'é; do
		export NTR_STORE=$store
		ntr run -c 'echo 1 > f'
		assert_equal "$(ntr cat f)" 1
		ntr run -c 'for i in $(seq 200); do echo $i > n$i; done; mkdir d; mv n1 d'
		ntr rollback --steps 1
		assert_equal "$(ntr run -- ls)" f
		ntr daemon stop
		run find "$NTR_STORE/upper" -mindepth 1 -maxdepth 1 ! -name 'spare.*'
		assert_output ""
	done
}

@test "no XDG_RUNTIME_DIR, one that is too long, no directory, somebody else's, or not private" {
	ntr run -c 'echo 1 > f'
	ntr daemon stop
	local odd=$TEST_DIR/$(printf 'y%.0s' {1..180})
	mkdir "$odd" file.run
	touch file wide
	for run in "" "$odd" "$TEST_DIR/nowhere" "$PWD/file" relative /; do
		if [[ -n $run ]]; then export XDG_RUNTIME_DIR=$run; else unset XDG_RUNTIME_DIR; fi
		[[ $run != / || $(id -u) != 0 ]] || continue
		assert_equal "$(ntr cat f)" 1
		ntr daemon stop
		[[ $run == "$odd" ]] || assert_equal "$(stat -c %a "/tmp/ntr-$(id -u)")" 700
	done
	local kind
	for kind in wide file link; do
		export XDG_RUNTIME_DIR=$TEST_DIR/$kind.run
		mkdir -m 700 "$XDG_RUNTIME_DIR"
		case $kind in
		wide) mkdir "$XDG_RUNTIME_DIR/ntr" && chmod 777 "$XDG_RUNTIME_DIR/ntr" ;;
		file) touch "$XDG_RUNTIME_DIR/ntr" ;;
		link) ln -s /tmp "$XDG_RUNTIME_DIR/ntr" ;;
		esac
		both_say "$XDG_RUNTIME_DIR/ntr" 'is not a folder of this user alone' 'set XDG_RUNTIME_DIR to a folder of your own'
		run -125 ntr run -- true
	done
	if [[ $(id -u) != 0 ]]; then
		export XDG_RUNTIME_DIR=$TEST_DIR/locked.run
		mkdir -m 500 "$XDG_RUNTIME_DIR"
		both_say "$XDG_RUNTIME_DIR/ntr" 'Permission denied' 'set XDG_RUNTIME_DIR to a folder of your own'
	fi
	export XDG_RUNTIME_DIR=$TEST_DIR/run
	assert_equal "$(ntr cat f)" 1
}
