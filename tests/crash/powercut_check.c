/* powercut_check: opens stores as a power failure may have left them, and tells what is in them. One job a
 * line on stdin:
 *
 *     DIR HEX…        the store's directory, and commits to look for
 *
 * One JSON object a line on stdout: {"error"|"warning": text, "problems": [text], "commits": [bool],
 * "sessions": {name: {"head": hex, "upper": n, "reaches": [hex]}}}. "reaches": which of the commits are in
 * the head's history. The store is opened for writing, checked, written to, closed, and opened once more:
 * what was acknowledged then must be there, too. */
#include "base/json.h"
#include "fs/fsck.h"
#include "fs/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WANTED_MAX = 4096 };

struct job {
	struct ntr_store *store;
	json_t *out;
	const char *hex[WANTED_MAX];
	uint64_t id[WANTED_MAX]; /* 0: not there */
	size_t n;
	char made[NTR_COMMIT_HEX + 1]; /* the commit that was written after the recovery */
};

static void say(struct job *j, const char *key, const struct ntr_err *e)
{
	char line[2048];

	ntr_err_format(e, line, sizeof line);
	json_object_set_new(j->out, key, json_string(line));
}

static void problem(void *user, const char *text)
{
	struct job *j = user;
	json_t *list = json_object_get(j->out, "problems");

	json_array_append_new(list, ntr_json_text(text, strlen(text)));
}

static int open_store(struct job *j, const char *dir)
{
	struct ntr_store_options o = {.create = true, .cache_bytes = 1 << 20, .node_cache_bytes = 1 << 20};
	struct ntr_err e = {0};
	int r = ntr_store_open(dir, &o, &j->store, &e);

	if (r)
		say(j, "error", &e);
	else if (e.what[0])
		say(j, "warning", &e);
	return r;
}

static void find_commits(struct job *j)
{
	json_t *list = json_array();

	for (size_t i = 0; i < j->n; i++) {
		struct ntr_err e = {0};
		struct ntr_commit c;
		int r = ntr_commit_by_hex(j->store, j->hex[i], &c, &e);

		j->id[i] = r ? 0 : c.id;
		if (!r)
			ntr_commit_done(&c);
		else if (r != -ENOENT)
			say(j, "error", &e);
		json_array_append_new(list, json_boolean(!r));
	}
	json_object_set_new(j->out, "commits", list);
}

static int one_session(void *user, const struct ntr_head *h)
{
	struct job *j = user;
	json_t *reaches = json_array(), *all = json_object_get(j->out, "sessions");
	struct ntr_commit c;
	struct ntr_err e = {0};

	if (ntr_commit_get(j->store, h->commit, &c, &e)) {
		say(j, "error", &e);
		json_decref(reaches);
		return 0;
	}
	for (size_t i = 0; i < j->n; i++)
		if (j->id[i] && ntr_commit_reaches(j->store, &c, j->id[i]) == 1)
			json_array_append_new(reaches, json_string(j->hex[i]));
	json_object_set_new(all, h->name,
	        json_pack("{s:s,s:I,s:o}", "head", c.hex, "upper", (json_int_t)h->upper, "reaches", reaches));
	ntr_commit_done(&c);
	return 0;
}

static void check(struct job *j)
{
	struct ntr_fsck f = {.problem = problem, .user = j};
	struct ntr_err e = {0};

	if (ntr_fsck_run(j->store, &f, &e))
		say(j, "error", &e);
}

/* The next work in the store. */
static void write_on(struct job *j)
{
	struct ntr_session_options o = {.durability = NTR_FSYNC};
	struct ntr_commit c;
	struct ntr_head h;
	struct ntr_err e = {0};

	if (ntr_session_new(j->store, "afterwards", &o, NULL, &h, &e) ||
	        ntr_commit_get(j->store, h.commit, &c, &e)) {
		say(j, "error", &e);
		return;
	}
	memcpy(j->made, c.hex, sizeof j->made);
	ntr_commit_done(&c);
}

static void again(struct job *j)
{
	struct ntr_err e = {0};
	struct ntr_commit c;

	for (size_t i = 0; i <= j->n; i++) {
		const char *hex = i < j->n ? j->hex[i] : j->made;

		if (i < j->n && !j->id[i])
			continue;
		if (ntr_commit_by_hex(j->store, hex, &c, &e))
			say(j, "error", &e);
		else
			ntr_commit_done(&c);
	}
}

static void run(struct job *j, const char *dir)
{
	if (open_store(j, dir))
		return;
	find_commits(j);
	ntr_session_each(j->store, one_session, j);
	check(j);
	write_on(j);
	ntr_store_close(j->store);
	if (open_store(j, dir))
		return;
	again(j);
	ntr_store_close(j->store);
}

int main(void)
{
	char *line = NULL;
	size_t size = 0;

	while (getline(&line, &size, stdin) > 0) {
		struct job j = {.out = json_pack("{s:[],s:{}}", "problems", "sessions")};
		char *save = NULL, *dir = strtok_r(line, " \n", &save), *hex;

		while ((hex = strtok_r(NULL, " \n", &save)) && j.n < WANTED_MAX)
			j.hex[j.n++] = hex;
		if (dir)
			run(&j, dir);
		json_dumpf(j.out, stdout, JSON_COMPACT);
		json_decref(j.out);
		putchar('\n');
		fflush(stdout);
	}
	free(line);
	return 0;
}
