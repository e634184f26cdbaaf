/* The names python and python3 in a call's PATH: the folders for them, and that they never stick. */
#include "ctl_fixture.h"
#include "exec/controller_impl.h"

static struct cfx fx;
static char bin[256]; /* has a python3 that says so, and nothing else */
static char said[4096];

static void program(const char *name, const char *says)
{
	ntr_autofree char *path = ntr_sprintf("%s/%s", bin, name);
	ntr_autoclose int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);

	assert_true(fd >= 0);
	dprintf(fd, "#!/bin/sh\nprintf '%%s|' %s \"$@\"\n", says);
}

static int setup(void **state)
{
	(void)state;
	fx = (struct cfx){.fold_entries = 0};
	cfx_setup(&fx);
	snprintf(bin, sizeof bin, "%s/it's $bin", fx.dir);
	assert_int_equal(mkdir(bin, 0755), 0);
	program("python3", "three");
	return 0;
}

CFX_TEARDOWN(teardown)

/* What a script prints; the call must have made a commit, or none. */
static const char *run(const char *script, struct ntr_call_spec spec, bool commits)
{
	struct ntr_call_result res;
	struct ntr_err e;

	spec.capture = true;
	if (cfx_try(&fx, "s", script, spec, &res, &e))
		cfx_fail(script, &e);
	snprintf(said, sizeof said, "%s", ntr_buf_cstr(&res.out));
	if (!res.commit[0] == commits)
		fail_msg("%s: commit '%s', '%s'", script, res.commit, said);
	ntr_call_result_done(&res);
	return said;
}

/* The PATH that is kept. */
static const char *kept(void)
{
	static char text[4096];
	struct ntr_head h = cfx_head(&fx, "s");
	struct ntr_snap snap = ntr_snap_root(ntr_ctl_store(fx.c), h.root);
	ntr_autofree uint8_t *val = NULL;
	size_t n = 0;

	if (ntr_kvitem_get(&snap, "e:PATH", &val, &n))
		return "";
	snprintf(text, sizeof text, "%.*s", (int)n, (const char *)val);
	return text;
}

/* The only PATH of the session's calls from now on. */
static void keep(const char *path)
{
	ntr_autofree char *script = ntr_sprintf("export PATH=\"%s\"", path);
	ntr_autofree char *want = ntr_sprintf("S%s", path);

	run(script, (struct ntr_call_spec){0}, true);
	assert_string_equal(kept(), want);
}

static void keep_bin(void)
{
	ntr_autofree char *path = ntr_sprintf("%s/it's \\$bin", fx.dir);
	ntr_autofree char *script = ntr_sprintf("export PATH=\"%s\"", path);

	run(script, (struct ntr_call_spec){0}, true);
}

static void test_alone(void **state)
{
	const struct ntr_call_spec plain = {0};
	ntr_autofree char *want = ntr_sprintf("S/a:%s:/z", bin);

	(void)state;
	keep_bin();
	assert_string_equal(run("python a 'b  c' ''", plain, false), "three|a|b  c||");
	assert_string_equal(run("export PATH=/a:$PATH:/z; python 1", plain, true), "three|1|");
	assert_string_equal(kept(), want);
	assert_string_equal(run("python 2", plain, false), "three|2|");
	/* in another order: what is ours is nowhere in it */
	run("IFS=:; set -- $PATH; export PATH=$4:$3:$2:$1", plain, true);
	free(want);
	want = ntr_sprintf("S/z:%s:/a", bin);
	assert_string_equal(kept(), want);
	assert_string_equal(run("python 3", plain, false), "three|3|");
}

/* A PATH that has both, or neither, stays as it is; what was found out about it does not outlive its cause.
 */
static void test_as_it_is(void **state)
{
	const struct ntr_call_spec plain = {0};
	ntr_autofree char *python = ntr_sprintf("%s/python", bin), *three = ntr_sprintf("%s/python3", bin);

	(void)state;
	keep("/nowhere");
	assert_string_equal(run("echo $PATH", plain, false), "/nowhere\n");
	program("python", "own");
	keep_bin();
	run("[[ $PATH != *:* ]] && python", plain, false);
	assert_string_equal(said, "own|");
	assert_int_equal(unlink(python), 0);
	assert_string_equal(run("python", plain, false), "three|");
	program("python", "own");
	assert_string_equal(run("python", plain, false), "own|");
	assert_int_equal(unlink(python), 0);
	assert_int_equal(unlink(three), 0);
	run("[[ $PATH == *:* ]] || echo as it is", plain, false);
	assert_string_equal(said, "as it is\n");
}

static void test_chosen(void **state)
{
	ntr_autofree char *python = ntr_sprintf("%s/mine", bin);
	const struct ntr_call_spec chosen = {.python = python}, both = {.python = python, .path_first = bin};

	(void)state;
	program("mine", "mine");
	keep("/bin:/usr/bin");
	assert_string_equal(run("python 1; python3 2", chosen, false), "mine|1|mine|2|");
	assert_string_equal(
	        run("python3 1", both, false), "three|1|"); /* the caller's folder comes before it */
	run("export PATH=/x:$PATH", both, true);
	assert_string_equal(kept(), "S/x:/bin:/usr/bin");
	run("export PATH=${PATH#*:}:/y", chosen, true);
	assert_string_equal(kept(), "S/x:/bin:/usr/bin:/y");
	run("[[ $PATH == *\"$NTR_STORE\"/* ]] && echo ours", chosen, false);
	assert_string_equal(said, "ours\n");
}

/* A name is looked up by PATH, and the folder does not hold that name: it would find itself. */
static void test_name(void **state)
{
	(void)state;
	keep_bin();
	assert_string_equal(run("python 1; python3 2", (struct ntr_call_spec){.python = "python3"}, false),
	        "three|1|three|2|");
	program("python", "own");
	assert_string_equal(run("python 1; python3 2", (struct ntr_call_spec){.python = "python"}, false),
	        "own|1|own|2|");
}

static void test_workspace(void **state)
{
	(void)state;
	run("mkdir -p v/bin; printf '#!/bin/sh\\necho $0\\n' >v/bin/py; chmod +x v/bin/py",
	        (struct ntr_call_spec){0}, true);
	assert_string_equal(
	        run("python", (struct ntr_call_spec){.python = "v/bin/py"}, false), "/workspace/v/bin/py\n");
	/* the workspace's environment comes behind a chosen interpreter, before all else */
	run("mkdir -p .venv/bin; printf '#!/bin/sh\\necho venv\\n' >.venv/bin/python; chmod +x .venv/bin/*; "
	    "ln -s python .venv/bin/python3; ln -s python .venv/bin/pip",
	        (struct ntr_call_spec){0}, true);
	run("python; pip", (struct ntr_call_spec){.python = "v/bin/py", .path_first = bin}, true);
	assert_string_equal(said, "/workspace/v/bin/py\nvenv\n");
}

static void test_start(void **state)
{
	ntr_autofree char *old = ntr_sprintf("%s/python/old", fx.store);

	(void)state;
	keep_bin();
	assert_int_equal(mkdir(old, 0700), 0);
	cfx_reopen(&fx);
	assert_int_equal(access(old, F_OK), -1);
	assert_string_equal(run("python 1", (struct ntr_call_spec){0}, false), "three|1|");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_alone, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_as_it_is, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_chosen, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_name, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_workspace, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_start, setup, teardown),
	};
	return cfx_run_tests(tests);
}
