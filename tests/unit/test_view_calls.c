/* Calls: spawning, exit codes, stdio, environment, signals, and what a long row of them leaves behind. */
#include "init_harness.h"

#include <pty.h>

static char *argv_of(const char *s, char **argv, size_t max)
{
	char *copy = strdup(s), *save = NULL;
	size_t n = 0;

	assert_non_null(copy);
	for (char *w = strtok_r(copy, " ", &save); w && n < max - 1; w = strtok_r(NULL, " ", &save))
		argv[n++] = w;
	argv[n] = NULL;
	return copy;
}

static void run_argv(struct th *t, const char *words, struct th_result *r)
{
	char *argv[16];
	char *copy = argv_of(words, argv, NTR_COUNT(argv));

	th_run_msg(t, th_call_msg(t, NULL, argv), -1, r);
	free(copy);
}

static void codes(bool user)
{
	static const struct {
		const char *argv;
		int code, signal;
		const char *out, *err;
	} cases[] = {
	        {"true", 0, 0, "", ""},
	        {"false", 1, 0, "", ""},
	        {"cat hello", 0, 0, "hello\n", ""},
	        {"echo a b", 0, 0, "a b\n", ""},
	        {"nosuch", 127, 0, "", "ntr: nosuch: command not found\n"},
	        {"/nosuch/x", 127, 0, "", "ntr: /nosuch/x: No such file or directory\n"},
	        {"./hello", 126, 0, "", "ntr: ./hello: Permission denied\n"},
	        {"/tmp", 126, 0, "", "ntr: /tmp: Is a directory\n"},
	        {"./script", 7, 0, "no interpreter line\n", ""},
	        {"./badint", 127, 0, "",
	                "ntr: ./badint: cannot execute: its interpreter or loader does not exist\n"},
	        {"./args a b", 0, 0, "2 a b\n", ""},
	};
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};

	th_open(&t, user);
	th_script(&t,
	        "printf 'echo no interpreter line; exit 7\n' > script; printf '#!/nosuch\n' > badint; "
	        "printf '#!/bin/sh\necho $# $*\n' > args; chmod 755 script badint args",
	        &r);
	for (size_t i = 0; i < NTR_COUNT(cases); i++) {
		ntr_auto(th_result_done) struct th_result c = {0};

		run_argv(&t, cases[i].argv, &c);
		if (c.code != cases[i].code || c.signal != cases[i].signal || strcmp(c.out, cases[i].out) ||
		        strcmp(c.err, cases[i].err))
			fail_msg("%s: code %d signal %d out '%s' err '%s'", cases[i].argv, c.code, c.signal,
			        c.out, c.err);
		assert_null(c.state);
	}
}
TH_BOTH(codes)

/* 126 where PATH has a file of that name that may not be executed, 127 where it only has unreadable folders.
 */
static void path_search(bool user)
{
	ntr_auto(th_close) struct th t;
	char name[] = "tool", *argv[] = {name, NULL};
	ntr_auto(th_result_done) struct th_result r = {0}, a = {0}, b = {0}, c = {0};
	json_t *m;

	th_open(&t, user);
	th_script(&t,
	        "mkdir bin bin2; echo > bin/tool; printf '#!/bin/sh\necho found\n' > bin2/tool; chmod 755 "
	        "bin2/tool",
	        &r);
	m = th_call_msg(&t, NULL, argv);
	json_object_set_new(m, "env", json_pack("[s]", "PATH=/workspace/bin"));
	th_run_msg(&t, m, -1, &a);
	assert_int_equal(a.code, 126);
	assert_string_equal(a.err, "ntr: tool: Permission denied\n");
	m = th_call_msg(&t, NULL, argv);
	json_object_set_new(m, "env", json_pack("[s]", "PATH=/workspace/bin:bin2"));
	th_run_msg(&t, m, -1, &b);
	assert_string_equal(b.out, "found\n");
	m = th_call_msg(&t, NULL, argv);
	json_object_set_new(m, "env", json_pack("[s]", "PATH=/nosuch:/proc/1/fd"));
	th_run_msg(&t, m, -1, &c);
	assert_int_equal(c.code, 127);
	assert_string_equal(c.err, "ntr: tool: command not found\n");
}
TH_BOTH(path_search)

