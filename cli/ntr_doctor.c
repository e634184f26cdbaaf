/* doctor: what works on this machine, what is missing, and the command that mends it. Needs no daemon. */
#include "ntr.h"
#include "ntr_doctor.h"

#include "../base/sockpath.h"
#include "../base/util.h"

static void print_json(const struct ntr_finding *f)
{
	ntr_autojson json_t *o = json_pack("{s:s,s:b,s:b,s:o,s:o}", "check", f->name, "ok", (int)f->ok,
	        "needed", (int)f->needed, "detail", ntr_json_text(f->detail, strlen(f->detail)), "fix",
	        ntr_json_text(f->fix, strlen(f->fix)));

	ntr_json_line(o, NULL);
}

static void print_text(const struct ntr_finding *f)
{
	printf("%-8s %-16s %s\n", f->ok ? "ok" : f->needed ? "missing" : "note", f->name, f->detail);
	if (f->fix[0])
		printf("%-8s %-16s to mend: %s\n", "", "", f->fix);
}

int ntr_doctor_main(struct ntr_cmd *cmd)
{
	ntr_autofree char *store = NULL;
	struct ntr_err e = {0};
	unsigned missing = 0;

	if (ntr_store_default_path(cmd->store, &store, &e))
		return ntr_cmd_fail(cmd, &e);
	for (size_t i = 0; ntr_checks[i]; i++) {
		struct ntr_finding f = {0};

		ntr_checks[i](store, &f);
		missing += f.needed && !f.ok;
		if (cmd->json)
			print_json(&f);
		else
			print_text(&f);
	}
	if (!cmd->json && missing)
		printf("\n%u thing%s missing that ntr needs\n", missing, missing == 1 ? " is" : "s are");
	return missing ? NTR_EXIT_FAILED : 0;
}
