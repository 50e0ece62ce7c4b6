/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A bucket for each address, in a table of bounded size. crates/abi/src/each.rs explains the words, and why no address
 * ever passes more than its limit.
 */
#ifndef WEIR_LIMITS_EACH_H
#define WEIR_LIMITS_EACH_H

#include "limits/limit.h"

enum {
	EACH_WAYS = 8, /* words of a set */
	EACH_TIME_BITS = 48,
};

#define EACH_TIME_MASK ((UINT64_C(1) << EACH_TIME_BITS) - 1)

/* Records of the addresses that exceeded most: struct Record in each.rs. */
enum {
	RECORD_WORDS = 4,
	EXCEEDER_SET_BITS = 7,
	EXCEEDER_SET_WORDS = EACH_WAYS * RECORD_WORDS,
	RECORD_TRIES = 16, /* attempts to count in records that other workers change; then the packet is not counted */
};

/* The hash of an address: its highest bits select the set, and the tag identifies the address within the set. */
struct each_hash {
	uint32_t hash;
	uint32_t tag; /* 16 bits */
};

/* HashedAddress::of_ipv4() */
WEIR_INLINE struct each_hash each_hash4(uint32_t address, uint32_t seed)
{
	uint32_t hash = (address ^ seed) * 0x9e3779b1u;

	hash = ((hash ^ hash >> 15) + (seed << 13 | seed >> 19)) * 0x85ebca77u;
	hash = (hash ^ hash >> 13) * 0xc2b2ae3du;
	hash ^= hash >> 16;
	return (struct each_hash){hash, hash & 0xffff};
}

/* HashedAddress::of_ipv6() */
WEIR_INLINE struct each_hash each_hash6(uint64_t hi, uint64_t lo, uint32_t seed)
{
	const uint64_t twice = (uint64_t)seed << 32 | seed;
	uint64_t hash = (hi ^ twice) * 0x9e3779b185ebca87u;

	hash = ((hash ^ hash >> 29) + (lo ^ (twice << 17 | twice >> 47))) * 0xc2b2ae3d27d4eb4fu;
	hash = (hash ^ hash >> 32) * 0x165667b19e3779f9u;
	hash ^= hash >> 29;
	return (struct each_hash){(uint32_t)(hash >> 32), (uint32_t)hash & 0xffff};
}

/* The first bucket of the address's set. */
WEIR_INLINE uint32_t each_place(struct table limits, uint32_t limiter, uint32_t hash)
{
	const uint32_t set_bits = LIMITER_FIELD(limits, limiter, place_bits);

	return LIMITER_FIELD(limits, limiter, offset) + (hash >> ((32 - set_bits) & 31)) * EACH_WAYS;
}

WEIR_INLINE uint64_t each_ticks(uint64_t now_ns, uint64_t coarse)
{
	return coarse < TICK_SHIFT ? now_ns << ((TICK_SHIFT - coarse) & 63) : now_ns >> ((coarse - TICK_SHIFT) & 63);
}

/* How far a word is ahead of the clock, as 2^16 times the ticks; negative if it is behind. */
WEIR_INLINE int64_t each_ahead(uint64_t word, uint64_t now)
{
	return (int64_t)((word - now) << (64 - EACH_TIME_BITS));
}

/* The debt of a word plus the cost of a packet. */
WEIR_INLINE uint64_t each_debt(uint64_t word, uint64_t now, uint64_t cost)
{
	const int64_t ahead = each_ahead(word, now);

	return (ahead > 0 ? (uint64_t)ahead >> (64 - EACH_TIME_BITS) : 0) + cost;
}

WEIR_INLINE uint64_t each_charged(uint32_t tag, uint64_t now, uint64_t debt)
{
	return (uint64_t)tag << EACH_TIME_BITS | ((now + debt) & EACH_TIME_MASK);
}

/* The first word of the records of the address's set, among the counts of packets without room. */
WEIR_INLINE uint32_t each_records(struct table limits, uint32_t limiter, uint32_t hash)
{
	const uint32_t set_bits = LIMITER_FIELD(limits, limiter, place_bits) & 31;

	return LIMITER_FIELD(limits, limiter, offset) +
	       (EACH_WAYS << set_bits) * (1 + LIMITER_FIELD(limits, limiter, otherwise)) +
	       (hash >> (32 - EXCEEDER_SET_BITS)) * EXCEEDER_SET_WORDS;
}

