/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Where a new flow goes: steps 1 to 5 of docs/tracking.md#the-table. The reference is place() in
 * crates/policy/src/ir/eval/tracking/table.rs. Generated code declares `tracking`, the policy's settings.
 */
#ifndef WEIR_FLOW_PLACE_H
#define WEIR_FLOW_PLACE_H

#include "track_subject.h"

/* The settings of the policy. A program that changes them, such as a fuzz target, defines WEIR_TRACKING. */
#ifndef WEIR_TRACKING
static const struct tracking tracking;
#endif

/* What a bucket has room for. */
struct bucket_use {
	uint32_t free;	  /* mask of the free slots */
	uint32_t used;	  /* number of the others */
	bool is_at_bound; /* whether the embryonic flows take their share */
};

WEIR_INLINE struct bucket_use bucket_use(const struct flow_bucket *bucket, uint32_t embryonic_max)
{
	const uint32_t free = slots_with(bucket, UINT16_MAX, 0);
	const uint32_t embryonic = slots_with(bucket, TAG_EMBRYONIC, TAG_EMBRYONIC);

	return (struct bucket_use){
		.free = free,
		.used = FLOW_SLOTS - (uint32_t)__builtin_popcount(free),
		.is_at_bound = (uint32_t)__builtin_popcount(embryonic) >= embryonic_max,
	};
}

/* Whether the second of two buckets is better for a new flow. */
WEIR_INLINE bool second_is_better(const struct bucket_use *first, const struct bucket_use *second)
{
	if (first->is_at_bound != second->is_at_bound)
		return first->is_at_bound;
	return first->used >= FLOW_PREFERRED && second->used < first->used;
}

/* Frees the slots of a bucket whose flows have expired. */
WEIR_INLINE void free_expired_in(const struct env *env, uint32_t number, uint32_t now)
{
	struct flow_bucket *bucket = flow_bucket(env, number);

	if (bucket)
		free_expired(env, bucket, &tracking.timeouts, now);
}

/* The embryonic flow of a bucket whose time is longest ago; FLOW_SLOTS if there is none. */
WEIR_INLINE uint32_t oldest_in(const struct env *env, uint32_t number, uint32_t start, uint32_t now)
{
	const struct flow_bucket *bucket = flow_bucket(env, number);

	return bucket ? oldest_embryonic(bucket, start, now) : FLOW_SLOTS;
}

/* These steps again, as functions that the verifier follows once. */
#ifdef WEIR_BURSTS

WEIR_INLINE void place_free_expired(const struct env *env, uint32_t bucket, uint32_t now)
{
	free_expired_in(env, bucket, now);
}

WEIR_INLINE uint32_t place_oldest(const struct env *env, uint32_t bucket, uint32_t start, uint32_t now)
{
	return oldest_in(env, bucket, start, now);
}

#else

WEIR_IN_KERNEL void place_free_expired(const struct env *env, uint32_t bucket, uint32_t now);
WEIR_IN_KERNEL uint32_t place_oldest(const struct env *env, uint32_t bucket, uint32_t start, uint32_t now);

#endif

WEIR_INLINE struct bucket_use use_of(const struct env *env, uint32_t number)
{
	const struct flow_bucket *bucket = flow_bucket(env, number);

	return bucket ? bucket_use(bucket, tracking.embryonic_max) : (struct bucket_use){.is_at_bound = true};
}

/* The better of a flow's buckets, 0 or 1, and its use. */
struct better_bucket {
	uint32_t index;
	struct bucket_use use;
};

WEIR_INLINE struct better_bucket better_bucket(const struct env *env, const struct flow_hash *hash)
{
	const struct bucket_use uses[2] = {use_of(env, hash->bucket[0]), use_of(env, hash->bucket[1])};
	const uint32_t index = second_is_better(&uses[0], &uses[1]);

	return (struct better_bucket){index, index ? uses[1] : uses[0]};
}

/*
 * Finds a slot for the flow that the packet opens. Locks are taken only to free expired flows, so another CPU may take
 * the slot first. It looks twice, but not in a loop: clang arranges that in a way that Linux 6.1 refuses
 * (docs/decisions/0053-older-verifiers.md).
 */
WEIR_INLINE enum place find_place(const struct env *env, const struct flow_hash *hash, uint32_t now, struct flow_at *at)
{
	struct better_bucket better = better_bucket(env, hash);
	uint32_t slot;

	if (!better.use.is_at_bound && !better.use.free) {
		place_free_expired(env, hash->bucket[0], now);
		place_free_expired(env, hash->bucket[1], now);
		better = better_bucket(env, hash);
	}
	at->bucket = hash->bucket[better.index];
	if (!better.use.is_at_bound && better.use.free) {
		at->slot = first_slot(better.use.free);
		return PLACE_FREE;
	}
	slot = place_oldest(env, at->bucket, hash->tag, now);
	if (slot == FLOW_SLOTS && !better.use.is_at_bound) {
		at->bucket = hash->bucket[1 - better.index];
		slot = place_oldest(env, at->bucket, hash->tag, now);
	}
	at->slot = slot & (FLOW_SLOTS - 1);
	return slot == FLOW_SLOTS ? PLACE_FULL : PLACE_EVICT;
}

#endif
