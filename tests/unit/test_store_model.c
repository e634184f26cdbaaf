/* Long random histories against a simple twin: several sessions; names, contents and attributes changed in
 * transactions; commits, forks, moves of heads, renames and removals of sessions; diffs between any two
 * commits; closing and opening again. At the end every commit's whole tree is what its twin says, and fsck
 * finds nothing.
 *
 * NTR_TEST_STEPS: how long; NTR_TEST_SEED: another history. */
#include "fsck_fixture.h"
#include "store_twin_check.h"

#include "fs/store_impl.h"

#include <limits.h>
#include <sys/mman.h>

enum { STEPS = 700, SESSIONS = 8, COMMITS = 250, ENTRIES = 160, DEPTH = 5, LIST = 4096 };

struct mcommit {
	uint64_t id, root, parent, inodes, bytes;
	char hex[NTR_COMMIT_HEX + 1];
	struct twin t;
};

struct msession {
	bool used;
	struct ntr_head h;
	size_t head; /* index of its commit */
	unsigned seq;
	struct ntr_list_entry list[LIST]; /* what is expected */
};

static struct fixture fx;
static struct report report;
static uint64_t rnd;
static struct msession sessions[SESSIONS];
static struct mcommit commits[COMMITS];
static size_t ncommits;
static struct twin_pair *pairs;
static uint64_t highest_ino;
static struct {
	unsigned commits, aborts, unchanged, forks, moves, diffs, reopens, renames, removes;
} done;

static uint64_t below(uint64_t n)
{
	return fx_below(&rnd, n);
}

/* ---- choosing ---- */

static const char *name_any(void)
{
	static const char *const odd[] = {
	        "a b", "\xC3\xA9t\xC3\xA9", "\xFF\x01", "...", ".hidden", "new\nline", "-", "core~"};
	static char name[256];

	if (!below(5))
		return odd[below(NTR_COUNT(odd))];
	if (!below(30)) {
		memset(name, 'L', 255);
		name[254] = (char)('0' + below(3));
		name[255] = '\0';
		return name;
	}
	snprintf(name, sizeof name, "n%u", (unsigned)below(16));
	return name;
}

static unsigned depth_of(const char *path)
{
	unsigned n = *path != '\0';

	for (; *path; path++)
		n += *path == '/';
	return n;
}

/* An entry of one of these types (0: any but the root); false when none was found. */
static bool pick(const struct twin *t, mode_t type, char path[TWIN_PATH])
{
	for (int i = 0; i < 40; i++) {
		const struct twin_entry *e = &t->e[below(t->n)];

		if (type ? (t->o[e->obj].mode & S_IFMT) == type : *e->path != '\0') {
			snprintf(path, TWIN_PATH, "%s", e->path);
			return true;
		}
	}
	return false;
}

static void pick_dir(const struct twin *t, char path[TWIN_PATH])
{
	if (!below(3) || !pick(t, S_IFDIR, path) || depth_of(path) >= DEPTH)
		*path = '\0';
}

/* ---- a transaction and the twin that follows it ---- */

struct work {
	struct ntr_txn *t;
	struct twin w;
	struct timespec now;
	bool touched;
};

static uint64_t ino_of(const struct work *k, const char *path)
{
	const struct twin_obj *o = twin_get(&k->w, path);
	uint64_t ino = 0;

	assert_int_equal(ntr_path_lookup(ntr_txn_snap(k->t), path, &ino), 0);
	assert_true(ino == o->ino);
	return ino;
}

static void stamp_dir(struct work *k, const char *path)
{
	twin_get(&k->w, path)->mtime = k->now;
	k->touched = true;
}

static struct blob *content_any(const struct blob *before)
{
	static const size_t sizes[] = {0, 1, 100, NTR_INODE_INLINE, NTR_INODE_INLINE + 1, 5000,
	        NTR_CHUNK_SIZE - 1, NTR_CHUNK_SIZE, NTR_CHUNK_SIZE + 1, 200000, 4500000};
	size_t n = sizes[below(below(60) ? 7 : NTR_COUNT(sizes))];
	struct blob *b = blob_new(n);

