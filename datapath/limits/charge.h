/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* How one bucket is charged: the arithmetic of crates/abi/src/limit.rs, which has a worked example. */
#ifndef WEIR_LIMITS_CHARGE_H
#define WEIR_LIMITS_CHARGE_H

#include "core/env.h"

enum {
	TICK_SHIFT = 8, /* ticks of 2^-8 ns */
	CHARGED_BYTES_MAX = 65535,
	BYTE_SHIFT = 16,  /* fractional bits of limit_profile.per_byte */
	LIMIT_TRIES = 64, /* attempts to charge a bucket that other workers change; then it has no room */
};

#define DEBT_MAX (UINT64_C(1) << 57)
#define LIMIT_NO_ROOM UINT64_MAX /* more than any debt */

/* A rate and a burst: struct LimitProfile. */
struct limit_profile {
	uint64_t per_packet; /* ticks */
	uint64_t per_byte;   /* ticks, with BYTE_SHIFT fractional bits */
	uint64_t room;	     /* ticks */
	uint64_t coarse;     /* a tick is 2^coarse usual ticks; 0 except in limits/each.h */
};

_Static_assert(sizeof(struct limit_profile) == 32, "abi: LimitProfile");

/* The cost in ticks of one packet on the wire. */
WEIR_INLINE uint64_t limit_cost_one(struct limit_profile profile, uint32_t bytes)
{
	const uint64_t charged = bytes < CHARGED_BYTES_MAX ? bytes : CHARGED_BYTES_MAX;

	return profile.per_packet + ((charged * profile.per_byte + ((1 << BYTE_SHIFT) - 1)) >> BYTE_SHIFT);
}

/*
 * The cost in ticks of a packet of this many bytes, or of the equal packets that a card makes of it. Those cost more
 * than any room if one of them costs so much that the product might not be a number: ten minutes.
 */
WEIR_INLINE uint64_t limit_cost(struct limit_profile profile, uint32_t bytes)
{
	const uint32_t packets = wire_packets();
	uint64_t one;

	if (packets <= 1)
		return limit_cost_one(profile, bytes);
	one = limit_cost_one(profile, wire_bytes(bytes) / packets);
	return one < DEBT_MAX >> 10 ? one * (packets & 0xffff) : DEBT_MAX;
}

/* How far the word is ahead of the clock. */
WEIR_INLINE uint64_t limit_debt(uint64_t word, uint64_t now)
{
	const uint64_t ahead = word - now;

	return forget64(ahead > DEBT_MAX ? 0 : ahead);
}

/*
 * Charges a bucket and returns its new debt, or LIMIT_NO_ROOM without changing it. A bucket without room is only read,
 * so a flood causes no writes.
 */
WEIR_INLINE uint64_t limit_charge(uint64_t *bucket, uint64_t now, uint64_t cost, uint64_t room)
{
	uint64_t word = *(volatile uint64_t *)bucket;

	for (uint32_t try = 0; try < LIMIT_TRIES; try++) {
		const uint64_t debt = limit_debt(word, now) + cost;
		uint64_t found;

		if (debt > room)
			return LIMIT_NO_ROOM;
		found = __sync_val_compare_and_swap(bucket, word, now + debt);
		if (WEIR_LIKELY(found == word))
			return debt;
		word = found;
	}
	return LIMIT_NO_ROOM;
}

#endif
