/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What lookups in the kernel cannot do without: one word of each cache line that they need, each read where the one
 * before leads to. A key is compared with one place of its bucket, and with one start of its leaf. The answers are
 * wrong.
 */
#include "tables/exact_sets.h"
#include "tables/rank_leaf.h"

WEIR_INLINE uint32_t bare_exact_sets_find(struct table table, uint32_t addr)
{
	uint32_t bucket = exact_bucket_of(addr, image_section(table, EXACT_SHIFT_FIELD));
	uint32_t order = image_section(table, EXACT_ORDER_FIELD) & 3;

	return (uint32_t)image_u64(table, EXACT_BUCKETS / 8 + (bucket << order)) >> 16 == addr >> 16;
}

WEIR_INLINE uint32_t bare_rank_leaf_find(struct table table, uint32_t addr)
{
	uint32_t value = image_u32(table, RANK_ROOT + (addr >> 16)), chunk = addr & 0xffff, entry, lane, start;
	struct rank_lanes lanes;

	if (!(value & RANK_FLAG))
		return value;
	entry = image_u32(table, RANK_ENTRIES + rank_base(value) + (chunk >> (RANK_BITS - rank_width(value))));
	if (!rank_is_leaf(entry))
		return entry >> RANK_NUMBER_SHIFT;
	lanes = rank_lanes(table);
	lane = entry >> RANK_NUMBER_SHIFT;
	start = image_u16(table, lanes.starts + lane + 1);
	return rank_value(table, lanes, lane + (start <= chunk));
}

#define exact_sets_find bare_exact_sets_find
#define rank_leaf_find bare_rank_leaf_find
