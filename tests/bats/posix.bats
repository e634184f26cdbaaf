# tests/posix: what system calls give in a session, on committed files, on new ones and on a mix, is what they give in a plain
# directory; and what they left is the same after a commit, a fold, a fork, a rollback and a restart.
load common
load tools

setup() { ntr_setup; }
teardown() {
	chmod -R u+rwx "$TEST_DIR/work" 2>/dev/null || true
	ntr_teardown
}

POSIX() { /usr/bin/python3 "$NTR_TESTS/posix/posix.py" "$@"; }
posix="/usr/bin/python3 $NTR_TESTS/posix/posix.py"
# Directories' times and links of symlinks apart, which ext4 has otherwise.
manifest() { echo "/usr/bin/python3 $NTR_TESTS/helpers/manifest.py . --no-dir-times"; }
inside() { ntr run -s "$1" --no-commit -c "cd /workspace; $(manifest)"; }

# The plain directory's answers, once.
plain() {
	[ -d plain ] || (mkdir plain && cd plain && POSIX make "$@" && POSIX act "$@" >../plain.log && $(manifest) >../plain.manifest)
}

# without_times FILE: a manifest without what the clock has put in.
without_times() { sed -E 's/ m-?[0-9]+( |$)/ /' "$1"; }

# placed HOW TOPIC…: the topics in a session, their files committed or not; the answers in HOW.log.
placed() {
	local how=$1 s=$1
	shift
	ntr new "$s" >/dev/null
	case $how in
	new) ntr run -s "$s" -c "$posix make $*; $posix act $*" >"$how.log" ;;
	committed)
		ntr run -s "$s" -c "$posix make $*"
		ntr stop -s "$s"
		ntr run -s "$s" -c "$posix act $*" >"$how.log"
		;;
	mix)
		ntr run -s "$s" -c "$posix even $*"
		ntr stop -s "$s"
		ntr run -s "$s" -c "$posix odd $*"
		ntr run -s "$s" -c "$posix act $*" >"$how.log"
		;;
	esac
}

# kept SESSION: what is there is what every other way to it shows.
kept() {
	local s=$1
	inside "$s" >"$s.live"
	ntr stop -s "$s"
	inside "$s" >"$s.folded"
	ntr fork "$s" "$s-fork" >/dev/null
	inside "$s-fork" | diff "$s.folded" -
	local head
	head=$(head_of "$s")
	ntr run -s "$s" -c 'chmod -R u+rwx . 2>/dev/null; rm -rf -- * .[!.]*; echo other >only'
	ntr rollback -s "$s" "$head" >/dev/null
	inside "$s" | diff "$s.folded" -
	ntr daemon stop
	inside "$s" | diff "$s.folded" -
}

# Whether rename(2) moves a committed directory: root's does everywhere, an ordinary user's where the supervisor may help.
moves_dirs() {
	ntr new probe >/dev/null
	ntr run -s probe -c 'mkdir a a/b'
	ntr stop -s probe
	ntr run -s probe -- /usr/bin/python3 -c 'import os; os.rename("a", "c")' 2>/dev/null
}

# alike HOW: all topics, or those that need no rename of a committed directory.
alike() {
	local topics=()
	if [ "$1" != new ] && ! moves_dirs; then
		[ "$(id -u)" -ne 0 ]
		for t in $(POSIX list); do
			[[ $t = rename || $t = ancestors || $t = hostile || $t = deep ]] || topics+=("$t")
		done
	fi
	set -- "$1" "${topics[@]}"
	plain "${@:2}"
	placed "$@"
	diff plain.log "$1.log"
	kept "$1"
	diff <(without_times plain.manifest) <(without_times "$1.folded")
	run ntr fsck
	assert_success
}

@test "system calls on committed files" {
	[ -n "${NTR_LONG:-}" ] || skip "NTR_LONG is not set"
	alike committed
}
@test "system calls on new files" {
	[ -n "${NTR_LONG:-}" ] || skip "NTR_LONG is not set"
	alike new
}
@test "system calls on a mix of both" { alike mix; }

