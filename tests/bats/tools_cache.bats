# What the versions mount is asked for: the second fork of a commit reads from the kernel's caches alone, and neither a
# commit nor a fold makes anybody read an unchanged file again.
load common
load tools

setup() { ntr_setup; }
teardown() { ntr_teardown; }

tree_ops=(LOOKUP GETATTR READ READDIR READDIRPLUS READLINK GETXATTR LISTXATTR LSEEK OPEN OPENDIR)
read_all() { ntr run -s "$1" -- sh -c 'find . -ls >/dev/null; find . -type f -exec cat {} + | md5sum; find . -type l -exec readlink {} + | md5sum'; }
make_tree() {
	local i
	for ((i = 0; i < 60; i++)); do
		mkdir -p t/d$((i % 7))
		head -c $((i * 3000)) /dev/urandom >t/d$((i % 7))/f$i
	done
	ln -s d1/f1 t/l
	mkdir t/empty
}

@test "reading a whole tree in a second fork of a commit sends the daemon nothing" {
	make_tree
	ntr new s --from t
	ntr fork s a
	read_all s >one
	[ "$(asked READ)" -ge 59 ]
	asks_nothing "${tree_ops[*]}" read_all a
	# … and nothing when the overlay's own caches are gone, or in one more fork
	ntr stop -s a
	asks_nothing "${tree_ops[*]}" read_all a
	ntr fork s b
	asks_nothing "${tree_ops[*]}" read_all b
	assert_equal "$(sort -u again)" "$(sort -u one)"
}

changed_part() {
	ntr run -s s -c 'echo x >>d1/f1; echo new >new; mv d2/f2 d2/moved; rm d3/f3; chmod 600 d4/f4; ln d5/f5 d5/linked; mkdir n'
	ntr stop -s s
	read_all s
	ntr rollback -s s --steps 1 >/dev/null
}

@test "after a commit and a fold only what changed is read again; after a rollback nothing" {
	local before i fewest=1000
	make_tree
	ntr new s --from t
	read_all s >one
	for i in 1 2 3; do
		before=$(asked READ)
		changed_part
		# f1 and new have new content; d2/moved, d4/f4 and d5/f5 are new versions, and those are what is cached
		i=$(($(asked READ) - before))
		[ "$i" -ge 2 ]
		[ "$i" -ge "$fewest" ] || fewest=$i
	done
	[ "$fewest" -le 5 ]
	asks_nothing "${tree_ops[*]}" read_all s
	assert_equal "$(sort -u again)" "$(sort -u one)"
}

more_files() {
	ntr run -s s -c 'd=$(mktemp -d new.XXXXXX); for ((k = 0; k < 200; k++)); do echo $k >$d/$k; done'
	[ $((++round)) -ne 2 ] || ntr stop -s s
	sleep 0.3
	ntr run -s s -- sh -c 'cat d*/* | md5sum'
}

@test "commits and folds make nobody read an unchanged file again" {
	local round=0
	make_tree
	ntr new s --from t
	ntr run -s s -- sh -c 'cat d*/* | md5sum' >one
	asks_nothing READ more_files
	asks_nothing READ more_files
	asks_nothing READ more_files
	diff one <(sort -u again)
}

@test "a tree with attributes: files and directories are cached all the same" {
	make_tree
	setfattr -n user.a -v 1 t/d1/f1 || skip "this filesystem has no extended attributes"
	ntr new s --from t
	ntr fork s a
	read_all s >one
	asks_nothing "LOOKUP READ READDIR READDIRPLUS READLINK" read_all a
	assert_equal "$(sort -u again)" "$(sort -u one)"
	run ntr run -s a -- getfattr --only-values -n user.a d1/f1
	assert_output 1
}
