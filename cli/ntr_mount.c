/* mount, umount: a session's files at a directory of the host.
 *
 * Root gets a detached mount from the daemon and attaches it here, in the namespace the command runs in. An
 * ordinary user mounts by fusermount3, and the daemon serves what that hands over. */
#include "ntr.h"

#include "../base/fusemount.h"
#include "../base/fusermount.h"
#include "../base/util.h"

#include <errno.h>
#include <limits.h>
#include <sys/mount.h>
#include <sys/stat.h>

static int fusermount_missing(const struct ntr_cmd *cmd, int r)
{
	bool missing = r == -ENOENT || r == -EACCES;

	return ntr_cmd_die(cmd, r, missing ? "install the package fuse3" : NULL, "cannot run fusermount3: %s",
	        strerror(-r));
}

/* Mounts at dir. 0 with the descriptor, or the exit status after a complaint. */
static int fuse_mount(const struct ntr_cmd *cmd, const char *dir, bool ro, int *ret_fd)
{
	ntr_autofree char *opts =
	        ntr_sprintf("%s,nosuid,nodev,default_permissions,fsname=ntr,subtype=ntr,max_read=1048576",
	                ro ? "ro" : "rw");
	char text[512] = "";
	int r = opts ? ntr_fusermount(dir, opts, ret_fd, text, sizeof text) : -ENOMEM;

	if (r && r != -EPERM)
		return fusermount_missing(cmd, r);
	if (!r)
		return 0;
	return ntr_cmd_die(cmd, -EPERM, "'ntr doctor' tells what is missing", "cannot mount at %s: %s", dir,
	        text[0] ? text : "fusermount3 failed");
}

/* Takes a mount away whose server did not come. */
static void fuse_undo(const char *dir)
{
	char text[64];

	ntr_fusermount_end(dir, true, text, sizeof text);
}

static json_t *mount_request(const char *session, const char *rev, const char *dir)
{
	json_t *req =
	        json_pack("{s:s,s:o,s:o}", "op", "mount", "session", ntr_arg(session), "where", ntr_arg(dir));

	if (req && rev && json_object_set_new(req, "rev", ntr_arg(rev))) {
		json_decref(req);
		return NULL;
	}
	return req;
}

static int mount_root(struct ntr_cmd *cmd, json_t *req, const char *dir, json_t **ret)
{
	ntr_autoclose int fd = -1;
	struct ntr_err e = {0};

	if (ntr_request(cmd, req, NULL, 0, NULL, NULL, ret, &e))
		return ntr_cmd_fail(cmd, &e);
	fd = ntr_conn_take_fd(cmd->conn);
	if (fd < 0)
		return ntr_cmd_die(cmd, -EPROTO, NULL, "the daemon sent no mount");
	if (move_mount(fd, "", AT_FDCWD, dir, MOVE_MOUNT_F_EMPTY_PATH))
		return ntr_cmd_die(cmd, -errno, NULL, "cannot mount at %s: %s", dir, strerror(errno));
	return 0;
}

static int mount_user(struct ntr_cmd *cmd, json_t *req, const char *dir, bool ro, json_t **ret)
{
	ntr_autojson json_t *owned = req;
	ntr_autoclose int fd = -1;
	struct ntr_err e = {0};
	int r;

	/* A daemon that cannot be reached is to be known before there is a mount. */
	if (ntr_conn_open(cmd->store, "mount", true, &cmd->conn, &e))
		return ntr_cmd_fail(cmd, &e);
	r = fuse_mount(cmd, dir, ro, &fd);
	if (r)
		return r;
	if (!ntr_request(cmd, ntr_steal_ptr(owned), &fd, 1, NULL, NULL, ret, &e))
		return 0;
	fuse_undo(dir);
	return ntr_cmd_fail(cmd, &e);
}

