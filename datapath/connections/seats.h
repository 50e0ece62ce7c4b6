/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The connections that each address holds, in a table of bounded size. crates/abi/src/seats.rs explains the words, and
 * why nothing has to be counted back when a connection ends. Needs the tracker, and `tracking`, the policy's settings.
 *
 * Other CPUs and workers use the table at the same time. Each word changes by one atomic step. A packet that loses a
 * step to another one passes without a seat, and the next packet of its connection tries again.
 */
#ifndef WEIR_CONNECTIONS_SEATS_H
#define WEIR_CONNECTIONS_SEATS_H

#include "limits/each.h"
#include "track/flow_place.h"

enum {
	SEAT_PROBES = 16, /* flows that one packet looks up to find a free seat, and as many to find a free way */
	SEAT_FIRST_SHIFT = 14,
	SEAT_SECOND_SHIFT = 36,
	SEAT_BUCKET_MASK = (1 << 22) - 1,
	SEAT_HEADER_USED = 1 << 16,
};

/* What a packet wants of the seats of its address: Claim in seats.rs. */
enum claim {
	CLAIM_NONE = 0,
	CLAIM_FREE = 1, /* a seat must be free */
	CLAIM_SEAT = 2, /* a seat */
	CLAIM_OVER = 3, /* its seat becomes free */
};

/* The connection of a packet. */
struct holding {
	uint64_t seat;
	uint32_t claim; /* enum claim */
	uint32_t now;	/* ticks */
};

/* The claim of a packet of a flow: Claim::of(). */
WEIR_INLINE uint32_t claim_of(uint64_t status)
{
	const uint32_t claims = OF_STATE2(FLOW_SYN_SENT, CLAIM_FREE) | OF_STATE2(FLOW_SYN_SENT2, CLAIM_FREE) |
				OF_STATE2(FLOW_SYN_RECEIVED, CLAIM_FREE) | OF_STATE2(FLOW_SYN_RECEIVED2, CLAIM_FREE) |
				OF_STATE2(FLOW_ESTABLISHED, CLAIM_SEAT) | OF_STATE2(FLOW_RESETTING, CLAIM_SEAT) |
				OF_STATE2(FLOW_FIN_WAIT, CLAIM_SEAT) | OF_STATE2(FLOW_CLOSE_WAIT, CLAIM_SEAT) |
				OF_STATE2(FLOW_LAST_ACK, CLAIM_SEAT) | OF_STATE2(FLOW_TIME_WAIT, CLAIM_OVER) |
				OF_STATE2(FLOW_CLOSED, CLAIM_OVER) | OF_STATE2(FLOW_RESTORED, CLAIM_SEAT);
	const uint32_t state = status_state(status);

	/* It was picked up, and may be made up. */
	if ((state == FLOW_ESTABLISHED || state == FLOW_RESETTING) && !status_bit(status, STATUS_REPLIED))
		return CLAIM_FREE;
	return claims >> 2 * state & 3;
}

WEIR_INLINE uint64_t seat_of(uint32_t first, uint32_t second, uint32_t tag)
{
	return (uint64_t)second << SEAT_SECOND_SHIFT | (uint64_t)first << SEAT_FIRST_SHIFT | tag;
}

/* Whether a bucket has a flow with the tag that counts. The flow may change meanwhile, because it is not locked. */
WEIR_INLINE bool seat_is_live_in(const struct flow_bucket *bucket, uint32_t tag, uint32_t now)
{
	uint32_t entries = entries_with(bucket, TAG_HASH, tag);

	for (uint32_t i = 0; i < FLOW_ENTRIES && entries; i++) {
		const uint64_t *entry = bucket->entries[first_entry(entries)];

		if (claim_of(entry[FLOW_STATUS]) == CLAIM_SEAT && !flow_expired(entry, &tracking.timeouts, now))
			return true;
		entries = forget(entries & (entries - 1));
	}
	return false;
}

/* In the kernel a function that the verifier follows once. */
#ifdef WEIR_BURSTS

