/* Processes: background, killing, freezing, listing, shared mappings, and the end of the supervisor. */
#include "init_harness.h"

#include <sys/mman.h>

static int number(const char *s)
{
	return (int)strtol(s, NULL, 10);
}

static json_t *kill_msg(uint64_t call, int grace_ms)
{
	return json_pack("{s:s,s:I,s:i}", "op", "kill", "call", (json_int_t)call, "grace_ms", grace_ms);
}

static int kill_now(struct th *t, uint64_t call, int grace_ms)
{
	ntr_autojson json_t *m = th_do(t, kill_msg(call, grace_ms), NULL, 0);

	return (int)ntr_json_int(m, "killed", -1);
}

/* A call with background processes ends when its main process does. */
static void background(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0}, later = {0};
	int pid;

	th_open(&t, user);
	th_script(&t, "sleep 1000 & sleep 1000 & echo $!", &r);
	assert_int_equal(r.background, 2);
	pid = number(r.out);
	assert_true(th_alive(pid));
	th_script(&t, "true", &later);
	assert_int_equal(later.background, 2);
	assert_int_equal(kill_now(&t, 0, 0), 2);
	assert_false(th_alive(pid));
}
TH_BOTH(background)

/* Each call's processes are its own also after they have left its tree: two forks, a session of their own. */
static void kill_one_call(bool user)
{
	static const char daemon_[] = "(setsid sh -c 'sleep 1000 & echo $! > %s; exec sleep 1000' & ) ; "
	                              "while [ ! -s %s ]; do sleep 0.01; done; cat %s";
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result a = {0}, b = {0}, bare = {0};
	char script[512];
	int pa, pb;
	uint64_t ra;

	th_open(&t, user);
	snprintf(script, sizeof script, daemon_, "a", "a", "a");
	th_script(&t, script, &a);
	ra = t.req;
	snprintf(script, sizeof script, daemon_, "b", "b", "b");
	th_script(&t, script, &b);
	pa = number(a.out);
	pb = number(b.out);
	assert_int_equal(a.background, 2);
	assert_int_equal(b.background, 4);
	/* One without the call's environment is still the session's. */
	th_script(&t, "env -i setsid sleep 1000 & sleep 0.1; echo $!", &bare);
	assert_int_equal(kill_now(&t, ra, 0), 2);
	assert_false(th_alive(pa));
	assert_true(th_alive(pb));
	assert_true(th_alive(number(bare.out)));
	assert_int_equal(kill_now(&t, ra, 0), 0);
	assert_int_equal(kill_now(&t, 0, 0), 3);
	assert_false(th_alive(pb));
}
TH_BOTH(kill_one_call)

/* A running call: its end is reported before the end of its killing. */
static void kill_running(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};
	struct th_call c;
	uint64_t k;
	char up[4];

	th_open(&t, user);
	c = th_begin(&t,
	        th_call_msg(&t, "trap '' TERM INT; (sleep 1000 & sleep 1000) & echo up; sleep 1000", NULL),
	        -1);
	th_await_start(&t, &c);
	assert_int_equal(ntr_read_exact(c.out, up, 3), 0);
	k = th_send(&t, kill_msg(c.req, 0), NULL, 0);
	for (int i = 0; i < 2; i++) {
		ntr_autojson json_t *m = NULL;
		int fds[NTR_WIRE_FDS];
		size_t n;

		assert_int_equal(ntr_wire_recv(t.sock, &m, fds, &n), 0);
		assert_int_equal(ntr_json_int(m, "req", 0), i ? k : c.req);
		if (!i)
			json_array_append(t.backlog, m);
		else
			assert_true(ntr_json_int(m, "killed", 0) >= 2);
	}
	th_finish(&t, &c, &r);
	assert_int_equal(r.signal, SIGKILL);
	assert_int_equal(r.code, 137);
}
TH_BOTH(kill_running)

