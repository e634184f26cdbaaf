#!/usr/bin/env bats
# rename(2) of what is committed, directories above all: as an ordinary user ntr-init does what overlayfs cannot.
load common
load tools

setup() { ntr_setup; }
teardown() { ntr_teardown; }

# rename FROM TO [FLAGS]: prints the errno's name or nothing.
program() {
	cat >"$TEST_DIR/rename.py" <<-'E'
		import ctypes, errno, sys
		c = ctypes.CDLL(None, use_errno=True)
		if c.renameat2(-100, sys.argv[1].encode(), -100, sys.argv[2].encode(), int((sys.argv + ["0"])[3])):
		    print(errno.errorcode[ctypes.get_errno()])
	E
	RENAME="/usr/bin/python3 $TEST_DIR/rename.py"
}

# What find tells of a tree, its own name and the times of change left out.
look() { echo "(cd $1 && find . -printf '%P %y %m %s %l %TY-%Tm-%Td %TT\n' | sed 's/^\([^ ]* d [0-9]*\) [0-9]*/\1/' | sort; find . -type f -print0 | sort -z | xargs -0 cat | md5sum)"; }

@test "a committed directory: mv, git mv, rename(2); what is in it stays what it was" {
	program
	call 'mkdir -p d/sub/deep d/empty; echo one >d/one; echo two >d/sub/two; ln -s one d/link; mkfifo d/fifo; chmod 600 d/one
		ln d/one d/sub/hard; truncate -s 1M d/hole; echo end >>d/hole; touch -d 2020-02-02 d/sub d/one; chmod 500 d/empty'
	ntr run -c "$(look d)" >before
	ntr run -c "ls -id d d/one d/sub/two d/sub | awk '{print \$1}'" >inodes
	ntr run -c "$RENAME d moved; ls; $(look moved)" >after
	diff <(echo moved; cat before) after
	ntr fsck
	ntr stop
	# Files and directories are still the same to everybody who compares inodes.
	ntr run -c "ls -id moved moved/one moved/sub/two moved/sub | awk '{print \$1}'" | diff inodes -
	ntr run -c "$(look moved)" | diff before -
	run ntr run -c "$RENAME moved/sub/deep up; mkdir into; mv moved into; mv into/moved/sub .; $RENAME sub into 1; mkdir -m 700 e2; $RENAME sub e2; $RENAME e2 into 1; $RENAME into/moved into/moved/empty/x; ls e2"
	assert_output "$(printf 'EEXIST\nEEXIST\nEINVAL\nhard\ntwo')"
	ntr daemon stop
	run ntr run -c "$RENAME into e2 2; $RENAME up e2/moved 2; find . | sort; cat into/two"
	assert_output "$(printf '%s\n' . ./e2 ./e2/moved ./into ./into/hard ./into/two ./up ./up/empty ./up/fifo ./up/hole ./up/link ./up/one two)"
	ntr fsck
	ntr rollback --steps 2
	ntr run -c "$(look moved)" | diff before -
}

@test "access lists go along, those of special files too, and the new parent's defaults do not come to them" {
	program
	need setfacl
	# shellcheck disable=SC2016
	call 'mkdir -p d/sub into; echo x >d/f; mkfifo d/sub/p d/q; setfacl -m u:$(id -u):rw d/f d/sub/p; setfacl -d -m u:$(id -u):rx d/sub
		setfacl -d -m u:$(id -u):rwx into; mkfifo d/sub/inherits'
	ntr run -c '(cd d && find . | sort | xargs getfacl -p && stat -c %A sub/p)' >before
	ntr stop
	ntr run -c "$RENAME d into/d; (cd into/d && find . | sort | xargs getfacl -p && stat -c %A sub/p)" | diff before -
	ntr stop
	ntr run -c '(cd into/d && find . | sort | xargs getfacl -p && stat -c %A sub/p)' | diff before -
}

