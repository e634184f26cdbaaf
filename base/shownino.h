/* shownino: the inode number that people and programs see of a file of the tree, and back. It is told apart
 * by the tree's number above, and has below it the 32 bits that the file had in upper as long as it was new
 * there: git's index keeps no more of a number, so the file's going from upper into the tree does not make
 * git read it again. */
#ifndef NTR_BASE_SHOWNINO_H
#define NTR_BASE_SHOWNINO_H

#include <stdint.h>

enum {
	NTR_SHOWN_LOW = 32,      /* bits of the tag */
	NTR_SHOWN_INO_BITS = 29, /* larger numbers are shown without a tag */
	NTR_SHOWN_SHIFT = 11,    /* and so */
};
#define NTR_SHOWN_BARE (UINT64_C(1) << 61) /* the mark of those; 62 and 63 are overlayfs's own (xino) */
/* JavaScript's numbers round to multiples of 2,048 up here: the next file's begin there. */
#define NTR_SHOWN_TAG_MAX UINT64_C(0xfffff800)

/* st_ino of a tree's inode (below 2^50) whose record has this tag. Never 0. */
static inline uint64_t ntr_shown_of(uint64_t ino, uint32_t tag)
{
	if (ino >> NTR_SHOWN_INO_BITS)
		return NTR_SHOWN_BARE | ino << NTR_SHOWN_SHIFT;
	return ino << NTR_SHOWN_LOW | (tag < NTR_SHOWN_TAG_MAX ? tag : NTR_SHOWN_TAG_MAX);
}

/* The tree's inode of an st_ino, with or without overlayfs's mark of the layer below. */
static inline uint64_t ntr_shown_ino(uint64_t shown)
{
	uint64_t low = shown & (NTR_SHOWN_BARE - 1);

	return shown & NTR_SHOWN_BARE ? low >> NTR_SHOWN_SHIFT : low >> NTR_SHOWN_LOW;
}

#endif
