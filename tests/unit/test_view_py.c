/* Python calls of ntr-init: the zygote, what it forks, and what happens when either is lost. The channel is
 * this test's own; "python" is a shell script where the protocol with ntr-init is what counts. */
#include "init_harness.h"

#include <sys/prctl.h>

#define PYTHON "/usr/bin/python3"

struct py {
	uint64_t req;
	int out, channel;
};

/* Asks for a call; what it prints comes through out. python NULL: ntr-init chooses. */
static struct py py_begin(struct th *t, const char *python, const char *preload)
{
	int sv[2], po[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);
	json_t *m = json_pack("{s:s,s:s}", "op", "py", "path", "/usr/local/bin:/usr/bin:/bin");
	struct py c;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	assert_int_equal(pipe2(po, O_CLOEXEC), 0);
	if (python)
		json_object_set_new(m, "python", json_string(python));
	if (preload)
		json_object_set_new(m, "preload", json_pack("[s]", preload));
	c.req = th_send(t, m, (int[]){null, po[1], po[1], sv[1]}, 4);
	c.out = po[0];
	c.channel = sv[0];
	close(null);
	close(po[1]);
	close(sv[1]);
	return c;
}

static void py_tell(const struct th *t, const struct py *c, const char *code)
{
	json_t *call = json_pack("{s:{s:s,s:s,s:s,s:[s],s:i}}", "call", "code", code, "root", t->wsroot,
	        "cwd", t->wsroot, "env", "PATH=/usr/bin:/bin", "umask", 022);

	assert_int_equal(ntr_wire_send_new(c->channel, call, NULL, 0), 0);
}

static void py_close(struct py *c)
{
	close(c->out);
	close(c->channel);
}

/* Its end: the exit code, or minus the signal. */
static int py_end(struct th *t, struct py *c, char *out, size_t size)
{
	ntr_autojson json_t *m = th_wait(t, c->req);
	int sig = (int)ntr_json_int(m, "signal", 0);

	th_drain(c->out, out, size);
	close(c->channel);
	return sig ? -sig : (int)ntr_json_int(m, "code", -1000);
}

static pid_t py_started(struct th *t, const struct py *c)
{
	const struct th_call tc = {.req = c->req};

	return th_await_start(t, &tc);
}

static pid_t parent_of(pid_t pid)
{
	ntr_autofree char *text = NULL;
	char path[64];
	int ppid = 0;

	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	if (!ntr_read_file(AT_FDCWD, path, 4096, &text, NULL))
		sscanf(strrchr(text, ')') + 1, " %*c %d", &ppid);
	return ppid;
}

static void expect(struct th *t, const char *code, int end, const char *said)
{
	struct py c = py_begin(t, PYTHON, NULL);
	char out[4096];

	py_started(t, &c);
	py_tell(t, &c, code);
	assert_int_equal(py_end(t, &c, out, sizeof out), end);
	if (said)
		assert_string_equal(out, said);
}

