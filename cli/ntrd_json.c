/* Rows: commits, sessions, differences as JSON. */
#include "ntrd.h"

#include "../base/util.h"
#include "../exec/controller.h"

json_t *ntrd_json_hex(const char *hex)
{
	return hex && hex[0] ? json_string(hex) : json_null();
}

static json_t *time_json(uint64_t wall_ns)
{
	char buf[32];

	ntr_time_format(wall_ns, buf);
	return json_string(buf);
}

/* The public name of a commit; null for none, or one that is no longer there. */
static json_t *commit_hex(struct ntr_ctl *ctl, uint64_t id)
{
	ntr_auto(ntr_commit_done) struct ntr_commit c = {0};

	if (!id || ntr_commit_get(ntr_ctl_store(ctl), id, &c, NULL))
		return json_null();
	return json_string(c.hex);
}

static json_t *session_name(struct ntr_ctl *ctl, uint64_t sid)
{
	struct ntr_head h;

	return ntr_session_by_id(ntr_ctl_store(ctl), sid, &h, NULL) ? json_null() : json_string(h.name);
}

static json_t *parents_json(struct ntr_ctl *ctl, const struct ntr_commit *c)
{
	ntr_autojson json_t *a = json_array();

	for (int i = 0; a && i < c->nparents; i++)
		if (json_array_append_new(a, commit_hex(ctl, c->parent[i])))
			return NULL;
	return ntr_steal_ptr(a);
}

/* The description first: what the store itself knows overrides it. */
json_t *ntrd_row_commit(struct ntr_ctl *ctl, const struct ntr_commit *c)
{
	struct ntr_commit counted = *c;
	int r = ntr_ctl_count(ctl, &counted);
	ntr_autojson json_t *fixed = json_pack("{s:s,s:o,s:o,s:I,s:o,s:o,s:I,s:I,s:I}", "commit", c->hex,
	        "parents", parents_json(ctl, c), "session", session_name(ctl, c->sid), "seq",
	        (json_int_t)c->seq, "time", time_json(c->time_ns), "changes",
	        r ? json_null() : ntr_stats_json(&counted.stats), "inodes", (json_int_t)c->inodes, "bytes",
	        (json_int_t)c->bytes, "root", (json_int_t)c->root);
	ntr_autojson json_t *desc = c->desc ? json_loads(c->desc, JSON_ALLOW_NUL, NULL) : NULL;

	if (!fixed)
		return NULL;
	if (json_is_object(desc) && json_object_update_missing(fixed, desc))
		return NULL;
	return ntr_steal_ptr(fixed);
}

json_t *ntrd_row_session(struct ntr_ctl *ctl, const struct ntr_head *h)
{
	ntr_autojson json_t *row = json_pack("{s:s,s:o,s:o,s:I,s:I,s:o,s:s,s:o}", "name", h->name, "head",
	        commit_hex(ctl, h->commit), "origin", commit_hex(ctl, h->origin), "inodes",
	        (json_int_t)h->inodes, "bytes", (json_int_t)h->bytes, "wsroot",
	        ntr_json_bytes(h->wsroot, strlen(h->wsroot)), "durability",
	        h->durability == NTR_RELAXED_DURABILITY ? "relaxed" : "fsync", "created",
	        time_json(h->created_ns));
	ntr_autojson json_t *info = ntr_ctl_session_info(ctl, h);

	if (!row || !info || json_object_update_missing(row, info) ||
	        json_object_set_new(row, "mounts", ntr_ctl_mounts(ctl, h)))
		return NULL;
	return ntr_steal_ptr(row);
}

static json_t *what_json(unsigned what)
{
	static const struct {
		unsigned bit;
		const char *word;
	} words[] = {{NTR_DIFF_CONTENT, "content"}, {NTR_DIFF_MODE, "mode"}, {NTR_DIFF_OWNER, "owner"},
	        {NTR_DIFF_XATTR, "xattr"}, {NTR_DIFF_MTIME, "mtime"}, {NTR_DIFF_LINKS, "links"},
	        {NTR_DIFF_OTHER, "other"}};
	ntr_autojson json_t *a = json_array();

	for (size_t i = 0; a && i < NTR_COUNT(words); i++)
		if ((what & words[i].bit) && json_array_append_new(a, json_string(words[i].word)))
			return NULL;
	return ntr_steal_ptr(a);
}

json_t *ntrd_row_diff(const struct ntr_diff_entry *en)
{
	return json_pack("{s:o,s:s,s:o,s:I,s:I}", "path", ntr_json_bytes(en->path, strlen(en->path)), "kind",
	        ntr_diff_kind_word(en->kind), "what", what_json(en->what), "old_mode",
	        (json_int_t)en->old_mode, "new_mode", (json_int_t)en->new_mode);
}

json_t *ntrd_rows_diff(const struct ntr_diff *d)
{
	ntr_autojson json_t *a = json_array();

	for (size_t i = 0; a && i < d->n; i++)
		if (json_array_append_new(a, ntrd_row_diff(&d->v[i])))
			return NULL;
	return ntr_steal_ptr(a);
}

json_t *ntrd_json_output(const void *p, size_t n)
{
	const uint8_t *s = p;
	size_t len = n;

	for (size_t i = 0; i < n; i++)
		len += s[i] == '"' || s[i] == '\\' || (s[i] < 0x20 && s[i] != '\n') ? 5 : s[i] == '\n';
	/* two streams of the largest budget must fit into a frame */
	return len > NTR_WIRE_MAX / 3 ? ntr_json_base64(p, n) : ntr_json_bytes(n ? p : "", n);
}