/* The first word of the record with the tag; if there is none, of the first record with the fewest packets. */
WEIR_INLINE uint64_t each_record(volatile const uint64_t *set, uint32_t tag)
{
	uint64_t fewest = set[0];

	for (uint32_t i = 0; i < EACH_WAYS; i++) {
		const uint64_t word = set[i * RECORD_WORDS];

		if (word >> EACH_TIME_BITS == tag && (word & EACH_TIME_MASK))
			return word;
		fewest = (word & EACH_TIME_MASK) < (fewest & EACH_TIME_MASK) ? word : fewest;
	}
	return fewest;
}

/*
 * Replaces the first word `old` of a record, and writes the address if another one is there. Returns false if another
 * worker has changed the word. As in each_exchange(), the verifier learns the index of the record here.
 */
WEIR_INLINE bool each_record_exchange(volatile uint64_t *set, uint64_t old, uint64_t new, uint64_t hi, uint64_t lo)
{
	for (uint32_t i = 0; i < EACH_WAYS; i++) {
		volatile uint64_t *record = set + i * RECORD_WORDS;

		if (record[0] != old)
			continue;
		if (__sync_val_compare_and_swap(record, old, new) != old)
			return false;
		if (record[1] != hi || record[2] != lo) {
			record[1] = hi;
			record[2] = lo;
		}
		return true;
	}
	return false;
}

/*
 * Counts a packet that exceeded the limit of an address: count_exceeded() in each.rs. An address without record takes
 * the one with the fewest packets, and keeps that number. Two workers may do so at once, and one of them wins. The
 * worker that counts in a record writes the address if another one is there. Returns false if another worker has
 * changed the record.
 */
WEIR_INLINE bool each_count_once(volatile uint64_t *set, uint32_t tag, uint64_t hi, uint64_t lo)
{
	const uint64_t old = forget64(each_record(set, tag));

	return each_record_exchange(set, old, each_charged(tag, old & EACH_TIME_MASK, 1), hi, lo);
}

/* A word of a set. */
struct each_way {
	uint32_t way;
	uint64_t word;
};

#ifdef WEIR_BURSTS

/*
 * The first word with the tag; if there is none, the first of the earliest words. Each word becomes a number, and the
 * least number wins. A word with the tag is least; the others follow by time, then by position. Half of the comparisons
 * are unpredictable, so each step compares half of the numbers with the other half, without branches.
 */
WEIR_INLINE struct each_way each_find(const uint64_t *set, uint32_t tag, uint64_t now)
{
	uint64_t words[EACH_WAYS];
	int64_t order[EACH_WAYS];
	uint32_t way;

	/* Other workers may write the words meanwhile, each as a whole. The copy is used from here on. */
	__builtin_memcpy(words, set, sizeof(words));
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	for (uint32_t i = 0; i < EACH_WAYS; i++) {
		const int64_t ahead = each_ahead(words[i], now) >> 1;

		order[i] = (words[i] >> EACH_TIME_BITS == tag ? INT64_MIN : ahead) | i;
	}
	for (uint32_t left = EACH_WAYS / 2; left; left /= 2) {
		for (uint32_t i = 0; i < left; i++)
			order[i] = order[i + left] < order[i] ? order[i + left] : order[i];
	}
	way = (uint32_t)order[0] % EACH_WAYS;
	return (struct each_way){way, words[way]};
}

/* Charges the address with the tag. Returns false, without a write, if its bucket has no room. */
WEIR_INLINE bool each_charge(const struct env *env, uint64_t *set, uint32_t tag, uint64_t now, uint64_t cost,
			     uint64_t room)
{
	for (uint32_t try = 0; try < LIMIT_TRIES; try++) {
		const struct each_way found = each_find(set, tag, now);
		const uint64_t debt = each_debt(found.word, now, cost);
		uint64_t *word = &set[found.way];

		if (debt > room)
			return false;
		if (!env->limits.shared) {
			*(volatile uint64_t *)word = each_charged(tag, now, debt);
			return true;
		}
		if (__sync_bool_compare_and_swap(word, found.word, each_charged(tag, now, debt)))
			return true;
		/* Another worker charged the word, or took it for another address: search the set again. */
	}
	return false;
}

/* The sets of a burst's addresses, and their tags. */
struct each_places {
	uint32_t first[WEIR_BURST_MAX]; /* buckets of the sets */
	uint32_t tags[WEIR_BURST_MAX];
};

