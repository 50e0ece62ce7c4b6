/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The table of flows: buckets of 32 slots, of which each key has two. docs/tracking.md#the-table has the steps, which
 * all engines follow; the reference is crates/policy/src/ir/eval/tracking/table.rs.
 *
 *	bucket	tags[32], one cache line	bit 15 embryonic, bits 0 to 14 of the hash; 0: free
 *		entries[32], a cache line each	key, state words
 *
 * Several CPUs may use a table at once. Whoever changes an entry holds the lock bit of its status word. Keys and tags
 * change only under it, so a lookup compares the key again once it has the lock. A free slot is taken by locking it:
 * its status word is 0. flow_opening_lock() keeps two CPUs from entering the same key twice.
 */
#ifndef WEIR_FLOW_TABLE_H
#define WEIR_FLOW_TABLE_H

#include "flow.h"

enum {
	FLOW_ENTRY_WORDS = FLOW_KEY_WORDS + FLOW_STATE_WORDS,
	FLOW_STATUS = FLOW_ENTRY_WORDS - 1,
	TAG_EMBRYONIC = 1 << 15,
	TAG_HASH = TAG_EMBRYONIC - 1,
	OPENING_LOCKS = 256,
	PLACE_TRIES = 4, /* searches for a slot that other CPUs take meanwhile */
};

#define FLOW_LOCK (UINT64_C(1) << STATUS_LOCK)

struct flow_bucket {
	uint16_t tags[FLOW_SLOTS];
	uint64_t entries[FLOW_SLOTS][FLOW_ENTRY_WORDS];
};

/* What all who use a table share: FlowHead in crates/abi/src/flow.rs. */
struct flow_head {
	uint64_t clock; /* time of the latest tracked packet, in units of 2^24 ns since the clock's zero */
	uint64_t buckets;
	uint64_t hash_words[FLOW_KEY_WORDS];
	uint64_t hash_start;
	uint64_t hash_mix;
	uint64_t zero[7];
	uint64_t opening[OPENING_LOCKS]; /* locks of keys that are entered, by hash */
};

_Static_assert(sizeof(struct flow_bucket) == 66 * FLOW_SLOTS, "abi: BUCKET_BYTES");
_Static_assert(sizeof(struct flow_head) == 128 + 8 * OPENING_LOCKS, "abi: FlowHead");

struct flow_key {
	uint64_t words[FLOW_KEY_WORDS];
	uint32_t is_ipv6;
};

/* The two buckets that may hold a flow, and its tag, never 0. */
struct flow_hash {
	uint32_t bucket[2];
	uint32_t tag;
};

/* A slot of a bucket. */
struct flow_at {
	uint32_t bucket;
	uint32_t slot;
};

/* Where a new flow goes. */
enum place {
	PLACE_FULL,
	PLACE_FREE,  /* a free slot */
	PLACE_EVICT, /* the slot of an embryonic flow */
	PLACE_KNOWN, /* the slot of the same key: the connection begins anew */
};

