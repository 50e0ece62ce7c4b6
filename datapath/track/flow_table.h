/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The table of flows: buckets of 32 entries. Each key has two buckets. docs/reference/tracking.md#the-table has the
 * steps, which all engines follow; the reference is crates/policy/src/ir/eval/tracking/table.rs.
 *
 * Several CPUs may use a table at once. A CPU that changes an entry holds the lock bit of its status word. Keys and
 * tags change only under it, so a lookup compares the key again once it has the lock. A free entry is taken by locking
 * it: its status word is 0. flow_opening_lock() keeps two CPUs from entering the same key twice.
 */
#ifndef WEIR_TRACK_FLOW_TABLE_H
#define WEIR_TRACK_FLOW_TABLE_H

#include "track/flow_bucket.h"

enum { PLACE_TRIES = 4 }; /* searches for an entry that other CPUs take meanwhile */

struct flow_key {
	uint64_t words[FLOW_KEY_WORDS];
	uint32_t is_ipv6;
};

/* The two buckets that may hold a flow, and its tag, never 0. */
struct flow_hash {
	uint32_t bucket[2];
	uint32_t tag;
};

/* An entry of a bucket. */
struct flow_at {
	uint32_t bucket;
	uint32_t entry;
};

/* Where a new flow goes. */
enum place {
	PLACE_FULL,
	PLACE_FREE,  /* a free entry */
	PLACE_EVICT, /* the entry of a flow that makes room */
	PLACE_KNOWN, /* the entry of the same key: the connection begins anew */
};

/* The product of a word of the key and its secret: NH of UMAC. */
WEIR_INLINE uint64_t hash_word(uint64_t word, uint64_t secret)
{
	const uint32_t low = (uint32_t)word + (uint32_t)secret;
	const uint32_t high = (uint32_t)(word >> 32) + (uint32_t)(secret >> 32);

	return (uint64_t)low * high;
}