/*
 * Charges each of the hits, in their order. Returns the hits without room. All sets are prefetched before the first
 * charge.
 */
WEIR_NOINLINE uint64_t limit_each_exceeding(const struct env *env, const struct weir_burst *burst, uint32_t limiter,
					    const struct each_places *places, uint64_t hits)
{
	const struct table limits = env_limits(env);
	const struct limit_profile profile = limit_profile(limits, LIMITER_FIELD(limits, limiter, profiles) + 1);
	uint64_t exceeding = 0;

	for (uint64_t left = hits; left; left &= left - 1)
		limit_prefetch(env_buckets(env, places->first[__builtin_ctzll(left)], EACH_WAYS));
	for (uint64_t left = hits; left; left &= left - 1) {
		const uint32_t i = (uint32_t)__builtin_ctzll(left);
		const uint64_t now = each_ticks(burst_time(burst, i), profile.coarse);
		const uint64_t cost = limit_cost(profile, burst->frames[i].len);
		uint64_t *set = env_buckets(env, places->first[i], EACH_WAYS);

		exceeding |= (uint64_t)!each_charge(env, set, places->tags[i], now, cost, profile.room) << i;
	}
	return exceeding;
}

WEIR_NOINLINE void each_count_one(const struct env *env, uint32_t limiter, struct each_hash hash, uint64_t hi,
				  uint64_t lo)
{
	uint64_t *set = env_exceeded(env, each_records(env_limits(env), limiter, hash.hash));

	for (uint32_t try = 0; try < RECORD_TRIES; try++)
		if (each_count_once(set, hash.tag, hi, lo))
			return;
}

WEIR_INLINE uint64_t limit_each4_exceeding(const struct env *env, const struct weir_burst *burst, uint32_t limiter,
					   const uint32_t *addresses, uint32_t mask, uint64_t hits)
{
	const struct table limits = env_limits(env);
	const uint32_t seed = LIMITER_FIELD(limits, limiter, seed);
	struct each_places places;
	uint64_t exceeding;

	for (uint32_t i = 0; i < WEIR_BURST_MAX; i++) {
		const struct each_hash hash = each_hash4(addresses[i] & mask, seed);

		places.first[i] = each_place(limits, limiter, hash.hash);
		places.tags[i] = hash.tag;
	}
	exceeding = limit_each_exceeding(env, burst, limiter, &places, hits);
	if (WEIR_UNLIKELY(LIMITER_FIELD(limits, limiter, logged))) {
		for (uint64_t left = exceeding; left; left &= left - 1) {
			const uint32_t address = addresses[__builtin_ctzll(left)] & mask;

			each_count_one(env, limiter, each_hash4(address, seed), 0, address);
		}
	}
	return exceeding;
}

WEIR_INLINE uint64_t limit_each6_exceeding(const struct env *env, const struct weir_burst *burst, uint32_t limiter,
					   const uint64_t *hi, uint64_t mask_hi, const uint64_t *lo, uint64_t mask_lo,
					   uint64_t hits)
{
	const struct table limits = env_limits(env);
	const uint32_t seed = LIMITER_FIELD(limits, limiter, seed);
	struct each_places places;
	uint64_t exceeding;

	for (uint32_t i = 0; i < WEIR_BURST_MAX; i++) {
		const struct each_hash hash = each_hash6(hi[i] & mask_hi, lo[i] & mask_lo, seed);

		places.first[i] = each_place(limits, limiter, hash.hash);
		places.tags[i] = hash.tag;
	}
	exceeding = limit_each_exceeding(env, burst, limiter, &places, hits);
	if (WEIR_UNLIKELY(LIMITER_FIELD(limits, limiter, logged))) {
		for (uint64_t left = exceeding; left; left &= left - 1) {
			const uint32_t i = (uint32_t)__builtin_ctzll(left);
			const uint64_t high = hi[i] & mask_hi, low = lo[i] & mask_lo;

			each_count_one(env, limiter, each_hash6(high, low, seed), high, low);
		}
	}
	return exceeding;
}

#else

/* The first word with the tag; if there is none, the first of the earliest words. */
WEIR_INLINE uint64_t each_find(volatile const uint64_t *set, uint32_t tag, uint64_t now)
{
	uint64_t found = 0;
	int64_t earliest = INT64_MAX;

	for (uint32_t i = 0; i < EACH_WAYS; i++) {
		const uint64_t word = set[i];
		const int64_t ahead = each_ahead(word, now);

		if (word >> EACH_TIME_BITS == tag)
			return word;
		found = ahead < earliest ? word : found;
		earliest = ahead < earliest ? ahead : earliest;
	}
	return found;
}

