/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Where a new flow goes: steps 1 to 5 of docs/reference/tracking.md#the-table. The reference is place() in
 * crates/policy/src/ir/eval/tracking/table.rs.
 */
#ifndef WEIR_TRACK_FLOW_PLACE_H
#define WEIR_TRACK_FLOW_PLACE_H

#include "track/subject.h"

/* A closing connection makes room in a bucket that is rather full from this weighted age on. */
enum { RECLAIM_TICKS = 953 };

/*
 * What a bucket has room for, for a flow of a class: one number, because a function of the kernel returns no other.
 *
 *	bit 18      whether the class has its share
 *	bits 12-17  number of used entries without closing flows; bits 6-11 again if less than FLOW_PREFERRED are used
 *	bits 6-11   number of entries that are used
 *	bits 0-5    the first free entry, or FLOW_ENTRIES
 */
enum {
	USE_USED = 6,
	USE_BUSY = 12,
	USE_SHARE = 18,
	USE_NUMBER = 63, /* of a field */
};

/* The most flows of a class of new flows in a bucket. */
WEIR_INLINE uint32_t share_of(uint32_t class)
{
	return class == FLOW_EMBRYONIC ? tracking.embryonic_max : tracking.unproven_max;
}

WEIR_INLINE uint32_t bucket_use(const struct flow_bucket *bucket, uint32_t class)
{
	const uint32_t free = entries_with(bucket, UINT16_MAX, 0);
	const uint32_t used = FLOW_ENTRIES - (uint32_t)__builtin_popcount(free);
	/* Closing flows are counted only where second_is_better() asks for them. */
	const uint32_t closing =
		used < FLOW_PREFERRED ? 0 : (uint32_t)__builtin_popcount(entries_of(bucket, FLOW_CLOSING));
	const uint32_t has_share = (uint32_t)__builtin_popcount(entries_of(bucket, class)) >= share_of(class);

	return (free ? first_entry(free) : (uint32_t)FLOW_ENTRIES) | used << USE_USED | (used - closing) << USE_BUSY |
	       has_share << USE_SHARE;
}

WEIR_INLINE uint32_t use_number(uint32_t use, uint32_t field)
{
	return use >> field & USE_NUMBER;
}

/* Whether the second of two buckets is better for a new flow. */
WEIR_INLINE bool second_is_better(uint32_t first, uint32_t second)
{
	const uint32_t busy = use_number(first, USE_BUSY);

	if ((first ^ second) >> USE_SHARE)
		return first >> USE_SHARE;
	return busy >= FLOW_PREFERRED && use_number(second, USE_BUSY) < busy;
}

/* Which flow is to make room: see spare_entry(). */
struct spare {
	uint32_t class;
	uint32_t age_min;
	uint32_t start;
	uint32_t now;
};

/* bucket_use() of a bucket by its number. */
WEIR_INLINE uint32_t use_in(const struct env *env, uint32_t number, uint32_t class)
{
	const struct flow_bucket *bucket = flow_bucket(env, number);

	return bucket ? bucket_use(bucket, class) : 1u << USE_SHARE | FLOW_ENTRIES;
}

/* Frees the entries of a bucket whose flows have expired. */
WEIR_INLINE void free_expired_in(const struct env *env, uint32_t number, uint32_t now)
{
	struct flow_bucket *bucket = flow_bucket(env, number);

	if (bucket)
		free_expired(env, bucket, &tracking.timeouts, now);
}

/* spare_entry() of a bucket by its number. */
WEIR_INLINE uint32_t spare_in(const struct env *env, uint32_t number, const struct spare *spare)
{
	const struct flow_bucket *bucket = flow_bucket(env, number);

	return bucket ? spare_entry(bucket, spare->class, spare->age_min, spare->start, spare->now) : FLOW_ENTRIES;
}

/* These steps again, as functions that the verifier follows once. */
#ifdef WEIR_BURSTS

WEIR_NOINLINE void place_free_expired(const struct env *env, uint32_t bucket, uint32_t now)
{
	free_expired_in(env, bucket, now);
}

WEIR_INLINE uint32_t place_use(const struct env *env, uint32_t bucket, uint32_t class)
{
	return use_in(env, bucket, class);
}

WEIR_NOINLINE uint32_t place_spare(const struct env *env, uint32_t bucket, const struct spare *spare)
{
	return spare_in(env, bucket, spare);
}

#else

