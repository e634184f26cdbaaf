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

/* The directory that upper lies in, O_PATH; -1 where it cannot be had: then nothing is noted. */
int ntr_lent_open(int upper_fd);
/* Notes the object's mode. An older note of it stays: that was its own mode. True: there is one now. */
bool ntr_lent_note(int beside, uint64_t ino, uint32_t mode);
/* Takes the note away if it says that mode. */
void ntr_lent_forget(int beside, uint64_t ino, uint32_t mode);
/* Are there any? */
bool ntr_lent_any(int beside);
/* The mode of the object's own, if what it has now (mode) was lent: u+rw or u+rwx and nothing else. */
bool ntr_lent_find(int beside, uint64_t ino, uint32_t mode, uint32_t *ret);

#endif
