/* rename(2) of committed directories: what overlayfs refuses is done by ntr-init. */
#include "init_harness.h"

#include <sys/xattr.h>

/* A program for /usr/bin/python3: says the errno's name, or OK, of each of its renames "from>to[:flags]" . */
static const char rename_py[] = "import ctypes, errno, sys\n"
                                "c = ctypes.CDLL(None, use_errno=True)\n"
                                "for a in sys.argv[1:]:\n"
                                "    p, _, f = a.partition(':')\n"
                                "    x, y = p.split('>')\n"
                                "    r = c.renameat2(-100, x.encode(), -100, y.encode(), int(f or 0))\n"
                                "    print(errno.errorcode[ctypes.get_errno()] if r else 'OK', end=' ')\n"
                                "print()\n";

static void own(const struct th *t, const char *path)
{
	if (t->user && !geteuid())
		assert_int_equal(lchown(path, TH_NOBODY, TH_NOBODY), 0);
}

static void lower_dir(const struct th *t, const char *rel, mode_t mode)
{
	char p[256];

	th_path(t, p, sizeof p, "lower", rel);
	assert_int_equal(mkdir(p, 0755), 0);
	assert_int_equal(chmod(p, mode), 0);
	own(t, p);
}

static void lower_link(const struct th *t, const char *rel, const char *target)
{
	char p[256];

	th_path(t, p, sizeof p, "lower", rel);
	assert_int_equal(symlink(target, p), 0);
	own(t, p);
}

/* d: a/, a/x, a/l, a/b/, a/b/y; e: empty; f: a file; w: 3 directories deep */
static void make_lower(const struct th *t)
{
	char p[256], q[256];

	lower_dir(t, "d", 0755);
	lower_dir(t, "d/b", 0750);
	th_put(t, "lower", "d/x", "one\n");
	th_put(t, "lower", "d/b/y", "two\n");
	lower_link(t, "d/l", "x");
	th_path(t, p, sizeof p, "lower", "d/x");
	th_path(t, q, sizeof q, "lower", "d/b/again");
	assert_int_equal(link(p, q), 0);
	assert_int_equal(setxattr(p, "user.note", "hi", 2, 0), 0);
	lower_dir(t, "e", 0755);
	th_put(t, "lower", "f", "file\n");
	lower_dir(t, "w", 0755);
	lower_dir(t, "w/1", 0755);
	lower_dir(t, "w/1/2", 0755);
	th_put(t, "lower", "rename.py", rename_py);
}

static void open_it(struct th *t, bool user)
{
	th_dirs(t, user);
	make_lower(t);
	th_start(t, "/workspace");
	if (!ntr_json_bool(t->started, "ok", false)) {
		json_dumpf(t->started, stderr, 0);
		fail_msg("the session does not start");
	}
}

#define SHOW                                                                                               \
	"show() { (cd $1 && find . -printf '%P %y %m %l %TY\\n' -type f -printf '%n\\n' -exec cat {} + | " \
	"sort | md5sum; "                                                                                  \
	"getfattr -n user.note --only-values x 2>/dev/null || /usr/bin/python3 -c 'import os; "            \
	"print(os.getxattr(\"x\", \"user.note\").decode(), end=\"\")'); }; "
#define REN "/usr/bin/python3 rename.py "

static void moves_whole(bool user)
{
	ntr_auto(th_close) struct th t;

	open_it(&t, user);
	th_expect(&t,
	        SHOW
	        "a=$(show d); touch -d 2001-01-01 -h d d/b; a=$(show d); " REN
	        "'d>n'; [ \"$(show n)\" = \"$a\" ] && echo same; "
	        "ls; stat -c %h n/x n/b/again; [ n/x -ef n/b/again ] && echo linked; stat -c '%Y %a' n n/b",
	        "OK \nsame\ne\nf\nhello\nn\nrename.py\nw\n2\n2\nlinked\n978307200 755\n978307200 750\n");
	/* What is new and what was changed in it goes along; again, and back. */
	th_expect(&t,
	        "echo more >>n/x; mkdir n/new; echo 1 >n/new/f; " REN
	        "'n>w/1/2/m' 'w>W' 'W/1/2/m>d'; cat d/x d/new/f d/b/y; find W | sort",
	        "OK OK OK \none\nmore\n1\ntwo\nW\nW/1\nW/1/2\n");
	assert_false(th_exists(&t, "work", "ntr-rename"));
}
TH_BOTH(moves_whole)

