/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Limits: token buckets as virtual scheduling (GCRA). The arithmetic with a worked example is in
 * crates/abi/src/limit.rs, the bit layout of the image in crates/tables/src/limits/image.rs.
 *
 * Rates belong to a generation and never change; buckets outlive it. One image has the rates of all limiters of a
 * program, and one array has the buckets of all generations. The lookup of an address finds a *ticket*, which names the
 * bucket and the rate. A bucket is charged in one atomic step, so a rate holds however many workers charge it.
 *
 * For each bucket, limiters may count the packets without room and the packets that were charged. The counts are in
 * arrays of their own.
 */
#ifndef WEIR_LIMITS_LIMIT_H
#define WEIR_LIMITS_LIMIT_H

#include "tables/image.h"
#include "limits/charge.h"

enum {
	LIMIT_DEPTH = 8,  /* prefixes that enclose each other */
	LIMITERS_AT = 64, /* byte offset of the limiters in their image */
};

/* One limiter of a program: struct Limiter in crates/tables/src/limits/image.rs. */
struct limiter {
	uint32_t profiles; /* index of its first profile, in profiles from the start of the image */
	uint32_t entries;  /* index of the entry of bucket 0, in 64-bit words from the start of the image, modulo 2^32;
			      0: tickets name the profile */
	uint32_t place_bits; /* bits of a ticket that name the bucket; the bits above name the profile. In
			       limits/each.h, bits of a hash that name the set */
	uint32_t otherwise;  /* ticket for addresses that the lookup does not find; 0: no limit. In connections/seats.h,
				seats of each address */
	uint32_t tickets;    /* index of the ticket of label 0, in 32-bit words; 0: labels are tickets */
	uint32_t logged;     /* enum limit_logged */
	uint32_t offset;     /* index of its buckets among those of the limiters of its list; or its first bucket */
	uint32_t seed;	     /* seed of the hash of addresses */
};

enum limit_logged {
	LOGGED_NOTHING = 0,
	LOGGED_EXCEEDED = 1,
	LOGGED_ALL = 2,
};

/* The data of a bucket beside its word, if a ticket cannot hold it: struct LimitEntry. */
struct limit_entry {
	uint32_t profile;
	uint32_t parent; /* the bucket of the next enclosing prefix, 0 if there is none */
};

_Static_assert(sizeof(struct limiter) == 32, "tables: Limiter");
_Static_assert(sizeof(struct limit_entry) == 8, "abi: LimitEntry");

WEIR_LIMITS_STORAGE

/* A bucket, and how to charge it. */
struct limit_bucket {
	uint32_t place; /* 0: there is no limit */
	uint32_t profile;
	uint32_t parent; /* the entry of the next enclosing prefix, 0 if there is none */
};

WEIR_INLINE uint32_t limiter_field(struct table limits, uint32_t limiter, uint32_t offset)
{
	return image_u32(limits, (LIMITERS_AT + limiter * (uint32_t)sizeof(struct limiter) + offset) / 4);
}

#define LIMITER_FIELD(limits, limiter, field) limiter_field(limits, limiter, (uint32_t)offsetof(struct limiter, field))

WEIR_INLINE struct limit_profile limit_profile(struct table limits, uint32_t index)
{
	const uint8_t *at = table_block(limits, index * (uint32_t)sizeof(struct limit_profile), 32);

	return (struct limit_profile){
		.per_packet = block_u64(at, 0),
		.per_byte = block_u64(at, 1),
		.room = block_u64(at, 2),
		.coarse = block_u64(at, 3),
	};
}

/* The bucket of a ticket that names an entry. */
WEIR_INLINE struct limit_bucket limit_entry(struct table limits, uint32_t limiter, uint32_t ticket)
{
	uint64_t entry;

	/* Entries begin with the first bucket of a limit. */
	if (ticket == 0)
		return (struct limit_bucket){0, 0, 0};
	entry = image_u64(limits, LIMITER_FIELD(limits, limiter, entries) + ticket);
	return (struct limit_bucket){
		.place = ticket + LIMITER_FIELD(limits, limiter, offset),
		.profile = (uint32_t)entry,
		.parent = (uint32_t)(entry >> 32),
	};
}

