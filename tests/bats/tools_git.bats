# git, over calls with a commit and a fold after each, against the same in a plain directory.
load common
load tools

setup() {
	ntr_setup
	need git
	export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b GIT_CONFIG_NOSYSTEM=1
	export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z' GIT_EDITOR=true
	git config --global init.defaultBranch main
	git config --global gc.autoDetach false
	git config --global protocol.file.allow always
}
teardown() { ntr_teardown; }

make_origin() {
	git init -q origin
	(
		cd origin
		mkdir -p src/deep/er docs 'with space'
		for i in {1..40}; do seq $((i * 20)) >src/f$i; done
		for i in {1..10}; do echo "$i" >src/deep/er/g$i; done
		printf '#!/bin/sh\necho tool\n' >tool && chmod +x tool
		ln -s src/f1 link && ln -s nowhere dangling && echo x >'with space/ü'
		head -c 50000 /dev/zero | tr '\0' 'z' >docs/big
		git add . && git commit -qm one
		for i in {1..6}; do seq $((i * 7)) >src/counter && git add . && git commit -qm "step $i"; done
		git branch old HEAD~3
	)
}

@test "clone, edit, commit, branches, stash" {
	make_origin
	both "git clone -q $PWD/origin r && cd r && git status --porcelain && git log --oneline && ls -A"
	both 'git status --porcelain; git diff --stat; find . -type l | sort; ./tool'
	both 'git checkout -qb topic; echo more >>src/f3; chmod -x tool; rm src/f5; echo new >n; ln -sfn src link; git status --porcelain'
	both 'git add -A; git commit -qm topic; git status --porcelain; git log --oneline -n 2; git diff --stat HEAD~1'
	both 'echo wip >>src/f9; echo untracked >u; rm tool; git stash push -qu -m wip; git status --porcelain; git stash list; ls'
	both 'git checkout -q main; ls; cat link | head -1; git status --porcelain'
	both 'git stash pop; git status --porcelain; cat u'
	both 'git stash -qu; git stash drop -q; git switch -q topic; git reset -q --hard old; git clean -fdx; git status --porcelain; ls -R | md5sum'
	both 'git reset -q --hard topic@{1} && git fsck --full --strict && git status --porcelain && git merge -q --no-edit main && git log --oneline --graph'
}

@test "worktree, rebase with a conflict, cherry-pick, bisect" {
	make_origin
	both "git clone -q $PWD/origin r && cd r && git worktree add -q -b side ../wt old && git worktree list && ls ../wt"
	both 'cd ../wt; echo side >src/counter; echo s >s; git add .; git commit -qm side; git status --porcelain; git -C ../r status --porcelain'
	both 'git rebase origin/main >/dev/null 2>&1 && exit 1; git status --porcelain; grep -c "<<<<" src/counter'
	both 'echo resolved >src/counter; git add .; git rebase --continue >/dev/null; git log --oneline -n 3; git status --porcelain'
	both 'cd ../r; git cherry-pick side >/dev/null; git log --oneline -n 2; cat src/counter'
	both 'git worktree remove ../wt; git worktree prune; git worktree list; git branch -qD side; ls ..'
	both 'git bisect start -q HEAD~1 HEAD~7 >/dev/null; git bisect run sh -c "test \$(wc -l <src/counter 2>/dev/null || echo 0) -lt 25" | tail -n 12; git bisect reset -q'
	both 'git status --porcelain; git log --oneline | wc -l'
}

@test "gc, repack, local clone with hard links, bundle, archive, submodule, fsck" {
	make_origin
	both "git clone -q $PWD/origin r && cd r && git count-objects"
	both 'for i in $(seq 30); do echo $i >c; git add c; git commit -qm $i; done; git gc -q --prune=now; git count-objects -v | grep -v size; git fsck --full; git status --porcelain'
	both 'git reset -q --hard HEAD~20; git reflog expire --expire=now --all; git gc -q --prune=now; git count-objects; ls .git/objects/pack | wc -l'
	both "cd ..; git clone -q r r2; cd r2; git status --porcelain; git log --oneline | wc -l"
	both 'git repack -qadf; git fsck --full; git -C ../r fsck --full; git -C ../r status --porcelain'
	both 'git bundle create -q ../b.bundle --all; cd ..; git clone -q b.bundle r3; git -C r3 log --oneline -n 1; git -C r archive HEAD | tar -t | sort | md5sum'
	both "git -C r submodule --quiet add $PWD/origin sub >/dev/null 2>&1; git -C r commit -qm sub; git clone -q --no-hardlinks --recurse-submodules r r4 2>/dev/null; ls r4/sub; git -C r4 status --porcelain; rm -rf r2; ls"
}