/* Every pair of kinds: what a session says is what a plain folder says. */
static void matrix(bool user)
{
	static const char script[] =
	        "cat > m.sh <<'E'\n"
	        "kinds='file dir empty link none'\n"
	        "make() { case $1 in file) echo 1 >$2;; dir) mkdir $2; echo 1 >$2/in;; empty) mkdir $2;; "
	        "link) ln -s there $2;; esac; }\n"
	        "fill() { for a in $kinds; do for b in $kinds; do for f in 0 1 2 4 3; do mkdir $a.$b.$f; "
	        "make $a $a.$b.$f/a; make $b $a.$b.$f/b; done; done; done; }\n"
	        "try() { l=; for a in $kinds; do for b in $kinds; do for f in 0 1 2 3; do "
	        "l=\"$l $a.$b.$f/a>$a.$b.$f/b:$f $a.$b.$f/a>$a.$b.$f/a:$f $a.$b.$f/a>$a.$b.$f/a/sub:$f "
	        "$a.$b.$f>$a.$b.$f/b:$f\"; done; done; done; "
	        "/usr/bin/python3 $1 $l; find . -printf '%P %y\\n' | sort | md5sum; }\n"
	        "E\n";
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};

	open_it(&t, user);
	th_script(&t, script, &r);
	/* In a lower: a second session over what the first one made. */
	th_expect(&t, "mkdir mat && cd mat && . ../m.sh && fill && ls | wc -l", "125\n");
	{
		char p[256], q[256];

		ntr_closep(&t.sock);
		th_gone(&t);
		th_path(&t, p, sizeof p, "upper", "");
		th_path(&t, q, sizeof q, "lower", "");
		ntr_rm_rf(AT_FDCWD, q);
		assert_int_equal(rename(p, q), 0);
		t.n++;
		th_mkdir(&t, "upper");
		th_mkdir(&t, "work");
		th_put(&t, "lower", "rename.py", rename_py);
		json_decref(t.started);
		th_start(&t, "/workspace");
		assert_true(ntr_json_bool(t.started, "ok", false));
	}
	th_expect(&t,
	        "mkdir new && cd new && . ../m.sh && fill && try ../rename.py >../1; cd ../mat; "
	        "try ../rename.py >../2; cd ..; cmp 1 2 && grep -c OK 1; grep -c EXDEV 1 2 || true",
	        "1\n1:0\n2:0\n");
}
TH_BOTH(matrix)

/* The caller's own rights, folder and descriptors count. */
static void own_rights(void **state)
{
	ntr_auto(th_close) struct th t;

	(void)state;
	open_it(&t, true);
	th_expect(&t,
	        "chmod 555 w; " REN "'w/1>one' 'd>w/d'; chmod 755 w; chmod 555 d; " REN "'d>w/d' 'd>D'; ls",
	        "EACCES EACCES \nEACCES OK \nD\ne\nf\nhello\nrename.py\nw\n");
	/* What lies in it may be closed to everybody. */
	th_expect(&t,
	        "chmod 755 D; mkdir D/c; echo s >D/c/s; chmod 000 D/c D/b D/x; " REN
	        "'D>d'; chmod 755 d/b d/c; chmod 644 d/x; cat d/x d/b/y d/c/s",
	        "OK \none\ntwo\ns\n");
	th_expect(&t,
	        "cd w/1; /usr/bin/python3 ../../rename.py '2>../../two' 'none>x' '../../d/>..//..//D/' "
	        "'../../D/.>y' '../../D/..>y' '/workspace/D/b>z'; ls z; /usr/bin/python3 -c \"\n"
	        "import os\n"
	        "a = os.open('/workspace', os.O_PATH)\nb = os.open('/workspace/w', os.O_RDONLY)\n"
	        "os.rename('D', 'E', src_dir_fd=a, dst_dir_fd=b)\n"
	        "try: os.rename('E', 'F', src_dir_fd=99, dst_dir_fd=b)\n"
	        "except OSError as e: print(e.errno)\n"
	        "\"; ls ..",
	        "OK ENOENT OK EBUSY EBUSY OK \nagain\ny\n9\n1\nE\n");
}

