/* init_py_path: what a call's PATH gets here, where the session's own view of the files is: the programs of a
 * virtual environment in the workspace, and the name `python` where there is `python3` alone. */
#include "init_py_impl.h"

#include <errno.h>
#include <stdio.h>

char *ntr_initpy_find(const char *name, const char *path)
{
	for (const char *s = path; *s;) {
		size_t n = strcspn(s, ":");
		char *full = *s == '/' ? ntr_sprintf("%.*s/%s", (int)n, s, name) : NULL;

		if (full && !access(full, X_OK))
			return full;
		free(full);
		s += n + (s[n] == ':');
	}
	return NULL;
}

char *ntr_initpy_venv(const struct ntr_init *in)
{
	char *bin = ntr_sprintf("%s/.venv/bin", in->wsroot);
	ntr_autofree char *python = bin ? ntr_sprintf("%s/python", bin) : NULL;

	if (python && !access(python, X_OK))
		return bin;
	free(bin);
	return NULL;
}

void ntr_initpy_names_done(struct ntr_initpy_names *n)
{
	free(n->path);
	free(n->proof);
	*n = (struct ntr_initpy_names){0};
}

/* Whether there is python3 in the PATH and no python. What was found for a PATH holds as long as the file
 * that decided it is there. */
static bool lacks_python(struct ntr_initpy_names *n, const char *path)
{
	if (n->path && !strcmp(n->path, path) && !access(n->proof, X_OK))
		return n->lacks;
	ntr_initpy_names_done(n);
	n->proof = ntr_initpy_find("python", path);
	if (!n->proof) {
		n->proof = ntr_initpy_find("python3", path);
		n->lacks = n->proof != NULL;
	}
	n->path = n->proof ? strdup(path) : NULL; /* NULL: looked at again the next time */
	return n->lacks;
}

/* The end of the first n directories, with the colon behind them. */
static const char *behind(const char *path, int n)
{
	for (; n > 0 && *path; n--) {
		path += strcspn(path, ":");
		path += *path == ':';
	}
	return path;
}

static int set(char **var, char *value)
{
	if (!value)
		return -ENOMEM;
	free(*var);
	*var = value;
	return 0;
}

static int add_venv(const char *bin, int first, char **var)
{
	const char *rest = behind(*var + 5, first);
	size_t n = strlen(bin);

	if (!strncmp(rest, bin, n) && (!rest[n] || rest[n] == ':'))
		return 0;
	return set(var, ntr_sprintf("%.*s%s:%s", (int)(rest - *var), *var, bin, rest));
}

int ntr_initpy_path(struct ntr_init *in, const json_t *msg, char **env)
{
	ntr_autofree char *venv = ntr_initpy_venv(in), *last = NULL;
	int first = (int)ntr_json_int(msg, "path_first", 0), r = 0;

	ntr_json_get_bytes(json_object_get(msg, "path_last"), &last, NULL);
	while (*env && strncmp(*env, "PATH=", 5) != 0)
		env++;
	if (!*env)
		return 0;
	if (venv)
		r = add_venv(venv, first, env);
	if (!r && last && lacks_python(&in->py_names, *env + 5))
		r = set(env, ntr_sprintf("%s:%s", *env, last));
	return r;
}
