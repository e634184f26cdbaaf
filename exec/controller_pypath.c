/* controller_pypath: the names `python` and `python3` of a session's shell.
 *
 * STORE/python/NAME/ holds one or both of them as small scripts that start one interpreter. Scripts and not
 * symlinks: an interpreter finds its virtual environment by the path that it was started with. NAME comes
 * from that path, so a folder never changes, and whoever finds it may use it; all are removed when a daemon
 * starts. One that cannot be made (a full disk) costs a call nothing but the names. */
#include "controller_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <xxhash.h>

enum { FOLDER_MODE = 0755 };

int ntr_pypath_open(struct ntr_ctl *c)
{
	c->python_dir = ntr_sprintf("%s/python", ntr_store_path(c->store));
	if (!c->python_dir)
		return -ENOMEM;
	ntr_rm_rf(AT_FDCWD, c->python_dir);
	return 0;
}

/* A word of sh's that stands for text. */
static int add_quoted(struct ntr_buf *b, const char *text)
{
	ntr_buf_byte(b, '\'');
	for (; *text; text++)
		if (*text == '\'')
			ntr_buf_add(b, "'\\''", 4);
		else
			ntr_buf_byte(b, (uint8_t)*text);
	return ntr_buf_byte(b, '\'');
}

static int write_script(const char *dir, const char *name, const char *python)
{
	ntr_auto(ntr_buf_done) struct ntr_buf b = {0};
	ntr_autofree char *path = ntr_sprintf("%s/%s", dir, name);
	ntr_autoclose int fd = -1;

	if (!path)
		return -ENOMEM;
	ntr_buf_printf(&b, "#!/bin/sh\nexec ");
	add_quoted(&b, python);
	ntr_buf_printf(&b, " \"$@\"\n");
	if (b.err)
		return b.err;
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, FOLDER_MODE);
	if (fd < 0 || fchmod(fd, FOLDER_MODE))
		return -errno;
	return ntr_write_all(fd, b.data, b.len);
}

/* Under another name first: a call that finds the folder finds all of it. */
static int make(const struct ntr_ctl *c, const char *dir, const char *python)
{
	static const char *const names[] = {"python", "python3"};
	ntr_autofree char *tmp = NULL;
	uint64_t rnd = 0;
	int r = ntr_random(&rnd, sizeof rnd);

	if (r)
		return r;
	tmp = ntr_sprintf("%s/new.%016llx", c->python_dir, (unsigned long long)rnd);
	if (!tmp)
		return -ENOMEM;
	if ((mkdir(c->python_dir, FOLDER_MODE) && errno != EEXIST) || mkdir(tmp, 0700))
		return -errno;
	for (size_t i = 0; !r && i < NTR_COUNT(names); i++)
		if (strcmp(python, names[i]) != 0) /* it would start itself */
			r = write_script(tmp, names[i], python);
	if (!r && (chmod(tmp, FOLDER_MODE) || rename(tmp, dir)))
		r = -errno;
	if (r)
		ntr_rm_rf(AT_FDCWD, tmp);
	return r == -EEXIST || r == -ENOTEMPTY ? 0 : r; /* another call was quicker */
}

char *ntr_pypath_folder(const struct ntr_ctl *c, const char *wsroot, const char *python)
{
	bool inner = python[0] != '/' && strchr(python, '/');
	ntr_autofree char *full = inner ? ntr_sprintf("%s/%s", wsroot, python) : strdup(python);
	ntr_autofree char *dir = NULL;
	XXH128_hash_t h;

	if (!full || strchr(c->python_dir, ':'))
		return NULL;
	h = XXH3_128bits(full, strlen(full));
	dir = ntr_sprintf("%s/%016llx%016llx", c->python_dir, (unsigned long long)h.high64,
	        (unsigned long long)h.low64);
	if (!dir || (access(dir, F_OK) && make(c, dir, full)))
		return NULL;
	return ntr_steal_ptr(dir);
}