/* The bucket of a lookup result. */
WEIR_INLINE struct limit_bucket limit_bucket(struct table limits, uint32_t limiter, uint32_t found)
{
	const uint32_t tickets = LIMITER_FIELD(limits, limiter, tickets);
	const uint32_t bits = LIMITER_FIELD(limits, limiter, place_bits) & 31;
	uint32_t ticket = tickets ? image_u32(limits, tickets + found) : found;

	if (ticket == 0)
		ticket = LIMITER_FIELD(limits, limiter, otherwise);
	if (ticket == 0)
		return (struct limit_bucket){0, 0, 0};
	if (LIMITER_FIELD(limits, limiter, entries))
		return limit_entry(limits, limiter, ticket);
	return (struct limit_bucket){
		.place = (ticket & ((1u << bits) - 1)) + LIMITER_FIELD(limits, limiter, offset),
		.profile = ticket >> bits,
		.parent = 0,
	};
}

#ifdef WEIR_BURSTS

WEIR_INLINE uint64_t limit_charge_at(const struct env *env, uint32_t place, uint64_t now, uint64_t cost, uint64_t room)
{
	uint64_t *bucket = env_bucket(env, place);
	uint64_t debt;

	if (env->limits.shared)
		return limit_charge(bucket, now, cost, room);
	/* No other worker charges it. An atomic step would keep the core from waiting for several buckets at once. */
	debt = limit_debt(*bucket, now) + cost;
	if (debt > room)
		return LIMIT_NO_ROOM;
	*(volatile uint64_t *)bucket = now + debt;
	return debt;
}

#else

/*
 * These are global functions, which the verifier follows once each. At each call, with all that is known there, it
 * would follow the many paths through their loops again.
 */
#define WEIR_LIMIT_FUNCTION __attribute__((noinline))

WEIR_LIMIT_FUNCTION uint64_t weir_limit_charge(uint32_t place, uint64_t now, uint64_t cost, uint64_t room)
{
	return limit_charge(env_bucket(NULL, place), now, cost, room);
}

WEIR_INLINE uint64_t limit_charge_at(const struct env *env, uint32_t place, uint64_t now, uint64_t cost, uint64_t room)
{
	(void)env;
	return weir_limit_charge(place, now, cost, room);
}

#endif

#ifdef WEIR_BURSTS

/* Counts a packet at a bucket, with or without room. */
WEIR_INLINE void limit_add(const struct env *env, uint32_t place, bool room)
{
	uint64_t *word = room ? env_passed(env, place) : env_exceeded(env, place);

	if (env->limits.shared)
		__sync_fetch_and_add(word, 1);
	else
		*(volatile uint64_t *)word += 1;
}

#else

WEIR_LIMIT_FUNCTION uint32_t weir_limit_add(uint32_t place, uint32_t room)
{
	uint64_t *word = room ? env_passed(NULL, place) : env_exceeded(NULL, place);

	if (word)
		__sync_fetch_and_add(word, 1);
	return 0;
}

WEIR_INLINE void limit_add(const struct env *env, uint32_t place, bool room)
{
	(void)env;
	if (WEIR_LOGGED)
		weir_limit_add(place, room);
}

#endif

/* Counts the result for a packet at a bucket, as far as the limiter counts; `logged` is the setting of the limiter. */
WEIR_INLINE void limit_count(const struct env *env, uint32_t logged, uint32_t place, bool room)
{
	if (logged == LOGGED_ALL || (logged == LOGGED_EXCEEDED && !room))
		limit_add(env, place, room);
}

/* Charges a packet of `bytes` to one bucket. Returns the new debt, or LIMIT_NO_ROOM. */
WEIR_INLINE uint64_t limit_charge_one(const struct env *env, uint32_t profiles, struct limit_bucket bucket,
				      uint64_t now, uint32_t bytes)
{
	const struct limit_profile profile = limit_profile(env_limits(env), profiles + bucket.profile);

	return limit_charge_at(env, bucket.place, now, limit_cost(profile, bytes), profile.room);
}

/* Counts a packet that was charged to a bucket and to all that enclose it. */
WEIR_INLINE void limit_count_nested(const struct env *env, uint32_t limiter, uint32_t logged,
				    struct limit_bucket bucket)
{
	if (logged != LOGGED_ALL)
		return;
	for (uint32_t depth = 0; depth < LIMIT_DEPTH && bucket.place; depth++) {
		limit_count(env, logged, bucket.place, true);
		bucket = limit_entry(env_limits(env), limiter, bucket.parent);
	}
}

