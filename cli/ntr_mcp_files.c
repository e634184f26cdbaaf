/* mcp, files: the workspace as resources: each file below workspace://, and a listing of all of it. They are
 * read as they are now, also while a call runs. */
#include "ntr_mcp.h"

#include "../base/util.h"

#include <errno.h>
#include <fcntl.h>

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
	/* Without ':' and '@': what comes first would be taken for a host's port, or somebody's name at it.
	 */
	static const char plain[] = "-._~/!$&'()*+,;=";
	char *uri = malloc(strlen(SCHEME) + 3 * strlen(path) + 1), *p;

	if (!uri)
		return NULL;
	p = stpcpy(uri, SCHEME);
	if (!strcmp(path, TREE)) /* a file that only is called so */
		p = stpcpy(p, "%2D"), path++;
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
	c = (char)(c | 32);
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
		if (*uri == '%' && hex(uri[1]) >= 0 && hex(uri[2]) >= 0) {
			*p++ = (char)(hex(uri[1]) << 4 | hex(uri[2]));
			uri += 2;
		} else {
			*p++ = *uri;
		}
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

/* A line stays one line whatever the name. */
static int add_path(struct ntr_buf *b, const char *path)
{
	int r = 0;

	for (const unsigned char *p = (const unsigned char *)path; !r && *p; p++)
		r = *p < ' ' || *p == 0x7f ? ntr_buf_printf(b, "\\%03o", *p) : ntr_buf_add(b, p, 1);
	return r;
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
	r = add_path(&w->out, path);
	if (r)
		return r;
	if (strcmp(type, "dir") != 0)
		return ntr_buf_printf(&w->out, "%s  (%lld bytes)\n", !strcmp(type, "symlink") ? " ->" : "",
		        (long long)ntr_json_int(en, "size", 0));
	if (is_heap(name) || depth > 40)
		return ntr_buf_str(&w->out, "/  (not listed)\n");
	r = ntr_buf_str(&w->out, "/\n");
	return r ? r : walk_dir(w, path, depth + 1);
}

static int walk_dir(struct walk *w, const char *path, unsigned depth)
{
	ntr_autojson json_t *reply = NULL;
	const json_t *en;
	size_t i;
	int r = ntr_mcp_ask(w->job, path_request(w->job, "ls", path), &reply, w->e);

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

	if (r == -ENOENT && !*path) /* the session will be made by its first call */
		r = 0;
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

/* What a name says counts only where the content can be that. */
static const char *mime_of(const char *path, bool text)
{
	static const struct {
		const char *end, *mime;
		bool text;
	} known[] = {{".html", "text/html", true}, {".css", "text/css", true},
	        {".js", "text/javascript", true}, {".md", "text/markdown", true}, {".csv", "text/csv", true},
	        {".py", "text/x-python", true}, {".json", "application/json", true},
	        {".xml", "application/xml", true}, {".svg", "image/svg+xml", true},
	        {".png", "image/png", false}, {".jpg", "image/jpeg", false}, {".jpeg", "image/jpeg", false},
	        {".gif", "image/gif", false}, {".webp", "image/webp", false},
	        {".pdf", "application/pdf", false}, {".zip", "application/zip", false},
	        {".gz", "application/gzip", false}};
	size_t n = strlen(path);

	for (size_t i = 0; i < NTR_COUNT(known); i++) {
		size_t k = strlen(known[i].end);

		if (known[i].text == text && n > k && !strcasecmp(path + n - k, known[i].end))
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

/* A file comes through a pipe: of one that is too large no more is taken than shows it. */
struct file {
	int in, out;
	struct ntr_buf data;
	bool large;
};

static void file_take(void *user)
{
	struct file *f = user;
	ssize_t n = 1;

	close(ntr_steal_fd(&f->out)); /* the daemon's is the last then */
	while (n > 0 && f->data.len <= FILE_MAX && !ntr_buf_reserve(&f->data, 65536)) {
		n = read(f->in, f->data.data + f->data.len, 65536);
		if (n < 0 && errno == EINTR)
			n = 1;
		else if (n > 0)
			f->data.len += (size_t)n;
	}
	f->large = f->data.len > FILE_MAX;
	close(ntr_steal_fd(&f->in));
}

static void file_done(struct file *f)
{
	if (f->in >= 0)
		close(f->in);
	if (f->out >= 0)
		close(f->out);
	ntr_buf_done(&f->data);
}

static int file_open(struct file *f, const char *path, struct ntr_err *e)
{
	int fds[2];

	*f = (struct file){.in = -1, .out = -1};
	if (pipe2(fds, O_CLOEXEC))
		return ntr_err_set(e, -errno, "read %s", path);
	f->in = fds[0];
	f->out = fds[1];
	return 0;
}

static json_t *read_file(
        struct ntr_mcp_job *job, const char *uri, const char *path, struct ntr_mcp_error *err)
{
	ntr_auto(file_done) struct file f;
	ntr_autojson json_t *reply = NULL;
	struct ntr_err e = {0};
	int out, r = file_open(&f, path, &e);

	out = f.out;
	if (!r)
		r = ntr_mcp_ask_feed(job, path_request(job, "cat", path), &out, 1, file_take, &f, &reply, &e);
	if (r == -EISDIR)
		return read_tree(job, uri, path, err);
	if (f.large) {
		snprintf(err->text, sizeof err->text,
		        "%s is larger than %d MiB; read it in parts with the terminal", path, FILE_MAX >> 20);
		return NULL;
	}
	if (r)
		return ntr_mcp_work_failed(
		        err, r == -ENOENT || r == -ENOTDIR ? NTR_RPC_NOT_FOUND : NTR_RPC_INTERNAL, &e);
	return f.data.err ? NULL
	                  : file_contents(uri, path, f.data.len ? (char *)f.data.data : "", f.data.len);
}

json_t *ntr_mcp_resources_read(struct ntr_mcp *s, struct ntr_mcp_job *job, struct ntr_mcp_error *err)
{
	const char *uri = ntr_json_str(job->req.params, "uri", "");
	ntr_autofree char *path = path_of(uri);

	(void)s;
	if (!path || !*path) {
		err->code = *uri ? NTR_RPC_NOT_FOUND : NTR_RPC_PARAMS;
		snprintf(err->text, sizeof err->text,
		        "a resource has a URI of the form " SCHEME "PATH; " SCHEME TREE " lists them");
		return NULL;
	}
	return strcmp(uri, SCHEME TREE) ? read_file(job, uri, path, err) : read_tree(job, uri, "", err);
}