	if (before && below(2)) { /* the content before, with a few bytes changed at most */
		n = NTR_MIN(n, before->n);
		memcpy(b->data, before->data, n);
		memset(b->data + n, 'z', b->n - n);
		if (b->n && below(3))
			b->data[below(b->n)] ^= 1;
	} else if (below(2)) { /* equal files all over the store */
		memset(b->data, (int)('a' + below(3)), n);
	} else {
		fx_fill(&rnd, b->data, n);
	}
	return b;
}

/* With holes: zeros that were never written. */
static void take_sparse(struct work *k, struct ntr_inode *in, struct blob *b)
{
	ntr_autoclose int fd = memfd_create("model", MFD_CLOEXEC);
	size_t from = (size_t)below(b->n + 1), to = from + (size_t)below(b->n - from + 1);
	bool cut;

	assert_true(fd >= 0);
	memset(b->data, 0, from);
	memset(b->data + to, 0, b->n - to);
	assert_int_equal(ftruncate(fd, (off_t)b->n), 0);
	assert_int_equal(pwrite(fd, b->data + from, to - from, (off_t)from), (ssize_t)(to - from));
	assert_int_equal(ntr_file_take_fd(k->t, in, fd, b->n, &cut), 0);
	assert_false(cut);
}

static void take_stream(struct work *k, struct ntr_inode *in, const struct blob *b)
{
	struct ntr_file_sink *sink;

	assert_int_equal(ntr_file_sink_new(k->t, in, &sink), 0);
	for (size_t off = 0; off < b->n;) {
		size_t n = NTR_MIN(b->n - off, (size_t)(1 + below(90000)));

		assert_int_equal(ntr_file_sink_write(sink, off, b->data + off, n), 0);
		off += n;
	}
	assert_int_equal(ntr_file_sink_end(sink, b->n), 0);
}

static void take_any(struct work *k, struct ntr_inode *in, struct twin_obj *o)
{
	struct blob *b = content_any(o->data);

	switch (below(4)) {
	case 0:
		take_sparse(k, in, b);
		break;
	case 1:
		take_stream(k, in, b);
		break;
	default:
		assert_int_equal(ntr_file_take_mem(k->t, in, b->data, b->n), 0);
	}
	blob_set(&o->data, b);
}

static uint64_t inode_of(struct work *k, const char *path, struct ntr_inode *ret)
{
	uint64_t ino = ino_of(k, path);

	assert_int_equal(ntr_inode_get(ntr_txn_snap(k->t), ino, ret), 0);
	return ino;
}

static void op_create(struct work *k)
{
	static const uint32_t types[] = {
	        S_IFREG, S_IFREG, S_IFREG, S_IFREG, S_IFDIR, S_IFDIR, S_IFLNK, S_IFIFO, S_IFSOCK, S_IFCHR};
	struct twin_obj o = {
	        .mode = types[below(NTR_COUNT(types))] | 0644, .uid = NTR_OWNER_ID, .gid = NTR_OWNER_ID};
	char dir[TWIN_PATH], path[TWIN_PATH];
	struct ntr_inode in;
	const char *name = name_any();
	int r;

	pick_dir(&k->w, dir);
	path_join(path, dir, name);
	assert_int_equal(ntr_inode_new(k->t, o.mode, &in), 0);
	assert_true(in.ino > highest_ino); /* never used before, in no session */
	highest_ino = o.ino = in.ino;
	in.mtime = o.mtime = k->now;
	if (S_ISCHR(o.mode))
		in.rdev = o.rdev = 0x103;
	if (S_ISREG(o.mode))
		take_any(k, &in, &o);
	if (S_ISLNK(o.mode)) {
		o.data = blob_new(1 + (size_t)below(300));
		memset(o.data->data, 'x', o.data->n);
		in.data_kind = NTR_DATA_SYMLINK;
		in.size = in.payload_len = (uint16_t)o.data->n;
		memcpy(in.payload, o.data->data, o.data->n);
	}
	r = ntr_name_create(k->t, ino_of(k, dir), name, &in, &k->now);
	if (twin_find(&k->w, path)) {
		assert_int_equal(r, -EEXIST);
		blob_set(&o.data, NULL);
		k->touched =
		        true; /* chunks and EXTENT items of nobody: the transaction says that it changed */
		if (S_ISREG(o.mode))
			assert_int_equal(ntr_inode_erase(k->t, in.ino), 0);
		return;
	}
	assert_int_equal(r, 0);
	twin_enter(&k->w, path, twin_obj_add(&k->w, &o));
	stamp_dir(k, dir);
}

