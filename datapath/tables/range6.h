/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Range6: IPv6 prefixes to labels. crates/tables/src/layout/range6.rs has the bit diagrams. */
#ifndef WEIR_TABLES_RANGE6_H
#define WEIR_TABLES_RANGE6_H

#include "tables/image.h"

enum {
	RANGE6_ROOT = 64 / 4,		     /* first 32-bit word of the root */
	RANGE6_NODES = (64 + (4 << 16)) / 4, /* first 32-bit word of the nodes */
	RANGE6_STARTS_FIELD = 4,	     /* header fields: byte offsets of starts and labels */
	RANGE6_LABELS_FIELD = 6,
	RANGE6_LEVELS_MAX = 4, /* nodes divide down to /48 */
	RANGE6_STEPS_MAX = 24, /* a block has fewer than 2^24 ranges */
	RANGE6_VALUE_MASK = (1 << 24) - 1,
	RANGE6_HIT = 0,
	RANGE6_NODE = 1,
	RANGE6_BLOCK = 2,
};

_Static_assert(RANGE6_NODES * 4 == 262208, "abi: nodes offset");

/* The borrow of a - b - borrow, without a branch (Warren, Hacker's Delight 2-16). */
WEIR_INLINE uint64_t range6_borrow(uint64_t a, uint64_t b, uint64_t borrow)
{
	return ((~a & b) | (~(a ^ b) & (a - b - borrow))) >> 63;
}

/* The label of the longest prefix that holds the address of these 64-bit halves (host byte order), 0 if none does. */
WEIR_INLINE uint32_t range6_find(struct table table, uint64_t hi, uint64_t lo)
{
	uint32_t entry = image_u32(table, RANGE6_ROOT + (uint32_t)(hi >> 48));
	uint32_t range, count, starts;

	for (int level = 0; level < RANGE6_LEVELS_MAX && entry >> 30 == RANGE6_NODE; level++) {
		uint32_t child = (uint32_t)(hi >> (40 - 8 * level)) & 255;

		entry = image_u32(table, RANGE6_NODES + ((entry & RANGE6_VALUE_MASK) << 8 | child));
	}
	if (entry >> 30 != RANGE6_BLOCK)
		return entry >> 30 == RANGE6_HIT ? entry : 0;
	starts = image_section(table, RANGE6_STARTS_FIELD) >> 3;
	range = entry & RANGE6_VALUE_MASK;
	count = entry >> 24 & 63;
	if (WEIR_UNLIKELY(count == 0)) {
		count = (uint32_t)image_u64(table, starts + range * 2 + 1);
		range++;
	}
	for (int step = 0; step < RANGE6_STEPS_MAX && count > 1; step++) {
		uint32_t half = count >> 1;
		uint32_t start = starts + (range + half) * 2;
		uint64_t below = range6_borrow(lo, image_u64(table, start + 1), 0);
		uint64_t after = range6_borrow(hi, image_u64(table, start), below);

		/* `after` is 1 if the range starts after the address. Then the mask is 0. */
		range += half & (opaque((uint32_t)after) - 1);
		count -= half;
	}
	return image_u32(table, (image_section(table, RANGE6_LABELS_FIELD) >> 2) + range);
}

#endif
