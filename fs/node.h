/* node: the bytes of one B+tree node.
 *
 *     node := u8 version=1 | u8 level | u16 count | u16 prefix_len | u16 reserved=0
 *             | u64 XXH3 of everything else (field taken as zero) | prefix | u16 offset[count] | entries
 *     entry (leaf, level 0)  := u16 key_rest_len | u16 val_len | key_rest | value
 *     entry (inner)          := u16 key_rest_len | u64 child id | key_rest       (key = the child's first
 * key)
 *
 * Little-endian. Keys of a node share `prefix`, which is stored once. Offsets count from the node's first
 * byte. The split, merge and fill rules are the tree's (tree.h); this module encodes, checks and searches. */
#ifndef NTR_FS_NODE_H
#define NTR_FS_NODE_H

#include <stddef.h>
#include <stdint.h>

enum {
	NTR_NODE_TARGET = 4096,
	NTR_NODE_MAX = 16384,
	NTR_KEY_MAX = 512,    /* whole key */
	NTR_VALUE_MAX = 6144, /* an inode record with a symlink's target of 4,095 bytes fits */
};

struct ntr_node_entry {
	const uint8_t *key; /* whole key when building; rest behind the prefix when decoding */
	size_t klen;
	const uint8_t *val; /* leaf */
	size_t vlen;
	uint64_t child; /* inner */
};

/* A decoded node: a view into bytes that stay the caller's. */
struct ntr_node_view {
	const uint8_t *data;
	size_t len;
	uint8_t level;
	uint16_t count, prefix_len;
	const uint8_t *prefix, *offsets;
};

/* Bytes that n entries would take. */
size_t ntr_node_size(unsigned level, const struct ntr_node_entry *v, size_t n);
/* Encodes n sorted entries (n >= 1) into out[size], size as told by ntr_node_size. */
void ntr_node_encode(unsigned level, const struct ntr_node_entry *v, size_t n, uint8_t *out, size_t size);
/* Checks structure and checksum of foreign bytes, completely: after success no accessor can leave the buffer.
 * 0 or -EUCLEAN. */
int ntr_node_decode(const uint8_t *data, size_t len, struct ntr_node_view *ret);
/* Entry i; key is the part behind the prefix. */
void ntr_node_entry(const struct ntr_node_view *n, size_t i, struct ntr_node_entry *ret);
/* First entry whose key is >= key, in [0, count]; *ret_equal tells whether it is equal. */
size_t ntr_node_search(const struct ntr_node_view *n, const uint8_t *key, size_t klen, int *ret_equal);

#endif
