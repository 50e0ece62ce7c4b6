/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Rank leaf: prefixes of both families to labels. A value is a label, or with RANK_FLAG the block of the key's next
 * bits; an entry of a block is a label, a leaf, or a block. crates/tables/src/layout/rank_leaf/mod.rs has the bit
 * diagrams.
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
	RANK_LINE_BYTES = 64,
	RANK_LINE_MASK = 31,   /* lanes of a line - 1, in IPv4 */
	RANK6_LINE_MASK = 15,  /* likewise in IPv6 */
	RANK_BITS = 16,	       /* bits of an IPv4 address after the root */
	RANK_SEARCH_STEPS = 5, /* a leaf of an IPv4 table has at most 32 lanes */
	RANK6_SEARCH_STEPS = 4,
	RANK6_LEVELS = 6,	    /* blocks above a leaf, up to the value that names the first */
	RANK6_LEAVES = 4,	    /* leaves on the way of an address */
	RANK6_START_BITS = 32,	    /* bits of a start */
	RANK6_UPPER_BITS = 64 - 16, /* bits of the upper half of an address after the root */
	RANK6_LOWER_BITS = 64,
};

#define RANK_FLAG UINT32_C(0x80000000) /* of a value or an entry that is a block */

_Static_assert(RANK_ENTRIES * 4 == 262208, "abi: entries offset");

