# ntr's own sources, imported, built and tested inside a workspace, with git beside it. NTR_SOURCE: a checkout or its files
# (default: where these tests lie). NTR_LONG=1 builds and tests everything.
load common
load tools

setup() {
	ntr_setup
	: "${NTR_SOURCE:=$NTR_TESTS/..}"
	[ -f "$NTR_SOURCE/CMakeLists.txt" ] || skip "no sources in NTR_SOURCE=$NTR_SOURCE"
	need git cmake ninja gcc
	NTR_SOURCE=$(cd "$NTR_SOURCE" && pwd)
	export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b GIT_CONFIG_NOSYSTEM=1
	export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
	git config --global init.defaultBranch main
	git config --global gc.autoDetach false
}
teardown() { ntr_teardown; }

# The sources as a fresh repository, older than the index will be.
take_source() {
	local dir=$1
	mkdir "$dir"
	if git -c safe.directory='*' -C "$NTR_SOURCE" rev-parse 2>/dev/null; then
		git -c safe.directory='*' -C "$NTR_SOURCE" ls-files -z --cached --others --exclude-standard
	else
		(cd "$NTR_SOURCE" && find . \( -path ./build -o -name __pycache__ \) -prune -o -type f -print0)
	fi | tar -C "$NTR_SOURCE" --null --ignore-failed-read -T - -cf - 2>/dev/null | tar -C "$dir" -xf -
	find "$dir" -exec touch -h -d 2020-01-01 {} +
	git -C "$dir" init -q
	git -C "$dir" add -A
	git -C "$dir" commit -qm import
}

configure='cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DNTR_FUSE_PREFIX='
# unit_targets PATTERN: the unit tests' targets of the session p.
unit_targets() { ntr run -s p -- sh -c "cd tests/unit && ls $1" | sed 's/\.c$//' | tr '\n' ' '; }

@test "the client and the lower modules are built in the workspace, and their tests run there" {
	local targets
	take_source src
	ntr new p --from src
	ntr run -s p -c "$configure$NTR_SOURCE/build/libfuse/prefix >/dev/null"
	ntr stop -s p
	ntr run -s p -c 'ninja -C build ntr_base | tail -n 1'
	targets=$(unit_targets 'test_base_*.c test_tree_*.c')
	ntr run -s p -c "ninja -C build ntr $targets" >log || { cat log; false; }
	run ntr run -s p -- build/cli/ntr --version
	assert_success
	ntr run -s p -c "ctest --test-dir build -j 2 -R '^test_(base|tree)_' --output-on-failure" >log || { cat log; false; }
	grep -q '100% tests passed' log
	# What is built stays built: over the fold, in a fork, after a restart of the daemon.
	ntr stop -s p
	run ntr run -s p -c "ninja -C build ntr $targets"
	assert_output --partial 'no work to do'
	ntr fork p f
	run ntr run -s f -c "ninja -C build ntr $targets"
	assert_output --partial 'no work to do'
	ntr daemon stop
	run ntr run -s p -c "ninja -C build ntr $targets"
	assert_output --partial 'no work to do'
	# One changed source is one object and what is linked from it.
	ntr run -s p -c 'echo "/* end */" >>cli/ntr_parse.c'
	ntr stop -s p
	run ntr run -s p -c 'ninja -C build -v ntr | grep -c -e "-c .*\.c$"'
	assert_output 1
	run ntr run -s p -c 'git status --porcelain'
	assert_output ' M cli/ntr_parse.c'
	ntr rollback -s p f
	run ntr run -s p -c "ninja -C build ntr $targets; git status --porcelain; git diff --stat"
	assert_output --partial 'no work to do'
	refute_output --partial ntr_parse
	run ntr run -s p -c 'rm -rf build; git clean -fdx; git status --porcelain'
	assert_output ""
}

