/* port_hash: uthash with XXH3 (its own default falls through cases without a word, which our warnings
 * refuse). */
#ifndef NTR_FS_PORT_HASH_H
#define NTR_FS_PORT_HASH_H

#include <xxhash.h>

#define HASH_FUNCTION(key, len, hashv) ((hashv) = (unsigned)XXH3_64bits(key, len))
#include "../base/hash.h"

#endif
