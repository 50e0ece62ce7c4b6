/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Rank leaf: prefixes of both families to labels, 16 bits of the key at a time. A value is a label, or with RANK_FLAG
 * the block of the next bits. crates/tables/src/layout/rank_leaf/mod.rs has the bit diagrams.
 *
 * User space ranks a key in its leaf with one comparison of a cache line. The kernel has no vectors and searches the
 * leaf's few lanes. tables/rank_leaf_burst.h looks up bursts of keys. A writer may change the table meanwhile
 * (crates/tables/src/live). So each word on a key's path is read once, and the writer stores what a word leads to
 * before the word.
 */
#ifndef WEIR_TABLES_RANK_LEAF_H
#define WEIR_TABLES_RANK_LEAF_H

#include "tables/image.h"
#include "core/lanes.h"

enum {
	RANK_ROOT = 64 / 4,		     /* first value of the root, of 32 bits */
	RANK_ENTRIES = (64 + (4 << 16)) / 4, /* first 32-bit word of the entries */
	RANK_STARTS_FIELD = 4,		     /* header fields: byte offsets of starts and values */
	RANK_VALUES_FIELD = 6,
	RANK_VALUE_BYTES_FIELD = 8, /* header field: bytes of a value, 1 to 4 */
	RANK_NUMBER_MASK = (1 << 26) - 1,
	RANK_NUMBER_SHIFT = 5,
	RANK_LOW_MASK = 31,
	RANK_LINE_MASK = 31, /* lanes of a line - 1 */
	RANK_NESTED_BASE_MASK = (1 << 22) - 1,
	RANK_NESTED_BASE_SHIFT = 9,
	RANK_NESTED_SHIFT_MASK = 15,
	RANK_SEARCH_STEPS = 5, /* a leaf has at most 32 lanes */
	RANK_STEPS_MAX = 7,    /* chunks of an IPv6 address after the first */
};

#define RANK_FLAG UINT32_C(0x80000000) /* of a nested entry, and of a value that is a block */

_Static_assert(RANK_ENTRIES * 4 == 262208, "abi: entries offset");

/* The position of the lanes. */
struct rank_lanes {
	uint32_t starts;      /* 16-bit word of lane 0's start */
	uint32_t values;      /* byte of lane 0's value */
	uint32_t value_bytes; /* a constant where possible */
};

WEIR_INLINE struct rank_lanes rank_lanes(struct table table)
{
	return (struct rank_lanes){
		.starts = image_section(table, RANK_STARTS_FIELD) >> 1,
		.values = image_section(table, RANK_VALUES_FIELD),
		.value_bytes = image_section(table, RANK_VALUE_BYTES_FIELD),
	};
}

/* The entry for a 16-bit chunk of the key in the block `word`, no nested one; entry 0 is 32-bit word `entries`. */
WEIR_INLINE uint32_t rank_entry(struct table table, uint32_t entries, uint32_t word, uint32_t chunk)
{
	uint32_t base = word >> RANK_NUMBER_SHIFT & RANK_NUMBER_MASK;
	uint32_t entry = image_u32(table, entries + base + (chunk >> (word & RANK_LOW_MASK)));

	if (WEIR_UNLIKELY(entry & RANK_FLAG)) {
		uint32_t index = chunk >> (entry >> RANK_NUMBER_SHIFT & RANK_NESTED_SHIFT_MASK);

		base = entry >> RANK_NESTED_BASE_SHIFT & RANK_NESTED_BASE_MASK;
		index &= (1u << (entry & RANK_LOW_MASK)) - 1;
		entry = image_u32(table, entries + base + index);
	}
	return entry;
}

#ifndef WEIR_BURSTS

/*
 * The lane of the chunk's run, given its leaf. A value of the leaf is read before the starts are searched: the values
 * of a leaf are next to each other, so that their line arrives at the same time as the line of the starts. Only counted
 * leaves have leaves of one lane.
 */
