/* controller_tree: what is made and written in a tree without a view gets what the kernel would have given it
 * in the view of a live session. */
#ifndef NTR_EXEC_CONTROLLER_TREE_H
#define NTR_EXEC_CONTROLLER_TREE_H

#include "../fs/inode.h"

/* ntr_name_create for a new file or directory, as open(2) and mkdir(2): the owner is the session's; group,
 * set-group-id and ACLs are inherited from dir. in has its content already, and its mode, of which a default
 * ACL may take. */
int ntr_tree_create(
        struct ntr_txn *t, uint64_t dir, const char *name, struct ntr_inode *in, const struct timespec *now);
/* Puts the record of a file whose content was replaced, as write(2): without set-id bits, where the kernel
 * would take them from us, and without capabilities. */
int ntr_tree_written(struct ntr_txn *t, struct ntr_inode *in, const struct timespec *now);

#endif
