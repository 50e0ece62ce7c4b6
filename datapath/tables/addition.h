/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Rules that add addresses to tables, for a burst. Code only appends records; the engine takes them after each burst
 * and applies them at the end of the tick (crates/abi/src/addition.rs). In the kernel: tables/kernel_addition.h.
 */
#ifndef WEIR_TABLES_ADDITION_H
#define WEIR_TABLES_ADDITION_H

#include "core/env.h"

#ifdef WEIR_BURSTS

/* Adds the prefix of an IPv4 address for each of the hits. The engine has room for every addition of a burst. */
WEIR_NOINLINE void add4_hits(const struct weir_burst *burst, uint32_t adder, const uint32_t *addresses, uint32_t mask,
			     uint64_t hits)
{
	uint64_t count = *burst->additions.count;

	for (uint64_t left = hits; left; left &= left - 1) {
		const uint32_t i = (uint32_t)__builtin_ctzll(left);

		burst->additions.records[count++] = (struct weir_addition){0, addresses[i] & mask, adder, i};
	}
	*burst->additions.count = count;
}

/* Adds the prefix of an IPv6 address for each of the hits. */
WEIR_NOINLINE void add6_hits(const struct weir_burst *burst, uint32_t adder, const uint64_t *hi, uint64_t mask_hi,
			     const uint64_t *lo, uint64_t mask_lo, uint64_t hits)
{
	uint64_t count = *burst->additions.count;

	for (uint64_t left = hits; left; left &= left - 1) {
		const uint32_t i = (uint32_t)__builtin_ctzll(left);

		burst->additions.records[count++] = (struct weir_addition){hi[i] & mask_hi, lo[i] & mask_lo, adder, i};
	}
	*burst->additions.count = count;
}

#endif
#endif
