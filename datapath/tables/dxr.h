/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * D16X4R: enhanced DXR, IPv4 prefixes to labels. crates/tables/src/layout/dxr.rs has the bit diagrams.
 *
 * A hit in the extension table takes three dependent reads. Otherwise a binary search follows, without branches on what
 * it reads. Benchmarks compare with other shapes of DXR, which use the same functions: scheme/dxr_shapes.h.
 */
#ifndef WEIR_TABLES_DXR_H
#define WEIR_TABLES_DXR_H

#include "tables/image.h"

enum {
	DXR_DIRECT = 64 / 2,		      /* first 16-bit word of the direct table */
	DXR_EXTENSION = (64 + (2 << 16)) / 4, /* first 32-bit word of the extension blocks */
	DXR_RANGES_FIELD = 4,		      /* header field: byte offset of the ranges */
};

_Static_assert(DXR_EXTENSION * 4 == 131136, "abi: extension offset");

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

/* The shape of enhanced DXR with D = 16 whose next `extension_bits` (X, a constant) index the extension. */
WEIR_INLINE struct dxr_shape dxr_extended_shape(uint32_t extension_bits)
{
	return (struct dxr_shape){
		.count_bits = 10,
		.range_bits = 16 - extension_bits,
		.count_at_head = 1023,
		.ranges_field = DXR_RANGES_FIELD,
	};
}

/* Enhanced DXR, D = 16: the label of addr. The next `extension_bits` (X, a constant) index the extension. */
WEIR_INLINE uint32_t dxr_extended_find(struct table table, uint32_t addr, uint32_t extension_bits)
{
	struct dxr_shape shape = dxr_extended_shape(extension_bits);
	uint32_t block = image_u16(table, DXR_DIRECT + (addr >> 16));
	uint32_t index = addr >> shape.range_bits & ((1u << extension_bits) - 1);

	return dxr_resolve(table, image_u32(table, DXR_EXTENSION + (block << extension_bits | index)), addr, shape);
}

/* The label of the longest prefix that holds addr (host byte order), 0 if none does. */
WEIR_INLINE uint32_t dxr16x4_find(struct table table, uint32_t addr)
{
	return dxr_extended_find(table, addr, 4);
}

/* The R stage alone: the label for the entry that the D16 and X4 stages have found, and the low 12 bits of addr. */
WEIR_INLINE uint32_t dxr16x4_finish(struct table table, uint32_t entry, uint32_t addr)
{
	return dxr_resolve(table, entry, addr, dxr_extended_shape(4));
}

#endif
