/* Files of a session without a call: ls, cat, put, get, export. -s takes a commit (SESSION@COMMIT, SESSION~N)
 * here. */
#include "ntr.h"

#include "../base/util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

/* {"op","session","rev"?,"path"?}. NULL: out of memory. */
static json_t *file_request(const struct ntr_cmd *cmd, const char *op, const char *path)
{
	return ntr_cmd_rev_request(cmd, op, "path", path);
}

static void mode_text(const json_t *row, char buf[NTR_HUMAN])
{
	static const struct {
		const char *name;
		char c;
	} types[] = {
	        {"dir", 'd'}, {"symlink", 'l'}, {"fifo", 'p'}, {"socket", 's'}, {"chr", 'c'}, {"blk", 'b'}};
	static const char bits[] = "rwxrwxrwx";
	unsigned mode = (unsigned)ntr_json_int(row, "mode", 0);
	const char *type = ntr_json_str(row, "type", "file");

	buf[0] = '-';
	for (size_t i = 0; i < NTR_COUNT(types); i++)
		if (!strcmp(type, types[i].name))
			buf[0] = types[i].c;
	for (unsigned i = 0; i < 9; i++)
		buf[1 + i] = mode & 0400u >> i ? bits[i] : '-';
	if (mode & S_ISUID)
		buf[3] = mode & S_IXUSR ? 's' : 'S';
	if (mode & S_ISGID)
		buf[6] = mode & S_IXGRP ? 's' : 'S';
	if (mode & S_ISVTX)
		buf[9] = mode & S_IXOTH ? 't' : 'T';
	buf[10] = '\0';
}

static int ls_long(struct libscols_table *t, const json_t *row)
{
	const json_t *target = json_object_get(row, "target");
	ntr_autofree char *name = ntr_human_name(json_object_get(row, "name"));
	ntr_autofree char *to = target && !json_is_null(target) ? ntr_human_name(target) : NULL;
	ntr_autofree char *text = ntr_sprintf("%s%s%s", name ? name : "?", to ? " -> " : "", to ? to : "");
	char mode[NTR_HUMAN], size[NTR_HUMAN], time[NTR_HUMAN];
	const char *cells[4];

	mode_text(row, mode);
	cells[0] = mode;
	cells[1] = ntr_human_bytes(ntr_json_int(row, "size", 0), size);
	cells[2] = ntr_human_time_ns(ntr_json_int(row, "mtime_ns", 0), time);
	cells[3] = text;
	return text ? ntr_table_add(t, cells, NTR_COUNT(cells)) : -ENOMEM;
}

static void ls_print(const struct ntr_cmd *cmd, const json_t *reply)
{
	const json_t *en;
	size_t i;

	(void)cmd;
	json_array_foreach (json_object_get(reply, "entries"), i, en) {
		ntr_autofree char *name = ntr_human_name(json_object_get(en, "name"));

		puts(name ? name : "?");
	}
}

int ntr_ls_main(struct ntr_cmd *cmd)
{
	static const struct ntr_col cols[] = {{"MODE", NTR_COL_LEFT}, {"SIZE", NTR_COL_RIGHT},
	        {"MODIFIED", NTR_COL_LEFT}, {"NAME", NTR_COL_LEFT}};
	json_t *req = file_request(cmd, "ls", cmd->nargs ? cmd->args[0] : ".");

	if (!cmd->json && !ntr_cmd_opt(cmd, 'l'))
		return ntr_streamed(cmd, req, "entries", ls_print);
	return ntr_rows(cmd, ntr_req_stream(req), "entries", cols, NTR_COUNT(cols), ls_long);
}

