/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Exact leaf: an exact set of the hosts, and rank leaves of the other prefixes in an image inside the first one.
 * crates/tables/src/layout/exact_leaf.rs has the header fields.
 *
 * A writer may change the table meanwhile (crates/tables/src/live/exact_leaf.rs): the prefixes are read after the
 * hosts.
 */
#ifndef WEIR_TABLES_EXACT_LEAF_H
#define WEIR_TABLES_EXACT_LEAF_H

#include "tables/exact_set.h"
#include "tables/exact_set6.h"
#include "tables/rank_leaf_burst.h"

enum {
	EXACT_LEAF_PREFIXES_FIELD = 8,	   /* header field: byte offset of the image with the prefixes */
	EXACT_LEAF_HAS_PREFIXES_FIELD = 9, /* header field: 0 if there are none */
};

/* Whether prefixes must be searched as well. Comes after the search for the host. */
WEIR_INLINE bool exact_leaf_has_prefixes(struct table table)
{
	read_fence();
	return WEIR_UNLIKELY(image_section(table, EXACT_LEAF_HAS_PREFIXES_FIELD) != 0);
}

WEIR_INLINE struct table exact_leaf_prefixes(struct table table)
{
	return table_inside(table, image_section(table, EXACT_LEAF_PREFIXES_FIELD));
}

/* 1 if addr (host byte order) is in the set, 0 if not. */
WEIR_INLINE uint32_t exact_leaf_find(struct table table, uint32_t addr)
{
	uint32_t is_host = exact_set_find(table, addr);

	if (is_host != 0 || !exact_leaf_has_prefixes(table))
		return is_host;
	return rank_leaf_find(exact_leaf_prefixes(table), addr);
}

/* 1 if the address of the given 64-bit halves (host byte order) is in the set, 0 if not. */
WEIR_INLINE uint32_t exact_leaf6_find(struct table table, uint64_t hi, uint64_t lo)
{
	uint32_t is_host = exact_set6_find(table, hi, lo);

	if (is_host != 0 || !exact_leaf_has_prefixes(table))
		return is_host;
	return rank_leaf6_find(exact_leaf_prefixes(table), hi, lo);
}

#ifdef WEIR_BURSTS

/* labels[i] = exact_leaf_find(table, keys[i]) for a burst of at most WEIR_BURST_MAX. */
WEIR_NOINLINE void exact_leaf_find_burst(struct table table, const uint32_t *keys, uint32_t *labels, uint32_t count)
{
	uint32_t in_prefixes[WEIR_BURST_MAX];

	exact_set_find_burst(table, keys, labels, count);
	if (!exact_leaf_has_prefixes(table))
		return;
	rank_leaf_find_burst(exact_leaf_prefixes(table), keys, in_prefixes, count);
	for (uint32_t i = 0; i < count; i++)
		labels[i] |= in_prefixes[i];
}

/* labels[i] = exact_leaf6_find(table, hi[i], lo[i]) for a burst of at most WEIR_BURST_MAX. */
WEIR_NOINLINE void exact_leaf6_find_burst(struct table table, const uint64_t *hi, const uint64_t *lo, uint32_t *labels,
					  uint32_t count)
{
	uint32_t in_prefixes[WEIR_BURST_MAX];

	exact_set6_find_burst(table, hi, lo, labels, count);
	if (!exact_leaf_has_prefixes(table))
		return;
	rank_leaf6_find_burst(exact_leaf_prefixes(table), hi, lo, in_prefixes, count);
	for (uint32_t i = 0; i < count; i++)
		labels[i] |= in_prefixes[i];
}

#endif
#endif