static void kill_with_grace(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result polite = {0}, rude = {0}, stopped = {0};
	struct th_call c;
	uint64_t began;
	ntr_autojson json_t *m = NULL;
	char up[4];

	th_open(&t, user);
	c = th_begin(&t,
	        th_call_msg(&t, "trap 'echo term; exit 3' TERM; echo up; while :; do sleep 0.02; done", NULL),
	        -1);
	th_await_start(&t, &c);
	assert_int_equal(ntr_read_exact(c.out, up, 3), 0);
	began = ntr_mono_ns();
	m = th_do(&t, kill_msg(c.req, 15000), NULL, 0);
	assert_true(ntr_mono_ns() - began < 10000000000u); /* did not wait for the end of the grace */
	th_finish(&t, &c, &polite);
	assert_string_equal(polite.out, "term\n");
	assert_int_equal(polite.code, 3);

	c = th_begin(&t, th_call_msg(&t, "trap '' TERM; echo up; while :; do sleep 0.02; done", NULL), -1);
	th_await_start(&t, &c);
	assert_int_equal(ntr_read_exact(c.out, up, 3), 0);
	began = ntr_mono_ns();
	assert_true(kill_now(&t, c.req, 300) > 0);
	assert_true(ntr_mono_ns() - began >= 300000000u);
	th_finish(&t, &c, &rude);
	assert_int_equal(rude.signal, SIGKILL);

	/* A stopped process gets to know. */
	c = th_begin(&t, th_call_msg(&t, "trap 'exit 5' TERM; echo up; kill -STOP $$", NULL), -1);
	th_await_start(&t, &c);
	assert_int_equal(ntr_read_exact(c.out, up, 3), 0);
	usleep(50000);
	kill_now(&t, c.req, 15000);
	th_finish(&t, &c, &stopped);
	assert_int_equal(stopped.code, 5);
}
TH_BOTH(kill_with_grace)

/* Processes that fork as fast as they can. */
static void kill_breeders(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};

	th_open(&t, user);
	th_script(&t,
	        "b() { while :; do sleep 0.001 & wait $!; done; }; for i in 1 2 3 4 5 6; do (b) & done; "
	        "sleep 0.2",
	        &r);
	assert_true(kill_now(&t, 0, 0) >= 6);
	assert_int_equal(th_ask(&t, "freeze", "frozen"), 0);
}
TH_BOTH(kill_breeders)

static long counter(const struct th *t)
{
	ntr_autofree char *text = NULL;
	char p[256];

	th_path(t, p, sizeof p, "upper", "count");
	return ntr_read_file(AT_FDCWD, p, 1 << 20, &text, NULL) ? -1 : (long)strlen(text);
}

static void freeze(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0}, s = {0};
	long before;

	th_open(&t, user);
	assert_int_equal(th_ask(&t, "freeze", "frozen"), 0);
	assert_int_equal(th_ask(&t, "thaw", "frozen"), 0);
	th_script(
	        &t, "while :; do echo >> count; sleep 0.002; done & sleep 1000 & kill -STOP $!; echo $!", &r);
	TH_EVENTUALLY(counter(&t) > 5);
	for (int i = 0; i < 5; i++) {
		assert_true(th_ask(&t, "freeze", "frozen") >= 1);
		before = counter(&t);
		usleep(30000);
		assert_int_equal(counter(&t), before);
		assert_true(th_ask(&t, "thaw", "frozen") >= 1);
		TH_EVENTUALLY(counter(&t) > before + 2);
	}
	/* What had been stopped before stays so. */
	snprintf(s.err, sizeof s.err, "grep State: /proc/%d/status | cut -f2", number(r.out));
	th_expect(&t, s.err, "T (stopped)\n");
	/* Killing works on what stands still, too. */
	th_ask(&t, "freeze", "frozen");
	assert_true(kill_now(&t, 0, 0) >= 2);
}
TH_BOTH(freeze)

static void await_state(pid_t pid, char wanted)
{
	char want[] = {wanted, '\0'}, state[2] = "";

	for (int i = 0; i < 1000 && strcmp(state, want); i++) {
		ntr_autofree char *path = ntr_sprintf("/proc/%d/stat", (int)pid), *text = NULL;
		const char *end;

		assert_int_equal(ntr_read_file(AT_FDCWD, path, 4096, &text, NULL), 0);
		end = strrchr(text, ')');
		state[0] = end[2];
		usleep(i ? 1000 : 0);
	}
	assert_string_equal(state, want);
}