WEIR_INLINE uint32_t seat_live_in(const struct env *env, uint32_t number, uint32_t tag, uint32_t now)
{
	/* A seat may be of a larger table that an earlier policy had. */
	return number < env->flows.head->buckets && seat_is_live_in(flow_bucket(env, number), tag, now);
}

/* Calls `step` with 0, 1, ... until it returns 1, at most `steps` times. */
WEIR_INLINE void seat_steps(uint32_t steps, long (*step)(uint32_t step, void *state), void *state)
{
	for (uint32_t i = 0; i < steps; i++)
		if (step(i, state))
			return;
}

#else

WEIR_LIMIT_FUNCTION uint32_t weir_seat_is_live(uint32_t number, uint32_t tag, uint32_t now)
{
	const struct flow_bucket *bucket = flow_bucket(NULL, number);

	return bucket && seat_is_live_in(bucket, tag & TAG_HASH, now);
}

WEIR_INLINE uint32_t seat_live_in(const struct env *env, uint32_t number, uint32_t tag, uint32_t now)
{
	(void)env;
	return weir_seat_is_live(number, tag, now);
}

WEIR_INLINE void seat_steps(uint32_t steps, long (*step)(uint32_t step, void *state), void *state)
{
	repeat(steps, step, state);
}

#endif

/* A search among the seats of one way. */
struct seat_search {
	const struct env *env;
	uint64_t seat;	 /* of the packet's flow */
	uint64_t word;	 /* of the place that was found */
	uint32_t way;	 /* place of the first seat of the way */
	uint32_t seats;	 /* of each way */
	uint32_t start;	 /* the seat at which the flow begins to look */
	uint32_t now;	 /* ticks */
	uint32_t own;	 /* place of the flow's seat; 0: it has none */
	uint32_t free;	 /* place of a free seat; 0: none was found */
	uint32_t tested; /* seat_idle_step(): ways that are not idle, */
	uint32_t at;	 /* seats of the next one that are free, */
	uint32_t probes; /* and lookups that are left */
};

/* Whether the flow of a seat counts. */
WEIR_INLINE bool seat_is_live(const struct seat_search *search, uint64_t seat)
{
	const uint32_t tag = (uint32_t)seat & TAG_HASH;
	const uint32_t first = (uint32_t)(seat >> SEAT_FIRST_SHIFT) & SEAT_BUCKET_MASK;
	const uint32_t second = (uint32_t)(seat >> SEAT_SECOND_SHIFT) & SEAT_BUCKET_MASK;

	return seat_live_in(search->env, first, tag, search->now) ||
	       seat_live_in(search->env, second, tag, search->now);
}

WEIR_INLINE uint64_t seat_word(const struct seat_search *search, uint32_t place)
{
	return *(volatile uint64_t *)env_bucket(search->env, place);
}

WEIR_INLINE bool seat_change(const struct seat_search *search, uint32_t place, uint64_t old, uint64_t new)
{
	return __sync_val_compare_and_swap(env_bucket(search->env, place), old, new) == old;
}

/* The place of the nth seat at which the flow looks. */
WEIR_INLINE uint32_t seat_place(const struct seat_search *search, uint32_t nth)
{
	const uint32_t seat = search->start + nth;

	return search->way + (seat < search->seats ? seat : seat - search->seats);
}

/* Finds the seat of the flow, and the first one that was never taken or was given up. */
static long seat_own_step(uint32_t nth, void *state)
{
	struct seat_search *search = state;
	const uint32_t place = seat_place(search, nth);
	const uint64_t word = seat_word(search, place);

	if (word == search->seat) {
		search->own = place;
		return 1;
	}
	if (!word && !search->free)
		search->free = place;
	return 0;
}

/* Finds a seat whose flow does not count. */
static long seat_dead_step(uint32_t nth, void *state)
{
	struct seat_search *search = state;
	const uint32_t place = seat_place(search, nth);
	const uint64_t word = seat_word(search, place);

	if (seat_is_live(search, word))
		return 0;
	search->free = place;
	search->word = word;
	return 1;
}

