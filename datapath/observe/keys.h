/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What is observed of a burst (observe/burst.h), and the search for the cells of its keys, if a hash selects them.
 */
#ifndef WEIR_OBSERVE_KEYS_H
#define WEIR_OBSERVE_KEYS_H

#include "core/burst.h"
#include "observe/feature.h"

#ifdef WEIR_BURSTS

enum {
	OBSERVED_TOGETHER = 16, /* packets of one element in a burst that are summed up before they are counted */
};

/* What is observed of the packets of a burst. */
struct observed {
	/* Bytes in front of elements of the sheet: a cell, a sum, or a group that may have the key. */
	uint32_t offsets[WEIR_BURST_MAX] WEIR_COLUMNS;
	uint32_t places[WEIR_BURST_MAX] WEIR_COLUMNS; /* in the element: the class, lane << 8, the peer's bit << 16 */
	uint8_t classes[WEIR_BURST_MAX] WEIR_COLUMNS;
	uint64_t inside;   /* packets to protected addresses */
	uint64_t searched; /* packets whose keys are searched in groups, if they are inside */
	uint64_t open;	   /* packets that the rules decide */
	/* Of IPv6 packets, from the parser. */
	uint32_t elements6[WEIR_BURST_MAX];
	uint32_t peers6[WEIR_BURST_MAX];
	struct feature_key keys6[WEIR_BURST_MAX]; /* if a hash selects the cells */
};

/* The columns of a chain that are read. */
struct observed_columns {
	const uint8_t *l3;
	const uint8_t *l4;
	const uint8_t *fragment;
	const uint8_t *tcp_flags;
	const uint16_t *sport;
	const uint32_t *own; /* the protected address, if it is IPv4 */
	const uint32_t *peer;
};

/* An element of a sheet, by the bytes in front of it. */
WEIR_INLINE union feature_element *observed_at(union feature_element *sheet, uint32_t offset)
{
	return (union feature_element *)((uint8_t *)sheet + offset);
}

/* The bytes in front of an element. A sheet has less than 2^32. */
WEIR_INLINE uint32_t observed_offset(uint32_t element)
{
	return element * (uint32_t)sizeof(union feature_element);
}

/* The places of a group that have a key, a bit for each. All keys are compared at once. */
WEIR_INLINE uint32_t observe_same(const struct feature_group *group, struct feature_key key)
{
	uint32_t same = 0;

#ifdef __clang__
	typedef uint64_t halves __attribute__((vector_size(sizeof(struct feature_group))));
	typedef bool bits __attribute__((ext_vector_type(2 * FEATURE_GROUP)));
	const halves wanted = {key.low, key.low, key.low, key.low, key.high, key.high, key.high, key.high};
	halves known;
	uint8_t equal;
	bits set;

	__builtin_memcpy(&known, group, sizeof(known));
	set = __builtin_convertvector(known == wanted, bits);
	__builtin_memcpy(&equal, &set, sizeof(equal));
	same = equal & equal >> FEATURE_GROUP;
#else
	for (uint32_t i = 0; i < FEATURE_GROUP; i++)
		same |= (uint32_t)(group->low[i] == key.low && group->high[i] == key.high) << i;
#endif
	return same;
}

/* The first cell of a group. Both are offsets. */
WEIR_INLINE uint32_t observe_first_cell(uint32_t group, const struct observing *observing,
					enum observed_direction direction)
{
	return observed_offset(feature_cells(observing, direction)) +
	       (group - observed_offset(feature_keys(observing, direction))) * FEATURE_GROUP;
}

/*
 * The cell of a key in its group; one without a cell gets a free one. The sum of the rest if there is no room. All are
 * offsets.
 */
WEIR_INLINE uint32_t observe_cell(union feature_element *sheet, uint32_t group, struct feature_key key,
				  const struct observing *observing, enum observed_direction direction)
{
	struct feature_group *keys = &observed_at(sheet, group)->group;
	uint32_t same = observe_same(keys, key);

	if (!same) {
		same = observe_same(keys, (struct feature_key){0, 0});
		if (!same)
			return observed_offset(FEATURE_REST + direction);
		keys->low[__builtin_ctz(same)] = key.low;
		keys->high[__builtin_ctz(same)] = key.high;
	}
	return observe_first_cell(group, observing, direction) + observed_offset((uint32_t)__builtin_ctz(same));
}

/*
 * Searches the keys of packets in their order, which decides who gets the last place of a group, and fetches their
 * cells. Cells of IPv4 prefixes are recent ones from now on.
 */
WEIR_INLINE void observe_cells(const struct weir_burst *burst, struct observed *seen,
			       const struct observed_columns *columns, uint64_t searched, uint64_t ipv6,
			       const struct observing *observing, enum observed_direction direction)
{
	union feature_element *sheet = burst->features.sheet;
	uint64_t *recent = sheet[feature_recents(observing, direction)].recents.cells;

	for (uint64_t left = searched; left; left &= left - 1) {
		const uint32_t i = first_of(left), prefix = columns->own[i] & observing->mask4;
		const bool is_ipv6 = ipv6 >> i & 1;
		const struct feature_key key = is_ipv6 ? seen->keys6[i] : feature_whole4(prefix);
		const uint32_t cell = observe_cell(sheet, seen->offsets[i], key, observing, direction);

		seen->offsets[i] = cell;
		__builtin_prefetch(observed_at(sheet, cell), 1);
		if (!is_ipv6 && cell >= observed_offset(FEATURE_HEADS))
			recent[feature_recent(observing, prefix)] =
				feature_recent_word(prefix, cell / (uint32_t)sizeof(union feature_element));
	}
}

#endif

#endif
