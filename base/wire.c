#include "wire.h"
#include "util.h"

#include <errno.h>
#include <sys/socket.h>

int ntr_wire_send(int sock, json_t *msg, const int *fds, size_t nfds)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * NTR_WIRE_FDS)];
		struct cmsghdr align;
	} ctl;
	ntr_autofree char *text = NULL;
	uint8_t head[4];
	struct iovec iov[2];
	struct msghdr mh = {.msg_iov = iov, .msg_iovlen = 2};
	size_t len, sent = 0;

	if (nfds > NTR_WIRE_FDS)
		return -EINVAL;
	if (nfds && json_object_set_new(msg, "fds", json_integer((json_int_t)nfds)))
		return -ENOMEM;
	text = json_dumps(msg, JSON_COMPACT);
	if (!text)
		return -ENOMEM;
	len = strlen(text);
	if (len > NTR_WIRE_MAX)
		return -EMSGSIZE;
	ntr_put_le32(head, (uint32_t)len);
	if (nfds) {
		struct cmsghdr *c;

		memset(&ctl, 0, sizeof ctl);
		mh.msg_control = ctl.buf;
		mh.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
		c = CMSG_FIRSTHDR(&mh);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * nfds);
	}
	while (sent < len + 4) {
		ssize_t k;

		iov[0].iov_base = head + NTR_MIN(sent, (size_t)4);
		iov[0].iov_len = 4 - NTR_MIN(sent, (size_t)4);
		iov[1].iov_base = text + (sent > 4 ? sent - 4 : 0);
		iov[1].iov_len = len - (sent > 4 ? sent - 4 : 0);
		k = sendmsg(sock, &mh, MSG_NOSIGNAL);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		sent += (size_t)k;
		mh.msg_control = NULL; /* descriptors went with the first byte */
		mh.msg_controllen = 0;
	}
	return 0;
}

int ntr_wire_send_new(int sock, json_t *msg, const int *fds, size_t nfds)
{
	int r = msg ? ntr_wire_send(sock, msg, fds, nfds) : -ENOMEM;

	json_decref(msg);
	return r;
}

/* recvmsg that collects descriptors into fds[*nfds…]. Bytes read, 0 at the end, or negative errno. */
static ssize_t recv_some(int sock, void *buf, size_t n, int *fds, size_t *nfds)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * NTR_WIRE_FDS)];
		struct cmsghdr align;
	} ctl;
	struct iovec iov = {.iov_base = buf, .iov_len = n};
	struct msghdr mh = {
	        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf, .msg_controllen = sizeof ctl};
	ssize_t k;

	do
		k = recvmsg(sock, &mh, MSG_CMSG_CLOEXEC);
	while (k < 0 && errno == EINTR);
	if (k < 0)
		return -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&mh); c; c = CMSG_NXTHDR(&mh, c)) {
		size_t got;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		got = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < got; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
			if (*nfds < NTR_WIRE_FDS)
				fds[(*nfds)++] = fd;
			else
				close(fd);
		}
	}
	if (mh.msg_flags & MSG_CTRUNC)
		return -EPROTO;
	return k;
}

static int recv_exact(int sock, void *buf, size_t n, int *fds, size_t *nfds)
{
	size_t got = 0;

	while (got < n) {
		ssize_t k = recv_some(sock, (char *)buf + got, n - got, fds, nfds);

		if (k < 0)
			return (int)k;
		if (!k)
			return got ? -EPROTO : -ENODATA;
		got += (size_t)k;
	}
	return 0;
}

static int recv_frame(int sock, json_t **ret_msg, int *fds, size_t *nfds)
{
	ntr_autofree char *text = NULL;
	uint8_t head[4];
	json_error_t je;
	json_t *m;
	size_t len;
	int r = recv_exact(sock, head, 4, fds, nfds);

	if (r)
		return r;
	len = ntr_get_le32(head);
	if (len > NTR_WIRE_MAX)
		return -EMSGSIZE;
	text = malloc(len + 1);
	if (!text)
		return -ENOMEM;
	r = recv_exact(sock, text, len, fds, nfds);
	if (r)
		return r == -ENODATA ? -EPROTO : r;
	m = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
	if (!json_is_object(m) || json_integer_value(json_object_get(m, "fds")) != (json_int_t)*nfds) {
		json_decref(m);
		return -EPROTO;
	}
	*ret_msg = m;
	return 0;
}

int ntr_wire_recv(int sock, json_t **ret_msg, int fds[NTR_WIRE_FDS], size_t *ret_nfds)
{
	int r;

	*ret_nfds = 0;
	r = recv_frame(sock, ret_msg, fds, ret_nfds);
	if (r) {
		ntr_wire_close_fds(fds, *ret_nfds);
		*ret_nfds = 0;
	}
	return r;
}

void ntr_wire_close_fds(int *fds, size_t nfds)
{
	for (size_t i = 0; i < nfds; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = -1;
	}
}

int ntr_wire_peer(int sock, pid_t *ret_pid, uid_t *ret_uid)
{
	struct ucred uc;
	socklen_t n = sizeof uc;

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &uc, &n))
		return -errno;
	*ret_pid = uc.pid;
	*ret_uid = uc.uid;
	return 0;
}
