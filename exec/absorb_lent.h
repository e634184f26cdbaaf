/* absorb_lent: notes of modes that an ordinary user's objects of upper are lent.
 *
 * Absorb reads what its owner may not read by lending it a mode for that moment. A daemon that is killed
 * meanwhile cannot give the mode back, and a mode is a part of what its successor commits. So before an
 * object is lent one, its own is noted beside upper, as the symlink lent/INODE -> MODE, which is made and
 * taken away as a whole. (Not as an attribute of the object: where its owner may not write, that could only
 * be set once the mode is lent.) The notes go with the upper. */
#ifndef NTR_EXEC_ABSORB_LENT_H
#define NTR_EXEC_ABSORB_LENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* The directory that upper lies in, O_PATH; -1 where it cannot be had: then nothing is noted. */
int ntr_lent_open(int upper_fd);
/* Lends bits to the object fd (O_PATH will do), whose state is st, and notes its mode before. An older note
 * of it stays: that was its own mode. */
int ntr_lent_give(int beside, int fd, const struct stat *st, uint32_t bits);
/* Takes them back, and the note away. A mode that the session has set meanwhile is its own, and stays. */
int ntr_lent_back(int beside, int fd, uint32_t mode, uint32_t bits);
/* Are there any? */
bool ntr_lent_any(int beside);
/* The mode of the object's own, if what it has now (mode) was lent: u+rw or u+rwx and nothing else. */
bool ntr_lent_find(int beside, uint64_t ino, uint32_t mode, uint32_t *ret);

#endif