@test "what committed files do otherwise is what docs/posix.md lists" {
	local limits="/usr/bin/python3 $NTR_TESTS/posix/limits.py" doc="$NTR_TESTS/../docs/posix.md"
	mkdir plain
	(cd plain && $limits make && $limits act) >plain.log
	ntr run -c "mkdir new; cd new; $limits make; $limits act; cd ..; rm -r new" >new.log
	# In files that are new there is nothing of it but what overlayfs has not at all.
	diff <(grep -v '^rename_whiteout' plain.log) <(grep -v '^rename_whiteout' new.log)
	ntr run -c "$limits make"
	ntr stop
	local ctime; ctime=$(ntr run -- stat -c %z six-2)
	ntr run -c "$limits act" >got.log
	# | `name` | POSIX | here | …
	sed -nE 's/^\| `([a-z0-9_]+)` \| ([^|]+) \| ([^|]+) \|.*/\1: \2/p' "$doc" | diff - plain.log
	if [ "$(id -u)" -eq 0 ]; then
		sed -nE 's/^\| `([a-z0-9_]+)` \| ([^|]+) \| ([^|(]+)( \([^|]*)? \|.*/\1: \3/p' "$doc" | diff - got.log
	else
		sed -nE 's/^\| `([a-z0-9_]+)` \| ([^|]+) \| ([^|(]+)( \(users: ([^|)]+)\))? \|.*/\1: \3:\5/p' "$doc" |
			sed -E 's/: [^:]+:(.+)$/: \1/; s/:$//' | diff - got.log
	fi
	# and the fold ends it
	ntr stop
	run ntr run -- stat -c %h six-2
	assert_output 1
	[ "$(ntr run -- stat -c %z six-2)" != "$ctime" ] # it lost a name
}

@test "numbers that tools compare" {
	ntr run -c 'mkdir -p t/a t/b; for i in $(seq 400); do echo $i >t/a/$i; done; ln t/a/1 t/b/one; ln t/a/2 t/b/two; ln -s a t/l'
	ntr stop
	# half of it is in the upper then
	ntr run -c 'for i in $(seq 1 2 399); do [ $i -eq 1 ] || echo more >>t/a/$i; done; for i in $(seq 200); do echo $i >t/b/$i; done; mkdir t/c; touch t/c/f'
	cat >numbers.py <<-'EOF'
		import os, sys
		seen, devs = {}, set()
		for d, dirs, files in os.walk("/workspace/t"):
		    for n in dirs + files + ["."]:
		        st = os.lstat(os.path.join(d, n))
		        devs.add(st.st_dev)
		        seen.setdefault(float(st.st_ino), set()).add(st.st_ino if n == "." or n in dirs else os.path.join(d, n))
		same = sorted(sorted(os.path.basename(str(p)) for p in v) for v in seen.values() if len(v) > 1)
		print(len(devs), same)
	EOF
	for how in live folded; do
		# One device; as a JavaScript number an inode number is only its own.
		run ntr run -- /usr/bin/python3 "$PWD/numbers.py"
		assert_output "1 [['1', 'one'], ['2', 'two']]"
		ntr run -c 'find t -xdev | wc -l; find t -samefile t/a/1 | sort; find t -links 2 -type f | sort; find t -inum $(stat -c %i t/a/7)' >"find.$how"
		ntr run -c 'tar -cf - t | tar -tvf - | grep -c "^h"; mkdir -p r && rsync -axH t/ r/ && find r -links 2 -type f | sort; du -s --apparent-size t/a | cut -f1; du -sl t/a/1 t/b/one | wc -l; du -s t/a/1 t/b/one | wc -l; rm -r r' >"tools.$how"
		ntr run -c 'a=$(du -s --block-size=1 t | cut -f1); [ $a -gt 600000 ] && [ $a -lt 6000000 ] && echo plausible' >"du.$how"
		assert_equal "$(cat "du.$how")" plausible
		ntr stop
	done
	assert_equal "$(cat find.live)" $'608\nt/a/1\nt/b/one\nt/a/1\nt/a/2\nt/b/one\nt/b/two\nt/a/7'
	diff find.live find.folded
	assert_equal "$(head -5 tools.live)" $'2\nr/a/1\nr/a/2\nr/b/one\nr/b/two'
	diff tools.live tools.folded
	if command -v npm >/dev/null && [ -n "${NTR_LONG:-}" ]; then
		ntr run -c 'mkdir p; cd p; npm init -y >/dev/null; for i in $(seq 50); do echo "f$i" >f$i; ln f$i g$i; done; cd ..'
		ntr stop
		ntr run -c 'cd p; npm pack --silent >/dev/null; tar -xzf *.tgz; for i in $(seq 50); do cmp f$i package/f$i && cmp f$i package/g$i || exit 1; done'
	fi
}

