/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* `limit each ip saddr connections 20` in the kernel, one packet at a time. For bursts: connections/burst.h. */
#ifndef WEIR_CONNECTIONS_KERNEL_H
#define WEIR_CONNECTIONS_KERNEL_H

#include "connections/holding.h"
#include "track/kernel.h"

/* Grants the claim of the CPU's packet; false if it exceeds the limit of the address. */
WEIR_LIMIT_FUNCTION uint32_t weir_limit_connections(uint32_t limiter, uint32_t hash, uint32_t tag)
{
	const struct cpu_track *own = own_track();
	const struct holding holding = track_holding(&own->track, own->now);

	return seat_grant(NULL, limiter, &holding, (struct each_hash){hash, tag & 0xffff});
}

WEIR_INLINE bool limit_connections4_has_room(const struct env *env, uint32_t limiter, uint32_t address)
{
	const struct each_hash hash = each_hash4(address, LIMITER_FIELD(env_limits(env), limiter, seed));

	if (weir_limit_connections(limiter, hash.hash, hash.tag))
		return true;
	weir_each_count(limiter, hash.hash, hash.tag, 0, address);
	return false;
}

WEIR_INLINE bool limit_connections6_has_room(const struct env *env, uint32_t limiter, uint64_t hi, uint64_t lo)
{
	const struct each_hash hash = each_hash6(hi, lo, LIMITER_FIELD(env_limits(env), limiter, seed));

	if (weir_limit_connections(limiter, hash.hash, hash.tag))
		return true;
	weir_each_count(limiter, hash.hash, hash.tag, hi, lo);
	return false;
}

#endif