/* The two of `buckets` buckets and the tag that follow from the sum of the products and the word that is mixed in. */
WEIR_INLINE struct flow_hash flow_hash_mixed(uint64_t sum, uint64_t mix, uint64_t buckets)
{
	uint64_t hash = sum ^ mix;
	uint32_t tag;

	hash = (hash ^ hash >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	hash = (hash ^ hash >> 27) * UINT64_C(0x94d049bb133111eb);
	hash ^= hash >> 31;
	tag = ((uint32_t)hash & 0xff) | ((uint32_t)(hash >> 24) & 0x3f00);
	return (struct flow_hash){
		.bucket = {(uint32_t)((hash & UINT32_MAX) * buckets >> 32), (uint32_t)((hash >> 32) * buckets >> 32)},
		.tag = tag ? tag : 1,
	};
}

WEIR_INLINE struct flow_hash flow_hash_of(const struct flow_head *head, uint64_t sum)
{
	return flow_hash_mixed(sum, head->hash_mix, head->buckets);
}

/* HashKeys::hash() */
WEIR_INLINE struct flow_hash flow_hash(const struct flow_head *head, const struct flow_key *key)
{
	uint64_t sum = head->hash_start + key->is_ipv6;

	for (uint32_t i = 0; i < FLOW_KEY_WORDS; i++)
		sum += hash_word(key->words[i], head->hash_words[i]);
	return flow_hash_of(head, sum);
}

/* The part of the sum that all keys of IPv4 share. */
WEIR_INLINE uint64_t ipv4_hash_start(const struct flow_head *head)
{
	return head->hash_start + hash_word(0, head->hash_words[0]) + hash_word(0, head->hash_words[2]);
}

WEIR_INLINE bool key_equals(const uint64_t *entry, const struct flow_key *key)
{
	uint64_t differences = (entry[FLOW_STATUS] >> STATUS_IPV6 & 1) ^ key->is_ipv6;

	for (uint32_t i = 0; i < FLOW_KEY_WORDS; i++)
		differences |= entry[i] ^ key->words[i];
	return !differences;
}

/* The first entry of a mask that is not empty. */
WEIR_INLINE uint32_t first_entry(uint32_t mask)
{
	return bounded((uint32_t)__builtin_ctz(mask), FLOW_ENTRIES - 1);
}

#ifdef WEIR_BURSTS

typedef uint16_t flow_tags __attribute__((vector_size(2 * FLOW_ENTRIES)));
typedef int8_t flow_hits __attribute__((vector_size(FLOW_ENTRIES)));

WEIR_INLINE uint32_t mask_of_entries(const flow_hits *hits)
{
	uint32_t mask = 0;

#ifdef __clang__
	typedef bool bits __attribute__((ext_vector_type(FLOW_ENTRIES)));
	const bits set = __builtin_convertvector(*hits, bits);

	__builtin_memcpy(&mask, &set, sizeof(mask));
#else
	for (uint32_t i = 0; i < FLOW_ENTRIES; i++)
		mask |= (uint32_t)((*hits)[i] & 1) << i;
#endif
	return mask;
}

/* The entries whose tag & `bits` is `wanted`, as a mask. */
WEIR_INLINE uint32_t entries_with(const struct flow_bucket *bucket, uint32_t bits, uint32_t wanted)
{
	flow_tags tags;
	flow_hits hits;

	__builtin_memcpy(&tags, bucket->tags, sizeof(tags));
	hits = __builtin_convertvector((tags & (uint16_t)bits) == (uint16_t)wanted, flow_hits);
	return mask_of_entries(&hits);
}

#else

/* The entries whose tag & `bits` is `wanted`, as a mask. Four tags at a time. */
WEIR_INLINE uint32_t entries_with(const struct flow_bucket *bucket, uint32_t bits, uint32_t wanted)
{
	const uint64_t each = UINT64_C(0x0001000100010001), high = each << 15, low = high - each;
	const volatile uint64_t *words = (const volatile uint64_t *)bucket->tags;
	uint32_t mask = 0;

	for (uint32_t i = 0; i < FLOW_ENTRIES / 4; i++) {
		const uint64_t word = (words[i] & bits * each) ^ wanted * each;
		/* The high bit of each tag that is 0. The sum of 15 bits does not carry into the next tag. */
		const uint64_t zero = (~(((word & low) + low) | word) & high) >> 15;

		/* One word after the other: all of them at once would take most of the kernel's stack. */
		mask = opaque(mask | (uint32_t)((zero | zero >> 15 | zero >> 30 | zero >> 45) & 15) << (4 * i));
	}
	return mask;
}

#endif

/* Frees an entry, whose lock is held. */
WEIR_INLINE void flow_free(struct flow_bucket *bucket, uint32_t index)
{
	volatile uint64_t *entry = bucket->entries[index];

	*(volatile uint16_t *)&bucket->tags[index] = 0;
	for (uint32_t i = 0; i < FLOW_ENTRY_WORDS; i++)
		entry[i] = 0;
}

/* Writes the state words of an entry whose lock is held, and releases it. */
WEIR_INLINE void flow_write(struct flow_bucket *bucket, uint32_t index, const uint64_t *words)
{
	volatile uint64_t *entry = bucket->entries[index];
	volatile uint16_t *tag = &bucket->tags[index];
	const uint32_t old = *tag;
	const uint32_t new = (old & TAG_HASH) | status_class(words[2]) << TAG_CLASS_SHIFT;

	if (new != old)
		*tag = (uint16_t)new;
	entry[FLOW_KEY_WORDS] = words[0];
	entry[FLOW_KEY_WORDS + 1] = words[1];
	entry[FLOW_STATUS] = words[2];
}

/* Protocols by their timeouts. */
enum protocol_class {
	CLASS_OTHER,
	CLASS_TCP,
	CLASS_UDP, /* and UDP-Lite */
	CLASS_ICMP,
	CLASSES,
};

/* A lookup instead of comparisons: BPF has no comparison without a branch, and the verifier follows both ways. */
static const uint8_t class_of_protocol[256] = {
	[1] = CLASS_ICMP, [6] = CLASS_TCP, [17] = CLASS_UDP, [58] = CLASS_ICMP, [136] = CLASS_UDP,
};

/* The timeouts of a policy in ticks. */
struct flow_timeouts {
	uint32_t of[CLASSES * FLOW_STATES];
	uint32_t unacknowledged; /* see Timeout::Unacknowledged */
};

/* Whether the timeout of a flow has passed: Timeouts::has_passed(). */
WEIR_INLINE bool flow_expired(const uint64_t *entry, const struct flow_timeouts *timeouts, uint32_t now)
{
	const uint64_t status = entry[FLOW_STATUS];
	const uint32_t state = status_state(status), protocol = entry[FLOW_KEY_WORDS - 1] >> 24 & 0xff;
	const uint32_t age = flow_age(now, status_time(status));
	const uint32_t kind = class_of_protocol[bounded(protocol, 0xff)] * FLOW_STATES + state;

	if (age > timeouts->of[bounded(kind, CLASSES * FLOW_STATES - 1)])
		return true;
	return state == FLOW_ESTABLISHED && age > timeouts->unacknowledged &&
	       (entry[FLOW_KEY_WORDS] != entry[FLOW_KEY_WORDS + 1] || !status_bit(status, STATUS_REPLIED));
}

/* Whether the entry has the flow of a key. Then its lock is held. */
WEIR_INLINE bool flow_take(const struct env *env, struct flow_bucket *bucket, uint32_t index,
			   const struct flow_key *key)
{
	uint64_t *entry = bucket->entries[index];

	if (!key_equals(entry, key))
		return false;
	if (flow_alone(env))
		return true;
	if (!flow_lock(env, &entry[FLOW_STATUS]))
		return false;
	if (bucket->tags[index] && key_equals(entry, key))
		return true;
	flow_unlock(env, &entry[FLOW_STATUS]);
	return false;
}

/* Finds the flow of a key in a bucket. Returns its entry, whose lock is held, or FLOW_ENTRIES. */
WEIR_INLINE uint32_t flow_find_in(const struct env *env, struct flow_bucket *bucket, uint32_t tag,
				  const struct flow_key *key)
{
	uint32_t entries = entries_with(bucket, TAG_HASH, tag);

	for (uint32_t i = 0; i < FLOW_ENTRIES && entries; i++) {
		const uint32_t index = first_entry(entries);

		if (flow_take(env, bucket, index, key))
			return index;
		entries = forget(entries & (entries - 1));
	}
	return FLOW_ENTRIES;
}

/*
 * The entries of a class in a bucket, as a mask. No free entry has a class but FLOW_PROVEN, which is not asked for:
 * tags of other classes are not 0.
 */
WEIR_INLINE uint32_t entries_of(const struct flow_bucket *bucket, uint32_t class)
{
	return entries_with(bucket, TAG_CLASS, class << TAG_CLASS_SHIFT);
}

/*
 * The flow of a class in a bucket that makes room first, from entry `start` on; FLOW_ENTRIES if there is none whose
 * weighted age is at least `age_min`.
 */
WEIR_INLINE uint32_t spare_entry(const struct flow_bucket *bucket, uint32_t class, uint32_t age_min, uint32_t start,
				 uint32_t now)
{
	const uint32_t entries = entries_of(bucket, class), first = start & (FLOW_ENTRIES - 1);
	uint32_t oldest = FLOW_ENTRIES, oldest_age = 0;

#ifdef WEIR_BURSTS
	/* Bit i is entry start + i. Entries of other classes stay out of the cache. */
	uint32_t left = entries >> first | (uint32_t)((uint64_t)entries << (FLOW_ENTRIES - first));

	for (; left; left &= left - 1) {
		const uint32_t index = (first + first_entry(left)) & (FLOW_ENTRIES - 1);
		const uint32_t age = status_weighted_age(bucket->entries[index][FLOW_STATUS], now);

		if (age >= age_min && (oldest == FLOW_ENTRIES || age > oldest_age)) {
			oldest = index;
			oldest_age = age;
		}
	}
#else
	for (uint32_t i = 0; i < FLOW_ENTRIES; i++) {
		const uint32_t index = (first + i) & (FLOW_ENTRIES - 1);
		const uint32_t age = status_weighted_age(bucket->entries[index][FLOW_STATUS], now);

		if ((entries >> index & 1) && age >= age_min && (oldest == FLOW_ENTRIES || age > oldest_age)) {
			oldest = index;
			oldest_age = age;
		}
		oldest = forget(oldest);
		oldest_age = forget(oldest_age);
	}
#endif
	return oldest;
}

/* Frees the entries of a bucket whose flows have expired. */
WEIR_INLINE void free_expired(const struct env *env, struct flow_bucket *bucket, const struct flow_timeouts *timeouts,
			      uint32_t now)
{
	for (uint32_t index = 0; index < FLOW_ENTRIES; index++) {
		uint64_t *entry = bucket->entries[index];

		if (!bucket->tags[index] || !flow_expired(entry, timeouts, now))
			continue;
		if (flow_alone(env)) {
			flow_free(bucket, index);
		} else if (flow_lock(env, &entry[FLOW_STATUS])) {
			if (bucket->tags[index] && flow_expired(entry, timeouts, now))
				flow_free(bucket, index);
			else
				flow_unlock(env, &entry[FLOW_STATUS]);
		}
	}
}

/* Takes an entry that place_flow() found. Returns false if another CPU has changed it. */
WEIR_INLINE bool flow_claim(const struct env *env, struct flow_bucket *bucket, uint32_t index, enum place place)
{
	volatile uint64_t *status = &bucket->entries[index][FLOW_STATUS];
	volatile uint16_t *tag = &bucket->tags[index];

	if (flow_alone(env))
		return true;
	if (place == PLACE_FREE)
		return __sync_bool_compare_and_swap(status, 0, FLOW_LOCK);
	if (!flow_lock(env, status))
		return false;
	/* The flow may have ended or expired meanwhile. */
	if (!*tag || *tag & TAG_CLASS)
		return true;
	flow_unlock(env, status);
	return false;
}

/* Enters a flow in an entry whose lock is held, and releases it. */
WEIR_INLINE void flow_enter(struct flow_bucket *bucket, uint32_t index, uint32_t tag, const struct flow_key *key,
			    const uint64_t *words)
{
	volatile uint64_t *entry = bucket->entries[index];

	for (uint32_t i = 0; i < FLOW_KEY_WORDS; i++)
		entry[i] = key->words[i];
	*(volatile uint16_t *)&bucket->tags[index] = (uint16_t)tag;
	flow_write(bucket, index, words);
}

/* The time of a packet in ticks. The clock never goes back; another CPU may have set it to a later time meanwhile. */
WEIR_INLINE uint32_t track_time(struct flow_head *head, uint64_t time_ns)
{
	const uint64_t ticks = time_ns >> FLOW_TICK_SHIFT, clock = *(volatile uint64_t *)&head->clock;

	if (ticks <= clock)
		return (uint32_t)clock & (FLOW_TICKS - 1);
	__sync_val_compare_and_swap(&head->clock, clock, ticks);
	return (uint32_t)ticks & (FLOW_TICKS - 1);
}

#endif
