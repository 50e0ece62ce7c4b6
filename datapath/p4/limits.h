/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The extern objects of limits: each charges a packet to a bucket and says whether it is within the limit. */
#ifndef WEIR_P4_LIMITS_H
#define WEIR_P4_LIMITS_H

#include "limits/each.h"
#include "limits/limit.h"
#include "p4/externs.h"

/* A limiter with one bucket. */
struct p4_limit {
	uint64_t time;
	uint32_t length;
	uint8_t within;
} P4_MAILBOX;

/* The bucket is the result of a lookup. */
struct p4_limit_found {
	uint32_t found;
	uint64_t time;
	uint32_t length;
	uint8_t within;
} P4_MAILBOX;

/* The bucket of an address. */
struct p4_limit_each4 {
	uint32_t key;
	uint64_t time;
	uint32_t length;
	uint8_t within;
} P4_MAILBOX;

struct p4_limit_each6 {
	uint64_t hi;
	uint64_t lo;
	uint64_t time;
	uint32_t length;
	uint8_t within;
} P4_MAILBOX;

WEIR_INLINE int p4_limit(const void *worker, void *mailbox, uint32_t limiter)
{
	struct p4_limit *mail = mailbox;

	mail->within = limit_settle(p4_env(worker), limiter, 0, mail->time, mail->length);
	return 1;
}

WEIR_INLINE int p4_limit_found(const void *worker, void *mailbox, uint32_t limiter)
{
	struct p4_limit_found *mail = mailbox;

	mail->within = limit_settle(p4_env(worker), limiter, mail->found, mail->time, mail->length);
	return 1;
}

/* Charges a packet to an address, and counts it if it has no room and the limiter counts. */
WEIR_INLINE bool p4_each_has_room(const struct env *env, uint32_t limiter, struct each_hash hash, uint64_t time,
				  uint32_t length)
{
	const struct table limits = env_limits(env);
	const struct limit_profile profile = limit_profile(limits, LIMITER_FIELD(limits, limiter, profiles) + 1);
	uint64_t *set = env_buckets(env, each_place(limits, limiter, hash.hash), EACH_WAYS);

	return each_charge(env, set, hash.tag, each_ticks(time, profile.coarse), limit_cost(profile, length),
			   profile.room);
}

WEIR_INLINE int p4_limit_each4(const void *worker, void *mailbox, uint32_t limiter, uint32_t mask)
{
	struct p4_limit_each4 *mail = mailbox;
	const struct env *env = p4_env(worker);
	const uint32_t address = mail->key & mask;
	const struct each_hash hash = each_hash4(address, LIMITER_FIELD(env_limits(env), limiter, seed));

	mail->within = p4_each_has_room(env, limiter, hash, mail->time, mail->length);
	if (!mail->within && LIMITER_FIELD(env_limits(env), limiter, logged))
		each_count_one(env, limiter, hash, 0, address);
	return 1;
}

WEIR_INLINE int p4_limit_each6(const void *worker, void *mailbox, uint32_t limiter, uint64_t mask_hi, uint64_t mask_lo)
{
	struct p4_limit_each6 *mail = mailbox;
	const struct env *env = p4_env(worker);
	const uint64_t hi = mail->hi & mask_hi, lo = mail->lo & mask_lo;
	const struct each_hash hash = each_hash6(hi, lo, LIMITER_FIELD(env_limits(env), limiter, seed));

	mail->within = p4_each_has_room(env, limiter, hash, mail->time, mail->length);
	if (!mail->within && LIMITER_FIELD(env_limits(env), limiter, logged))
		each_count_one(env, limiter, hash, hi, lo);
	return 1;
}

#endif
