/* mcp, files: the workspace as resources: each file below workspace://, and a listing of all of it. They are
 * read as they are now, also while a call runs. */
#include "ntr_mcp.h"

#include "../base/util.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define SCHEME "workspace://"
#define TREE   "-/tree"

enum { TREE_ENTRIES = 5000, FILE_MAX = 16 << 20 };

json_t *ntr_mcp_resources(void)
{
	return json_pack("{s:[{s:s,s:s,s:s,s:s}]}", "resources", "uri", SCHEME TREE, "name", "tree",
	        "description", "All files of the workspace, one a line, with their sizes.", "mimeType",
	        "text/plain");
}

json_t *ntr_mcp_templates(void)
{
	return json_pack("{s:[{s:s,s:s,s:s}]}", "resourceTemplates", "uriTemplate", SCHEME "{path}", "name",
	        "file", "description", "A file of the workspace by its path, relative to the workspace.");
}

/* ---- URIs */

char *ntr_mcp_uri(const char *path)
{
	static const char plain[] = "-._~/!$&'()*+,;=:@";
	char *uri = malloc(strlen(SCHEME) + 3 * strlen(path) + 1), *p;

	if (!uri)
		return NULL;
	p = stpcpy(uri, SCHEME);
	for (; *path; path++) {
		unsigned char c = (unsigned char)*path;

		if (c < 0x80 &&
		        (strchr(plain, c) || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z')))
			*p++ = (char)c;
		else
			p += sprintf(p, "%%%02X", c);
	}
	*p = '\0';
	return uri;
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 32;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The path that a URI names, in fresh memory. NULL: none. */
static char *path_of(const char *uri)
{
	char *path, *p;

	if (strncmp(uri, SCHEME, strlen(SCHEME)) != 0)
		return NULL;
	uri += strlen(SCHEME);
	path = p = malloc(strlen(uri) + 1);
	if (!path)
		return NULL;
	for (; *uri; uri++) {
		bool coded = *uri == '%' && hex(uri[1]) >= 0 && hex(uri[2]) >= 0;

		*p++ = coded ? (char)(hex(uri[1]) << 4 | hex(uri[2])) : *uri;
		if (coded)
			uri += 2;
	}
	*p = '\0';
	if (strlen(path) != (size_t)(p - path)) { /* a NUL inside */
		free(path);
		return NULL;
	}
	return path;
}

/* ---- the tree */

/* What others made, and nobody reads as a list: named, not entered. */
static bool is_heap(const char *name)
{
	static const char *const names[] = {
	        ".git", "node_modules", "__pycache__", ".venv", "venv", ".cache", NULL};

	for (size_t i = 0; names[i]; i++)
		if (!strcmp(names[i], name))
			return true;
	return false;
}

struct walk {
	struct ntr_mcp_job *job;
	struct ntr_buf out;
	unsigned entries;
	struct ntr_err *e;
};

static json_t *path_request(const struct ntr_mcp_job *job, const char *op, const char *path)
{
	const char *session = job->lane->s->session;

	return json_pack("{s:s,s:s,s:o}", "op", op, "session", session, "path", ntr_arg(path));
}

static int walk_dir(struct walk *w, const char *path, unsigned depth);

static int walk_entry(struct walk *w, const char *dir, const json_t *en, unsigned depth)
{
	ntr_autofree char *name = NULL, *path = NULL;
	const char *type = ntr_json_str(en, "type", "");
	int r = ntr_json_get_bytes(json_object_get(en, "name"), &name, NULL);

	if (r)
		return r;
	path = ntr_sprintf("%s%s%s", dir, *dir ? "/" : "", name);
	if (!path)
		return -ENOMEM;
	w->entries++;
	if (strcmp(type, "dir") != 0)
		return ntr_buf_printf(&w->out, "%s%s  (%lld bytes)\n", path,
		        !strcmp(type, "symlink") ? " ->" : "", (long long)ntr_json_int(en, "size", 0));
	if (is_heap(name) || depth > 40)
		return ntr_buf_printf(&w->out, "%s/  (not listed)\n", path);
	r = ntr_buf_printf(&w->out, "%s/\n", path);
	return r ? r : walk_dir(w, path, depth + 1);
}

static int walk_dir(struct walk *w, const char *path, unsigned depth)
{
	ntr_autojson json_t *reply = NULL;
	const json_t *en;
	size_t i;
	int r = ntr_mcp_ask(w->job, path_request(w->job, "ls", path), NULL, 0, &reply, w->e);

	if (r == -ENOENT && depth) /* gone since it was listed */
		return 0;
	json_array_foreach (json_object_get(reply, "entries"), i, en) {
		if (r || w->entries >= TREE_ENTRIES)
			break;
		r = walk_entry(w, path, en, depth);
	}
	return r;
}

/* ---- contents */

static json_t *contents(const char *uri, const char *mime, const char *key, json_t *value)
{
	return json_pack("{s:[{s:s,s:s,s:o}]}", "contents", "uri", uri, "mimeType", mime, key, value);
}

static json_t *read_tree(
        struct ntr_mcp_job *job, const char *uri, const char *path, struct ntr_mcp_error *err)
{
	struct ntr_err e = {0};
	struct walk w = {.job = job, .e = &e};
	json_t *result;
	int r = walk_dir(&w, path, 0);

	if (!r && w.entries >= TREE_ENTRIES)
		r = ntr_buf_printf(
		        &w.out, "[only the first %d entries; use the terminal for more]\n", TREE_ENTRIES);
	if (r) {
		ntr_buf_done(&w.out);
		return ntr_mcp_work_failed(err, r == -ENOENT ? NTR_RPC_NOT_FOUND : NTR_RPC_INTERNAL, &e);
	}
	result = contents(
	        uri, "text/plain", "text", ntr_json_text(w.out.len ? (char *)w.out.data : "", w.out.len));
	ntr_buf_done(&w.out);
	return result;
}

static const char *mime_of(const char *path, bool text)
{
	static const struct {
		const char *end, *mime;
	} known[] = {{".html", "text/html"}, {".css", "text/css"}, {".js", "text/javascript"},
	        {".md", "text/markdown"}, {".csv", "text/csv"}, {".py", "text/x-python"},
	        {".json", "application/json"}, {".xml", "application/xml"}, {".svg", "image/svg+xml"},
	        {".png", "image/png"}, {".jpg", "image/jpeg"}, {".jpeg", "image/jpeg"}, {".gif", "image/gif"},
	        {".webp", "image/webp"}, {".pdf", "application/pdf"}, {".zip", "application/zip"},
	        {".gz", "application/gzip"}};
	size_t n = strlen(path);

	for (size_t i = 0; i < NTR_COUNT(known); i++) {
		size_t k = strlen(known[i].end);

		if (n > k && !strcasecmp(path + n - k, known[i].end))
			return known[i].mime;
	}
	return text ? "text/plain" : "application/octet-stream";
}

/* Text where it is UTF-8 without a NUL, else base64. */
static json_t *file_contents(const char *uri, const char *path, const char *p, size_t n)
{
	ntr_autojson json_t *text = memchr(p, '\0', n) ? NULL : json_stringn(p, n), *b64 = NULL;

	if (text)
		return contents(uri, mime_of(path, true), "text", json_incref(text));
	b64 = ntr_json_base64(p, n);
	return contents(uri, mime_of(path, false), "blob", json_incref(json_object_get(b64, "base64")));
}

static json_t *map_contents(const char *uri, const char *path, int fd, struct ntr_mcp_error *err)
{
	struct stat st;
	json_t *result;
	void *p;

	if (fstat(fd, &st) || st.st_size > FILE_MAX) {
		snprintf(err->text, sizeof err->text,
		        "%s is larger than %d MiB; read it in parts with the terminal", path, FILE_MAX >> 20);
		return NULL;
	}
	if (!st.st_size)
		return file_contents(uri, path, "", 0);
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		return NULL;
	result = file_contents(uri, path, p, (size_t)st.st_size);
	munmap(p, (size_t)st.st_size);
	return result;
}

static json_t *read_file(
        struct ntr_mcp_job *job, const char *uri, const char *path, struct ntr_mcp_error *err)
{
	ntr_autoclose int fd = memfd_create("ntr-mcp", MFD_CLOEXEC);
	ntr_autojson json_t *reply = NULL;
	struct ntr_err e = {0};
	int r = fd < 0 ? ntr_err_set(&e, -errno, "read %s", path) : 0;

	if (!r)
		r = ntr_mcp_ask(job, path_request(job, "cat", path), &fd, 1, &reply, &e);
	if (r == -EISDIR)
		return read_tree(job, uri, path, err);
	if (r)
		return ntr_mcp_work_failed(
		        err, r == -ENOENT || r == -ENOTDIR ? NTR_RPC_NOT_FOUND : NTR_RPC_INTERNAL, &e);
	return map_contents(uri, path, fd, err);
}

json_t *ntr_mcp_resources_read(struct ntr_mcp *s, struct ntr_mcp_job *job, struct ntr_mcp_error *err)
{
	const char *uri = ntr_json_str(job->params, "uri", "");
	ntr_autofree char *path = path_of(uri);

	(void)s;
	if (!path || !*path) {
		err->code = *uri ? NTR_RPC_NOT_FOUND : NTR_RPC_PARAMS;
		snprintf(err->text, sizeof err->text,
		        "a resource has a URI of the form " SCHEME "PATH; " SCHEME TREE " lists them");
		return NULL;
	}
	return strcmp(path, TREE) ? read_file(job, uri, path, err) : read_tree(job, uri, "", err);
}
