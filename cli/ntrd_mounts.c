/* mounts: the member `mounts` of new, fork and calls. */
#include "ntrd_mounts.h"

#include "../exec/controller.h"
#include "../exec/live_mounts.h"

#include <errno.h>

int ntrd_mounts_set(struct ntrd_req *rq, const char *session)
{
	const json_t *mounts = json_object_get(rq->msg, "mounts");
	int r;

	if (!mounts || json_is_null(mounts))
		return 0;
	r = ntrd_check_inside(rq, session);
	if (r)
		return r;
	r = ntr_ctl_set_mounts(rq->ctl, session, mounts, rq->e);
	if (r == -EINVAL)
		rq->kind = "usage";
	return r;
}

int ntrd_mounts_check(struct ntrd_req *rq, const char *wsroot, json_t **ret)
{
	const json_t *mounts = json_object_get(rq->msg, "mounts");
	int r;

	*ret = NULL;
	if (!mounts || json_is_null(mounts))
		return 0;
	r = ntr_mounts_check(mounts, wsroot ? wsroot : "/workspace", ret, rq->e);
	if (r == -EINVAL)
		rq->kind = "usage";
	return r;
}