int ntr_cat_main(struct ntr_cmd *cmd)
{
	static const int out = STDOUT_FILENO;
	int status = 0;

	for (size_t i = 0; i < cmd->nargs; i++) {
		struct ntr_err e = {0};
		int r = ntr_request(
		        cmd, file_request(cmd, "cat", cmd->args[i]), &out, 1, NULL, NULL, NULL, &e);

		if (r == -EPIPE)
			return 128 + SIGPIPE;
		if (r)
			status = ntr_cmd_fail(cmd, &e);
	}
	return status;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* What to put, its name there and its mode. */
struct source {
	int fd;
	mode_t mode;
};

static int put_open(const char *file, struct source *s)
{
	struct stat st;

	if (!strcmp(file, "-")) {
		mode_t mask = umask(0);

		umask(mask);
		s->mode = 0666 & ~mask;
		s->fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
		return s->fd < 0 ? -errno : 0;
	}
	s->fd = open(file, O_RDONLY | O_CLOEXEC);
	if (s->fd < 0 || fstat(s->fd, &st))
		return -errno;
	s->mode = st.st_mode & 07777;
	return S_ISDIR(st.st_mode) ? -EISDIR : 0;
}

static void put_print(const struct ntr_cmd *cmd, const json_t *reply)
{
	const char *commit = ntr_json_str(reply, "commit", NULL);
	char buf[NTR_HUMAN];

	(void)cmd;
	if (commit && *commit)
		puts(ntr_human_commit(commit, buf));
}

static int put_send(struct ntr_cmd *cmd, const char *path, const struct source *s)
{
	ntr_autojson json_t *reply = NULL;
	json_t *req = file_request(cmd, "put", path);
	struct ntr_err e = {0};

	if (json_object_set_new(req, "mode", json_integer((json_int_t)s->mode))) {
		json_decref(req);
		req = NULL;
	}
	if (ntr_request(cmd, req, &s->fd, 1, NULL, NULL, &reply, &e))
		return ntr_cmd_fail(cmd, &e);
	if (cmd->json)
		ntr_json_reply(reply);
	else
		put_print(cmd, reply);
	return 0;
}

int ntr_put_main(struct ntr_cmd *cmd)
{
	const char *file = cmd->args[0], *path = cmd->nargs > 1 ? cmd->args[1] : base_name(file);
	ntr_autofree char *inside = NULL;
	struct source s = {.fd = -1};
	int status, r;

	if (!strcmp(file, "-") && cmd->nargs < 2)
		return ntr_cmd_usage(cmd, "what comes from stdin needs a PATH");
	if (*path && path[strlen(path) - 1] == '/')
		path = inside = ntr_sprintf("%s%s", path, base_name(file));
	r = path ? put_open(file, &s) : -ENOMEM;
	if (r == -EISDIR)
		status = ntr_cmd_die(cmd, r, "a directory becomes a session with 'ntr new NAME --from DIR'",
		        "%s is a directory", file);
	else if (r)
		status = ntr_cmd_die(cmd, r, NULL, "%s: %s", file, strerror(-r));
	else
		status = put_send(cmd, path, &s);
	if (s.fd >= 0)
		close(s.fd);
	return status;
}

/* Where a file that comes out is written: beside its place under a temporary name, so that a failure leaves
 * what was there; stdout and what is no regular file (a device, a pipe) is written in place. */
struct target {
	int fd;
	char *path, *temp; /* temp NULL: in place */
};

static void target_done(struct target *t)
{
	if (t->fd >= 0)
		close(t->fd);
	if (t->temp)
		unlink(t->temp);
	free(t->path);
	free(t->temp);
}

static int target_open(const char *file, struct target *t)
{
	struct stat st;

	t->path = strdup(file);
	if (!t->path)
		return -ENOMEM;
	if (!strcmp(file, "-")) {
		t->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
		return t->fd < 0 ? -errno : 0;
	}
	if (!stat(file, &st) && !S_ISREG(st.st_mode)) {
		t->fd = open(file, O_WRONLY | O_CLOEXEC | O_NOCTTY);
		return t->fd < 0 ? -errno : 0;
	}
	t->temp = ntr_sprintf("%s.ntr-XXXXXX", file);
	if (!t->temp)
		return -ENOMEM;
	t->fd = mkostemp(t->temp, O_CLOEXEC);
	if (t->fd >= 0)
		return 0;
	free(t->temp);
	t->temp = NULL;
	return -errno;
}

static int target_commit(struct target *t, mode_t mode)
{
	if (!t->temp)
		return 0;
	if (fchmod(t->fd, mode & 0777) || rename(t->temp, t->path))
		return -errno;
	free(t->temp);
	t->temp = NULL;
	return 0;
}

/* get PATH [FILE]: FILE a directory means in it, "-" means stdout. */
static char *get_place(const struct ntr_cmd *cmd)
{
	const char *file = cmd->nargs > 1 ? cmd->args[1] : base_name(cmd->args[0]);
	struct stat st;

	if (strcmp(file, "-") && !stat(file, &st) && S_ISDIR(st.st_mode))
		return ntr_sprintf("%s/%s", file, base_name(cmd->args[0]));
	return strdup(file);
}

int ntr_get_main(struct ntr_cmd *cmd)
{
	ntr_auto(target_done) struct target t = {.fd = -1};
	ntr_autofree char *file = get_place(cmd);
	ntr_autojson json_t *reply = NULL;
	struct ntr_err e = {0};
	int r = file ? target_open(file, &t) : -ENOMEM;

	if (r)
		return ntr_cmd_die(cmd, r, NULL, "%s: %s", file ? file : "", strerror(-r));
	if (ntr_request(cmd, file_request(cmd, "get", cmd->args[0]), &t.fd, 1, NULL, NULL, &reply, &e))
		return ntr_cmd_fail(cmd, &e);
	r = target_commit(&t, (mode_t)ntr_json_int(reply, "mode", 0644));
	if (r)
		return ntr_cmd_die(cmd, r, NULL, "%s: %s", file, strerror(-r));
	if (cmd->json && strcmp(file, "-"))
		ntr_json_reply(reply);
	return 0;
}

/* The directory, made when missing; -ENOTEMPTY when something is in it. */
static int export_dir(const char *dir, bool *ret_made, int *ret_fd)
{
	struct dirent *d;
	DIR *list;
	int r;

	*ret_made = access(dir, F_OK) != 0;
	r = ntr_mkdir_p(dir, 0777);
	if (r && r != -EEXIST)
		return r;
	*ret_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*ret_fd < 0)
		return -errno;
	list = opendir(dir);
	if (!list)
		return -errno;
	do
		d = readdir(list);
	while (d && (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..")));
	r = d ? -ENOTEMPTY : 0;
	closedir(list);
	return r;
}

static int export_send(struct ntr_cmd *cmd, const char *format, const char *label, int fd)
{
	ntr_autojson json_t *reply = NULL;
	json_t *req = file_request(cmd, "export", NULL);
	struct ntr_err e = {0};
	int r;

	if (json_object_set_new(req, "format", json_string(format)) ||
	        json_object_set_new(req, "label", ntr_arg(label))) {
		json_decref(req);
		req = NULL;
	}
	r = ntr_request(cmd, req, &fd, 1, ntr_progress, NULL, &reply, &e);
	ntr_progress_end();
	if (r)
		return ntr_cmd_fail(cmd, &e);
	if (cmd->json && strcmp(ntr_cmd_opt(cmd, NTR_OPT_TAR) ?: "", "-"))
		ntr_json_reply(reply);
	return 0;
}

static int export_to_dir(struct ntr_cmd *cmd, const char *dir)
{
	ntr_autoclose int fd = -1;
	bool made;
	int r = export_dir(dir, &made, &fd);

	if (r == -ENOTEMPTY)
		return ntr_cmd_die(cmd, r, "give a new or empty directory", "%s is not empty", dir);
	if (r)
		return ntr_cmd_die(cmd, r, NULL, "%s: %s", dir, strerror(-r));
	r = export_send(cmd, "dir", dir, fd);
	if (r && made)
		rmdir(dir); /* where nothing came, nothing is left; what did come stays */
	return r;
}

static int export_to_tar(struct ntr_cmd *cmd, const char *file)
{
	ntr_auto(target_done) struct target t = {.fd = -1};
	mode_t mask = umask(0);
	int r, status;

	umask(mask);
	if (!strcmp(file, "-") && isatty(STDOUT_FILENO))
		return ntr_cmd_usage(cmd, "--tar - would write an archive to the terminal");
	r = target_open(file, &t);
	if (r)
		return ntr_cmd_die(cmd, r, NULL, "%s: %s", file, strerror(-r));
	status = export_send(cmd, "tar", file, t.fd);
	r = status ? 0 : target_commit(&t, 0666 & ~mask);
	return r ? ntr_cmd_die(cmd, r, NULL, "%s: %s", file, strerror(-r)) : status;
}

int ntr_export_main(struct ntr_cmd *cmd)
{
	const char *dir = ntr_cmd_opt(cmd, NTR_OPT_DIR), *tar = ntr_cmd_opt(cmd, NTR_OPT_TAR);

	if (!dir == !tar)
		return ntr_cmd_usage(cmd, "give either --dir DIR or --tar FILE");
	return dir ? export_to_dir(cmd, dir) : export_to_tar(cmd, tar);
}