/* HashKeys::hash() */
WEIR_INLINE struct flow_hash flow_hash(const struct flow_head *head, const struct flow_key *key)
{
	uint64_t hash = head->hash_start + key->is_ipv6;
	uint32_t tag;

	for (uint32_t i = 0; i < FLOW_KEY_WORDS; i++) {
		const uint64_t word = key->words[i], secret = head->hash_words[i];
		const uint32_t low = (uint32_t)word + (uint32_t)secret;
		const uint32_t high = (uint32_t)(word >> 32) + (uint32_t)(secret >> 32);

		hash += (uint64_t)low * high;
	}
	hash ^= head->hash_mix;
	hash = (hash ^ hash >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	hash = (hash ^ hash >> 27) * UINT64_C(0x94d049bb133111eb);
	hash ^= hash >> 31;
	tag = ((uint32_t)hash & 0xff) | ((uint32_t)(hash >> 24) & 0x7f00);
	return (struct flow_hash){
		.bucket = {(uint32_t)((hash & UINT32_MAX) * head->buckets >> 32),
			   (uint32_t)((hash >> 32) * head->buckets >> 32)},
		.tag = tag ? tag : 1,
	};
}

WEIR_INLINE bool key_equals(const uint64_t *entry, const struct flow_key *key)
{
	uint64_t differences = (entry[FLOW_STATUS] >> STATUS_IPV6 & 1) ^ key->is_ipv6;

	for (uint32_t i = 0; i < FLOW_KEY_WORDS; i++)
		differences |= entry[i] ^ key->words[i];
	return !differences;
}

#ifdef WEIR_BURSTS

/* The first slot of a mask that is not empty. */
WEIR_INLINE uint32_t first_slot(uint32_t mask)
{
	return (uint32_t)__builtin_ctz(mask);
}

typedef uint16_t flow_tags __attribute__((vector_size(2 * FLOW_SLOTS)));
typedef int8_t flow_hits __attribute__((vector_size(FLOW_SLOTS)));

WEIR_INLINE uint32_t mask_of_slots(flow_tags equal)
{
	const flow_hits hits = __builtin_convertvector(equal, flow_hits);
	uint32_t mask = 0;

#ifdef __clang__
	typedef bool bits __attribute__((ext_vector_type(FLOW_SLOTS)));
	const bits set = __builtin_convertvector(hits, bits);

	__builtin_memcpy(&mask, &set, sizeof(mask));
#else
	for (uint32_t i = 0; i < FLOW_SLOTS; i++)
		mask |= (uint32_t)(hits[i] & 1) << i;
#endif
	return mask;
}

WEIR_INLINE flow_tags load_tags(const struct flow_bucket *bucket)
{
	flow_tags tags;

	__builtin_memcpy(&tags, bucket->tags, sizeof(tags));
	return tags;
}

/* The slots whose tag & `bits` is `wanted`, as a mask. */
WEIR_INLINE uint32_t slots_with(const struct flow_bucket *bucket, uint32_t bits, uint32_t wanted)
{
	return mask_of_slots((flow_tags)((load_tags(bucket) & (uint16_t)bits) == (uint16_t)wanted));
}

#else

/* The first slot of a mask that is not empty. The compiler knows its bound, the verifier does not. */
WEIR_INLINE uint32_t first_slot(uint32_t mask)
{
	return opaque((uint32_t)__builtin_ctz(mask)) & (FLOW_SLOTS - 1);
}

/* The slots whose tag & `bits` is `wanted`, as a mask. Four tags at a time. */
WEIR_INLINE uint32_t slots_with(const struct flow_bucket *bucket, uint32_t bits, uint32_t wanted)
{
	const uint64_t each = UINT64_C(0x0001000100010001), high = each << 15, low = high - each;
	const volatile uint64_t *words = (const volatile uint64_t *)bucket->tags;
	uint32_t mask = 0;

	for (uint32_t i = 0; i < FLOW_SLOTS / 4; i++) {
		const uint64_t word = (words[i] & bits * each) ^ wanted * each;
		/* The high bit of each tag that is 0. The sum of 15 bits does not carry into the next tag. */
		const uint64_t zero = (~(((word & low) + low) | word) & high) >> 15;

		mask |= (uint32_t)((zero | zero >> 15 | zero >> 30 | zero >> 45) & 15) << (4 * i);
	}
	return mask;
}

#endif

/* Whether nothing has to be locked. */
WEIR_INLINE bool flow_alone(const struct env *env);
/* The bucket with a number below that of buckets; NULL, which does not happen, if there is none. */
WEIR_INLINE struct flow_bucket *flow_bucket(const struct env *env, uint32_t number);
/* Waits until a lock word is free, and sets its lock bit. Returns false if that takes too long. */
WEIR_INLINE bool flow_lock(const struct env *env, volatile uint64_t *word);

WEIR_INLINE void flow_unlock(const struct env *env, volatile uint64_t *word)
{
	if (!flow_alone(env))
		*word &= ~FLOW_LOCK;
}

/* Frees a slot, whose lock is held. */
WEIR_INLINE void flow_free(struct flow_bucket *bucket, uint32_t slot)
{
	volatile uint64_t *entry = bucket->entries[slot];

	*(volatile uint16_t *)&bucket->tags[slot] = 0;
	for (uint32_t i = 0; i < FLOW_ENTRY_WORDS; i++)
		entry[i] = 0;
}

/* Writes the state words of a slot whose lock is held, and releases it. */
WEIR_INLINE void flow_write(struct flow_bucket *bucket, uint32_t slot, const uint64_t *words)
{
	volatile uint64_t *entry = bucket->entries[slot];
	volatile uint16_t *tag = &bucket->tags[slot];
	const uint32_t old = *tag;
	const uint32_t new = (old & TAG_HASH) | (status_embryonic(words[2]) ? TAG_EMBRYONIC : 0);

	if (new != old)
		*tag = (uint16_t)new;
	entry[FLOW_KEY_WORDS] = words[0];
	entry[FLOW_KEY_WORDS + 1] = words[1];
	entry[FLOW_STATUS] = words[2];
}

/* The timeouts, in the order of Timeout in crates/policy/src/tracking.rs. */
enum timeout {
	TIMEOUT_SYN_SENT,
	TIMEOUT_SYN_RECEIVED,
	TIMEOUT_ESTABLISHED,
	TIMEOUT_FIN_WAIT,
	TIMEOUT_CLOSE_WAIT,
	TIMEOUT_LAST_ACK,
	TIMEOUT_TIME_WAIT,
	TIMEOUT_CLOSED,
	TIMEOUT_UNACKNOWLEDGED,
	TIMEOUT_UDP,
	TIMEOUT_UDP_REPLIED,
	TIMEOUT_ICMP,
	TIMEOUT_OTHER,
	TIMEOUTS,
};

/* The timeout of a state: Timeout::of(). */
WEIR_INLINE enum timeout timeout_of(uint32_t state, uint32_t protocol)
{
	switch (state) {
	case FLOW_SYN_SENT:
	case FLOW_SYN_SENT2:
		return TIMEOUT_SYN_SENT;
	case FLOW_SYN_RECEIVED:
	case FLOW_SYN_RECEIVED2:
		return TIMEOUT_SYN_RECEIVED;
	case FLOW_ESTABLISHED:
		return TIMEOUT_ESTABLISHED;
	case FLOW_FIN_WAIT:
		return TIMEOUT_FIN_WAIT;
	case FLOW_CLOSE_WAIT:
		return TIMEOUT_CLOSE_WAIT;
	case FLOW_LAST_ACK:
		return TIMEOUT_LAST_ACK;
	case FLOW_TIME_WAIT:
		return TIMEOUT_TIME_WAIT;
	case FLOW_CLOSED:
	case FLOW_RESETTING:
		return TIMEOUT_CLOSED;
	default:
		break;
	}
	if (protocol == 17 || protocol == 136)
		return state == FLOW_UNREPLIED ? TIMEOUT_UDP : TIMEOUT_UDP_REPLIED;
	return protocol == 1 || protocol == 58 ? TIMEOUT_ICMP : TIMEOUT_OTHER;
}

/* Whether the timeout of a flow has passed. */
WEIR_INLINE bool flow_expired(const uint64_t *entry, const uint32_t *timeouts, uint32_t now)
{
	const uint64_t una = entry[FLOW_KEY_WORDS], next = entry[FLOW_KEY_WORDS + 1], status = entry[FLOW_STATUS];
	const uint32_t state = status_state(status), protocol = entry[FLOW_KEY_WORDS - 1] >> 24 & 0xff;
	uint32_t timeout = timeouts[timeout_of(state, protocol)];

	if (state == FLOW_ESTABLISHED && (una != next || !status_bit(status, STATUS_REPLIED)) &&
	    timeouts[TIMEOUT_UNACKNOWLEDGED] < timeout)
		timeout = timeouts[TIMEOUT_UNACKNOWLEDGED];
	return flow_age(now, status_time(status)) > timeout;
}

/* Whether the slot has the flow of a key. Then its lock is held. */
WEIR_INLINE bool flow_take(const struct env *env, struct flow_bucket *bucket, uint32_t slot,
			   const struct flow_key *key)
{
	uint64_t *entry = bucket->entries[slot];

	if (!key_equals(entry, key))
		return false;
	if (flow_alone(env))
		return true;
	if (!flow_lock(env, &entry[FLOW_STATUS]))
		return false;
	if (bucket->tags[slot] && key_equals(entry, key))
		return true;
	flow_unlock(env, &entry[FLOW_STATUS]);
	return false;
}

/* Finds the flow of a key in a bucket. Returns its slot, whose lock is held, or FLOW_SLOTS. */
WEIR_INLINE uint32_t flow_find_in(const struct env *env, struct flow_bucket *bucket, uint32_t tag,
				  const struct flow_key *key)
{
	uint32_t slots = slots_with(bucket, TAG_HASH, tag);

	for (uint32_t i = 0; i < FLOW_SLOTS && slots; i++) {
		const uint32_t slot = first_slot(slots);

		if (flow_take(env, bucket, slot, key))
			return slot;
		slots = forget(slots & (slots - 1));
	}
	return FLOW_SLOTS;
}

/* The embryonic flow of a bucket whose time is longest ago, from slot `start` on; FLOW_SLOTS if there is none. */
WEIR_INLINE uint32_t oldest_embryonic(const struct flow_bucket *bucket, uint32_t start, uint32_t now)
{
	const uint32_t slots = slots_with(bucket, TAG_EMBRYONIC, TAG_EMBRYONIC);
	uint32_t oldest = FLOW_SLOTS, oldest_age = 0;

	for (uint32_t i = 0; i < FLOW_SLOTS; i++) {
		const uint32_t slot = (start + i) & (FLOW_SLOTS - 1);
		const uint32_t age = flow_age(now, status_time(bucket->entries[slot][FLOW_STATUS]));

		if ((slots >> slot & 1) && (oldest == FLOW_SLOTS || age > oldest_age)) {
			oldest = slot;
			oldest_age = age;
		}
		oldest = forget(oldest);
		oldest_age = forget(oldest_age);
	}
	return oldest;
}

/* Frees the slots of a bucket whose flows have expired. */
WEIR_INLINE void free_expired(const struct env *env, struct flow_bucket *bucket, const uint32_t *timeouts, uint32_t now)
{
	for (uint32_t slot = 0; slot < FLOW_SLOTS; slot++) {
		uint64_t *entry = bucket->entries[slot];

		if (!bucket->tags[slot] || !flow_expired(entry, timeouts, now))
			continue;
		if (flow_alone(env)) {
			flow_free(bucket, slot);
		} else if (flow_lock(env, &entry[FLOW_STATUS])) {
			if (bucket->tags[slot] && flow_expired(entry, timeouts, now))
				flow_free(bucket, slot);
			else
				flow_unlock(env, &entry[FLOW_STATUS]);
		}
	}
}

/* What a bucket has room for. */
struct bucket_use {
	uint32_t free;	    /* mask of the free slots */
	uint32_t used;	    /* number of the others */
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
	return second->used < first->used;
}

/*
 * Finds a slot for a new flow: steps 1 to 5 of docs/tracking.md#the-table. `at` becomes the slot. Locks are taken only
 * to free expired flows.
 */
WEIR_INLINE enum place flow_place(const struct env *env, const struct flow_hash *hash, const uint32_t *timeouts,
				  uint32_t embryonic_max, uint32_t now, struct flow_at *at)
{
	struct flow_bucket *first = flow_bucket(env, hash->bucket[0]), *second = flow_bucket(env, hash->bucket[1]);
	struct bucket_use uses[2];
	uint32_t better = 0, slot;

	if (!first || !second)
		return PLACE_FULL;
	for (uint32_t round = 0; round < 2; round++) {
		uses[0] = bucket_use(first, embryonic_max);
		uses[1] = bucket_use(second, embryonic_max);
		better = second_is_better(&uses[0], &uses[1]);
		at->bucket = hash->bucket[better];
		if (uses[better].is_at_bound)
			break;
		if (uses[better].free) {
			at->slot = first_slot(uses[better].free);
			return PLACE_FREE;
		}
		if (!round) {
			free_expired(env, first, timeouts, now);
			free_expired(env, second, timeouts, now);
		}
	}
	slot = oldest_embryonic(better ? second : first, hash->tag, now);
	if (slot == FLOW_SLOTS && !uses[better].is_at_bound) {
		at->bucket = hash->bucket[1 - better];
		slot = oldest_embryonic(better ? first : second, hash->tag, now);
	}
	at->slot = slot & (FLOW_SLOTS - 1);
	return slot == FLOW_SLOTS ? PLACE_FULL : PLACE_EVICT;
}

/* Takes a slot that flow_place() found. Returns false if another CPU has changed it. */
WEIR_INLINE bool flow_claim(const struct env *env, struct flow_bucket *bucket, uint32_t slot, enum place place)
{
	volatile uint64_t *status = &bucket->entries[slot][FLOW_STATUS];
	volatile uint16_t *tag = &bucket->tags[slot];

	if (flow_alone(env))
		return true;
	if (place == PLACE_FREE)
		return __sync_bool_compare_and_swap(status, 0, FLOW_LOCK);
	if (!flow_lock(env, status))
		return false;
	if (*tag & TAG_EMBRYONIC)
		return true;
	flow_unlock(env, status);
	return false;
}

/* Enters a flow in a slot whose lock is held, and releases it. */
WEIR_INLINE void flow_enter(struct flow_bucket *bucket, uint32_t slot, uint32_t tag, const struct flow_key *key,
			    const uint64_t *words)
{
	volatile uint64_t *entry = bucket->entries[slot];

	for (uint32_t i = 0; i < FLOW_KEY_WORDS; i++)
		entry[i] = key->words[i];
	*(volatile uint16_t *)&bucket->tags[slot] = (uint16_t)tag;
	flow_write(bucket, slot, words);
}

#endif