/*
 * Refunds what a packet was charged at `now`, if the bucket has not changed since. Another worker may have found
 * the clock ahead of the word and charged from there. Subtracting from its word would refund the charge twice.
 */
WEIR_INLINE void limit_give_back(uint64_t *bucket, uint64_t now, uint64_t owed, uint64_t cost)
{
	__sync_val_compare_and_swap(bucket, now + owed, now + owed - cost);
}

/*
 * Charges a packet to a bucket and to all that enclose it, or to none. It first tests all buckets, then charges the
 * first. If another worker was faster at one of them, it refunds the charges made so far. So a packet that has room may
 * be refused, but one without room never passes. The bucket without room counts the packet; otherwise all charged ones
 * do.
 */
WEIR_NOINLINE bool limit_charge_nested(const struct env *env, uint32_t limiter, struct limit_bucket bucket,
				       uint64_t now, uint32_t bytes)
{
	const struct table limits = env_limits(env);
	const uint32_t profiles = LIMITER_FIELD(limits, limiter, profiles);
	const uint32_t logged = LIMITER_FIELD(limits, limiter, logged);
	struct limit_bucket each = bucket;
	uint64_t owed[LIMIT_DEPTH] = {0};
	uint32_t charged = 0, depth = 0;

	for (; depth < LIMIT_DEPTH && each.place; depth++) {
		const struct limit_profile profile = limit_profile(limits, profiles + each.profile);
		const uint64_t word = *(volatile uint64_t *)env_bucket(env, each.place);

		if (limit_debt(word, now) + limit_cost(profile, bytes) > profile.room) {
			limit_count(env, logged, each.place, false);
			return false;
		}
		each = limit_entry(limits, limiter, each.parent);
	}
	each = bucket;
	for (; charged < LIMIT_DEPTH && each.place; charged++) {
		owed[charged] = limit_charge_one(env, profiles, each, now, bytes);
		if (owed[charged] == LIMIT_NO_ROOM)
			break;
		each = limit_entry(limits, limiter, each.parent);
	}
	if (WEIR_LIKELY(charged == depth)) {
		limit_count_nested(env, limiter, logged, bucket);
		return true;
	}
	limit_count(env, logged, each.place, false);
	each = bucket;
	for (uint32_t i = 0; i < LIMIT_DEPTH && i < charged; i++) {
		const struct limit_profile profile = limit_profile(limits, profiles + each.profile);

		limit_give_back(env_bucket(env, each.place), now, owed[i], limit_cost(profile, bytes));
		each = limit_entry(limits, limiter, each.parent);
	}
	return false;
}

/* Charges a packet of `bytes` to the bucket of its lookup result; false if it has no room. */
WEIR_INLINE bool limit_settle(const struct env *env, uint32_t limiter, uint32_t found, uint64_t now_ns, uint32_t bytes)
{
	const struct table limits = env_limits(env);
	const struct limit_bucket bucket = limit_bucket(limits, limiter, found);
	const uint64_t now = now_ns << TICK_SHIFT;
	bool room;

	if (bucket.place == 0)
		return true;
	if (bucket.parent)
		return limit_charge_nested(env, limiter, bucket, now, bytes);
	room = limit_charge_one(env, LIMITER_FIELD(limits, limiter, profiles), bucket, now, bytes) != LIMIT_NO_ROOM;
	limit_count(env, LIMITER_FIELD(limits, limiter, logged), bucket.place, room);
	return room;
}

#ifdef WEIR_BURSTS

/*
 * Prefetches words of buckets into the second-level cache, which waits for more of them at once than the first. With a
 * million buckets, prefetches into the first level, or for writing, take twice as long.
 */
WEIR_INLINE void limit_prefetch(const uint64_t *words)
{
	__builtin_prefetch(words, 0, 2);
}

/* The buckets of a burst. */
struct limit_buckets {
	uint32_t places[WEIR_BURST_MAX]; /* 0: there is no limit */
	uint32_t profiles[WEIR_BURST_MAX];
	uint32_t parents[WEIR_BURST_MAX];
};

/*
 * limit_bucket() for the whole burst, hits or not. If tickets need no entry, a few operations do many packets at once.
 */