/* The states of all threads of a process, in order. */
static void thread_states(pid_t pid, char *ret, size_t size)
{
	ntr_autofree char *path = ntr_sprintf("/proc/%d/task", (int)pid);
	DIR *dir = opendir(path);
	struct dirent *d;
	size_t n = 0;

	assert_non_null(dir);
	while ((d = readdir(dir)) && n + 1 < size) {
		ntr_autofree char *stat = ntr_sprintf("%s/%s/stat", path, d->d_name), *text = NULL;

		if (d->d_name[0] != '.' && !ntr_read_file(AT_FDCWD, stat, 4096, &text, NULL))
			ret[n++] = strrchr(text, ')')[2];
	}
	ret[n] = '\0';
	closedir(dir);
}

/* No thread is in the midst of a write while the main thread has stopped long since. */
static void freeze_threads(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};
	char states[8];

	th_open(&t, user);
	th_script(&t,
	        "command -v python3 >/dev/null || exit 9; python3 -S -c '\n"
	        "import os, threading, time\n"
	        "def run():\n"
	        "    fd = os.memfd_create(\"m\"); buf = bytes(64 << 20)\n"
	        "    while os.pwrite(fd, buf, 0): open(\"ready\", \"w\").close()\n"
	        "threading.Thread(target=run).start()\n"
	        "time.sleep(1000)' >/dev/null 2>&1 & echo $!; while [ ! -e ready ]; do sleep 0.01; done",
	        &r);
	if (r.code == 9)
		skip();
	for (int i = 0; i < 10; i++) {
		assert_int_equal(th_ask(&t, "freeze", "frozen"), 1);
		thread_states(number(r.out), states, sizeof states);
		assert_string_equal(states, "TT");
		assert_int_equal(th_ask(&t, "thaw", "frozen"), 1);
		usleep(10000);
	}
}
TH_BOTH(freeze_threads)

/* A process of threads alone: its main one ends at once, another starts a child and writes on. */
static const char leaderless_script[] =
        "command -v python3 >/dev/null || exit 9; truncate -s 4096 map; python3 -S -c '\n"
        "import ctypes, mmap, subprocess, threading, time\n"
        "def run():\n"
        "    with open(\"map\", \"r+b\") as f: m = mmap.mmap(f.fileno(), 4096)\n"
        "    m[0] = 65\n"
        "    subprocess.Popen([\"sleep\", \"1000\"])\n"
        "    f = open(\"count\", \"a\", 1)\n"
        "    while True: f.write(\"\\n\"); time.sleep(0.002)\n"
        "threading.Thread(target=run).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)' >/dev/null 2>&1 & "
        "echo $!; while [ ! -s count ]; do sleep 0.01; done";

static int leaderless(struct th *t)
{
	ntr_auto(th_result_done) struct th_result r = {0};

	th_script(t, leaderless_script, &r);
	if (r.code == 9)
		skip();
	await_state(number(r.out), 'Z');
	return number(r.out);
}

/* It counts, stands still, is ended with its children, and is shown with its name and what it maps. */
static void main_thread_ended(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};
	ntr_autojson json_t *ps = NULL, *maps = NULL;
	const json_t *row;
	long before;
	int pid;

	th_open(&t, user);
	pid = leaderless(&t);
	th_script(&t, "true", &r);
	assert_int_equal(r.background, 2);
	assert_int_equal(th_ask(&t, "freeze", "frozen"), 2);
	before = counter(&t);
	usleep(30000);
	assert_int_equal(counter(&t), before);
	assert_int_equal(th_ask(&t, "thaw", "frozen"), 2);
	TH_EVENTUALLY(counter(&t) > before + 2);
	ps = th_do(&t, json_pack("{s:s}", "op", "ps"), NULL, 0);
	row = json_array_get(json_object_get(ps, "procs"), 0);
	assert_int_equal(ntr_json_int(row, "pid", 0), pid);
	assert_string_not_equal(ntr_json_str(row, "state", ""), "Z");
	assert_string_equal(json_string_value(json_array_get(json_object_get(row, "cmd"), 0)), "python3");
	maps = th_do(&t, json_pack("{s:s}", "op", "mapped"), NULL, 0);
	assert_int_equal(json_array_size(json_object_get(maps, "paths")), 1);
	assert_int_equal(kill_now(&t, 0, 0), 2);
	assert_int_equal(kill(pid, 0), -1);
}
TH_BOTH(main_thread_ended)