static void identity(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};
	char want[128];

	th_open(&t, user);
	snprintf(want, sizeof want, "%d %d\n", user && !geteuid() ? TH_NOBODY : geteuid(),
	        user && !geteuid() ? TH_NOBODY : getegid());
	th_script(&t, "id -u | tr '\\n' ' '; id -g", &r);
	assert_string_equal(r.out, want);
	if (user) /* what the supervisor may do in its namespace its children may not */
		th_expect(&t, "grep -E 'Cap(Inh|Prm|Eff|Amb)' /proc/self/status | cut -f2 | uniq",
		        "0000000000000000\n");
	th_expect(&t, "cat /proc/self/stat | cut -d' ' -f5,6 | tr ' ' '\\n' | uniq | wc -l",
	        "1\n"); /* pgid = sid */
	th_expect(&t, "grep -E 'Sig(Blk|Ign)' /proc/self/status | cut -f2 | uniq", "0000000000000000\n");
	th_expect(&t, "ls /proc/self/fd | tr '\\n' ' '", "0 1 2 3 "); /* 3: what ls reads the folder with */
}
TH_BOTH(identity)

static void environment(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0}, gone = {0};
	char env[] = "env", *argv[] = {env, NULL};
	json_t *m;

	th_open(&t, user);
	m = th_call_msg(&t, NULL, argv);
	json_object_set_new(m, "cwd", json_string("/usr"));
	json_object_set_new(
	        m, "env", json_pack("[s,s,{s:s}]", "PATH=/usr/bin:/bin", "X=a\nb", "base64", "WT3/"));
	th_run_msg(&t, m, -1, &r);
	assert_non_null(strstr(r.out, "PATH=/usr/bin:/bin\nX=a\nb\nY=\xff\nPWD=/usr\nNTR_CALL="));
	/* A folder that is gone. */
	m = th_call_msg(&t, "pwd; umask", NULL);
	json_object_set_new(m, "cwd", json_string("/workspace/gone"));
	json_object_set_new(m, "umask", json_integer(077));
	th_run_msg(&t, m, -1, &gone);
	assert_string_equal(gone.out, "/workspace\n0077\n");
	assert_true(gone.cwd_gone);
	assert_false(r.cwd_gone);
}
TH_BOTH(environment)

static void standard_input(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};
	int p[2];

	th_open(&t, user);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	assert_int_equal(ntr_write_all(p[1], "one\ntwo\n", 8), 0);
	close(p[1]);
	th_run_msg(&t, th_call_msg(&t, "read -r a; echo \"<$a>\"; cat", NULL), p[0], &r);
	close(p[0]);
	assert_string_equal(r.out, "<one>\ntwo\n");
}
TH_BOTH(standard_input)

/* A terminal that is in use by a shell outside: the call may read it, but neither its settings nor its
 * foreground group change, and the call does not get it as its controlling terminal. */
static void terminal(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};
	struct termios before = {0}, after = {0};
	char name[64], up;
	int master, slave, p[2];
	pid_t shell;

	th_open(&t, user);
	assert_int_equal(pipe(p), 0);
	shell = forkpty(&master, name, NULL, NULL);
	assert_true(shell >= 0);
	if (!shell) {
		ntr_write_all(p[1], "u", 1);
		for (;;)
			pause();
	}
	assert_int_equal(ntr_read_exact(p[0], &up, 1), 0);
	slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
	assert_true(slave >= 0);
	assert_int_equal(tcgetattr(slave, &before), 0);
	assert_int_equal(ntr_write_all(master, "typed\n", 6), 0);
	th_run_msg(&t,
	        th_call_msg(&t, "[ -t 0 ] && read -r x && echo $x; (exec </dev/tty) 2>&1 | grep -c .", NULL),
	        slave, &r);
	assert_string_equal(r.out, "typed\n1\n");
	assert_int_equal(tcgetattr(slave, &after), 0);
	assert_memory_equal(&before, &after, sizeof before);
	assert_int_equal(tcgetpgrp(master), shell);
	kill(shell, SIGKILL);
	waitpid(shell, NULL, 0);
	close(p[0]);
	close(p[1]);
	close(master);
	close(slave);
}
TH_BOTH(terminal)