static void calls_and_their_ends(bool user)
{
	struct th t;

	th_open(&t, user);
	expect(&t, "print(open('hello').read(), end='')", 0, "hello\n");
	expect(&t, "import sys; sys.exit(7)", 7, "");
	expect(&t, "import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -SIGTERM, "");
	expect(&t, "import os; print(os.getpid() == os.getsid(0) == os.getpgid(0))", 0, "True\n");
	assert_int_equal(th_ask(&t, "freeze", "frozen"), 0);
	assert_int_equal(th_ask(&t, "thaw", "frozen"), 0);
	th_close(&t);
}

/* All calls come from one process, which is none of the session's. */
static void one_zygote(bool user)
{
	struct th t;
	struct py c;
	pid_t pid, zygote = 0;
	char out[64];

	th_open(&t, user);
	for (int i = 0; i < 3; i++) {
		c = py_begin(&t, PYTHON, NULL);
		pid = py_started(&t, &c);
		if (zygote)
			assert_int_equal(parent_of(pid), zygote);
		zygote = parent_of(pid);
		assert_int_equal(parent_of(zygote), t.pid);
		py_tell(&t, &c, "1");
		assert_int_equal(py_end(&t, &c, out, sizeof out), 0);
	}
	{
		ntr_autojson json_t *m = th_do(&t, json_pack("{s:s}", "op", "ps"), NULL, 0);

		assert_int_equal(json_array_size(json_object_get(m, "procs")), 0);
	}
	c = py_begin(&t, PYTHON, "decimal"); /* another key: another zygote */
	pid = py_started(&t, &c);
	assert_int_not_equal(parent_of(pid), zygote);
	assert_false(th_alive(zygote));
	py_tell(&t, &c, "import sys; print('decimal' in sys.modules)");
	assert_int_equal(py_end(&t, &c, out, sizeof out), 0);
	assert_string_equal(out, "True\n");
	th_close(&t);
}

static void kill_of_a_call(bool user)
{
	struct th t;
	struct py c;
	char out[64];

	th_open(&t, user);
	c = py_begin(&t, PYTHON, NULL);
	py_started(&t, &c);
	py_tell(&t, &c,
	        "import subprocess, time; subprocess.Popen(['sleep', '88']); print('up'); time.sleep(88)");
	assert_int_equal(read(c.out, out, 3), 3);
	{
		ntr_autojson json_t *m = th_do(&t,
		        json_pack("{s:s,s:I,s:i}", "op", "kill", "call", (json_int_t)c.req, "grace_ms", 0),
		        NULL, 0);

		assert_int_equal(ntr_json_int(m, "killed", 0), 2);
	}
	assert_int_equal(py_end(&t, &c, out, sizeof out), -SIGKILL);
	th_close(&t);
}

/* The process that was forked goes on and its end is told, whoever collects it. */
static void zygote_killed_in_a_call(bool user)
{
	struct th t;
	struct py c;
	char out[64];
	pid_t pid;

	th_open(&t, user);
	c = py_begin(&t, PYTHON, NULL);
	pid = py_started(&t, &c);
	assert_int_equal(kill(parent_of(pid), SIGKILL), 0);
	TH_EVENTUALLY(parent_of(pid) == t.pid);
	py_tell(&t, &c, "import sys; print('alive'); sys.exit(3)");
	assert_int_equal(py_end(&t, &c, out, sizeof out), 3);
	assert_string_equal(out, "alive\n");
	expect(&t, "print(1)", 0, "1\n");
	th_close(&t);
}

static void zygote_stopped_in_a_call(bool user)
{
	struct th t;
	struct py c;
	char out[64];
	pid_t pid;

	th_open(&t, user);
	c = py_begin(&t, PYTHON, NULL);
	pid = py_started(&t, &c);
	assert_int_equal(kill(parent_of(pid), SIGSTOP), 0);
	py_tell(&t, &c, "import sys; sys.exit(5)");
	assert_int_equal(py_end(&t, &c, out, sizeof out), 5);
	expect(&t, "print(1)", 0, "1\n");
	th_close(&t);
}

static void zygote_killed_between_calls(bool user)
{
	struct th t;
	struct py c;
	char out[64];
	pid_t zygote;

	th_open(&t, user);
	for (int i = 0; i < 5; i++) {
		c = py_begin(&t, PYTHON, NULL);
		zygote = parent_of(py_started(&t, &c));
		py_tell(&t, &c, "1");
		assert_int_equal(py_end(&t, &c, out, sizeof out), 0);
		assert_int_equal(kill(zygote, SIGKILL), 0); /* the next request races with its end */
	}
	expect(&t, "print(1)", 0, "1\n");
	th_close(&t);
}

/* A script in the place of an interpreter, below the test's folder. */
static void script(struct th *t, const char *name, const char *text, char *path, size_t size)
{
	snprintf(path, size, "%s/%s", t->dir, name);
	{
		int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);

		assert_true(fd >= 0);
		assert_int_equal(ntr_write_all(fd, text, strlen(text)), 0);
		close(fd);
	}
}

static void expect_error(struct th *t, const char *python, const char *why)
{
	struct py c = py_begin(t, python, NULL);
	ntr_autojson json_t *m = th_wait(t, c.req);
	const json_t *e = json_object_get(m, "error");

	if (!strstr(ntr_json_str(e, "why", ""), why))
		fail_msg("'%s' is not in '%s'", why, ntr_json_str(e, "why", "(no error)"));
	py_close(&c);
}