/* Finds the first way whose flows all do not count; then `at` is the number of its seats. */
static long seat_idle_step(uint32_t nth, void *state)
{
	struct seat_search *search = state;
	uint64_t word;

	(void)nth;
	if (search->at == search->seats || search->tested == EACH_WAYS)
		return 1;
	word = seat_word(search, search->way + search->at);
	if (word && !search->probes)
		return 1;
	search->probes -= word ? 1 : 0;
	if (word && seat_is_live(search, word)) {
		search->way += search->seats;
		search->tested++;
		search->at = 0;
	} else {
		search->at++;
	}
	return 0;
}

/* Finds the flow's own seat, or else a free one. */
WEIR_INLINE void seat_find_own(struct seat_search *search)
{
	search->own = 0;
	search->free = 0;
	search->word = 0;
	seat_steps(search->seats, seat_own_step, search);
}

WEIR_INLINE void seat_find(struct seat_search *search)
{
	seat_find_own(search);
	if (!search->own && !search->free)
		seat_steps(search->seats < SEAT_PROBES ? search->seats : SEAT_PROBES, seat_dead_step, search);
}

/* The first of the set's headers that is `wanted`; EACH_WAYS if there is none. */
WEIR_INLINE uint32_t seat_way(const struct env *env, uint32_t set, uint64_t wanted)
{
	const volatile uint64_t *headers = env_buckets(env, set, EACH_WAYS);

	for (uint32_t i = 0; i < EACH_WAYS; i++)
		if (headers[i] == wanted)
			return forget(i);
	return EACH_WAYS;
}

/*
 * Finds the way of an address that has none: one that was never used, one whose seats are all free, or one that it
 * shares. Returns its number, or EACH_WAYS if the packet passes: another CPU was faster, or the flow has a seat in the
 * way that is shared.
 */
WEIR_INLINE uint32_t seat_new_way(struct seat_search *search, uint32_t set, uint32_t header)
{
	const uint32_t first = set + EACH_WAYS, shared = header & (EACH_WAYS - 1);
	uint32_t way = seat_way(search->env, set, 0);
	uint64_t old = 0;

	if (way == EACH_WAYS) {
		search->way = first + shared * search->seats;
		seat_find_own(search);
		if (search->own)
			return EACH_WAYS;
		search->way = first;
		search->probes = SEAT_PROBES;
		seat_steps(EACH_WAYS * (search->seats + 1), seat_idle_step, search);
		if (search->at != search->seats || search->tested >= EACH_WAYS)
			return shared;
		way = forget(search->tested);
		old = seat_word(search, set + way);
	}
	return seat_change(search, set + way, old, header) ? way : (uint32_t)EACH_WAYS;
}

/* Grants the claim of a packet, or returns false: it exceeds the limit of its address. grant() in seats.rs. */
WEIR_INLINE bool seat_grant(const struct env *env, uint32_t limiter, const struct holding *holding,
			    struct each_hash hash)
{
	const struct table limits = env_limits(env);
	const uint32_t seats = LIMITER_FIELD(limits, limiter, otherwise), header = SEAT_HEADER_USED | hash.tag;
	const uint32_t set_bits = LIMITER_FIELD(limits, limiter, place_bits);
	const uint32_t number = hash.hash >> ((32 - set_bits) & 31);
	const uint32_t set = LIMITER_FIELD(limits, limiter, offset) + number * EACH_WAYS * (seats + 1);
	struct seat_search search = {
		.env = env,
		.seat = holding->seat,
		.seats = seats,
		.start = ((uint32_t)holding->seat & TAG_HASH) % seats,
		.now = holding->now,
	};
	uint32_t way;

	if (holding->claim == CLAIM_NONE)
		return true;
	way = seat_way(env, set, header);
	if (way == EACH_WAYS && holding->claim == CLAIM_SEAT)
		way = seat_new_way(&search, set, header);
	if (way == EACH_WAYS)
		return true;
	search.way = set + EACH_WAYS + way * seats;
	if (holding->claim == CLAIM_OVER) {
		seat_find_own(&search);
		if (search.own)
			seat_change(&search, search.own, search.seat, 0);
		return true;
	}
	seat_find(&search);
	if (search.own)
		return true;
	if (search.free && holding->claim == CLAIM_SEAT)
		seat_change(&search, search.free, search.word, search.seat);
	return search.free;
}

#endif