@test "a call that moves a directory and is killed: nothing is lost, whatever is killed" {
	local i who
	program
	call 'mkdir d; for i in $(seq 150); do mkdir -p d/$i; echo $i >d/$i/f; done; echo x >d/150/g'
	call 'echo changed >d/7/f; echo new >d/8/n'
	ntr run -c 'find d -type f -exec cat {} + | sort | md5sum' >sum
	for i in 1 2 3 4 5 6; do
		ntr run -c "$RENAME d n; $RENAME n d" >/dev/null 2>&1 &
		sleep 0.0$((i * 7 % 10))
		case $((i % 3)) in
		0) ntr daemon status --json | json '["pid"]' | xargs kill -9 ;;
		1) pgrep -f 'ntr-init' | while read -r who; do
			grep -qzs "^NTR_STORE=$NTR_STORE$" "/proc/$who/environ" && kill -9 "$who"
		done || true ;;
		2) ntr stop >/dev/null ;;
		esac
		wait $! || true
		# Under one name or in part under both; the same file twice is the same file.
		ntr run -c '[ -d n ] || mkdir n; [ -d d ] || mkdir d; cp -a n/. d/; rm -rf n; find . -name ".ntr-rename-*" | while read -r x; do cp -an $x/. d/; rm -r $x; done; rm -rf .ntr-*'
		ntr run -c 'find d -type f -exec cat {} + | sort | md5sum' | diff sum -
	done
	ntr fsck
}

@test "a path too long for overlayfs's redirects" {
	local d
	program
	d=$(printf '%080d/%080d/%080d/%080d' 1 2 3 4)
	call "mkdir -p $d/leaf; echo 1 >$d/leaf/f"
	run ntr run -c "$RENAME $d/leaf up; cat up/f; $RENAME $d up/long; ls up"
	if [ "$(id -u)" -eq 0 ] && [ "$(cat /sys/module/overlay/parameters/redirect_max)" -lt 1000 ]; then
		assert_output --partial EXDEV
	else
		assert_output "$(printf '1\nf\nlong')"
	fi
	ntr stop
	run ntr run -c 'cat up/f; find up | wc -l'
	assert_output "$(printf '1\n3')"
	ntr fsck
}

@test "the same through ntr mount, and from a chroot and a namespace of the caller's own" {
	program
	need unshare
	call 'mkdir -p r/a/b; echo 1 >r/a/b/f'
	unshare -Ur true || skip "no user namespaces inside a session"
	run ntr run -c "unshare -Ur /usr/bin/python3 -c 'import os; os.chroot(\"r\"); os.chdir(\"/\"); os.rename(\"a\", \"/A\"); os.rename(\"/A/b\", \"B\")'; find r | sort"
	assert_output "$(printf '%s\n' r r/A r/B r/B/f)"
	call true
	mkdir m
	ntr mount default m
	run $RENAME m/r/B m/C
	assert_output ''
	assert_equal "$(cat m/C/f)" 1
	ntr umount m
	ntr run -c 'find . | sort' >found
	assert_equal "$(tr '\n' ' ' <found)" ". ./C ./C/f ./r ./r/A "
}

@test "hard links of committed files: git clone, cp -al, ln" {
	need git
	call 'git init -q r; cd r; git config user.email a@b; git config user.name a; for i in 1 2 3; do echo $i >f$i; git add .; git commit -qm $i; done; git gc -q; echo 4 >f4; git add .; git commit -qm 4'
	call 'cd ..; git clone -q r one; git clone -q ./r two; git -C one fsck --full; git -C two log --oneline | wc -l'
	if [ "$(id -u)" -eq 0 ]; then
		# As documented: a committed file with two names gets another inode number by a third.
		run ntr run -c 'git clone -q one three'
		assert_output --partial 'hardlink different from source'
		call 'git clone -q --no-hardlinks one three'
	else
		call 'git clone -q one three'
	fi
	call 'git -C three status --porcelain; git -C three fsck --full'
	ntr run -c 'cmp r/f4 three/f4'
	call 'mkdir t; echo x >t/x; echo y >t/y; ln t/y t/z'
	ntr run -c 'stat -c %i t/x >before; ln t/x t/new; cp -al t u; cat u/x u/new u/z; stat -c %h t/x t/new u/x u/new; stat -c %i t/x | cmp before; echo more >>u/new; cat t/x' >out
	diff out <(printf '%s\n' x x y 4 4 4 4 x more)
	# The kernel's limit, as documented: until the fold the new names bear upper's inode number.
	ntr run -c 'stat -c %i t/x t/new u/x u/new | uniq | wc -l' >out
	if [ "$(id -u)" -eq 0 ]; then assert_equal "$(cat out)" 1; else assert_equal "$(cat out)" 2; fi
	ntr stop
	assert_equal "$(ntr run -c 'stat -c %i t/x t/new u/x u/new | uniq | wc -l; cat t/new')" "$(printf '1\nx\nmore')"
	ntr fsck
}
