/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Other shapes of DXR than D16X4R: D16X2R and the original, D20R. lab/schemes/src/dxr.rs has the bit diagrams. For
 * benchmarks: no policy uses them.
 */
#ifndef WEIR_SCHEME_DXR_SHAPES_H
#define WEIR_SCHEME_DXR_SHAPES_H

#include "tables/dxr.h"

enum {
	DXR20_DIRECT = 64 / 4,	/* first 32-bit word of the direct table */
	DXR20_RANGES_FIELD = 2, /* header field: byte offset of the ranges */
};

/* The layout of entries and ranges. Every use has constants, so compilers remove the fields. */
struct dxr_shape {
	uint32_t count_bits;	/* low bits of an entry: ranges of its block, 0 for a hit */
	uint32_t range_bits;	/* low bits of the key: the key within a block, and the most steps of its search */
	uint32_t count_at_head; /* count of an entry whose real count is at the head of the block */
	uint32_t ranges_field;	/* header field: byte offset of the ranges */
};

/* The label of addr, given its entry of the direct or extension table. */
WEIR_INLINE uint32_t dxr_resolve(struct table table, uint32_t entry, uint32_t addr, struct dxr_shape shape)
{
	uint32_t count = entry & ((1u << shape.count_bits) - 1);
	uint32_t range = entry >> shape.count_bits;
	uint32_t key = addr & ((1u << shape.range_bits) - 1);
	uint32_t label_bits = 32 - shape.range_bits;

	if (count == 0)
		return range;
	range += image_section(table, shape.ranges_field) >> 2;
	if (WEIR_UNLIKELY(count == shape.count_at_head))
		count = (image_u32(table, range++) >> label_bits) + 1;
	for (uint32_t step = 0; step < shape.range_bits && count > 1; step++) {
		uint32_t half = count >> 1;
		uint32_t start = image_u32(table, range + half) >> label_bits;

		/* All ones if the range starts at or before the key. */
		range += half & (uint32_t)((int32_t)opaque(start - key - 1) >> 31);
		count -= half;
	}
	return image_u32(table, range) & ((1u << label_bits) - 1);
}

/* The label of the longest prefix that holds addr (host byte order), 0 if none does. */
WEIR_INLINE uint32_t dxr16x2_find(struct table table, uint32_t addr)
{
	struct dxr_shape shape = {
		.count_bits = DXR_COUNT_BITS,
		.range_bits = 14,
		.count_at_head = DXR_COUNT_AT_HEAD,
		.ranges_field = DXR_RANGES_FIELD,
	};
	uint32_t block = image_u16(table, DXR_DIRECT + (addr >> 16));
	uint32_t index = block << 2 | (addr >> 14 & 3);

	return dxr_resolve(table, image_u32(table, DXR_EXTENSION + index), addr, shape);
}

/* The label of the longest prefix that holds addr (host byte order), 0 if none does. */
WEIR_INLINE uint32_t dxr20_find(struct table table, uint32_t addr)
{
	struct dxr_shape shape = {
		.count_bits = 12,
		.range_bits = 12,
		.count_at_head = UINT32_MAX, /* never: 4095 ranges are the maximum */
		.ranges_field = DXR20_RANGES_FIELD,
	};

	return dxr_resolve(table, image_u32(table, DXR20_DIRECT + (addr >> 12)), addr, shape);
}

#endif