static void interpreters_that_do_not_start(bool user)
{
	struct th t;
	char path[256];

	th_open(&t, user);
	expect_error(&t, "/no/such/python", "No such file");
	expect_error(&t, "/tmp", "Permission denied");
	expect_error(&t, "nosuchpython", "there is no nosuchpython in the PATH");
	expect_error(&t, "/bin/false", "it exited with status 1");
	script(&t, "old", "#!/bin/sh\necho one; echo the last line >&2; exit 3\n", path, sizeof path);
	expect_error(&t, path, "the last line");
	script(&t, "dies", "#!/bin/sh\nkill -9 $$\n", path, sizeof path);
	expect_error(&t, path, "it was ended by signal 9");
	expect(&t, "print(1)", 0, "1\n");
	th_close(&t);
}

/* A call that waits for an interpreter that never gets ready can be ended, and the next one works. */
static void interpreter_that_hangs(bool user)
{
	struct th t;
	struct py c;
	char path[256], out[64];

	th_open(&t, user);
	script(&t, "hangs", "#!/bin/sh\nexec sleep 99\n", path, sizeof path);
	c = py_begin(&t, path, NULL);
	assert_null(th_wait_for(&t, c.req, 200));
	{
		ntr_autojson json_t *m = th_do(&t,
		        json_pack("{s:s,s:I,s:i}", "op", "kill", "call", (json_int_t)c.req, "grace_ms", 0),
		        NULL, 0);

		assert_non_null(json_object_get(m, "killed"));
	}
	assert_int_equal(py_end(&t, &c, out, sizeof out), -SIGKILL);
	expect(&t, "print(1)", 0, "1\n");
	th_close(&t);
}

/* Neither a descriptor nor a process is left by calls. */
static void nothing_is_left(bool user)
{
	struct th t;
	int fds = 0;

	th_open(&t, user);
	for (int i = 0; i < 4; i++) {
		expect(&t, "None", 0, "");
		if (!i)
			fds = th_descriptors(t.pid);
	}
	assert_int_equal(th_descriptors(t.pid), fds);
	TH_EVENTUALLY(th_children(t.pid) == 1); /* the zygote */
	th_close(&t);
}

/* The view can be folded and swapped under a warm interpreter. */
static void view_changes(bool user)
{
	struct th t;
	int fds[3];

	th_open(&t, user);
	expect(&t, "open('f', 'w').write('1')", 0, NULL);
	th_next_layers(&t, fds);
	{
		ntr_autojson json_t *m = th_do(&t, json_pack("{s:s}", "op", "fold"), fds, 3);

		assert_true(ntr_json_bool(m, "ok", false));
	}
	ntr_wire_close_fds(fds, 3);
	expect(&t, "import os; print(os.path.exists('f'), os.path.exists('hello'))", 0, "False True\n");
	th_next_layers(&t, fds);
	{
		ntr_autojson json_t *m = th_do(&t, json_pack("{s:s}", "op", "swap"), fds, 3);

		assert_true(ntr_json_bool(m, "ok", false));
	}
	ntr_wire_close_fds(fds, 3);
	expect(&t, "open('g', 'w').write('1')", 0, NULL);
	assert_true(th_exists(&t, "upper", "g"));
	th_close(&t);
}

TH_BOTH(calls_and_their_ends)
TH_BOTH(one_zygote)
TH_BOTH(kill_of_a_call)
TH_BOTH(zygote_killed_in_a_call)
TH_BOTH(zygote_stopped_in_a_call)
TH_BOTH(zygote_killed_between_calls)
TH_BOTH(interpreters_that_do_not_start)
TH_BOTH(interpreter_that_hangs)
TH_BOTH(nothing_is_left)
TH_BOTH(view_changes)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TH_TESTS(calls_and_their_ends),
	        TH_TESTS(one_zygote),
	        TH_TESTS(kill_of_a_call),
	        TH_TESTS(zygote_killed_in_a_call),
	        TH_TESTS(zygote_stopped_in_a_call),
	        TH_TESTS(zygote_killed_between_calls),
	        TH_TESTS(interpreters_that_do_not_start),
	        TH_TESTS(interpreter_that_hangs),
	        TH_TESTS(nothing_is_left),
	        TH_TESTS(view_changes),
	};

	if (access(PYTHON, X_OK)) {
		print_message(PYTHON " is not installed\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
