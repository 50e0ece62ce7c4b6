/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * D16X4R: enhanced DXR, IPv4 prefixes to labels. The bit diagrams stand in crates/tables/src/layout/dxr.rs.
 *
 * Three dependent reads for a hit in the extension table, then a binary search without branches on what it reads.
 */
#ifndef WEIR_DXR_H
#define WEIR_DXR_H

#include "image.h"

enum {
	DXR_DIRECT = 64 / 2,		      /* first 16-bit word of the direct table */
	DXR_EXTENSION = (64 + (2 << 16)) / 4, /* first 32-bit word of the extension blocks */
	DXR_RANGES_FIELD = 4,		      /* header field: byte offset of the ranges */
	DXR_COUNT_AT_HEAD = 1023,	      /* count of an extension entry: see the head of the block */
	DXR_STEPS_MAX = 12,		      /* a block has at most 2^12 ranges */
	DXR_LABEL_MASK = (1 << 20) - 1,
};

_Static_assert(DXR_EXTENSION * 4 == 131136, "abi: extension offset");

/* The label of the longest prefix that holds addr (host byte order), 0 if none does. */
WEIR_INLINE uint32_t dxr16x4_find(struct table table, uint32_t addr)
{
	uint32_t block = image_u16(table, DXR_DIRECT + (addr >> 16));
	uint32_t entry = image_u32(table, DXR_EXTENSION + (block << 4 | (addr >> 12 & 15)));
	uint32_t count = entry & 1023;
	uint32_t range = entry >> 10;
	uint32_t key = addr & 0xfff;

	if (count == 0)
		return range;
	range += image_section(table, DXR_RANGES_FIELD) >> 2;
	if (WEIR_UNLIKELY(count == DXR_COUNT_AT_HEAD))
		count = (image_u32(table, range++) >> 20) + 1;
	for (int step = 0; step < DXR_STEPS_MAX && count > 1; step++) {
		uint32_t half = count >> 1;
		uint32_t start = image_u32(table, range + half) >> 20;

		/* All ones if the range starts at the key or before it. */
		range += half & (uint32_t)((int32_t)opaque(start - key - 1) >> 31);
		count -= half;
	}
	return image_u32(table, range) & DXR_LABEL_MASK;
}

#endif