static void op_link(struct work *k)
{
	char dir[TWIN_PATH], path[TWIN_PATH], from[TWIN_PATH];
	const char *name = name_any();
	bool there;
	unsigned obj;
	int r;

	if (!pick(&k->w, below(4) ? S_IFREG : 0, from))
		return;
	pick_dir(&k->w, dir);
	path_join(path, dir, name);
	obj = k->w.e[twin_place(&k->w, from, &there)].obj;
	r = ntr_name_link(k->t, ino_of(k, from), ino_of(k, dir), name, &k->now);
	if (twin_find(&k->w, path)) {
		assert_int_equal(r, -EEXIST);
	} else if (S_ISDIR(k->w.o[obj].mode)) {
		assert_int_equal(r, -EPERM);
	} else {
		assert_int_equal(r, 0);
		twin_enter(&k->w, path, obj);
		stamp_dir(k, dir);
	}
}

static void op_remove(struct work *k)
{
	char dir[TWIN_PATH], path[TWIN_PATH];
	const char *name;

	if (!pick(&k->w, 0, path))
		return;
	path_split(path, dir, &name);
	assert_int_equal(ntr_name_remove(k->t, ino_of(k, dir), name, &k->now), 0);
	twin_remove(&k->w, path);
	stamp_dir(k, dir);
	assert_int_equal(ntr_name_remove(k->t, ino_of(k, dir), name, &k->now), -ENOENT);
}

static int rename_expected(const struct work *k, const char *from, const char *to)
{
	const struct twin_obj *o = twin_get(&k->w, from), *p = twin_find(&k->w, to);

	if (S_ISDIR(o->mode) && path_below(to, from) && strcmp(to, from) != 0)
		return -EINVAL;
	if (!p || p == o)
		return 0;
	if (!S_ISDIR(p->mode))
		return S_ISDIR(o->mode) ? -ENOTDIR : 0;
	if (!S_ISDIR(o->mode))
		return -EISDIR;
	return twin_empty_dir(&k->w, to) ? 0 : -ENOTEMPTY;
}

static void op_rename(struct work *k)
{
	char from[TWIN_PATH], to[TWIN_PATH], dir[TWIN_PATH], ndir[TWIN_PATH];
	const char *name, *nname;
	int want, r;

	if (!pick(&k->w, 0, from))
		return;
	path_split(from, dir, &name);
	pick_dir(&k->w, ndir);
	nname = name_any();
	path_join(to, ndir, nname);
	want = rename_expected(k, from, to);
	r = ntr_name_rename(k->t, ino_of(k, dir), name, ino_of(k, ndir), nname, &k->now);
	if (r != want)
		fail_msg("rename '%s' '%s': %d, wanted %d", from, to, r, want);
	if (r || twin_find(&k->w, from) == twin_find(&k->w, to))
		return;
	twin_remove(&k->w, to);
	twin_move(&k->w, from, to);
	stamp_dir(k, dir);
	stamp_dir(k, ndir);
}

static void op_write(struct work *k)
{
	char path[TWIN_PATH];
	struct twin_obj *o;
	struct ntr_inode in;

	if (!pick(&k->w, S_IFREG, path))
		return;
	o = twin_get(&k->w, path);
	inode_of(k, path, &in);
	take_any(k, &in, o);
	in.mtime = in.ctime = o->mtime = k->now;
	assert_int_equal(ntr_inode_put(k->t, &in), 0);
	k->touched = true;
}

static void op_attr(struct work *k)
{
	char path[TWIN_PATH] = "";
	struct twin_obj *o;
	struct ntr_inode in;

	if (below(10))
		pick(&k->w, 0, path);
	o = twin_get(&k->w, path);
	inode_of(k, path, &in);
	switch (below(3)) {
	case 0:
		in.mode = o->mode = (o->mode & S_IFMT) | (uint32_t)below(010000);
		break;
	case 1:
		in.uid = o->uid = below(2) ? NTR_OWNER_ID : (uint32_t)below(70000);
		in.gid = o->gid = (uint32_t)below(3);
		break;
	default:
		in.mtime = o->mtime = (struct timespec){
		        .tv_sec = (time_t)below(UINT32_MAX), .tv_nsec = (long)below(1000000000)};
	}
	assert_int_equal(ntr_inode_put(k->t, &in), 0);
	k->touched = true;
}

