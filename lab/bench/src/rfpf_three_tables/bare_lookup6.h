/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Like bare_lookup.h, for IPv6: one word of the buckets of networks and of hosts, and one start of each leaf. The
 * answers are wrong.
 */
#include "tables/exact_sets6.h"
#include "tables/rank_leaf.h"

WEIR_INLINE uint32_t bare_exact6_reads(struct table table, uint32_t field, uint64_t hash)
{
	uint32_t bucket = exact6_first(hash, image_section(table, field + 1) >> 6);

	return image_u64(table, (image_section(table, field) >> 3) + bucket * EXACT6_LINE_WORDS) == hash;
}

WEIR_INLINE uint32_t bare_exact_sets6_find(struct table table, uint64_t hi, uint64_t lo)
{
	uint64_t seed = exact6_seed(table);

	return bare_exact6_reads(table, EXACT6_NETS_FIELD, exact6_net_hash(seed, hi)) |
	       bare_exact6_reads(table, EXACT6_HOSTS_FIELD, exact6_host_hash(seed, hi, lo));
}

WEIR_INLINE uint32_t bare_rank_leaf6_find(struct table table, uint64_t hi, uint64_t lo)
{
	uint32_t value = image_u32(table, RANK_ROOT + (uint32_t)(hi >> 48));
	struct rank6_key key = {.half = hi, .left = RANK6_UPPER_BITS, .grain = RANK6_UPPER_BITS - RANK6_START_BITS};
	struct rank_lanes lanes;

	if (!(value & RANK_FLAG))
		return value;
	lanes = rank6_lanes(table);
	for (uint32_t leaf = 0; leaf < RANK6_LEAVES && value & RANK_FLAG; leaf++) {
		uint32_t entry = rank6_entry(table, &key, value), grain, lane;

		if (!rank_is_leaf(entry))
			return entry >> RANK_NUMBER_SHIFT;
		grain = key.left > RANK6_START_BITS ? key.grain : 0;
		lane = entry >> RANK_NUMBER_SHIFT;
		lane += image_u32(table, lanes.starts + lane + 1) <= (uint32_t)(key.half >> grain);
		value = rank_value(table, lanes, lane);
		if (grain)
			key.left = grain;
		else
			key = (struct rank6_key){lo, RANK6_LOWER_BITS, RANK6_LOWER_BITS - RANK6_START_BITS};
	}
	return value;
}

#define exact_sets6_find bare_exact_sets6_find
#define rank_leaf6_find bare_rank_leaf6_find
