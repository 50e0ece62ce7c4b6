/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Exact sets: several sets of IPv4 addresses in the same buckets. crates/tables/src/layout/exact_sets.rs has the bit
 * diagrams.
 *
 * The bucket is compared as the bucket of one set. The words with a hit show which members contain the key.
 */
#ifndef WEIR_TABLES_EXACT_SETS_H
#define WEIR_TABLES_EXACT_SETS_H

#include "tables/exact_set.h"

enum {
	EXACT_SETS_ENDS_FIELD = 8,    /* header field: where each member's words end, 8 bits each */
	EXACT_SETS_MEMBERS_FIELD = 9, /* header field */
	EXACT_SETS_MEMBERS_MAX = 4,
};

/* The bits of each member, in masks of `per_word` bits for each word of a bucket. */
struct exact_segments {
	uint32_t of[EXACT_SETS_MEMBERS_MAX];
};

WEIR_INLINE struct exact_segments exact_segments(struct table table, uint32_t per_word)
{
	uint32_t ends = image_section(table, EXACT_SETS_ENDS_FIELD);
	struct exact_segments segments;
	uint32_t before = 0;

	for (uint32_t member = 0; member < EXACT_SETS_MEMBERS_MAX; member++) {
		uint32_t end = ends >> 8 * member & 15;
		uint32_t below = (uint32_t)((UINT64_C(1) << end * per_word) - 1);

		segments.of[member] = below ^ before;
		before = below;
	}
	return segments;
}

/*
 * The members (a bit each) with a hit in one of their words. `words` has a bit for each word with a hit; bits above 7
 * are ignored.
 */
WEIR_INLINE uint32_t exact_members(struct table table, uint32_t words)
{
	uint32_t members = 0;

	words &= 0xff;
	if (WEIR_LIKELY(image_section(table, EXACT_SETS_MEMBERS_FIELD) <= 2)) {
		uint32_t first_end = image_section(table, EXACT_SETS_ENDS_FIELD) & 15;
		uint32_t first = words & ((1u << first_end) - 1), second = words >> first_end;

		members = opaque(0 - first) >> 31 | opaque(0 - second) >> 31 << 1;
	} else {
		struct exact_segments segments = exact_segments(table, 1);

		for (uint32_t member = 0; member < EXACT_SETS_MEMBERS_MAX; member++)
			members |= opaque(0 - (words & segments.of[member])) >> 31 << member;
	}
	return members;
}

/* The members (a bit each) that contain addr (host byte order). */
WEIR_INLINE uint32_t exact_sets_find(struct table table, uint32_t addr)
{
	struct exact_found found = exact_find_in_bucket(table, addr, EXACT_WORDS);
	uint32_t members = exact_members(table, (uint32_t)found.hits);

	if (WEIR_LIKELY(!found.overflows))
		return members;
	read_fence();
	return members | exact_overflow_find(table, addr);
}

#ifdef WEIR_BURSTS

WEIR_INLINE void exact_sets_kernel(struct table table, const uint32_t *keys, uint32_t *masks, uint32_t count)
{
	uint64_t overflowed = exact_compare_of(table, keys, masks, count);
	struct exact_segments segments = exact_segments(table, 4);

	if (image_section(table, EXACT_SETS_MEMBERS_FIELD) <= 2) {
		for (uint32_t i = 0; i < count; i++)
			masks[i] = (uint32_t)((masks[i] & segments.of[0]) != 0) |
				   (uint32_t)((masks[i] & segments.of[1]) != 0) << 1;
	} else {
		for (uint32_t i = 0; i < count; i++)
			masks[i] = (uint32_t)((masks[i] & segments.of[0]) != 0) |
				   (uint32_t)((masks[i] & segments.of[1]) != 0) << 1 |
				   (uint32_t)((masks[i] & segments.of[2]) != 0) << 2 |
				   (uint32_t)((masks[i] & segments.of[3]) != 0) << 3;
	}
	exact_add_overflow(table, keys, masks, overflowed);
}

SIMD_AVX512 WEIR_NOINLINE void exact_sets_kernel_avx512(struct table table, const uint32_t *keys, uint32_t *masks,
							uint32_t count)
{
	exact_sets_kernel(table, keys, masks, count);
}

/* masks[i] = exact_sets_find(table, keys[i]) for a burst of at most WEIR_BURST_MAX. */
WEIR_NOINLINE void exact_sets_find_burst(struct table table, const uint32_t *keys, uint32_t *masks, uint32_t count)
{
	if (simd_avx512(SIMD_PLAIN))
		exact_sets_kernel_avx512(table, keys, masks, count);
	else
		exact_sets_kernel(table, keys, masks, count);
}

#endif
#endif
