/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The extern objects of `limit each` of connections. They come behind `track` (p4/track.h). Such a
 * pipeline has no controller, so all packets use the same memory. */
#ifndef WEIR_P4_CONNECTIONS_H
#define WEIR_P4_CONNECTIONS_H

#include "connections/holding.h"
#include "p4/track.h"

struct p4_connections4 {
	uint32_t key;
	uint8_t within;
} P4_MAILBOX;

struct p4_connections6 {
	uint64_t hi;
	uint64_t lo;
	uint8_t within;
} P4_MAILBOX;

/* Grants the claim of the packet, or counts it if it has no seat and the limiter counts. */
WEIR_INLINE bool p4_has_seat(void *worker, uint32_t limiter, struct each_hash hash, uint64_t hi, uint64_t lo)
{
	const struct env *env = p4_env(worker);
	const struct p4_flow *flow = p4_flow(worker, 0);
	const struct holding holding = track_holding(&flow->track, flow->now);

	if (seat_grant(env, limiter, &holding, hash))
		return true;
	if (LIMITER_FIELD(env_limits(env), limiter, logged))
		each_count_one(env, limiter, hash, hi, lo);
	return false;
}

WEIR_INLINE int p4_connections4(void *worker, void *mailbox, uint32_t limiter, uint32_t mask)
{
	struct p4_connections4 *mail = mailbox;
	const uint32_t address = mail->key & mask;
	const uint32_t seed = LIMITER_FIELD(env_limits(p4_env(worker)), limiter, seed);

	mail->within = p4_has_seat(worker, limiter, each_hash4(address, seed), 0, address);
	return 1;
}

WEIR_INLINE int p4_connections6(void *worker, void *mailbox, uint32_t limiter, uint64_t mask_hi, uint64_t mask_lo)
{
	struct p4_connections6 *mail = mailbox;
	const uint64_t hi = mail->hi & mask_hi, lo = mail->lo & mask_lo;
	const uint32_t seed = LIMITER_FIELD(env_limits(p4_env(worker)), limiter, seed);

	mail->within = p4_has_seat(worker, limiter, each_hash6(hi, lo, seed), hi, lo);
	return 1;
}

#endif
