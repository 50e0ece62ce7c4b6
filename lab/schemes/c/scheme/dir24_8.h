/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * DIR-24-8: IPv4 prefixes to labels. lab/schemes/src/dir24_8.rs has the bit diagrams. For benchmarks: no policy uses
 * it.
 *
 * A key takes one read if no prefix longer than /24 is around it, and two otherwise.
 */
#ifndef WEIR_SCHEME_DIR24_8_H
#define WEIR_SCHEME_DIR24_8_H

#include "tables/image.h"

enum {
	DIR24_8_TBL24 = 64 / 2,		     /* first 16-bit word of TBL24 */
	DIR24_8_TBL8 = (64 + (2 << 24)) / 2, /* first 16-bit word of TBL8 */
	DIR24_8_BLOCK = 1 << 15,	     /* entry of TBL24: the number of a block */
};

_Static_assert(DIR24_8_TBL8 * 2 == 33554496, "abi: TBL8 offset");

/* The label of the longest prefix that holds addr (host byte order), 0 if none does. */
WEIR_INLINE uint32_t dir24_8_find(struct table table, uint32_t addr)
{
	uint32_t entry = image_u16(table, DIR24_8_TBL24 + (addr >> 8));

	if (!(entry & DIR24_8_BLOCK))
		return entry;
	return image_u16(table, DIR24_8_TBL8 + ((entry & (DIR24_8_BLOCK - 1)) << 8 | (addr & 255)));
}

#endif