/* Open files and folders, before and after. */
static void in_use(void **state)
{
	ntr_auto(th_close) struct th t;

	(void)state;
	open_it(&t, true);
	th_expect(&t,
	        "exec 5>>d/x 6<d/b/y; echo more >&5; " REN "'d>n'; echo last >&5; cat n/x; cat <&6; "
	        "/usr/bin/python3 -c \"import os; print(os.fstat(5).st_ino == os.stat('n/x').st_ino)\"",
	        "OK \none\nmore\nlast\ntwo\nTrue\n");
}

/* Others see one step, and go on. */
static void one_step(void **state)
{
	ntr_auto(th_close) struct th t;

	(void)state;
	open_it(&t, true);
	th_expect(&t,
	        "cat > watch.py <<'E'\n"
	        "import os, sys\n"
	        "bad = n = 0\n"
	        "print('up', flush=True)\n"
	        "while not os.path.exists('stop'):\n"
	        "    have = set(os.listdir('.')) & {'d', 'n'} | {x for x in os.listdir('.') if "
	        "x.startswith('.ntr')}\n"
	        "    bad += len(have) != 1\n"
	        "    n += 1\n"
	        "print(bad, n > 20)\n"
	        "E\n"
	        "mkfifo up; /usr/bin/python3 watch.py >up & read a <up; cat up >out & "
	        "for i in 1 2 3 4 5; do " REN "'d>n' 'n>d' >/dev/null; done; sleep 0.1; touch stop; wait; "
	        "echo $a; tail -1 out; cat d/x",
	        "up\n0 True\none\n");
}

/* A commit's freeze, a fold and a kill beside it. */
static void beside_others(void **state)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};
	struct th_call c;
	char up[4];

	(void)state;
	open_it(&t, true);
	th_script(&t, "mkdir s; cd s; for i in $(seq 300); do mkdir $i; echo $i >$i/f; done", &r);
	c = th_begin(&t,
	        th_call_msg(&t, "echo up; for i in 1 2 3 4; do " REN "'d>n' 'n>d' 'w>v' 'v>w'; done", NULL),
	        -1);
	th_await_start(&t, &c);
	assert_int_equal(ntr_read_exact(c.out, up, 3), 0);
	for (int i = 0; i < 12; i++) {
		th_ask(&t, "freeze", "frozen");
		usleep(3000);
		th_ask(&t, "thaw", "frozen");
		usleep(1000);
	}
	th_finish(&t, &c, &r);
	assert_int_equal(r.code, 0);
	assert_null(strstr(r.out, "E"));
	th_expect(&t, "cat d/x d/b/y", "one\ntwo\n");
	/* Killed at any moment, everything is there under one of the names. */
	for (int i = 0; i < 5; i++) {
		ntr_autojson json_t *m = NULL;
		ntr_auto(th_result_done) struct th_result k = {0};

		c = th_begin(&t, th_call_msg(&t, "while :; do " REN "'d>n' 'n>d'; done", NULL), -1);
		th_await_start(&t, &c);
		usleep(60000 + (useconds_t)i * 1700);
		m = th_do(&t,
		        json_pack("{s:s,s:I,s:i}", "op", "kill", "call", (json_int_t)c.req, "grace_ms", 0),
		        NULL, 0);
		th_finish(&t, &c, &k);
		th_expect(&t,
		        "[ -d n ] && { [ ! -d d ] && mv n d; }; ls -d .ntr* n 2>/dev/null; cat d/x d/b/y; ls "
		        "d",
		        "one\ntwo\nb\nl\nx\n");
	}
}

