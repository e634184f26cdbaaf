/* ids: the store's six counters of numbers that are never used twice, not after a crash either.
 *
 * A mark per kind lies in meta under "A"; it is advanced by NTR_IDS_STEP with a synced write before any
 * number it covers is used, and after open counting goes on at the mark (store-format.md, "Ids are never
 * reused"). */
#ifndef NTR_FS_IDS_H
#define NTR_FS_IDS_H

#include "kv.h"

enum ntr_id_kind {
	NTR_ID_NODE,
	NTR_ID_CHUNK,
	NTR_ID_COMMIT,
	NTR_ID_SESSION,
	NTR_ID_INODE,
	NTR_ID_VERSION,
	NTR_ID_KINDS
};
enum { NTR_IDS_STEP = 65536, NTR_INO_ROOT = 1, NTR_INO_META = 2, NTR_INO_FIRST = 16 };

struct ntr_ids;

/* Reads the marks (a fresh store starts at 1; inodes at NTR_INO_FIRST), raises them above the highest key of
 * `node`, `chunk` and of meta's C and H records. */
int ntr_ids_open(struct ntr_kv *kv, struct ntr_ids **ret, struct ntr_err *e);
void ntr_ids_close(struct ntr_ids *ids);
/* Takes n consecutive numbers; *ret_first is the first. Thread safe. Fails only where the mark cannot be
 * written. */
int ntr_ids_take(struct ntr_ids *ids, enum ntr_id_kind kind, uint64_t n, uint64_t *ret_first);
/* The next number that will be given out (a limit for scans). */
uint64_t ntr_ids_peek(struct ntr_ids *ids, enum ntr_id_kind kind);

#endif
