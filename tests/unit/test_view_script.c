/* Scripts: they behave as with `bash -c SCRIPT`, and what they leave is known afterwards. */
#include "init_harness.h"

/* ---- against bash itself ---- */

struct plain {
	int code;
	char out[8192], err[4096];
};

static void read_all(int fd, char *buf, size_t size)
{
	size_t len = 0;

	for (ssize_t n; len < size - 1 && (n = read(fd, buf + len, size - 1 - len)) > 0;)
		len += (size_t)n;
	buf[len] = '\0';
	close(fd);
}

static void run_plain(const char *script, struct plain *r)
{
	int po[2], pe[2], status;
	pid_t pid;

	assert_int_equal(pipe2(po, O_CLOEXEC), 0);
	assert_int_equal(pipe2(pe, O_CLOEXEC), 0);
	pid = fork();
	if (!pid) {
		char path[] = "PATH=/usr/local/bin:/usr/bin:/bin", home[] = "HOME=/tmp",
		     lang[] = "LC_ALL=C.UTF-8";
		char *env[] = {path, home, lang, NULL};

		dup2(open("/dev/null", O_RDONLY), 0);
		dup2(po[1], 1);
		dup2(pe[1], 2);
		closefrom(3);
		if (chdir("/usr") == 0)
			execle("/bin/bash", "bash", "-c", script, (char *)NULL, env);
		_exit(99);
	}
	close(po[1]);
	close(pe[1]);
	read_all(po[0], r->out, sizeof r->out);
	read_all(pe[0], r->err, sizeof r->err);
	waitpid(pid, &status, 0);
	r->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* "bash: -c: line" of a syntax error is "bash: eval: line" here: the one known difference in texts. */
static void same_words(char *s)
{
	for (char *p; (p = strstr(s, "bash: eval: "));)
		memmove(p + 6, p + 8, strlen(p + 8) + 1), memcpy(p + 6, "-c", 2);
}

static const struct {
	const char *script;
	const char *cwd; /* left behind; NULL: no state */
} like_bash[] = {
        {"echo hi", "/usr"},
        {"", "/usr"},
        {"# only a comment", "/usr"},
        {"cd /tmp; exit 3", "/tmp"},
        {"set -e; cd /; false; echo no", "/"},
        {"set -u; cd /; echo $nope; echo no", "/"},
        {"cd /; echo ${x:?bad}; echo no", "/"},
        {"echo a\nfoo\necho $LINENO", "/usr"},
        {"f() { echo $LINENO; bar; caller 0; }\n\nf", "/usr"},
        {"if", "/usr"},
        {"cd /; echo a\nif ; then\necho b", "/"},
        {"echo \"unterminated", "/usr"},
        {"cat <<EOF\nunterminated", "/usr"},
        {"echo a \\", "/usr"},
        {"echo $0 $# $- $BASH_SUBSHELL \"$*\" ${#FUNCNAME[@]}", "/usr"},
        {"ls /proc/self/fd", "/usr"},
        {"cd /; kill -TERM $$", "/"},
        {"cd /; kill -KILL $$", NULL},
        {"return 4", "/usr"},
        {"f() { cd /; exit 6; }; f", "/"},
        {"(cd /; exit 7)", "/usr"},
        {"cd / | true; exit 256", "/usr"},
        {"exec true", NULL},
        {"cd /; exec 3</nonexistent; echo after", "/"},
        {"shopt -s expand_aliases\nalias q='echo hi'\nq", "/usr"},
        {"unset PWD HOME; cd /", "/"},
        {"IFS=0123456789; false", "/usr"},
        {"set -a; X=1; cd /", "/"},
        {"set -f; cd /; false", "/"},
        {"set -o posix; cd /; exit 2", "/"},
        {"trap 'echo ERR' ERR; cd /; false", "/"},
        {"set -eE; trap 'echo E $LINENO' ERR; cd /; (exit 4); echo no", "/"},
        {"false | true; echo ${PIPESTATUS[@]}; sleep 0.01 & wait $!; echo $?", "/usr"},
        /* EXIT traps of its own */
        {"trap 'echo bye' EXIT; cd /", "/"},
        {"trap 'echo bye' EXIT; exit 5", "/usr"},
        {"cd /; trap 'cd /tmp; echo bye $?' EXIT; exit 5", "/tmp"},
        {"trap 'echo bye; exit 9' EXIT; cd /; false", "/"},
        {"trap 'echo e $?' EXIT; set -e; cd /; false", "/"},
        {"set -euo pipefail; trap 'echo cleaned' EXIT; cd /; false | true; echo no", "/"},
        {"trap 'exit 9' ERR; trap 'echo bye' EXIT; cd /; exit 3", "/"},
        {"trap 'echo t' TERM EXIT; cd /; kill -TERM $$; exit 4", "/"},
        {"trap 'echo int; exit 7' INT; cd /; kill -INT $$; sleep 1; exit 0", "/"},
        {"trap 'cat <<E\nhi\nE' EXIT; exit", "/usr"},
        {"trap 'echo # c' EXIT; exit 1", "/usr"},
        {"set -f; trap 'echo *' EXIT; exit", "/usr"},
        {"trap 'echo a' EXIT INT; trap -p; trap -p EXIT; trap - EXIT; trap; exit 0", "/usr"},
        {"trap 'echo q' EXIT; x=$(trap -p EXIT); echo \"$x\"; trap - EXIT; eval \"$x\"; exit 1", "/usr"},
        {"(trap 'echo sub' EXIT; cd /; exit 3); echo $?; exit 0", "/usr"},
        {"x=$(trap 'echo sub' EXIT; exit 3); echo $x $?; exit 0", "/usr"},
        {"{ trap 'echo bg' EXIT; } & wait; exit 0", "/usr"},
        {"trap 2; trap 'echo two' 2; trap -p; trap 2; trap -p 0; exit 0", "/usr"},
        {"trap foo BADSIG; echo $?; exit 2", "/usr"},
        {"trap -l | head -1; exit 0", "/usr"},
        {"trap -- 'echo dd' 0; exit 0", "/usr"},
        /* the pseudo-signals, which bash treats as local to functions */
        {"trap 'echo ERR' ERR; false; trap - ERR; false; trap -p ERR; echo exit 0", "/usr"},
        {"f() { trap 'echo ret' RETURN; echo in; }; f; g() { echo g; }; g; trap - RETURN; g; trap -p; exit 0",
                "/usr"},
        {"f() { trap 'echo r2; trap - RETURN' RETURN; :; }; f; g() { :; }; g; f; exit 0", "/usr"},
        {"set -T; trap 'echo ret' RETURN; f() { :; }; f; trap - RETURN; f; exit 0", "/usr"},
        {"trap 'echo dbg' DEBUG; echo x; trap - DEBUG; echo y; exit 0", "/usr"},
        /* descriptors that the wrapper uses itself */
        {"exec 10>/dev/null; cd /; exit 2", "/"},
        {"exec 57>/dev/null; echo z >&57; cd /", "/"},
        {"ulimit -n 64; cd /; cat <(echo hi)", "/"},
        {"ulimit -n 64; cd /; exit 3", "/"},
        /* beyond the wrapper's reach: no state where the trap goes around the function and exit ends it */
        {"builtin trap 'echo z' EXIT; cd /; exit 3", NULL},
        {"builtin trap 'echo z' EXIT; cd /", "/"},
};

static void differential(bool user)
{
	ntr_auto(th_close) struct th t;

	th_open(&t, user);
	for (size_t i = 0; i < NTR_COUNT(like_bash); i++) {
		ntr_auto(th_result_done) struct th_result r = {0};
		const char *s = like_bash[i].script;
		json_t *m = th_call_msg(&t, s, NULL);
		struct plain p;

		json_object_set_new(m, "cwd", json_string("/usr"));
		run_plain(s, &p);
		th_run_msg(&t, m, -1, &r);
		same_words(r.err);
		if (r.code != p.code || strcmp(r.out, p.out) || strcmp(r.err, p.err))
			fail_msg("%s\nbash: %d '%s' '%s'\nhere: %d '%s' '%s'", s, p.code, p.out, p.err,
			        r.code, r.out, r.err);
		if (!like_bash[i].cwd != !r.state)
			fail_msg("%s: %s state", s, r.state ? "a" : "no");
		if (r.state && like_bash[i].cwd)
			assert_string_equal(ntr_json_str(r.state, "cwd", ""), like_bash[i].cwd);
	}
}
TH_BOTH(differential)

/* ---- the state ---- */

static char *state_var(const json_t *state, const char *name)
{
	size_t i, n = strlen(name);
	json_t *v;

	json_array_foreach (json_object_get(state, "env"), i, v) {
		char *s;

		assert_int_equal(ntr_json_get_bytes(v, &s, NULL), 0);
		if (!strncmp(s, name, n) && s[n] == '=') {
			memmove(s, s + n + 1, strlen(s + n + 1) + 1);
			return s;
		}
		free(s);
	}
	return NULL;
}

static void expect_var(const json_t *state, const char *name, const char *value)
{
	ntr_autofree char *v = state_var(state, name);

	if (!v != !value || (v && strcmp(v, value)))
		fail_msg("%s is '%s', expected '%s'", name, v ? v : "(unset)", value ? value : "(unset)");
}

static void variables(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0}, posix = {0};
	json_t *m;

	th_open(&t, user);
	m = th_call_msg(&t,
	        "export A=$'x\\ny\\377z\"$`\\\\\\t\\e' B='' C; export D=\"a'b\" E='$x `y` \\z !'; declare "
	        "-ix N=5; "
	        "declare -ax R=(1 2); declare -rx RO=q; declare -ux UP=abc; export U=\xc3\xbc; unset GONE; "
	        "W=w; "
	        "export M='=a=b='; not_exported=1; export -f f 2>/dev/null; f() { :; }; export -f f; "
	        "export L=$'line\\nexport FAKE=1\\ndeclare -x FAKE2=\"1\"'; umask 027; cd /tmp",
	        NULL);
	json_object_set_new(m, "env",
	        json_pack("[s,s,s,s,s,s,s]", "PATH=/usr/bin:/bin", "GONE=1", "KEPT=\n\n", "W=old",
	                "foo.bar=1", "BASH_FUNC_x%%=() { echo hi; }", "NTR_CALL=77"));
	th_run_msg(&t, m, -1, &r);
	assert_non_null(r.state);
	assert_string_equal(ntr_json_str(r.state, "cwd", ""), "/tmp");
	assert_int_equal(ntr_json_int(r.state, "umask", -1), 027);
	expect_var(r.state, "A", "x\ny\377z\"$`\\\t\033");
	expect_var(r.state, "B", "");
	expect_var(r.state, "C", NULL); /* exported, but without a value */
	expect_var(r.state, "D", "a'b");
	expect_var(r.state, "E", "$x `y` \\z !");
	expect_var(r.state, "N", "5");
	expect_var(r.state, "R", NULL);
	expect_var(r.state, "RO", "q");
	expect_var(r.state, "UP", "ABC");
	expect_var(r.state, "U", "\xc3\xbc");
	expect_var(r.state, "GONE", NULL);
	expect_var(r.state, "KEPT", "\n\n");
	expect_var(r.state, "W", "w");
	expect_var(r.state, "M", "=a=b=");
	expect_var(r.state, "not_exported", NULL);
	expect_var(r.state, "L", "line\nexport FAKE=1\ndeclare -x FAKE2=\"1\"");
	expect_var(r.state, "FAKE", NULL);
	expect_var(r.state, "FAKE2", NULL);
	expect_var(r.state, "foo.bar", "1");
	expect_var(r.state, "BASH_FUNC_x%%", "() { echo hi; }"); /* the caller's, as it came */
	expect_var(r.state, "BASH_FUNC_f%%", NULL);              /* the script's: functions do not stick */
	expect_var(r.state, "NTR_CALL", NULL);
	m = th_call_msg(&t, "set -o posix; export A=$'x\n\"y\\$'", NULL);
	th_run_msg(&t, m, -1, &posix);
	expect_var(posix.state, "A", "x\n\"y\\$");
}
TH_BOTH(variables)