/*
 * Replaces the first word of the set that is `old` by one with the tag. Returns false if there is none, or if another
 * worker has inserted the tag meanwhile. Words that were never charged are equal, and a second word with the tag would
 * be a second bucket. The verifier learns the index of the word here and forgets it at the end. An index carried over
 * from each_find() would multiply the paths.
 */
WEIR_INLINE bool each_exchange(volatile uint64_t *set, uint64_t old, uint32_t tag, uint64_t new)
{
	for (uint32_t i = 0; i < EACH_WAYS; i++) {
		const uint64_t word = set[i];

		if (word == old)
			return __sync_val_compare_and_swap(&set[i], old, new) == old;
		if (word >> EACH_TIME_BITS == tag)
			return false;
	}
	return false;
}

/* Charges a packet of `bytes` to an address; false if its bucket has no room. */
WEIR_LIMIT_FUNCTION uint32_t weir_limit_each(uint32_t limiter, uint32_t hash, uint32_t tag, uint64_t now_ns,
					     uint32_t bytes)
{
	const struct table limits = env_limits(NULL);
	const struct limit_profile profile = limit_profile(limits, LIMITER_FIELD(limits, limiter, profiles) + 1);
	volatile uint64_t *set = env_buckets(NULL, each_place(limits, limiter, hash), EACH_WAYS);
	const uint64_t now = each_ticks(now_ns, profile.coarse);
	const uint64_t cost = limit_cost(profile, bytes);

	for (uint32_t try = 0; try < LIMIT_TRIES; try++) {
		const uint64_t word = each_find(set, tag, now);
		const uint64_t debt = each_debt(word, now, cost);

		if (debt > profile.room)
			return false;
		if (each_exchange(set, word, tag, each_charged(tag, now, debt)))
			return true;
	}
	return false;
}

#if WEIR_LOGGED

/* The count of a packet without room. */
struct each_counting {
	volatile uint64_t *set;
	uint64_t hi, lo;
	uint32_t tag;
};

static long each_count_step(uint32_t step, void *state)
{
	const struct each_counting *counting = state;

	(void)step;
	return each_count_once(counting->set, counting->tag, counting->hi, counting->lo);
}

/* Counts a packet without room, if the limiter counts. The verifier follows the attempts of a loop in C one by one. */
WEIR_LIMIT_FUNCTION uint32_t weir_each_count(uint32_t limiter, uint32_t hash, uint32_t tag, uint64_t hi, uint64_t lo)
{
	const struct table limits = env_limits(NULL);

	if (LIMITER_FIELD(limits, limiter, logged)) {
		const uint32_t first = each_records(limits, limiter, hash);
		struct each_counting counting = {
			.set = env_exceeded_words(NULL, first, EXCEEDER_SET_WORDS), .hi = hi, .lo = lo, .tag = tag};

		repeat(RECORD_TRIES, each_count_step, &counting);
	}
	return 0;
}

#else

WEIR_INLINE uint32_t weir_each_count(uint32_t limiter, uint32_t hash, uint32_t tag, uint64_t hi, uint64_t lo)
{
	(void)limiter;
	(void)hash;
	(void)tag;
	(void)hi;
	(void)lo;
	return 0;
}

#endif

WEIR_INLINE bool limit_each4_has_room(const struct env *env, uint32_t limiter, uint32_t address, uint64_t now_ns,
				      uint32_t bytes)
{
	const struct each_hash hash = each_hash4(address, LIMITER_FIELD(env_limits(env), limiter, seed));

	if (weir_limit_each(limiter, hash.hash, hash.tag, now_ns, bytes))
		return true;
	weir_each_count(limiter, hash.hash, hash.tag, 0, address);
	return false;
}

WEIR_INLINE bool limit_each6_has_room(const struct env *env, uint32_t limiter, uint64_t hi, uint64_t lo,
				      uint64_t now_ns, uint32_t bytes)
{
	const struct each_hash hash = each_hash6(hi, lo, LIMITER_FIELD(env_limits(env), limiter, seed));

	if (weir_limit_each(limiter, hash.hash, hash.tag, now_ns, bytes))
		return true;
	weir_each_count(limiter, hash.hash, hash.tag, hi, lo);
	return false;
}

#endif
#endif