static void op_xattr(struct work *k)
{
	char path[TWIN_PATH] = "";
	int which = (int)below(TWIN_XATTRS), r;
	struct twin_obj *o;
	struct ntr_inode in;
	struct blob *b;

	if (below(10))
		pick(&k->w, 0, path);
	o = twin_get(&k->w, path);
	inode_of(k, path, &in);
	if (below(3)) {
		b = blob_new((size_t)(below(10) ? below(200) : below(65537)));
		fx_fill(&rnd, b->data, b->n);
		assert_int_equal(ntr_xattr_set(k->t, &in, twin_xattr_names[which], b->data, b->n), 0);
		blob_set(&o->xattr[which], b);
	} else {
		r = ntr_xattr_del(k->t, &in, twin_xattr_names[which]);
		assert_int_equal(r, o->xattr[which] ? 0 : -ENODATA);
		blob_set(&o->xattr[which], NULL);
		if (r)
			return;
	}
	k->touched = true;
}

static void op_state(struct work *k)
{
	int which = (int)below(TWIN_STATES);
	struct blob *b = below(4) ? blob_new((size_t)(1 + below(below(10) ? 60 : 20000))) : NULL;

	if (b)
		memset(b->data, (int)('a' + below(5)), b->n);
	assert_int_equal(ntr_kvitem_set(k->t, twin_state_names[which], b ? b->data : NULL, b ? b->n : 0), 0);
	blob_set(&k->w.state[which], b);
	k->touched = true;
}

/* What must be refused, and leave the transaction as it was. */
static void op_refused(struct work *k)
{
	static const char *const bad[] = {"", ".", "..", "a/b"};
	char file[TWIN_PATH];
	uint64_t ino;

	assert_int_equal(ntr_name_remove(k->t, NTR_INO_ROOT, bad[below(NTR_COUNT(bad))], &k->now), -EINVAL);
	assert_int_equal(ntr_name_remove(k->t, NTR_INO_ROOT, "not there", &k->now), -ENOENT);
	assert_int_equal(ntr_path_lookup(ntr_txn_snap(k->t), "not/there", &ino), -ENOENT);
	if (!pick(&k->w, S_IFREG, file))
		return;
	assert_int_equal(ntr_name_remove(k->t, ino_of(k, file), "x", &k->now), -ENOTDIR);
	assert_int_equal(ntr_name_link(k->t, ino_of(k, file), NTR_INO_ROOT, "..", &k->now), -EINVAL);
}

static void op_any(struct work *k)
{
	static void (*const ops[])(struct work *) = {op_create, op_create, op_create, op_link, op_remove,
	        op_rename, op_rename, op_write, op_write, op_attr, op_xattr, op_state, op_refused};

	if (k->w.n > ENTRIES)
		op_remove(k);
	else
		ops[below(NTR_COUNT(ops))](k);
}

/* ---- commits and sessions ---- */

static struct msession *session_any(void)
{
	for (;;) {
		struct msession *s = &sessions[below(SESSIONS)];

		if (s->used)
			return s;
	}
}

static size_t commit_any(void)
{
	return (size_t)below(ncommits);
}

/* Room for one more: a commit that is no session's head is no longer looked at. */
static struct mcommit *commit_slot(void)
{
	size_t i;

	if (ncommits < COMMITS)
		return &commits[ncommits++];
	for (;;) {
		bool head = false;

		i = commit_any();
		for (int k = 0; k < SESSIONS; k++)
			head |= sessions[k].used && sessions[k].head == i;
		if (!head)
			break;
	}
	twin_done(&commits[i].t);
	return &commits[i];
}

static void expect_step(struct msession *s, enum ntr_step kind, uint64_t from)
{
	assert_true(s->seq < LIST);
	s->list[s->seq++] = (struct ntr_list_entry){.commit = s->h.commit, .from = from, .kind = kind};
}

static void commit_note(struct msession *s, const struct ntr_commit *c, struct twin t)
{
	struct mcommit *m = commit_slot();

	*m = (struct mcommit){.id = c->id, .root = c->root, .parent = c->nparents ? c->parent[0] : 0, .t = t};
	memcpy(m->hex, c->hex, sizeof m->hex);
	twin_counts(&t, &m->inodes, &m->bytes);
	s->head = (size_t)(m - commits);
}