/* Every byte there is, at random lengths. */
static void any_bytes(bool user)
{
	ntr_auto(th_close) struct th t;
	unsigned seed = 20251129;

	th_open(&t, user);
	print_message("seed %u\n", seed);
	for (int round = 0; round < 20; round++) {
		ntr_auto(th_result_done) struct th_result r = {0};
		char value[200], *entry;
		int n = rand_r(&seed) % 190;
		json_t *m = th_call_msg(&t, "cd /tmp; true", NULL);

		for (int i = 0; i < n; i++)
			value[i] = (char)(round % 2 ? 1 + rand_r(&seed) % 255
			                            : "'\"\\$`\n a="[rand_r(&seed) % 9]);
		value[n] = '\0';
		entry = ntr_sprintf("V=%s", value);
		assert_non_null(entry);
		json_array_append_new(json_object_get(m, "env"), ntr_json_bytes(entry, strlen(entry)));
		th_run_msg(&t, m, -1, &r);
		expect_var(r.state, "V", value);
		free(entry);
	}
}
TH_BOTH(any_bytes)

static void strange_cwds(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result nl = {0}, link = {0}, gone = {0};

	th_open(&t, user);
	th_script(&t, "mkdir -p $'a\\nb\\n' real; ln -s real link; cd $'a\\nb\\n'", &nl);
	assert_string_equal(ntr_json_str(nl.state, "cwd", ""), "/workspace/a\nb\n");
	th_script(&t, "cd link", &link);
	assert_string_equal(ntr_json_str(link.state, "cwd", ""), "/workspace/link");
	th_script(&t, "mkdir x; cd x; rmdir ../x", &gone);
	assert_string_equal(ntr_json_str(gone.state, "cwd", ""), "/workspace/x");
}
TH_BOTH(strange_cwds)

