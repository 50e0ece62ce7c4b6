/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Radix: a path-compressed binary trie, IPv4 prefixes to labels. lab/schemes/src/radix.rs has the bit diagrams.
 * For benchmarks: no policy uses it.
 *
 * Each node on the path takes a cache line. There is at most one node for each length.
 */
#ifndef WEIR_SCHEME_RADIX_H
#define WEIR_SCHEME_RADIX_H

#include "tables/image.h"

enum {
	RADIX_NODES = 64 / 4, /* first 32-bit word of the nodes */
	RADIX_LENGTH_BITS = 6,
	RADIX_DEPTH_MAX = 33, /* a node for each length, /0 to /32 */
};

/* The label of the longest prefix that holds addr (host byte order), 0 if none does. */
WEIR_INLINE uint32_t radix_find(struct table table, uint32_t addr)
{
	uint32_t number = 0;
	uint32_t found = 0;

	for (int depth = 0; depth < RADIX_DEPTH_MAX; depth++) {
		uint32_t node = RADIX_NODES + (number << 2);
		uint32_t info = image_u32(table, node + 1);
		uint32_t len = info & ((1 << RADIX_LENGTH_BITS) - 1);
		/* 64 bits, because a length of 32 shifts all bits out. */
		uint32_t host_mask = (uint32_t)(UINT64_C(0xffffffff) >> len);

		if ((addr ^ image_u32(table, node)) & ~host_mask)
			break;
		if (info >> RADIX_LENGTH_BITS)
			found = info >> RADIX_LENGTH_BITS;
		if (len == 32)
			break;
		number = image_u32(table, node + 2 + (addr << len >> 31));
		if (number == 0)
			break;
	}
	return found;
}

#endif
