/* pass: what ntr-init gives to ntr-pass (see init_helper.c for what they say on the control socket). */
#ifndef NTR_EXEC_PASS_H
#define NTR_EXEC_PASS_H

enum {
	NTR_PASS_FUSE = 3, /* an open, mounted /dev/fuse */
	NTR_PASS_VIEW = 4, /* the directory to serve, O_PATH */
	NTR_PASS_CTL = 5,  /* SOCK_SEQPACKET; optional */
};

#endif