@test "a directory that is committed moves" {
	make_origin
	both "git clone -q $PWD/origin r && cd r && git mv 'with space' spaced && git status --porcelain"
	both 'mv docs documents; git add -A; git commit -qm mv; git status --porcelain; ls'
	both 'git mv src source; git status --porcelain | sort | head -3; git commit -qm moved; ls source | wc -l; git checkout -q HEAD~1; ls'
	both 'git checkout -q main; git mv source/deep deeper; git mv deeper source/again; git commit -qam again; git status --porcelain; git fsck --full; git log --follow --oneline -- source/again/er/g1'
}

@test "an edit within the second of git add is seen; a status after a commit and a fold reads only what changed" {
	need strace
	make_origin
	ntr run -c "git clone -q $PWD/origin r; cd r; echo aaaa >racy; git add racy; echo bbbb >racy"
	run ntr run -- git status --porcelain racy
	assert_output 'AM racy'
	ntr stop
	run ntr run -- git status --porcelain racy
	assert_output 'AM racy'
	# Files as new as the index are read by every status; so these are older.
	ntr run -c 'git add -A; git commit -qm racy; git ls-files -z | xargs -0 touch -h -d 2020-01-01'
	ntr stop
	ntr run -c 'git status --porcelain'
	ntr run -c 'echo changed >>src/f7; chmod +x src/f8; touch src/f9'
	ntr stop
	read_by_status() { ntr run -- sh -c 'strace -f -e trace=openat,readlink git status 2>&1 >/dev/null | grep -E -o "AT_FDCWD, .[^.\"/][^\"]*., O_RDONLY.O_CLOEXEC|readlink.*" | cut -d\" -f2 | grep -v ^.git | sort'; }
	run read_by_status
	assert_output 'src/f9'
	# f7 differs in size and f8 in mode: there is nothing to read.
	ntr run -c 'git add -A; git commit -qm more; cp src/f7 new; mv new src/f7; touch -d 2020-01-02 src/f7 src/f8 src/f9; git status --porcelain'
	run read_by_status
	assert_output ''
	ntr stop
	# What changed may get another inode number, the tree's, with the fold: then it is read once.
	assert_equal "$(read_by_status | grep -v -x -e src/f7 -e src/f8 -e src/f9)" ""
	ntr run -- git status --porcelain
	run read_by_status
	assert_output ''
}

# git_at_random SEED STEPS: random work, each step a call.
git_at_random() {
	local i
	rm -rf plain && plain_cwd=
	ntr rm --discard default >/dev/null 2>&1 || true
	echo "seed $1"
	NTR_SEED=$1 settled=
	both "git clone -q $PWD/origin r && cd r && git fetch -q origin old && git branch -q b1 FETCH_HEAD"
	for ((i = 0; i < $2; i++)); do
		both "set +e; $(/usr/bin/python3 "$NTR_TESTS/helpers/gitops.py" "$1" $i)"
	done
	both 'git fsck --full --strict 2>&1 | grep -v dangling; git clone -q . ../last && git -C ../last log --oneline | md5sum'
	# The last clone links to objects; to a user, committed ones cannot be linked (docs/posix.md), so git copies them.
	local links=
	((EUID == 0)) || links="s/ n[0-9]+( =b'[^']*')?//"
	same_trees r "/^\.git\/(index|worktrees|gitdir|objects\/(pack|info))/d;$links"
}

@test "random work in a repository gives what it gives in a plain directory" {
	make_origin
	git_at_random 1 8
}

@test "random work in a repository, long" {
	long
	local seed
	make_origin
	for seed in ${NTR_SEED:-$(seq 2 5)}; do git_at_random "$seed" 60; done
	run ntr fsck
	assert_success
}

@test "a commit signed with gpg, its agent's sockets in the workspace" {
	need gpg gpg-agent gpgconf
	export GNUPGHOME=/workspace/gnupg
	call 'mkdir -m 700 gnupg; gpg -q --batch --passphrase "" --quick-gen-key "a <a@b>" default default never 2>/dev/null; ls gnupg/private-keys-v1.d | wc -l; gpgconf --kill all'
	call 'git init -q r; cd r; git config user.signingkey a@b; echo x >f; git add f; git commit -q -S -m signed; gpgconf --list-dirs agent-socket; gpgconf --kill all'
	run ntr run -c 'git log --format=%G? -n 1; git tag -s -m signed t && git verify-tag t 2>&1 | grep -c Good; gpgconf --kill all; find ../gnupg -type s | wc -l'
	assert_output $'U\n1\n0' || assert_output $'G\n1\n0'
}

# A workspace taken from a repository that has worktrees elsewhere: the copy's gc must not reach the original.
@test "gc in a copy of a repository leaves the original's worktrees alone" {
	make_origin
	git -C origin worktree add -q -b side ../elsewhere old
	ntr new s --from origin
	mkdir hidden
	mv elsewhere hidden
	ntr run -s s -c 'git worktree prune; git gc -q --prune=now; git worktree list | wc -l; git fsck' >out
	assert_equal "$(head -n 1 out)" 1
	mv hidden/elsewhere .
	run git -C origin worktree list
	assert_line --partial elsewhere
	run git -C elsewhere status --porcelain
	assert_output ""
}
