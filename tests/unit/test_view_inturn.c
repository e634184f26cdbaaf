/* Replacing the view on a kernel without MOVE_MOUNT_BENEATH: the code of init_view.c with an attach that has
 * none. */
#include "init_harness.h"

#include "exec/view.h"

#include <sys/prctl.h>

static int fail_attach; /* how many plain attaches fail */

static int old_kernel_attach(int mount_fd, const char *wsroot, bool beneath, struct ntr_err *e)
{
	if (beneath || fail_attach-- > 0)
		return ntr_err_set(e, -EINVAL, "attach");
	return ntr_view_attach(mount_fd, wsroot, beneath, e);
}

#define ntr_view_attach old_kernel_attach
#include "exec/init_view.c"
#undef ntr_view_attach

/* What init_view.c needs of the others. */
void ntr_init_send(struct ntr_init *in, uint64_t req, json_t *msg, const int *fds, size_t nfds)
{
	(void)req, (void)fds, (void)nfds;
	in->over = !ntr_json_bool(msg, "ok", false);
	json_decref(msg);
}
int ntr_rename_start(struct ntr_init *in)
{
	(void)in;
	return 0;
}
void ntr_rename_layers(struct ntr_init *in, const int fds[3])
{
	(void)in, (void)fds;
}
void ntr_rename_layers_use(struct ntr_init *in)
{
	(void)in;
}
int ntr_init_mounts_read(struct ntr_init *in, const struct ntr_initreq *rq, struct ntr_err *e)
{
	(void)in, (void)rq, (void)e;
	return 0;
}
int ntr_init_mounts_place(struct ntr_init *in, struct ntr_err *e)
{
	(void)in, (void)e;
	return 0;
}
int ntr_init_mounts_attach(struct ntr_init *in, struct ntr_err *e)
{
	(void)in, (void)e;
	return 0;
}
int ntr_init_mounts_park(struct ntr_init *in, struct ntr_err *e)
{
	(void)in, (void)e;
	return 0;
}
int ntr_init_mounts_unpark(struct ntr_init *in, struct ntr_err *e)
{
	(void)in, (void)e;
	return 0;
}
void ntr_initpy_release(struct ntr_init *in)
{
	(void)in;
}
void ntr_init_view_ok(struct ntr_init *in, uint64_t req, json_t *msg)
{
	ntr_init_send(in, req, msg, NULL, 0);
}
int ntr_init_memory(struct ntr_init *in, struct ntr_initreq *rq, struct ntr_err *e)
{
	(void)in, (void)rq, (void)e;
	return 0;
}
void ntr_init_memory_keep(struct ntr_init *in, bool newest)
{
	(void)in, (void)newest;
}
void ntr_init_ok(struct ntr_init *in, uint64_t req)
{
	(void)req;
	in->over = false;
}
void ntr_init_error(struct ntr_init *in, uint64_t req, const struct ntr_err *e)
{
	(void)req, (void)e;
	in->over = true;
}
unsigned ntr_init_freeze(struct ntr_init *in)
{
	(void)in;
	return 0;
}
void ntr_init_thaw(struct ntr_init *in)
{
	(void)in;
}
bool ntr_inithelper_release(struct ntr_init *in, bool force)
{
	(void)in, (void)force;
	return true;
}
void ntr_inithelper_resume(struct ntr_init *in)
{
	(void)in;
}
void ntr_inithelper_close(struct ntr_init *in, int fd)
{
	(void)in;
	close(fd);
}
void ntr_initjob_start(struct ntr_init *in, enum ntr_initjob_kind kind, const struct ntr_initreq *rq,
        int mount_fd, int upper_fd)
{
	(void)in, (void)kind, (void)rq, (void)mount_fd, (void)upper_fd;
}

static struct ntr_initreq request(const struct th *t, json_t *m)
{
	struct ntr_initreq rq = {.msg = m, .req = 1, .nfds = 3};

	th_layer_fds(t, rq.fds);
	return rq;
}

/* The steps are numbered by the result. */
static int in_turn(struct th *t)
{
	struct ntr_init in = {.sock = -1, .sig_fd = -1, .upper_fd = -1, .pass_fd = -1};
	struct ntr_initreq rq = request(t, json_pack("{s:s,s:b}", "wsroot", "/workspace", "user", t->user));
	int fds[3], used;

	ntr_init_start(&in, &rq);
	if (in.over || !in.started || access("/workspace/hello", F_OK))
		return 1;
	used = open("/workspace/old", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (used < 0)
		return 2;
	rq = request(t, NULL);
	ntr_init_fold(&in, &rq);
	if (!in.over) /* the file above is open */
		return 3;
	close(used);
	th_next_layers(t, fds);
	rq = request(t, NULL);
	ntr_init_fold(&in, &rq);
	if (in.over || !access("/workspace/old", F_OK) || access("/workspace/hello", F_OK))
		return 4;
	if (close(open("/workspace/mid", O_WRONLY | O_CREAT | O_CLOEXEC, 0600)))
		return 5;
	th_next_layers(t, fds);
	rq = request(t, NULL);
	fail_attach = 1; /* the new one does not fit: the old one is back */
	ntr_init_fold(&in, &rq);
	return !in.over || access("/workspace/mid", F_OK) ? 6 : 0;
}

static void replaced_in_turn(bool user)
{
	ntr_auto(th_close) struct th t;
	int status;
	pid_t pid;

	th_dirs(&t, user);
	pid = fork();
	if (!pid) {
		th_become(&t);
		prctl(PR_SET_DUMPABLE, 1); /* as after an exec: else /proc/self is root's */
		_exit(in_turn(&t));
	}
	waitpid(pid, &status, 0);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}
TH_BOTH(replaced_in_turn)

int main(void)
{
	const struct CMUnitTest tests[] = {TH_TESTS(replaced_in_turn)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