static void signals(bool user)
{
	static const struct {
		const char *script;
		int sig, code, signal;
	} cases[] = {
	        {"echo up; sleep 100", SIGINT, 130, SIGINT},
	        {"trap 'exit 9' INT; echo up; while :; do sleep 0.05; done", SIGINT, 9, 0},
	        {"trap '' TERM; echo up; sleep 0.2; exit 4", SIGTERM, 143, 0},
	        {"echo up; sleep 100", SIGKILL, 137, SIGKILL},
	};
	ntr_auto(th_close) struct th t;

	th_open(&t, user);
	for (size_t i = 0; i < NTR_COUNT(cases); i++) {
		ntr_auto(th_result_done) struct th_result r = {0};
		struct th_call c = th_begin(&t, th_call_msg(&t, cases[i].script, NULL), -1);
		ntr_autojson json_t *m = NULL, *late = NULL;
		char up[4];

		th_await_start(&t, &c);
		assert_int_equal(ntr_read_exact(c.out, up, 3), 0);
		usleep(100000); /* a shell that is just forking misses a signal, here as anywhere */
		m = th_do(&t,
		        json_pack("{s:s,s:I,s:i}", "op", "signal", "call", (json_int_t)c.req, "sig",
		                cases[i].sig),
		        NULL, 0);
		assert_true(ntr_json_bool(m, "ok", false));
		th_finish(&t, &c, &r);
		/* sleep is in the group too: it dies by TERM where the shell does not. */
		assert_int_equal(r.code, cases[i].sig == SIGTERM ? 4 : cases[i].code);
		assert_int_equal(r.signal, cases[i].signal);
		late = th_do(&t,
		        json_pack("{s:s,s:I,s:i}", "op", "signal", "call", (json_int_t)c.req, "sig", SIGINT),
		        NULL, 0);
		assert_false(ntr_json_bool(late, "ok", true));
	}
}
TH_BOTH(signals)

static void bad_requests(bool user)
{
	static const char *const bad[] = {"{\"op\":\"call\",\"argv\":[],\"env\":[]}",
	        "{\"op\":\"call\",\"argv\":[\"true\"]}", "{\"op\":\"call\",\"env\":[]}",
	        "{\"op\":\"call\",\"env\":[],\"script\":\"a\\u0000b\"}",
	        "{\"op\":\"call\",\"env\":[1],\"argv\":[\"x\"]}", "{\"op\":\"nosuch\"}", "{\"nothing\":1}"};
	ntr_auto(th_close) struct th t;

	th_open(&t, user);
	for (size_t i = 0; i < NTR_COUNT(bad); i++) {
		int fds[3] = {0, 1, 2};
		ntr_autojson json_t *m = th_do(&t, json_loads(bad[i], JSON_ALLOW_NUL, NULL), fds, 3);
		const json_t *e = json_object_get(m, "error");

		if (!e || ntr_json_int(e, "errno", 0) != EINVAL || !*ntr_json_str(e, "why", ""))
			fail_msg("%s is not refused", bad[i]);
	}
	for (int n = 0; n < 3; n += 2) { /* too few descriptors */
		int fds[3] = {0, 1, 2};
		ntr_autojson json_t *m = th_do(&t, th_call_msg(&t, "true", NULL), fds, (size_t)n);

		assert_non_null(json_object_get(m, "error"));
	}
	th_expect(&t, "echo still here", "still here\n");
}
TH_BOTH(bad_requests)

/* Quick calls, many: nothing is left over, and each is fast. */
static void many(bool user)
{
	enum { ROUNDS = 1000 };
	ntr_auto(th_close) struct th t;
	char arg[] = "/bin/true", *argv[] = {arg, NULL};
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), fds[3] = {null, null, null}, before;
	uint64_t best = UINT64_MAX, began, total = ntr_mono_ns();

	th_open(&t, user);
	th_expect(&t, "echo warm", "warm\n");
	before = th_descriptors(t.pid);
	for (int i = 0; i < ROUNDS; i++) {
		ntr_autojson json_t *a = NULL, *b = NULL;
		uint64_t req;

		began = ntr_mono_ns();
		req = th_send(
		        &t, i % 10 ? th_call_msg(&t, NULL, argv) : th_call_msg(&t, "cd /tmp", NULL), fds, 3);
		a = th_wait(&t, req);
		b = th_wait(&t, req);
		assert_int_equal(ntr_json_int(b, "code", -1), 0);
		assert_int_equal(ntr_json_int(b, "background", -1), 0);
		if (i % 10)
			best = NTR_MIN(best, ntr_mono_ns() - began);
	}
	total = ntr_mono_ns() - total;
	print_message("%d calls: %.3f ms each, the best %.3f ms\n", ROUNDS, (double)total / 1e6 / ROUNDS,
	        (double)best / 1e6);
	assert_int_equal(th_descriptors(t.pid), before);
	assert_int_equal(th_children(t.pid), 0);
	close(null);
}
TH_BOTH(many)

int main(void)
{
	const struct CMUnitTest tests[] = {TH_TESTS(codes), TH_TESTS(path_search), TH_TESTS(identity),
	        TH_TESTS(environment), TH_TESTS(standard_input), TH_TESTS(terminal), TH_TESTS(signals),
	        TH_TESTS(bad_requests), TH_TESTS(many)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