@test "git status, stash, checkout -b and gc behave as in a plain directory" {
	take_source plain
	plain_cwd=$PWD/plain
	ntr new default --from plain
	both 'git status --porcelain; git log --format=%H'
	both 'sed -i "s/ntr/NTR/" README.md; rm LICENSE; echo new >cli/new.c; chmod +x CMakeLists.txt; git status --porcelain; git diff --stat'
	both 'git stash push -qu; git status --porcelain; git stash list; git stash show --stat'
	both 'git checkout -qb topic; for f in cli/*.c; do echo "/* topic */" >>$f; done; git commit -qam topic; git status --porcelain; git log --format=%H'
	both 'git stash pop -q; git status --porcelain; git add -A; git commit -qm popped; git log --format=%T'
	both 'git checkout -q main; git status --porcelain; tail -n 1 cli/ntr.c; ls LICENSE'
	both 'git gc -q --prune=now; git count-objects; git fsck --full --strict; git status --porcelain'
	both 'git merge -q topic; git gc -q --prune=now; git reset -q --hard HEAD~1; git clean -fdxq; git status --porcelain; git fsck --full'
	both 'git worktree add -q ../wt topic 2>&1 && git -C ../wt status --porcelain; git worktree remove ../wt; git worktree list | wc -l' || true
	both 'git rev-parse HEAD topic; git ls-files -s | md5sum; git diff HEAD topic | md5sum'
}

@test "git status after a call, a commit and a fold reads only the files that changed" {
	need strace
	local before all
	take_source src
	ntr new p --from src
	all=$(git -C src ls-files | wc -l)
	reads() {
		ntr run -s p -- sh -c 'strace -f -e trace=openat,readlink git status 2>&1 >/dev/null | grep -E -o "AT_FDCWD, .[^/][^\"]*., O_RDONLY.O_CLOEXEC" | cut -d\" -f2 | grep -v ^.git/ | sort'
	}
	ntr run -s p -- git status --porcelain # the import gave every file another inode number
	ntr stop -s p
	run reads
	assert_output ""
	ntr run -s p -c 'echo changed >>README.md; touch LICENSE; cp cli/ntr.c x; mv x cli/ntr.c; git status --porcelain' >out
	assert_equal "$(cat out)" ' M README.md'
	ntr stop -s p
	assert_equal "$(reads | grep -v -x -e README.md -e LICENSE -e cli/ntr.c)" ""
	ntr run -s p -- git status --porcelain
	before=$(asked READ)
	for i in 1 2 3 4 5; do
		ntr run -s p -c "echo $i >>README.md; git status --porcelain >/dev/null; echo $i >note$i; for k in {1..160}; do echo \$k >build.\$k; done; rm build.*"
		sleep 0.25
		ntr run -s p -- git status --porcelain >/dev/null
	done
	echo "$(($(asked READ) - before)) of $all files read"
	[ $(($(asked READ) - before)) -lt $((all / 4)) ]
	# In a fork of what somebody has looked at, status asks the daemon nothing.
	ntr stop -s p
	ntr run -s p -- git status --porcelain >/dev/null
	ntr stop -s p
	ntr run -s p -- git status --porcelain >/dev/null
	ntr fork p f
	asks_nothing 'READ LOOKUP READDIR READDIRPLUS READLINK' ntr run -s f -- git status --porcelain
	assert_equal "$(ntr log -s f --json | wc -l)" "$(ntr log -s p --json | wc -l)"
}

# An ordinary user's session is a user namespace with one id: fusermount3 is not set-uid root there, and ACLs for others
# cannot be set. So the tests that mount the versions or set such ACLs are for root alone.
@test "everything is built in the workspace, and the unit tests run there" {
	[ -n "${NTR_LONG:-}" ] || skip "NTR_LONG is not set"
	local without='^$'
	[ "$(id -u)" -eq 0 ] || without='^test_(versions|port|absorb|ctl)_'
	take_source src
	ntr new p --from src
	ntr run -s p -c "$configure$NTR_SOURCE/build/libfuse/prefix >/dev/null"
	ntr run -s p --timeout 20m -c 'ninja -C build' >log || { tail -50 log; false; }
	ntr stop -s p
	run ntr run -s p -c 'ninja -C build'
	assert_output --partial 'no work to do'
	ntr run -s p --timeout 30m -c "ctest --test-dir build -E '$without' --output-on-failure --timeout 300" >log || { tail -100 log; false; }
	ntr stop -s p
	run ntr run -s p -c 'ninja -C build; git status --porcelain; git fsck --full'
	assert_output --partial 'no work to do'
}