/* The session's record, as anybody would read it, is what its twin says. */
static void session_check(const struct msession *s)
{
	const struct mcommit *m = &commits[s->head];
	struct ntr_head h;

	assert_int_equal(ntr_session_get(fx.st, s->h.name, &h, NULL), 0);
	if (h.sid != s->h.sid || h.commit != m->id || h.root != m->root || h.seq != s->seq ||
	        h.inodes != m->inodes || h.bytes != m->bytes)
		fail_msg("session %s: commit %llu (%llu) root %llu (%llu) seq %llu (%u) inodes %llu (%llu) "
		         "bytes %llu (%llu)",
		        h.name, (unsigned long long)h.commit, (unsigned long long)m->id,
		        (unsigned long long)h.root, (unsigned long long)m->root, (unsigned long long)h.seq,
		        s->seq, (unsigned long long)h.inodes, (unsigned long long)m->inodes,
		        (unsigned long long)h.bytes, (unsigned long long)m->bytes);
}

static struct msession *session_slot(void)
{
	for (int i = 0; i < SESSIONS; i++)
		if (!sessions[i].used)
			return &sessions[i];
	return NULL;
}

static void name_session(char name[NTR_NAME_MAX + 1])
{
	struct ntr_head h;

	do
		snprintf(name, NTR_NAME_MAX + 1, "s%u", (unsigned)below(40));
	while (!ntr_session_get(fx.st, name, &h, NULL));
}

static void do_new(void)
{
	struct ntr_session_options o = {.durability = below(3) ? NTR_RELAXED_DURABILITY : NTR_FSYNC};
	struct msession *s = session_slot();
	struct twin t = {0};
	struct twin_obj root = {.ino = NTR_INO_ROOT};
	struct ntr_commit c;
	struct ntr_inode in;
	struct ntr_snap snap;
	char name[NTR_NAME_MAX + 1];

	if (!s)
		return;
	name_session(name);
	assert_int_equal(ntr_session_new(fx.st, name, &o, NULL, &s->h, NULL), 0);
	assert_int_equal(ntr_commit_get(fx.st, s->h.commit, &c, NULL), 0);
	snap = ntr_snap_root(fx.st, c.root);
	assert_int_equal(ntr_inode_get(&snap, NTR_INO_ROOT, &in), 0);
	assert_int_equal(in.mode, S_IFDIR | 0755);
	root.mode = in.mode;
	root.uid = root.gid = NTR_OWNER_ID;
	root.mtime = in.mtime;
	twin_enter(&t, "", twin_obj_add(&t, &root));
	s->used = true;
	s->seq = 0;
	commit_note(s, &c, t);
	expect_step(s, NTR_STEP_NEW, 0);
	ntr_commit_done(&c);
	session_check(s);
}

static void finish(struct msession *s, struct work *k, bool elsewhere)
{
	struct ntr_head before = s->h;
	struct ntr_commit c;
	struct ntr_err e = {0};

	if (ntr_store_commit(fx.st, &s->h, k->t, "{\"tool\":\"model\"}", &(struct ntr_stats){0}, &c, &e))
		fx_fail("commit", &e);
	if (!c.id) { /* nothing came of it: then it must be as it was */
		assert_true(before.root == s->h.root && before.commit == s->h.commit);
		twin_check_root(fx.st, s->h.root, &k->w, &pairs);
		twin_done(&k->w);
		done.unchanged++;
		return;
	}
	assert_true(k->touched || elsewhere);
	assert_true(c.nparents == 1 && c.parent[0] == before.commit);
	commit_note(s, &c, k->w);
	expect_step(s, NTR_STEP_COMMIT, before.commit);
	ntr_commit_done(&c);
	session_check(s);
	done.commits++;
	if (!below(8)) { /* a head of the past must not be committed to */
		struct ntr_txn *t;

		assert_int_equal(ntr_txn_begin(fx.st, before.root, &t), 0);
		assert_int_equal(ntr_kvitem_set(t, "e:STALE", "1", 1), 0);
		assert_int_equal(ntr_store_commit(fx.st, &before, t, "{}", NULL, &c, NULL), -ESTALE);
		session_check(s);
	}
}

