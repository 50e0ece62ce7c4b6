/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Poptrie18: IPv4 prefixes to labels. lab/schemes/src/poptrie.rs has the bit diagrams. For benchmarks: no
 * policy uses it.
 *
 * A leaf of the direct table takes one read. Otherwise each node on the path takes two reads, the last node three, and
 * the leaf one.
 */
#ifndef WEIR_SCHEME_POPTRIE_H
#define WEIR_SCHEME_POPTRIE_H

#include "tables/image.h"

enum {
	POPTRIE_DIRECT_BITS = 18,
	POPTRIE_NODE_BITS = 6,
	POPTRIE_LEVELS = 3,		      /* nodes for the 14 bits below the direct table */
	POPTRIE_DIRECT = 64 / 4,	      /* first 32-bit word of the direct table */
	POPTRIE_NODES = (64 + (4 << 18)) / 8, /* first 64-bit word of the nodes */
	POPTRIE_NODE_WORDS = 3,		      /* vector, leafvec, bases */
	POPTRIE_LEAVES_FIELD = 4,	      /* header field: byte offset of the leaves */
};

#define POPTRIE_LEAF (UINT32_C(1) << 31)

_Static_assert(POPTRIE_NODES * 8 == 1048640, "abi: nodes offset");

/* The label of the longest prefix that holds addr (host byte order), 0 if none does. */
WEIR_INLINE uint32_t poptrie_find(struct table table, uint32_t addr)
{
	uint32_t number = image_u32(table, POPTRIE_DIRECT + (addr >> (32 - POPTRIE_DIRECT_BITS)));
	uint32_t rest = addr << POPTRIE_DIRECT_BITS;
	uint64_t below = 0;
	uint32_t node = 0;
	uint32_t leaf;

	if (number & POPTRIE_LEAF)
		return number & ~POPTRIE_LEAF;
	for (int level = 0; level < POPTRIE_LEVELS; level++) {
		uint32_t slot = rest >> (32 - POPTRIE_NODE_BITS);
		uint64_t vector;

		node = POPTRIE_NODES + number * POPTRIE_NODE_WORDS;
		vector = image_u64(table, node);
		/* Bits of slots up to this one. */
		below = (UINT64_C(2) << slot) - 1;
		if (!(vector >> slot & 1))
			break;
		number = (uint32_t)(image_u64(table, node + 2) >> 32) + (uint32_t)__builtin_popcountll(vector & below) -
			 1;
		rest <<= POPTRIE_NODE_BITS;
	}
	leaf = (uint32_t)image_u64(table, node + 2) +
	       (uint32_t)__builtin_popcountll(image_u64(table, node + 1) & below) - 1;
	return image_u16(table, (image_section(table, POPTRIE_LEAVES_FIELD) >> 1) + leaf);
}

#endif