/* The helper's death is nobody's: another one comes. */
static void helper_dies(void **state)
{
	ntr_auto(th_close) struct th t;
	ntr_autofree char *kids = NULL;
	char path[64];
	int killed = 0;

	(void)state;
	open_it(&t, true);
	th_expect(&t, REN "'d>n'", "OK \n");
	snprintf(path, sizeof path, "/proc/%d/task/%d/children", t.pid, t.pid);
	assert_int_equal(ntr_read_file(AT_FDCWD, path, 4096, &kids, NULL), 0);
	for (char *p = kids, *end; *p; p = end + strspn(end, " \n")) {
		long pid = strtol(p, &end, 10);

		if (end == p)
			break;
		if (th_is_helper(pid))
			killed += !kill((pid_t)pid, SIGKILL);
	}
	assert_int_equal(killed, 1);
	th_expect(&t, REN "'n>d' 'f>g'; mv g f; cat d/x", "OK OK \none\n");
	assert_int_equal(th_ask(&t, "stop", "killed"), 0);
}

/* What overlayfs's attributes and a copy's own are to everybody: the copy has those of the file, and the mark
 * by which a commit knows it only where the number below is one of a tree (rename_user.bats), which a
 * directory's here is not. */
static void marks(void **state)
{
	ntr_auto(th_close) struct th t;
	char p[300], val[24] = "";

	(void)state;
	open_it(&t, true);
	th_expect(&t, REN "'d>n'; getfattr -d -m - n/b/y n/b n/x 2>/dev/null; cat n/b/y",
	        "OK \n# file: n/x\nuser.note=\"hi\"\n\ntwo\n");
	th_path(&t, p, sizeof p, "upper", "n/b/y");
	assert_true(getxattr(p, "user.overlay.ntr", val, sizeof val - 1) < 0 && errno == ENODATA);
}

/* A session inside cannot have a second listener: there it stays EXDEV (and this is all the kernel's doing).
 */
static void only_one_listener(void **state)
{
	ntr_auto(th_close) struct th t;

	(void)state;
	open_it(&t, true);
	th_expect(&t,
	        "/usr/bin/python3 -c \"\n"
	        "import ctypes, errno\n"
	        "c = ctypes.CDLL(None, use_errno=True)\n"
	        "class F(ctypes.Structure): _fields_ = [('code', ctypes.c_uint16), ('jt', ctypes.c_uint8), "
	        "('jf', "
	        "ctypes.c_uint8), ('k', ctypes.c_uint32)]\n"
	        "class P(ctypes.Structure): _fields_ = [('len', ctypes.c_uint16), ('f', ctypes.POINTER(F))]\n"
	        "f = F(6, 0, 0, 0x7fff0000)\n"
	        "c.prctl(38, 1, 0, 0, 0)\n"
	        "print(errno.errorcode[ctypes.get_errno()] if c.syscall(317, 1, 8, ctypes.byref(P(1, "
	        "ctypes.pointer(f)))) < 0 else 'OK')\n"
	        "\"",
	        "EBUSY\n");
}

/* Closing the socket in the middle of a move: ntr-init ends, and nothing is lost. */
static void end_in_the_middle(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct th t;
		struct th_call c;
		char p[300];
		bool n, d;

		open_it(&t, true);
		c = th_begin(&t, th_call_msg(&t, "while :; do " REN "'d>n' 'n>d'; done", NULL), -1);
		th_await_start(&t, &c);
		usleep(60000 + (useconds_t)i * 3100);
		ntr_closep(&t.sock);
		t.sock = -1;
		th_gone(&t);
		close(c.out);
		close(c.err);
		/* y is in upper under one name, or still in lower. */
		th_path(&t, p, sizeof p, "upper", "");
		n = th_exists(&t, "upper", "n/b/y");
		d = th_exists(&t, "upper", "d/b/y") || !th_exists(&t, "upper", "d");
		assert_true(n || d);
		th_close(&t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TH_TESTS(moves_whole),
	        TH_TESTS(matrix),
	        cmocka_unit_test(own_rights),
	        cmocka_unit_test(in_use),
	        cmocka_unit_test(one_step),
	        cmocka_unit_test(beside_others),
	        cmocka_unit_test(helper_dies),
	        cmocka_unit_test(marks),
	        cmocka_unit_test(only_one_listener),
	        cmocka_unit_test(end_in_the_middle),
	};

	if (geteuid() && getenv("NTR_SESSION")) {
		print_message(
		        "skipped: within a session of an ordinary user it is that session's part to answer "
		        "renames, and a process can have one listener\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
