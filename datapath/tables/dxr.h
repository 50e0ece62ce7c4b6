/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * D16X4R: enhanced DXR, IPv4 prefixes to labels. crates/tables/src/layout/dxr/mod.rs has the bit diagrams.
 *
 * A hit in the extension table takes three dependent reads. Otherwise a binary search follows, without branches on what
 * it reads.
 */
#ifndef WEIR_TABLES_DXR_H
#define WEIR_TABLES_DXR_H

#include "tables/image.h"

enum {
	DXR_DIRECT = 64 / 2,		      /* first 16-bit word of the direct table */
	DXR_EXTENSION = (64 + (2 << 16)) / 4, /* first 32-bit word of the extension blocks */
	DXR_RANGES_FIELD = 4,		      /* header field: byte offset of the ranges */
	DXR_COUNT_BITS = 10,		      /* low bits of an entry: ranges of its block, 0 for a hit */
	DXR_COUNT_AT_HEAD = 1023,	      /* of an entry whose real count is at the head of the block */
	DXR_RANGE_BITS = 12,		      /* low bits of the key that a block is searched with */
	DXR_LABEL_BITS = 32 - DXR_RANGE_BITS, /* low bits of a range */
};

_Static_assert(DXR_EXTENSION * 4 == 131136, "abi: extension offset");

/* The label of addr, given its entry of the extension table: the R stage. */
WEIR_INLINE uint32_t dxr16x4_finish(struct table table, uint32_t entry, uint32_t addr)
{
	uint32_t count = entry & ((1u << DXR_COUNT_BITS) - 1);
	uint32_t range = entry >> DXR_COUNT_BITS;
	uint32_t key = addr & ((1u << DXR_RANGE_BITS) - 1);

	if (count == 0)
		return range;
	range += image_section(table, DXR_RANGES_FIELD) >> 2;
	if (WEIR_UNLIKELY(count == DXR_COUNT_AT_HEAD))
		count = (image_u32(table, range++) >> DXR_LABEL_BITS) + 1;
	for (uint32_t step = 0; step < DXR_RANGE_BITS && count > 1; step++) {
		uint32_t half = count >> 1;
		uint32_t start = image_u32(table, range + half) >> DXR_LABEL_BITS;

		/* All ones if the range starts at or before the key. */
		range += half & (uint32_t)((int32_t)opaque(start - key - 1) >> 31);
		count -= half;
	}
	return image_u32(table, range) & ((1u << DXR_LABEL_BITS) - 1);
}

/* The label of the longest prefix that holds addr (host byte order), 0 if none does. */
WEIR_INLINE uint32_t dxr16x4_find(struct table table, uint32_t addr)
{
	uint32_t block = image_u16(table, DXR_DIRECT + (addr >> 16));
	uint32_t index = block << 4 | (addr >> DXR_RANGE_BITS & 15);

	return dxr16x4_finish(table, image_u32(table, DXR_EXTENSION + index), addr);
}

#endif
