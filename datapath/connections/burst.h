/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * `limit each ip saddr connections 20` for a burst. The kernel's code is in connections/kernel.h.
 *
 * A claim depends on the states of other flows. So a policy with such a limit decides every packet that may change the
 * state of a connection in a segment of its own (track/burst.h), together with acknowledgements behind it.
 */
#ifndef WEIR_CONNECTIONS_BURST_H
#define WEIR_CONNECTIONS_BURST_H

#include "connections/holding.h"
#include "track/burst.h"

#ifdef WEIR_BURSTS

/* The connection of a packet of the segment. */
WEIR_INLINE struct holding burst_holding(const struct env *env, const struct track_burst *tracked, uint32_t i,
					 uint32_t now)
{
	const struct ack_columns *acks = &tracked->columns;
	uint32_t first;

	if (!(tracked->acks >> i & 1))
		return track_holding(&tracked->tracks[i], now);
	/* The common case is an ACK of a proven connection. */
	first = (uint32_t)(acks->buckets[i] - env->flows.buckets);
	return (struct holding){seat_of(first, acks->seconds[i], acks->tags[i]), CLAIM_SEAT, now};
}

/* Grants the claims of the hits, in their order. Returns the hits that exceed the limit of their address. */
WEIR_NOINLINE uint64_t connections_exceeding(const struct env *env, const struct weir_burst *burst, uint32_t limiter,
					     const struct track_burst *tracked, const struct each_hash *hashes,
					     uint64_t hits)
{
	uint64_t clock = tracked->clock, exceeding = 0;

	for (uint64_t rest = tracked->segment; rest; rest &= rest - 1) {
		const uint32_t i = first_of(rest);
		const uint64_t time = burst_time(burst, i) >> FLOW_TICK_SHIFT;
		struct holding holding;

		clock = time > clock ? time : clock;
		if (!(hits >> i & 1))
			continue;
		holding = burst_holding(env, tracked, i, (uint32_t)clock & (FLOW_TICKS - 1));
		exceeding |= (uint64_t)!seat_grant(env, limiter, &holding, hashes[i]) << i;
	}
	return exceeding;
}

WEIR_INLINE uint64_t limit_connections4_exceeding(const struct env *env, const struct weir_burst *burst,
						  uint32_t limiter, const struct track_burst *tracked,
						  const uint32_t *addresses, uint32_t mask, uint64_t hits)
{
	const uint32_t seed = LIMITER_FIELD(env_limits(env), limiter, seed);
	struct each_hash hashes[WEIR_BURST_MAX];
	uint64_t exceeding;

	for (uint32_t i = 0; i < WEIR_BURST_MAX; i++)
		hashes[i] = each_hash4(addresses[i] & mask, seed);
	exceeding = connections_exceeding(env, burst, limiter, tracked, hashes, hits);
	if (WEIR_UNLIKELY(LIMITER_FIELD(env_limits(env), limiter, logged))) {
		for (uint64_t left = exceeding; left; left &= left - 1) {
			const uint32_t i = first_of(left);

			each_count_one(env, limiter, hashes[i], 0, addresses[i] & mask);
		}
	}
	return exceeding;
}

WEIR_INLINE uint64_t limit_connections6_exceeding(const struct env *env, const struct weir_burst *burst,
						  uint32_t limiter, const struct track_burst *tracked,
						  const uint64_t *hi, uint64_t mask_hi, const uint64_t *lo,
						  uint64_t mask_lo, uint64_t hits)
{
	const uint32_t seed = LIMITER_FIELD(env_limits(env), limiter, seed);
	struct each_hash hashes[WEIR_BURST_MAX];
	uint64_t exceeding;

	for (uint32_t i = 0; i < WEIR_BURST_MAX; i++)
		hashes[i] = each_hash6(hi[i] & mask_hi, lo[i] & mask_lo, seed);
	exceeding = connections_exceeding(env, burst, limiter, tracked, hashes, hits);
	if (WEIR_UNLIKELY(LIMITER_FIELD(env_limits(env), limiter, logged))) {
		for (uint64_t left = exceeding; left; left &= left - 1) {
			const uint32_t i = first_of(left);

			each_count_one(env, limiter, hashes[i], hi[i] & mask_hi, lo[i] & mask_lo);
		}
	}
	return exceeding;
}

#endif
#endif