/* Whoever is stopped by somebody else at that moment stays so, wherever the signal is on its way. */
static void stop_beside_freeze(struct th *t, pid_t pid)
{
	for (unsigned i = 0; i < 400; i++) {
		assert_int_equal(kill(pid, SIGSTOP), 0);
		for (volatile unsigned k = 0; k < i * 50; k++)
			;
		th_ask(t, "freeze", "frozen");
		th_ask(t, "thaw", "frozen");
		await_state(pid, 'T');
		assert_int_equal(kill(pid, SIGCONT), 0);
		await_state(pid, 'R');
	}
}

static void freeze_beside_stop(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};

	th_open(&t, user);
	th_script(&t, "while :; do :; done & echo $!", &r);
	stop_beside_freeze(&t, number(r.out));
}
TH_BOTH(freeze_beside_stop)

static void freeze_threads_beside_stop(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};

	th_open(&t, user);
	th_script(&t,
	        "command -v python3 >/dev/null || exit 9; python3 -S -c '\n"
	        "import threading\n"
	        "def run():\n"
	        "    while True: pass\n"
	        "for i in range(3): threading.Thread(target=run).start()\n"
	        "open(\"ready\", \"w\").close()\n"
	        "run()' >/dev/null 2>&1 & echo $!; while [ ! -e ready ]; do sleep 0.01; done",
	        &r);
	if (r.code == 9)
		skip();
	stop_beside_freeze(&t, number(r.out));
}
TH_BOTH(freeze_threads_beside_stop)

/* A shell with job control must not take a frozen child for a suspended job. */
static void freeze_job_control(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};
	struct th_call c;
	char up[4];

	th_open(&t, user);
	c = th_begin(&t, th_call_msg(&t, "set -m; echo up; sleep 2; echo done $?", NULL), -1);
	th_await_start(&t, &c);
	assert_int_equal(ntr_read_exact(c.out, up, 3), 0);
	usleep(100000);
	for (int i = 0; i < 10; i++) {
		assert_true(th_ask(&t, "freeze", "frozen") >= 2);
		assert_true(th_ask(&t, "thaw", "frozen") >= 2);
	}
	th_finish(&t, &c, &r);
	assert_string_equal(r.out, "done 0\n");
}
TH_BOTH(freeze_job_control)

static void listing(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};
	ntr_autojson json_t *m = NULL;
	const json_t *row, *cmd;
	uint64_t req;

	th_open(&t, user);
	th_script(&t, "sleep 1234 & echo $!; sleep 0.2", &r);
	req = t.req;
	m = th_do(&t, json_pack("{s:s}", "op", "ps"), NULL, 0);
	assert_int_equal(json_array_size(json_object_get(m, "procs")), 1);
	row = json_array_get(json_object_get(m, "procs"), 0);
	cmd = json_object_get(row, "cmd");
	assert_int_equal(ntr_json_int(row, "pid", 0), number(r.out));
	assert_int_equal(ntr_json_int(row, "ppid", 0), t.pid);
	assert_int_equal(ntr_json_int(row, "call", 0), req);
	assert_string_equal(ntr_json_str(row, "state", ""), "S");
	assert_string_equal(json_string_value(json_array_get(cmd, 0)), "sleep");
	assert_string_equal(json_string_value(json_array_get(cmd, 1)), "1234");
	assert_true(llabs(ntr_json_int(row, "start_ns", 0) - (int64_t)ntr_wall_ns()) < 20000000000);
}
TH_BOTH(listing)

/* A script's subshell is shown with the script, not with what is wrapped around it. */
static void listing_of_script(bool user)
{
	static const char script[] = "mkfifo p; (sleep 1234; true) & (read -r x <p) & sleep 0.2";
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};
	ntr_autojson json_t *m = NULL;
	bool seen = false;
	json_t *row;
	size_t i;

	th_open(&t, user);
	th_script(&t, script, &r);
	m = th_do(&t, json_pack("{s:s}", "op", "ps"), NULL, 0);
	json_array_foreach (json_object_get(m, "procs"), i, row) {
		const char *text = json_string_value(json_array_get(json_object_get(row, "cmd"), 2));

		seen |= text && !strcmp(text, script);
		assert_true(!text || !strstr(text, "mapfile"));
	}
	assert_true(seen);
}
TH_BOTH(listing_of_script)