WEIR_INLINE void limit_buckets(struct table limits, uint32_t limiter, const uint32_t *found, uint32_t count,
			       uint64_t hits, struct limit_buckets *buckets)
{
	const uint32_t bits = LIMITER_FIELD(limits, limiter, place_bits) & 31;
	const uint32_t offset = LIMITER_FIELD(limits, limiter, offset);
	const uint32_t otherwise = LIMITER_FIELD(limits, limiter, otherwise);

	if (LIMITER_FIELD(limits, limiter, tickets) || LIMITER_FIELD(limits, limiter, entries)) {
		for (uint64_t left = hits; left; left &= left - 1) {
			const uint32_t i = (uint32_t)__builtin_ctzll(left);
			const struct limit_bucket bucket = limit_bucket(limits, limiter, found ? found[i] : 0);

			buckets->places[i] = bucket.place;
			buckets->profiles[i] = bucket.profile;
			buckets->parents[i] = bucket.parent;
		}
		return;
	}
	for (uint32_t i = 0; i < count; i++) {
		const uint32_t ticket = found && found[i] ? found[i] : otherwise;

		buckets->places[i] = ticket ? (ticket & ((1u << bits) - 1)) + offset : 0;
		buckets->profiles[i] = ticket >> bits;
		buckets->parents[i] = 0;
	}
}

/* limit_count() for the hits of a burst, except for nested buckets, which have counted already. */
WEIR_NOINLINE void limit_count_hits(const struct env *env, uint32_t logged, const struct limit_buckets *buckets,
				    uint64_t hits, uint64_t exceeding)
{
	if (logged != LOGGED_ALL)
		hits = exceeding;
	for (uint64_t left = hits; left; left &= left - 1) {
		const uint32_t i = (uint32_t)__builtin_ctzll(left);
		const uint32_t place = buckets->places[i];

		limit_prefetch(exceeding >> i & 1 ? env_exceeded(env, place) : env_passed(env, place));
	}
	for (uint64_t left = hits; left; left &= left - 1) {
		const uint32_t i = (uint32_t)__builtin_ctzll(left);

		if (buckets->places[i] && !buckets->parents[i])
			limit_count(env, logged, buckets->places[i], !(exceeding >> i & 1));
	}
}

/*
 * limit_settle() for each of the hits, in their order. Returns the hits without room. `found` has the lookup results of
 * the burst; NULL if there was nothing to look up. All buckets are prefetched before the first is charged.
 */
WEIR_NOINLINE uint64_t limit_exceeding(const struct env *env, const struct weir_burst *burst, uint32_t limiter,
				       const uint32_t *found, uint64_t hits)
{
	const struct table limits = env_limits(env);
	const uint32_t profiles = LIMITER_FIELD(limits, limiter, profiles);
	const uint32_t logged = LIMITER_FIELD(limits, limiter, logged);
	struct limit_buckets buckets;
	uint64_t exceeding = 0;

	limit_buckets(limits, limiter, found, burst->count, hits, &buckets);
	for (uint64_t left = hits; left; left &= left - 1)
		limit_prefetch(env_bucket(env, buckets.places[__builtin_ctzll(left)]));
	for (uint64_t left = hits; left; left &= left - 1) {
		const uint32_t i = (uint32_t)__builtin_ctzll(left);
		const uint64_t now = burst_time(burst, i) << TICK_SHIFT;
		const struct limit_bucket bucket = {buckets.places[i], buckets.profiles[i], buckets.parents[i]};
		const uint32_t bytes = burst->frames[i].len;
		bool room = true;

		if (WEIR_UNLIKELY(bucket.parent))
			room = limit_charge_nested(env, limiter, bucket, now, bytes);
		else if (WEIR_LIKELY(bucket.place))
			room = limit_charge_one(env, profiles, bucket, now, bytes) != LIMIT_NO_ROOM;
		exceeding |= (uint64_t)!room << i;
	}
	if (WEIR_UNLIKELY(logged))
		limit_count_hits(env, logged, &buckets, hits, exceeding);
	return exceeding;
}

#else

WEIR_LIMIT_FUNCTION uint32_t weir_limit_has_room(uint32_t limiter, uint32_t found, uint64_t now_ns, uint32_t bytes)
{
	const struct env env = {.counters = NULL};

	return limit_settle(&env, limiter, found, now_ns, bytes);
}

WEIR_INLINE bool limit_has_room(const struct env *env, uint32_t limiter, uint32_t found, uint64_t now_ns,
				uint32_t bytes)
{
	(void)env;
	return weir_limit_has_room(limiter, found, now_ns, bytes);
}

#endif
#endif
