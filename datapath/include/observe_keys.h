/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What is observed of a burst (observe_burst.h), and the search for the cells of its keys, if a hash selects them.
 */
#ifndef WEIR_OBSERVE_KEYS_H
#define WEIR_OBSERVE_KEYS_H

#include "burst.h"
#include "feature.h"

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
	uint64_t inside; /* packets to protected addresses */
	uint64_t open;	 /* packets that the rules decide */
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

/* The same for the lower halves alone. */
WEIR_INLINE uint32_t observe_same_low(const struct feature_group *group, const uint64_t *low)
{
#ifdef __AVX__
	typedef uint64_t halves __attribute__((vector_size(sizeof(group->low))));
	typedef double signs __attribute__((vector_size(sizeof(group->low))));
	uint32_t same;
	halves known;

	__builtin_memcpy(&known, group->low, sizeof(known));
	/* The sign of each word. A vector of four bits would be a byte of which four bits have no value. */
	same = (uint32_t)__builtin_ia32_movmskpd256((signs)(known == *low));
	/* Otherwise the compiler counts in bytes, and masks the result again. */
	__asm__("" : "+r"(same));
	return same;
#else
	uint32_t same = 0;

	for (uint32_t i = 0; i < FEATURE_GROUP; i++)
		same |= (uint32_t)(group->low[i] == *low) << i;
	return same;
#endif
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
 * offsets. Not inlined: most packets take observe_cell4().
 */
static uint32_t __attribute__((noinline, unused)) observe_cell(union feature_element *sheet, uint32_t group,
							       struct feature_key key, uint32_t first, uint32_t rest)
{
	struct feature_group *keys = &observed_at(sheet, group)->group;
	uint32_t same = observe_same(keys, key);

	if (!same) {
		same = observe_same(keys, (struct feature_key){0, 0});
		if (!same)
			return rest;
		keys->low[__builtin_ctz(same)] = key.low;
		keys->high[__builtin_ctz(same)] = key.high;
	}
	return first + observed_offset((uint32_t)__builtin_ctz(same));
}

/*
 * observe_cell() for packet i, which is IPv4. `low` points to the lower half of its key, so that the comparison takes
 * it from memory. Another key rarely has the same lower half; then the full search decides.
 */
WEIR_INLINE void observe_cell4(union feature_element *sheet, struct observed *seen,
			       const struct observed_columns *columns, uint32_t i, const uint64_t *low,
			       const struct observing *observing, enum observed_direction direction)
{
	const uint32_t group = seen->offsets[i], first = observe_first_cell(group, observing, direction);
	const struct feature_group *keys = &observed_at(sheet, group)->group;
	const uint32_t same = observe_same_low(keys, low);
	uint32_t cell;

	if (WEIR_UNLIKELY(!same) || WEIR_UNLIKELY(keys->high[__builtin_ctz(same)]))
		cell = observe_cell(sheet, group, feature_key4(observing, columns->own[i]), first,
				    observed_offset(FEATURE_REST + direction));
	else
		cell = first + observed_offset((uint32_t)__builtin_ctz(same));
	seen->offsets[i] = cell;
	__builtin_prefetch(observed_at(sheet, cell), 1);
}

/* Searches the key of packet i, which is IPv6, and fetches its cell. */
WEIR_INLINE void observe_cell6(union feature_element *sheet, struct observed *seen, uint32_t i,
			       const struct observing *observing, enum observed_direction direction)
{
	const uint32_t group = seen->offsets[i], first = observe_first_cell(group, observing, direction);
	const uint32_t rest = observed_offset(FEATURE_REST + direction);

	seen->offsets[i] = observe_cell(sheet, group, seen->keys6[i], first, rest);
	__builtin_prefetch(observed_at(sheet, seen->offsets[i]), 1);
}

/*
 * Searches the keys of packets in their order, and fetches their cells. Most packets of an attack have one key, which
 * is searched once.
 */
WEIR_INLINE void observe_cells(union feature_element *sheet, struct observed *seen,
			       const struct observed_columns *columns, uint64_t inside, uint64_t ipv6,
			       const struct observing *observing, enum observed_direction direction)
{
	const uint32_t first = first_of(inside), own = columns->own[first] & observing->mask4;
	const uint64_t alike = inside & ~ipv6 & u32_masked(columns->own, observing->mask4, own, own);
	uint64_t low[WEIR_BURST_MAX], left = inside;

	/* Only if it is the first packet's key: otherwise it would get a place before keys of earlier packets. */
	if (!(ipv6 >> first & 1) && __builtin_popcountll(alike) >= OBSERVED_TOGETHER) {
		const uint64_t low_of_first = feature_whole4(own).low;
		uint32_t cell;

		observe_cell4(sheet, seen, columns, first, &low_of_first, observing, direction);
		cell = seen->offsets[first];
		for (uint32_t i = 0; i < WEIR_BURST_MAX; i++)
			seen->offsets[i] = alike >> i & 1 ? cell : seen->offsets[i];
		left &= ~alike;
	}
	if (!left)
		return;
	for (uint32_t i = 0; i < WEIR_BURST_MAX; i++)
		low[i] = feature_key4(observing, columns->own[i]).low;
	if (left == UINT64_MAX && !ipv6) {
		/* In a full burst of IPv4, the next packet is known. */
		for (uint32_t i = 0; i < WEIR_BURST_MAX; i++)
			observe_cell4(sheet, seen, columns, i, &low[i], observing, direction);
	} else {
		for (; left; left &= left - 1) {
			const uint32_t i = first_of(left);

			if (WEIR_UNLIKELY(ipv6 >> i & 1))
				observe_cell6(sheet, seen, i, observing, direction);
			else
				observe_cell4(sheet, seen, columns, i, &low[i], observing, direction);
		}
	}
}

#endif

#endif
