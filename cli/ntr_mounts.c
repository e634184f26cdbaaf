/* mounts: --mount POINT=DIR[:rw]. DIR is resolved here, where the user is: the daemon gets its path without
 * symlinks, and which directory it has to find there. */
#include "ntr_call.h"

#include "../base/util.h"

#include <errno.h>
#include <sys/stat.h>

/* Takes ":rw" or ":ro" off dir. */
static bool is_writable(char *dir)
{
	size_t n = strlen(dir);
	bool rw = n > 3 && !strcmp(dir + n - 3, ":rw");

	if (rw || (n > 3 && !strcmp(dir + n - 3, ":ro")))
		dir[n - 3] = '\0';
	return rw;
}

static int add(struct ntr_cmd *cmd, json_t *list, const char *arg)
{
	ntr_autofree char *point = strndup(arg, strcspn(arg, "=")), *dir = NULL, *real = NULL;
	const char *eq = strchr(arg, '=');
	struct stat st = {0};
	json_t *m;
	bool rw;

	if (!eq || eq == arg)
		return ntr_cmd_usage(cmd, "--mount '%s' is not POINT=DIR[:rw]", arg);
	if (arg[0] != '/')
		return ntr_cmd_usage(cmd, "--mount '%s': the point is no absolute path", arg);
	dir = strdup(eq + 1);
	if (!dir || !point)
		return ntr_cmd_die(cmd, -ENOMEM, NULL, "%s", strerror(ENOMEM));
	rw = is_writable(dir);
	real = *dir ? realpath(dir, NULL) : strdup("");
	if (!real || (*dir && stat(real, &st)))
		return ntr_cmd_die(cmd, -errno, errno == ENOENT ? "make the directory first" : NULL,
		        "--mount %s: %s: %s", arg, dir, strerror(errno));
	if (*dir && !S_ISDIR(st.st_mode))
		return ntr_cmd_die(cmd, -ENOTDIR, NULL, "--mount %s: %s is no directory", arg, dir);
	m = json_pack("{s:o,s:o,s:b}", "point", ntr_arg(point), "dir", ntr_arg(real), "rw", (int)rw);
	if (m && *dir) {
		json_object_set_new(m, "dev", json_integer((json_int_t)st.st_dev));
		json_object_set_new(m, "ino", json_integer((json_int_t)st.st_ino));
	}
	return json_array_append_new(list, m) ? ntr_cmd_die(cmd, -ENOMEM, NULL, "%s", strerror(ENOMEM)) : 0;
}

int ntr_call_mounts(struct ntr_cmd *cmd, json_t *req)
{
	ntr_autojson json_t *list = json_array();
	int r = list ? 0 : -ENOMEM;

	for (size_t i = 0; !r && i < cmd->nopts; i++)
		if (cmd->opts[i].key == NTR_OPT_MOUNT)
			r = add(cmd, list, cmd->opts[i].value);
	if (r || !json_array_size(list))
		return r;
	return json_object_set(req, "mounts", list) ? -ENOMEM : 0;
}
