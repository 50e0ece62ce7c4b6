/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Other shapes of DXR than D16X4R: D16X2R and the original, D20R. crates/tables/src/scheme/dxr.rs has the bit diagrams.
 * For benchmarks: no policy uses them.
 */
#ifndef WEIR_SCHEME_DXR_SHAPES_H
#define WEIR_SCHEME_DXR_SHAPES_H

#include "tables/dxr.h"

enum {
	DXR20_DIRECT = 64 / 4,	/* first 32-bit word of the direct table */
	DXR20_RANGES_FIELD = 2, /* header field: byte offset of the ranges */
};

/* The label of the longest prefix that holds addr (host byte order), 0 if none does. */
WEIR_INLINE uint32_t dxr16x2_find(struct table table, uint32_t addr)
{
	return dxr_extended_find(table, addr, 2);
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