static void do_commit(void)
{
	struct msession *s = session_any();
	bool elsewhere = !below(12); /* on top of another commit's tree, as a merge or a checkout does it */
	size_t base = elsewhere ? commit_any() : s->head;
	struct work k = {.w = twin_copy(&commits[base].t)};
	unsigned steps = (unsigned)below(12);

	clock_gettime(CLOCK_REALTIME, &k.now);
	assert_int_equal(ntr_txn_begin(fx.st, commits[base].root, &k.t), 0);
	if (!below(8))
		ntr_txn_set_limit(k.t, 3000); /* by way of intermediate roots */
	while (steps--)
		op_any(&k);
	assert_true(k.touched || ntr_txn_empty(k.t));
	if (below(10)) {
		finish(s, &k, elsewhere);
		return;
	}
	ntr_txn_abort(k.t);
	twin_done(&k.w);
	session_check(s);
	done.aborts++;
}

static void do_fork(void)
{
	struct msession *src = session_any(), *s = session_slot();
	size_t at = commit_any();
	struct ntr_commit c;
	char name[NTR_NAME_MAX + 1];

	if (!s)
		return;
	assert_int_equal(ntr_commit_by_hex(fx.st, commits[at].hex, &c, NULL), 0);
	assert_true(c.id == commits[at].id);
	assert_int_equal(ntr_session_fork(fx.st, &src->h, &c, src->h.name, &s->h, NULL), -EEXIST);
	name_session(name);
	assert_int_equal(ntr_session_fork(fx.st, &src->h, &c, name, &s->h, NULL), 0);
	assert_true(s->h.origin == c.id);
	ntr_commit_done(&c);
	s->used = true;
	s->head = at;
	s->seq = 0;
	expect_step(s, NTR_STEP_FORK, 0);
	session_check(s);
	done.forks++;
}

static void do_move(void)
{
	struct msession *s = session_any();
	size_t to = commit_any();
	uint64_t from = s->h.commit;
	struct ntr_commit c;

	assert_int_equal(ntr_commit_get(fx.st, commits[to].id, &c, NULL), 0);
	assert_int_equal(ntr_session_move(fx.st, &s->h, &c, NULL), 0);
	ntr_commit_done(&c);
	s->head = to;
	expect_step(s, NTR_STEP_MOVE, from);
	session_check(s);
	done.moves++;
}

static void do_rename(void)
{
	struct msession *s = session_any(), *other = session_any();
	char name[NTR_NAME_MAX + 1];
	struct ntr_head h;

	name_session(name);
	if (other != s)
		assert_int_equal(ntr_session_rename(fx.st, s->h.name, other->h.name, NULL), -EEXIST);
	assert_int_equal(ntr_session_rename(fx.st, s->h.name, name, NULL), 0);
	assert_int_equal(ntr_session_get(fx.st, s->h.name, &h, NULL), -ENOENT);
	strcpy(s->h.name, name);
	session_check(s);
	done.renames++;
}

/* Its commits stay: other sessions may fork from them, or move there. */
static void do_remove(void)
{
	struct msession *s = session_any();
	struct ntr_head h;
	unsigned used = 0;

	for (int i = 0; i < SESSIONS; i++)
		used += sessions[i].used;
	if (used < 3)
		return;
	assert_int_equal(ntr_session_remove(fx.st, s->h.sid, NULL), 0);
	assert_int_equal(ntr_session_get(fx.st, s->h.name, &h, NULL), -ENOENT);
	assert_int_equal(ntr_session_remove(fx.st, s->h.sid, NULL), -ENOENT);
	s->used = false;
	done.removes++;
}

static void do_diff(void)
{
	const struct mcommit *a = &commits[commit_any()],
	                     *b = &commits[below(2) ? session_any()->head : commit_any()];

	twin_check_diff(fx.st, a->root, b->root, &a->t, &b->t);
	done.diffs++;
}

static void commit_check(const struct mcommit *m)
{
	struct ntr_commit c;

	assert_int_equal(ntr_commit_get(fx.st, m->id, &c, NULL), 0);
	assert_true(c.root == m->root && c.inodes == m->inodes && c.bytes == m->bytes);
	assert_string_equal(c.hex, m->hex);
	assert_true((c.nparents ? c.parent[0] : 0) == m->parent);
	ntr_commit_done(&c);
	twin_check_root(fx.st, m->root, &m->t, &pairs);
}