/* A mapping of the view: named, and a store that was made before is in the times of upper's file. */
static void mapped(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};
	ntr_autojson json_t *m = NULL;
	const json_t *paths;

	th_open(&t, user);
	th_script(&t,
	        "command -v python3 >/dev/null || exit 9; mkdir d; truncate -s 8192 $'d/a\\nb' priv; "
	        "python3 -S -c 'import mmap,time\nf=open(\"d/a\\nb\",\"r+b\"); m=mmap.mmap(f.fileno(),8192); "
	        "m[0]=65\n"
	        "g=open(\"priv\",\"r+b\"); n=mmap.mmap(g.fileno(),8192,mmap.MAP_PRIVATE); n[0]=65\n"
	        "open(\"ready\",\"w\").close(); time.sleep(1000)' & while [ ! -e ready ]; do sleep 0.01; "
	        "done",
	        &r);
	if (r.code == 9)
		skip();
	m = th_do(&t, json_pack("{s:s}", "op", "mapped"), NULL, 0);
	paths = json_object_get(m, "paths");
	assert_int_equal(json_array_size(paths), 1);
	assert_string_equal(json_string_value(json_array_get(paths, 0)), "d/a\nb");
}
TH_BOTH(mapped)

static void socket_closes(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};
	struct th_call c;
	int bg, main_pid;

	th_open(&t, user);
	th_script(&t, "(trap '' TERM HUP; setsid sleep 1000 & echo $!)", &r);
	bg = number(r.out);
	c = th_begin(&t, th_call_msg(&t, "sleep 1000", NULL), -1);
	main_pid = th_await_start(&t, &c);
	assert_true(th_alive(bg) && th_alive(main_pid));
	ntr_closep(&t.sock);
	t.sock = -1;
	assert_int_equal(th_gone(&t), 0);
	assert_false(th_alive(bg));
	assert_false(th_alive(main_pid));
	close(c.out);
	close(c.err);
}
TH_BOTH(socket_closes)

static void stop(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};
	ntr_autojson json_t *m = NULL;

	th_open(&t, user);
	th_script(&t, "echo kept > kept; sleep 1000 & echo $!", &r);
	m = th_do(&t, json_pack("{s:s}", "op", "stop"), NULL, 0);
	assert_true(ntr_json_bool(m, "ok", false));
	assert_false(th_alive(number(r.out)));
	assert_int_equal(th_gone(&t), 0);
	assert_true(th_exists(&t, "upper", "kept"));
}
TH_BOTH(stop)

/* A main process does not outlive a supervisor that was killed. */
static void supervisor_dies(bool user)
{
	ntr_auto(th_close) struct th t;
	struct th_call c;
	int pid, status;

	th_open(&t, user);
	c = th_begin(&t, th_call_msg(&t, "exec sleep 1000", NULL), -1);
	pid = th_await_start(&t, &c);
	kill(t.pid, SIGKILL);
	waitpid(t.pid, &status, 0);
	t.pid = 0;
	TH_EVENTUALLY(!th_alive(pid));
	close(c.out);
	close(c.err);
}
TH_BOTH(supervisor_dies)

int main(void)
{
	const struct CMUnitTest tests[] = {TH_TESTS(background), TH_TESTS(kill_one_call),
	        TH_TESTS(kill_running), TH_TESTS(kill_with_grace), TH_TESTS(kill_breeders), TH_TESTS(freeze),
	        TH_TESTS(freeze_threads), TH_TESTS(main_thread_ended), TH_TESTS(freeze_beside_stop),
	        TH_TESTS(freeze_threads_beside_stop), TH_TESTS(freeze_job_control), TH_TESTS(listing),
	        TH_TESTS(listing_of_script), TH_TESTS(mapped), TH_TESTS(socket_closes), TH_TESTS(stop),
	        TH_TESTS(supervisor_dies)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