@test "a commit mounted alone: look-ups, cookies, reads, attributes, hostile names, refusals" {
	local versions="/usr/bin/python3 $NTR_TESTS/posix/versions.py" n=3000
	[ -z "${NTR_LONG:-}" ] || n=1000000
	ntr run -c "$versions make $n"
	ntr stop
	ntr run -c 'echo later >later'
	mkdir m now
	ntr mount default~1 m
	$versions check m $n
	ntr mount default~0 now
	assert_equal "$(cat now/later)" later
	run bash -c 'ls m/later'
	assert_failure
	ntr umount m
	ntr umount now
}

@test "many commits mounted: find, grep and diff -r between two" {
	local n=12 i
	[ -z "${NTR_LONG:-}" ] || n=300
	ntr run -c 'for d in a b c; do mkdir -p $d/x; for i in $(seq 40); do echo "$d $i" >$d/x/$i; done; done'
	for ((i = 1; i <= n; i++)); do ntr run -c "echo changed $i >a/x/7; echo $i >a/new$i; rm -f b/x/$i" >/dev/null; done
	for ((i = 0; i <= n; i++)); do mkdir "m$i" && ntr mount "default~$i" "m$i"; done
	for ((i = 0; i <= n; i += 3)); do
		run cat "m$i/a/x/7"
		if [ $i -lt $n ]; then assert_output "changed $((n - i))"; else assert_output "a 7"; fi
		assert_equal "$(find "m$i" -name 'new*' | wc -l)" $((n - i))
	done
	assert_equal "$(grep -rl changed m0 m1 | sort)" $'m0/a/x/7\nm1/a/x/7'
	run diff -r m1 m0
	assert_failure 1
	assert_output "$(printf 'Only in m0/a: new%d\ndiff -r m1/a/x/7 m0/a/x/7\n1c1\n< changed %d\n---\n> changed %d\n%s' "$n" $((n - 1)) "$n" \
		"$([ $n -gt 40 ] || echo "Only in m1/b/x: $n")" | sed '/^$/d')"
	diff -r "m$n" "m$n"
	for ((i = 0; i <= n; i++)); do ntr umount "m$i"; done
}

@test "a directory's own time is no commit of a call, and outlives the view" {
	local n
	ntr run -c 'mkdir -p pkg/modules locks; echo x >pkg/modules/f; echo "stamp: list; touch stamp" >Makefile'
	ntr stop
	ntr run -c 'echo 1 >pkg/list'
	ntr stop
	n=$(ntr log -n 100 --json | wc -l)
	ntr run -c 'touch -d 2030-01-01 pkg/modules; echo $$ >locks/pid; rm locks/pid; stat -c "%n %y" pkg/modules locks' >before
	assert_equal "$(ntr log -n 100 --json | wc -l)" "$n"
	ntr stop
	ntr run --no-commit -c 'stat -c "%n %y" pkg/modules locks' | diff before -
	assert_equal "$(ntr log -n 1 --json | json '["tool"]')" staged
	# Once, and not again; after a crash, too.
	ntr stop
	assert_equal "$(ntr log -n 100 --json | wc -l)" $((n + 1))
	ntr run -c 'touch -d 2031-01-01 locks; stat -c "%n %y" pkg/modules locks' >before
	kill -9 "$(ntr daemon status --json | json '["pid"]')"
	ntr run --no-commit -c 'stat -c "%n %y" pkg/modules locks' | diff before -
	# Steps back do not count it.
	ntr run -c 'echo 2 >pkg/list'
	ntr run -c 'touch -d 2033-01-01 locks'
	ntr stop
	assert_equal "$(ntr log -n 1 --json | json '["tool"]')" staged
	assert_equal "$(ntr cat -s default~1 pkg/list)" 1
	ntr rollback --steps 1
	assert_equal "$(ntr run --no-commit -c 'cat pkg/list')" 1
	# What a fork sees is what is there.
	ntr run -c 'touch -d 2032-01-01 locks'
	ntr fork default other
	assert_equal "$(ntr run -s other --no-commit -c 'stat -c %y locks')" "2032-01-01 00:00:00.000000000 +0000"
}
