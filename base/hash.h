/* hash: uthash, but without its end of the program where memory runs out. HASH_ADD then adds nothing: every
 * use is followed by a look at ntr_hashed. */
#ifndef NTR_BASE_HASH_H
#define NTR_BASE_HASH_H

#define HASH_NONFATAL_OOM 1
#ifndef HASH_FUNCTION /* uthash's own falls through cases without a word, which our warnings refuse */
#define HASH_FUNCTION HASH_FNV
#endif
#include <uthash.h>

/* Is element e in the table whose handle in it is hh? Right after a HASH_ADD: did that work? */
#define ntr_hashed(hh, e) ((e)->hh.tbl != NULL)

#endif