/* Megabytes, beyond what an argument may hold, and any byte but NUL. */
static void large(bool user)
{
	enum { SIZE = 2 << 20 };
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};
	char *s = malloc(SIZE + 100);
	json_t *m;

	th_open(&t, user);
	assert_non_null(s);
	strcpy(s, "x='");
	memset(s + 3, 'a', SIZE);
	strcpy(s + 3 + SIZE, "\xff'\necho ${#x}\nnosuch\ncd /");
	m = th_call_msg(&t, s, NULL);
	th_run_msg(&t, m, -1, &r);
	free(s);
	assert_string_equal(r.err, "bash: line 3: nosuch: command not found\n");
	assert_string_equal(r.out, "2097153\n");
	assert_string_equal(ntr_json_str(r.state, "cwd", ""), "/");
}
TH_BOTH(large)

/* What a background process of a script holds on to is not the state's descriptor, and the call ends without
 * it. */
static void background(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};

	th_open(&t, user);
	th_script(&t, "cd /tmp; sleep 1000 & sleep 0.2; ls /proc/$!/fd | tr '\\n' ' '", &r);
	assert_string_equal(r.out, "0 1 2 ");
	assert_int_equal(r.background, 1);
	assert_string_equal(ntr_json_str(r.state, "cwd", ""), "/tmp");
}
TH_BOTH(background)

/* A limit on descriptors below the number that the wrapper likes best. */
static void few_descriptors(bool user)
{
	ntr_auto(th_close) struct th t;
	ntr_auto(th_result_done) struct th_result r = {0};

	th_open(&t, user);
	th_script(&t, "ulimit -n 20; cd /tmp; echo $(echo deep)", &r);
	assert_string_equal(r.out, "deep\n");
	assert_string_equal(ntr_json_str(r.state, "cwd", ""), "/tmp");
}
TH_BOTH(few_descriptors)

int main(void)
{
	const struct CMUnitTest tests[] = {TH_TESTS(differential), TH_TESTS(variables), TH_TESTS(any_bytes),
	        TH_TESTS(strange_cwds), TH_TESTS(large), TH_TESTS(background), TH_TESTS(few_descriptors)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