WEIR_IN_KERNEL void place_free_expired(const struct env *env, uint32_t bucket, uint32_t now);
WEIR_IN_KERNEL uint32_t place_use(const struct env *env, uint32_t bucket, uint32_t class);
WEIR_IN_KERNEL uint32_t place_spare(const struct env *env, uint32_t bucket, const struct spare *spare);

#endif

/* The better of a flow's buckets, 0 or 1, and its use. */
struct better_bucket {
	uint32_t index;
	uint32_t use;
};

WEIR_INLINE struct better_bucket better_bucket(const struct env *env, const struct flow_hash *hash, uint32_t class)
{
	const uint32_t first = place_use(env, hash->bucket[0], class);
	uint32_t second, index;

	/* No bucket is better than this, so the tags of the second one are not fetched. */
	if (WEIR_LIKELY(!(first >> USE_SHARE) && use_number(first, USE_BUSY) < FLOW_PREFERRED))
		return (struct better_bucket){0, first};
	second = place_use(env, hash->bucket[1], class);
	index = second_is_better(first, second);
	return (struct better_bucket){index, index ? second : first};
}

/* Steps 2 to 4: an entry of the better bucket; FLOW_ENTRIES if it has neither a free one nor a flow that makes room. */
WEIR_INLINE uint32_t entry_of_better(const struct env *env, uint32_t bucket, uint32_t use, const struct spare *spare,
				     enum place *place)
{
	uint32_t index = FLOW_ENTRIES;

	*place = PLACE_EVICT;
	if (use >> USE_SHARE)
		return place_spare(env, bucket, spare);
	if (use_number(use, USE_USED) >= FLOW_PREFERRED && use_number(use, USE_BUSY) < use_number(use, USE_USED)) {
		const struct spare closing = {FLOW_CLOSING, RECLAIM_TICKS, spare->start, spare->now};

		index = place_spare(env, bucket, &closing);
	}
	if (index != FLOW_ENTRIES)
		return index;
	*place = PLACE_FREE;
	return use_number(use, 0);
}

/* Step 6: a flow of a class that makes room, in the better bucket or in the other one. */
WEIR_INLINE bool takes_place_of(const struct env *env, const struct flow_hash *hash, uint32_t better,
				const struct spare *spare, struct flow_at *at)
{
	uint32_t index;

	at->bucket = hash->bucket[better];
	index = place_spare(env, at->bucket, spare);
	if (index == FLOW_ENTRIES) {
		at->bucket = hash->bucket[1 - better];
		index = place_spare(env, at->bucket, spare);
	}
	at->entry = index & (FLOW_ENTRIES - 1);
	return index != FLOW_ENTRIES;
}

/*
 * Finds an entry for a new flow of a class. Locks are taken only to free expired flows, so another CPU may take the
 * entry first. It looks twice, but not in a loop: clang arranges that in a way that Linux 6.1 refuses
 * (docs/decisions/0053-older-verifiers.md).
 */
WEIR_INLINE enum place find_place(const struct env *env, const struct flow_hash *hash, uint32_t class, uint32_t now,
				  struct flow_at *at)
{
	struct better_bucket better = better_bucket(env, hash, class);
	struct spare spare = {class, 0, hash->tag, now};
	enum place place;
	uint32_t index;

	index = entry_of_better(env, hash->bucket[better.index], better.use, &spare, &place);
	if (index == FLOW_ENTRIES) {
		place_free_expired(env, hash->bucket[0], now);
		place_free_expired(env, hash->bucket[1], now);
		better = better_bucket(env, hash, class);
		index = entry_of_better(env, hash->bucket[better.index], better.use, &spare, &place);
	}
	*at = (struct flow_at){hash->bucket[better.index], index & (FLOW_ENTRIES - 1)};
	if (index != FLOW_ENTRIES)
		return place;
	if (better.use >> USE_SHARE)
		return PLACE_FULL;
	spare.class = FLOW_CLOSING;
	if (takes_place_of(env, hash, better.index, &spare, at))
		return PLACE_EVICT;
	spare.class = FLOW_UNPROVEN;
	if (takes_place_of(env, hash, better.index, &spare, at))
		return PLACE_EVICT;
	spare.class = FLOW_EMBRYONIC;
	return class == FLOW_EMBRYONIC && takes_place_of(env, hash, better.index, &spare, at) ? PLACE_EVICT
											      : PLACE_FULL;
}

#endif