/* ---- the session's own list ---- */

struct list_walk {
	const struct msession *s;
	unsigned n;
};

static int list_step(void *user, const struct ntr_list_entry *en)
{
	struct list_walk *w = user;
	const struct ntr_list_entry *want = &w->s->list[w->n];

	assert_true(w->n < w->s->seq);
	assert_int_equal(en->seq, w->n + 1);
	assert_int_equal(en->kind, want->kind);
	assert_true(en->commit == want->commit && en->from == want->from);
	w->n++;
	return 0;
}

static void list_check(const struct msession *s)
{
	struct list_walk w = {.s = s};

	assert_int_equal(ntr_session_list(fx.st, s->h.sid, 1, list_step, &w), 0);
	assert_int_equal(w.n, s->seq);
}

static void do_reopen(void)
{
	ntr_store_close(fx.st);
	fx_open(&fx, false);
	for (int i = 0; i < SESSIONS; i++) {
		if (!sessions[i].used)
			continue;
		session_check(&sessions[i]);
		list_check(&sessions[i]);
	}
	commit_check(&commits[commit_any()]);
	done.reopens++;
}

static void do_sync(void)
{
	assert_int_equal(ntr_store_sync(fx.st, NULL), 0);
}

static void do_check(void)
{
	commit_check(&commits[commit_any()]);
}

/* ---- the whole ---- */

static void step(void)
{
	static const struct {
		unsigned weight;
		void (*fn)(void);
	} ops[] = {{60, do_commit}, {6, do_fork}, {6, do_move}, {2, do_new}, {2, do_rename}, {3, do_remove},
	        {12, do_diff}, {4, do_check}, {4, do_sync}, {1, do_reopen}};
	uint64_t at = below(100);

	for (size_t i = 0; i < NTR_COUNT(ops); i++) {
		if (at < ops[i].weight) {
			ops[i].fn();
			return;
		}
		at -= ops[i].weight;
	}
}

static void finish_all(void)
{
	do_reopen();
	for (size_t i = 0; i < ncommits; i++)
		commit_check(&commits[i]);
	fsck_clean(fx.st, &report);
	for (size_t i = 0; i < ncommits; i++)
		twin_done(&commits[i].t);
	twin_pairs_free(&pairs);
	print_message("%u commits, %u aborted, %u unchanged, %u forks, %u moves, %u diffs, %u reopened, %u "
	              "renamed, "
	              "%u removed\n",
	        done.commits, done.aborts, done.unchanged, done.forks, done.moves, done.diffs, done.reopens,
	        done.renames, done.removes);
	assert_true(done.commits && done.forks && done.moves && done.diffs && done.reopens);
}

static void run_model(uint64_t seed, unsigned long steps)
{
	rnd = seed;
	print_message("seed %llu, %lu steps\n", (unsigned long long)seed, steps);
	do_new();
	while (steps--)
		step();
	finish_all();
}

static unsigned long wanted_steps(unsigned long def)
{
	const char *s = getenv("NTR_TEST_STEPS");

	return s && *s ? NTR_MAX(strtoul(s, NULL, 0), 1ul) : def;
}

static uint64_t wanted_seed(void)
{
	const char *s = getenv("NTR_TEST_SEED");
	uint64_t seed = s && *s ? strtoull(s, NULL, 0) : 20261129;

	return seed ? seed : 1;
}

static int setup(void **state)
{
	(void)state;
	ncommits = 0;
	highest_ino = 0;
	pairs = NULL;
	memset(sessions, 0, sizeof sessions);
	memset(&done, 0, sizeof done);
	fx_setup(&fx);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	ntr_dirent_hash_hook = NULL;
	fx_teardown(&fx);
	return 0;
}

static void test_model(void **state)
{
	(void)state;
	run_model(wanted_seed(), wanted_steps(STEPS));
}

/* The same with names that all share a few hashes. */
static uint64_t few_hashes(const char *name, size_t n)
{
	return 3 + (uint64_t)(unsigned char)name[n - 1] % 3;
}

static void test_model_collisions(void **state)
{
	(void)state;
	ntr_dirent_hash_hook = few_hashes;
	run_model(wanted_seed() + 1, wanted_steps(STEPS) / 4 + 50);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_model, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_model_collisions, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