int ntr_mount_main(struct ntr_cmd *cmd)
{
	ntr_autofree char *session = NULL;
	ntr_autofree char *dir = realpath(cmd->args[1], NULL);
	ntr_autojson json_t *reply = NULL;
	const char *rev = NULL;
	struct stat st;
	int status;

	if (!dir || stat(dir, &st))
		return ntr_cmd_die(cmd, -errno, errno == ENOENT ? "make the directory first" : NULL, "%s: %s",
		        cmd->args[1], strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return ntr_cmd_die(cmd, -ENOTDIR, NULL, "%s: %s", dir, strerror(ENOTDIR));
	if (ntr_parse_rev(cmd->args[0], &session, &rev))
		return ntr_cmd_die(cmd, -ENOMEM, NULL, "%s", strerror(ENOMEM));
	if (geteuid())
		status = mount_user(cmd, mount_request(session, rev, dir), dir, rev != NULL, &reply);
	else
		status = mount_root(cmd, mount_request(session, rev, dir), dir, &reply);
	if (!status && cmd->json)
		ntr_json_reply(reply);
	return status;
}

/* mountinfo writes blanks and the like as \ooo. */
static void unescape(char *s)
{
	char *out = s;

	while (*s) {
		if (s[0] == '\\' && strspn(s + 1, "01234567") >= 3) {
			*out++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 4;
		} else {
			*out++ = *s++;
		}
	}
	*out = '\0';
}

/* The type of the topmost mount at dir, in type; "" when it is no mount point. */
static int mount_type(const char *dir, char type[64])
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	ntr_autofree char *line = NULL;
	size_t size = 0;

	if (!f)
		return -errno;
	type[0] = '\0';
	while (getline(&line, &size, f) > 0) {
		char *at = NULL, *dash = strstr(line, " - ");

		if (!dash || sscanf(line, "%*d %*d %*s %*s %ms", &at) != 1)
			continue;
		unescape(at);
		if (!strcmp(at, dir))
			sscanf(dash + 3, "%63s", type);
		free(at);
	}
	fclose(f);
	return 0;
}

/* The absolute path of a mount point, also of a dead one, whose own directory answers errors. */
static char *mount_path(const char *dir)
{
	char *path = realpath(dir, NULL), *slash;
	ntr_autofree char *copy = NULL, *parent = NULL;

	if (path || (errno != ENOTCONN && errno != ECONNABORTED && errno != EACCES))
		return path;
	copy = strdup(dir);
	for (size_t n = copy ? strlen(copy) : 0; n > 1 && copy[n - 1] == '/'; n--)
		copy[n - 1] = '\0';
	slash = copy ? strrchr(copy, '/') : NULL;
	if (slash)
		*slash = '\0';
	parent = copy ? realpath(slash == copy ? "/" : slash ? copy : ".", NULL) : NULL;
	return parent ? ntr_sprintf("%s/%s", strcmp(parent, "/") ? parent : "", slash ? slash + 1 : copy)
	              : NULL;
}

static int umount_busy(const struct ntr_cmd *cmd, const char *dir)
{
	return ntr_cmd_die(cmd, -EBUSY,
	        "end or leave what uses it ('fuser -vm DIR' shows it), then try again", "%s is in use", dir);
}

static int umount_user(const struct ntr_cmd *cmd, const char *dir)
{
	char text[512] = "";
	int r;

	/* Who only passes by is busy, too. */
	for (int i = 0; (r = ntr_fusermount_end(dir, false, text, sizeof text)) == -EBUSY && i < 4; i++)
		usleep(50000);
	if (!r)
		return 0;
	if (r == -EBUSY)
		return umount_busy(cmd, dir);
	if (r != -EPERM)
		return fusermount_missing(cmd, r);
	return ntr_cmd_die(cmd, r, NULL, "%s: %s", dir, text[0] ? text : "fusermount3 failed");
}

int ntr_umount_main(struct ntr_cmd *cmd)
{
	ntr_autofree char *dir = mount_path(cmd->args[0]);
	char type[64];
	int r = dir ? mount_type(dir, type) : -errno;

	if (r)
		return ntr_cmd_die(cmd, r, NULL, "%s: %s", cmd->args[0], strerror(-r));
	if (!type[0])
		return ntr_cmd_die(cmd, -EINVAL, NULL, "%s is no mount point", dir);
	if (strncmp(type, "fuse", 4) && strcmp(type, "overlay"))
		return ntr_cmd_die(
		        cmd, -EINVAL, "use umount(8)", "%s is a mount of type %s, not ntr's", dir, type);
	if (geteuid())
		return umount_user(cmd, dir);
	r = ntr_umount(dir, UMOUNT_NOFOLLOW);
	return !r            ? 0
	       : r == -EBUSY ? umount_busy(cmd, dir)
	                     : ntr_cmd_die(cmd, r, NULL, "%s: %s", dir, strerror(-r));
}
