/* file: the content of regular files: reading at any offset, holes, and taking content in from a descriptor.
 */
#ifndef NTR_FS_FILE_H
#define NTR_FS_FILE_H

#include "inode.h"

/* Reads up to n bytes at off (short only at the end of the file). Bytes read, or negative errno. Holes read
 * as zeros. */
ssize_t ntr_file_read(
        const struct ntr_snap *s, const struct ntr_inode *in, uint64_t off, void *buf, size_t n);
/* SEEK_DATA / SEEK_HOLE at off, chunk-exact. *ret or -ENXIO. */
int ntr_file_seek(
        const struct ntr_snap *s, const struct ntr_inode *in, uint64_t off, int whence, uint64_t *ret);
/* Replaces the whole content with that of fd (size bytes from offset 0): holes found with SEEK_DATA stay
 * holes, whole chunks of zeros inside data are stored as data; chunks equal to those of the content before
 * are shared. Sets size, blocks, data_kind and payload of *in and the EXTENT items, does not put the record.
 * A file that shrinks while it is read: *ret_short is set true and the missing tail reads as zeros. Files
 * above 2^53 bytes: -EFBIG. Moves fd's file offset. Here and below: after a failure the transaction holds
 * half of the content and must be aborted. */
int ntr_file_take_fd(struct ntr_txn *t, struct ntr_inode *in, int fd, uint64_t size, bool *ret_short);
/* The same from memory. */
int ntr_file_take_mem(struct ntr_txn *t, struct ntr_inode *in, const void *data, size_t n);
/* ntr_file_take_fd in two steps, so that many threads can read: load stores the content (in ntr_txn_chunks,
 * without comparing with content before) and may run in any thread, beside others; attach belongs to the
 * transaction's thread, does what take_fd says, and does not free. */
struct ntr_file_loaded;
int ntr_file_load(struct ntr_chunk_writer *w, int fd, uint64_t size, struct ntr_file_loaded **ret);
int ntr_file_attach(
        struct ntr_txn *t, struct ntr_inode *in, const struct ntr_file_loaded *l, bool *ret_short);
void ntr_file_loaded_free(struct ntr_file_loaded *l);
/* Streaming, for archives: begin, append in ascending offsets (gaps are holes), end with the final size. */
struct ntr_file_sink;
int ntr_file_sink_new(struct ntr_txn *t, struct ntr_inode *in, struct ntr_file_sink **ret);
int ntr_file_sink_write(struct ntr_file_sink *k, uint64_t off, const void *data, size_t n);
int ntr_file_sink_end(struct ntr_file_sink *k, uint64_t size); /* frees k, sets *in's fields */
void ntr_file_sink_abort(struct ntr_file_sink *k);
/* Makes fd's content that of the file: at the same offsets, leaving holes holes where fd can seek, else
 * writing zeros. */
int ntr_file_to_fd(const struct ntr_snap *s, const struct ntr_inode *in, int fd);
/* Writes the content where fd stands, as cat(1) does, and leaves fd behind it. Holes stay holes in an empty
 * file only. */
int ntr_file_to_stream(const struct ntr_snap *s, const struct ntr_inode *in, int fd);

#endif