/* The position of the lanes. */
struct rank_lanes {
	uint32_t starts;      /* word of lane 0's start: of 16 bits in IPv4, of 32 in IPv6 */
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

WEIR_INLINE struct rank_lanes rank6_lanes(struct table table)
{
	struct rank_lanes lanes = rank_lanes(table);

	lanes.starts >>= 1;
	return lanes;
}

/* First entry of the block `word`. */
WEIR_INLINE uint32_t rank_base(uint32_t word)
{
	return word >> RANK_NUMBER_SHIFT & RANK_NUMBER_MASK;
}

/* Number of bits of the key that the block `word` takes. */
WEIR_INLINE uint32_t rank_width(uint32_t word)
{
	return word & RANK_LOW_MASK;
}

/* The entry for the lower 16 bits of an IPv4 address in the block `word`, no block; entry 0 is 32-bit word `entries`.
 */
WEIR_INLINE uint32_t rank_entry(struct table table, uint32_t entries, uint32_t word, uint32_t chunk)
{
	uint32_t left = RANK_BITS - rank_width(word);
	uint32_t entry = image_u32(table, entries + rank_base(word) + (chunk >> left));

	if (WEIR_UNLIKELY(entry & RANK_FLAG)) {
		uint32_t width = rank_width(entry);

		chunk = chunk >> ((left - width) & 31) & ((1u << width) - 1);
		entry = image_u32(table, entries + rank_base(entry) + chunk);
	}
	return entry;
}

#ifndef WEIR_BURSTS

/* The start of a lane, given its line of an IPv4 table. */
WEIR_INLINE uint32_t rank_start(const uint8_t *line, uint32_t lane)
{
	uint16_t start;

	__builtin_memcpy(&start, __builtin_assume_aligned(line + (lane << 1 & (RANK_LINE_BYTES - 2)), 2),
			 sizeof(start));
	return start;
}

/* Like rank_start(), in an IPv6 table. */
WEIR_INLINE uint32_t rank6_start(const uint8_t *line, uint32_t lane)
{
	uint32_t start;

	__builtin_memcpy(&start, __builtin_assume_aligned(line + (lane << 2 & (RANK_LINE_BYTES - 4)), 4),
			 sizeof(start));
	return start;
}

/*
 * The lane of the key's run in an IPv4 table, given its leaf. All starts of a leaf are in one line. A value of the leaf
 * is read before the starts are searched: the values of a leaf are next to each other, so that their line arrives at
 * the same time as the line of the starts. Only counted leaves have leaves of one lane.
 */
WEIR_INLINE uint32_t rank_lane(struct table table, struct rank_lanes lanes, uint32_t entry, uint32_t chunk)
{
	uint32_t lane = entry >> RANK_NUMBER_SHIFT;
	uint32_t count = (entry & RANK_LOW_MASK) + 1;
	const uint8_t *line;

	if (WEIR_LIKELY(count == 1))
		return lane;
	touch(table_at(table, lanes.values + (lane + (count >> 1)) * lanes.value_bytes));
	line = table_block(table, (lanes.starts + (lane & ~(uint32_t)RANK_LINE_MASK)) << 1, RANK_LINE_BYTES);
	for (uint32_t step = 0; step < RANK_SEARCH_STEPS; step++) {
		uint32_t half = count >> 1;
		uint32_t start = rank_start(line, lane + half);

		/* All ones if the run starts at or before the chunk. With one lane left, half is 0. */
		lane += half & (uint32_t)((int32_t)opaque(start - chunk - 1) >> 31);
		count -= half;
	}
	return lane;
}

/* Like rank_lane(), in an IPv6 table. No leaf has one lane. */
WEIR_INLINE uint32_t rank6_lane(struct table table, struct rank_lanes lanes, uint32_t entry, uint32_t key)
{
	uint32_t lane = entry >> RANK_NUMBER_SHIFT;
	uint32_t count = (entry & RANK_LOW_MASK) + 1;
	const uint8_t *line =
		table_block(table, (lanes.starts + (lane & ~(uint32_t)RANK6_LINE_MASK)) << 2, RANK_LINE_BYTES);

	touch(table_at(table, lanes.values + (lane + (count >> 1)) * lanes.value_bytes));
	for (uint32_t step = 0; step < RANK6_SEARCH_STEPS; step++) {
		uint32_t half = count >> 1;
		uint32_t start = rank6_start(line, lane + half);

		/* No branch, which would double the paths for the verifier. With one lane left, half is 0. */
		lane += half & (0 - opaque((uint32_t)(((uint64_t)start - key - 1) >> 63)));
		count -= half;
	}
	return lane;
}

#else

/*
 * The lane of the key's run in an IPv4 table, given its leaf: the leaf's first lane plus the number of later starts
 * that are not above the key.
 */
WEIR_INLINE uint32_t rank_lane(struct table table, struct rank_lanes lanes, uint32_t entry, uint32_t chunk)
{
	uint32_t lane = entry >> RANK_NUMBER_SHIFT;
	const uint8_t *line = table_at(table, (lanes.starts + (lane & ~(uint32_t)RANK_LINE_MASK)) << 1);
	uint32_t after_first = lanes_at_most(line, (uint16_t)chunk) >> (lane & RANK_LINE_MASK) >> 1;
	uint32_t leaf = (1u << (entry & RANK_LOW_MASK)) - 1;

	return lane + (uint32_t)__builtin_popcount(after_first & leaf);
}

/* Like rank_lane(), in an IPv6 table. */
WEIR_INLINE uint32_t rank6_lane(struct table table, struct rank_lanes lanes, uint32_t entry, uint32_t key)
{
	uint32_t lane = entry >> RANK_NUMBER_SHIFT;
	const uint8_t *line = table_at(table, (lanes.starts + (lane & ~(uint32_t)RANK6_LINE_MASK)) << 2);
	uint32_t after_first = lanes32_at_most(line, key) >> (lane & RANK6_LINE_MASK) >> 1;
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

/* The label of the longest prefix that holds addr (host byte order), 0 if none does. */
WEIR_INLINE uint32_t rank_leaf_find(struct table table, uint32_t addr)
{
	uint32_t value = image_u32(table, RANK_ROOT + (addr >> 16)), entry;
	struct rank_lanes lanes;

	if (!(value & RANK_FLAG))
		return value;
	entry = rank_entry(table, RANK_ENTRIES, value, addr & 0xffff);
	if (!rank_is_leaf(entry))
		return entry >> RANK_NUMBER_SHIFT;
	lanes = rank_lanes(table);
	return rank_value(table, lanes, rank_lane(table, lanes, entry, addr & 0xffff));
}

/* The bits of an IPv6 address that are left: the lowest `left` of `half`. */
struct rank6_key {
	uint64_t half;
	uint32_t left;
	uint32_t grain; /* bits below the starts of leaves with more than 32 bits left */
};

/* The entry that the block `word` has for a key. It is a block only if a hostile image has too many levels. */
WEIR_INLINE uint32_t rank6_entry(struct table table, struct rank6_key *key, uint32_t word)
{
	for (uint32_t level = 0; level < RANK6_LEVELS && word & RANK_FLAG; level++) {
		uint32_t width = rank_width(word);

		key->left -= width;
		word = rank_base(word) + ((uint32_t)(key->half >> (key->left & 63)) & ((1u << width) - 1));
		word = image_u32(table, RANK_ENTRIES + word);
	}
	return word;
}

/* The label of the longest prefix that holds the address of these 64-bit halves (host byte order), 0 if none does. */
WEIR_INLINE uint32_t rank_leaf6_find(struct table table, uint64_t hi, uint64_t lo)
{
	uint32_t value = image_u32(table, RANK_ROOT + (uint32_t)(hi >> 48));
	struct rank6_key key = {.half = hi, .left = RANK6_UPPER_BITS, .grain = RANK6_UPPER_BITS - RANK6_START_BITS};
	struct rank_lanes lanes;

	if (!(value & RANK_FLAG))
		return value;
	lanes = rank6_lanes(table);
	for (uint32_t leaf = 0; leaf < RANK6_LEAVES && value & RANK_FLAG; leaf++) {
		uint32_t entry = rank6_entry(table, &key, value), grain;

		if (entry & RANK_FLAG)
			return 0;
		if (!rank_is_leaf(entry))
			return entry >> RANK_NUMBER_SHIFT;
		grain = key.left > RANK6_START_BITS ? key.grain : 0;
		value = rank_value(table, lanes, rank6_lane(table, lanes, entry, (uint32_t)(key.half >> grain)));
		if (grain)
			key.left = grain;
		else
			key = (struct rank6_key){lo, RANK6_LOWER_BITS, RANK6_LOWER_BITS - RANK6_START_BITS};
	}
	return value & RANK_FLAG ? 0 : value;
}

#endif
