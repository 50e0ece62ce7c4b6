/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * SAIL_L: IPv4 prefixes to labels. lab/schemes/src/sail.rs has the bit diagrams. For benchmarks: no policy
 * uses it.
 *
 * A key takes one read if no prefix longer than /16 is around it, two reads up to /24, and four beyond.
 */
#ifndef WEIR_SCHEME_SAIL_H
#define WEIR_SCHEME_SAIL_H

#include "tables/image.h"

enum {
	SAIL_BCN16 = 64 / 2,	    /* first 16-bit word of BCN16 */
	SAIL_BN24 = 64 + (2 << 16), /* byte offset of BN24 */
	SAIL_C24_FIELD = 4,	    /* header fields: byte offsets of C24 and N32 */
	SAIL_N32_FIELD = 6,
	SAIL_CHUNK_BASE = 256, /* this and higher entries of BCN16 are chunks */
};

_Static_assert(SAIL_BN24 == 131136, "abi: BN24 offset");

/* The label of the longest prefix that holds addr (host byte order), 0 if none does. */
WEIR_INLINE uint32_t sail_find(struct table table, uint32_t addr)
{
	uint32_t entry = image_u16(table, SAIL_BCN16 + (addr >> 16));
	uint32_t index, bn, chunk;

	if (entry < SAIL_CHUNK_BASE)
		return entry;
	index = (entry - SAIL_CHUNK_BASE) << 8 | (addr >> 8 & 255);
	bn = *table_at(table, SAIL_BN24 + index);
	if (bn != 0)
		return bn - 1;
	chunk = image_u16(table, (image_section(table, SAIL_C24_FIELD) >> 1) + index);
	return *table_at(table, image_section(table, SAIL_N32_FIELD) + (chunk << 8 | (addr & 255)));
}

#endif