WEIR_INLINE uint32_t rank_lane(struct table table, struct rank_lanes lanes, uint32_t entry, uint32_t chunk)
{
	uint32_t lane = entry >> RANK_NUMBER_SHIFT;
	uint32_t count = (entry & RANK_LOW_MASK) + 1;

	if (WEIR_LIKELY(count == 1))
		return lane;
	touch(table_at(table, lanes.values + (lane + (count >> 1)) * lanes.value_bytes));
	for (uint32_t step = 0; step < RANK_SEARCH_STEPS; step++) {
		uint32_t half = count >> 1;
		uint32_t start = image_u16(table, lanes.starts + lane + half);

		/* All ones if the run starts at or before the chunk. With one lane left, half is 0. */
		lane += half & (uint32_t)((int32_t)opaque(start - chunk - 1) >> 31);
		count -= half;
	}
	return lane;
}

#else

/*
 * The lane of the chunk's run, given its leaf: the leaf's first lane plus the number of later starts that are not above
 * the chunk.
 */
WEIR_INLINE uint32_t rank_lane(struct table table, struct rank_lanes lanes, uint32_t entry, uint32_t chunk)
{
	uint32_t lane = entry >> RANK_NUMBER_SHIFT;
	const uint8_t *line = table_at(table, (lanes.starts + (lane & ~(uint32_t)RANK_LINE_MASK)) << 1);
	uint32_t after_first = lanes_at_most(line, (uint16_t)chunk) >> (lane & RANK_LINE_MASK) >> 1;
	uint32_t leaf = (1u << (entry & RANK_LOW_MASK)) - 1;

	return lane + (uint32_t)__builtin_popcount(after_first & leaf);
}

#endif

WEIR_INLINE uint32_t rank_value(struct table table, struct rank_lanes lanes, uint32_t lane)
{
	/* Every lane has four readable bytes. Bytes of other lanes are masked off. */
	uint32_t word = host32(table_at(table, lanes.values + lane * lanes.value_bytes));

	return word & UINT32_MAX >> (32 - 8 * lanes.value_bytes);
}

/* Whether the entry is a leaf, and no label. */
WEIR_INLINE bool rank_is_leaf(uint32_t entry)
{
	return (entry & RANK_LOW_MASK) != 0;
}

/* The value that the block has for a chunk. */
WEIR_INLINE uint32_t rank_step(struct table table, uint32_t block, uint32_t chunk)
{
	uint32_t entry = rank_entry(table, RANK_ENTRIES, block, chunk);
	struct rank_lanes lanes;

	if (!rank_is_leaf(entry))
		return entry >> RANK_NUMBER_SHIFT;
	lanes = rank_lanes(table);
	return rank_value(table, lanes, rank_lane(table, lanes, entry, chunk));
}

/* The label of the longest prefix that holds addr (host byte order), 0 if none does. */
WEIR_INLINE uint32_t rank_leaf_find(struct table table, uint32_t addr)
{
	uint32_t value = image_u32(table, RANK_ROOT + (addr >> 16));

	return value & RANK_FLAG ? rank_step(table, value, addr & 0xffff) : value;
}

/* The 16 bits of an IPv6 address that step `step` takes; the root takes those before step 0. */
WEIR_INLINE uint32_t rank_chunk(uint64_t hi, uint64_t lo, uint32_t step)
{
	return (uint32_t)(step < 3 ? hi >> (32 - 16 * step) : lo >> (96 - 16 * step)) & 0xffff;
}

/* The label of the longest prefix that holds the address of these 64-bit halves (host byte order), 0 if none does. */
WEIR_INLINE uint32_t rank_leaf6_find(struct table table, uint64_t hi, uint64_t lo)
{
	uint32_t value = image_u32(table, RANK_ROOT + (uint32_t)(hi >> 48));

	for (uint32_t step = 0; step < RANK_STEPS_MAX && value & RANK_FLAG; step++)
		value = rank_step(table, value, rank_chunk(hi, lo, step));
	return value & RANK_FLAG ? 0 : value;
}

#endif
