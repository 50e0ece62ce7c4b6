/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The memory of a table of flows, and its locks.
 *
 *	bucket	tags[32], one cache line	bits 14 and 15 enum flow_class, bits 0 to 13 of the hash; 0: free
 *		entries[32], a cache line each	key, state words
 */
#ifndef WEIR_TRACK_FLOW_BUCKET_H
#define WEIR_TRACK_FLOW_BUCKET_H

#include "track/flow.h"

enum {
	FLOW_ENTRY_WORDS = FLOW_KEY_WORDS + FLOW_STATE_WORDS,
	FLOW_STATUS = FLOW_ENTRY_WORDS - 1,
	TAG_CLASS_SHIFT = 14,
	TAG_HASH = (1 << TAG_CLASS_SHIFT) - 1, /* never 0 in the tag of a used entry, so the tag 0 is free */
	TAG_CLASS = UINT16_MAX - TAG_HASH,
	OPENING_LOCKS = 256,
};

#define FLOW_LOCK (UINT64_C(1) << STATUS_LOCK)

struct flow_bucket {
	uint16_t tags[FLOW_ENTRIES];
	uint64_t entries[FLOW_ENTRIES][FLOW_ENTRY_WORDS];
};

/* Whether SYNs are answered (proxy/syn_switch.h). */
struct syn_switch {
	uint64_t second; /* of the latest SYN */
	uint64_t count;	 /* of its SYNs */
	uint64_t calm_from;
	uint64_t is_on;
};

/* The data that all users of a table share: FlowHead in crates/abi/src/flow.rs. */
struct flow_head {
	uint64_t clock; /* time of the latest tracked packet, in units of 2^24 ns since the clock's zero */
	uint64_t buckets;
	uint64_t hash_words[FLOW_KEY_WORDS];
	uint64_t hash_start;
	uint64_t hash_mix;
	uint64_t cookie_secret[2];
	uint64_t cookies_made; /* the epoch of the latest cookie + 1; 0 if there was none */
	struct syn_switch syns;
	uint64_t opening[OPENING_LOCKS]; /* locks of keys that are entered, by hash */
};

_Static_assert(sizeof(struct flow_bucket) == 66 * FLOW_ENTRIES, "abi: BUCKET_BYTES");
_Static_assert(sizeof(struct flow_head) == 128 + 8 * OPENING_LOCKS, "abi: FlowHead");

/*
 * A function that the kernel's code defines in track/kernel.h. It is hidden, so the verifier follows its pointers to
 * the caller.
 */
#define WEIR_IN_KERNEL __attribute__((visibility("hidden")))

/* Sets the lock bit of a word, if it is free. */
WEIR_INLINE bool lock_once(volatile uint64_t *word)
{
	const uint64_t old = *word;

	return !(old & FLOW_LOCK) && __sync_val_compare_and_swap(word, old, old | FLOW_LOCK) == old;
}

#ifdef WEIR_BURSTS

/* Whether no other worker uses the table, so that nothing has to be locked. */
WEIR_INLINE bool flow_alone(const struct env *env)
{
	return !env->flows.shared;
}

/* The bucket with a number below the number of buckets. In the kernel NULL, which does not happen, if there is none. */
WEIR_INLINE struct flow_bucket *flow_bucket(const struct env *env, uint32_t number)
{
	return &env->flows.buckets[number];
}

/* Waits until a word is free, and sets its lock bit. Returns false if that takes too long. */
WEIR_INLINE bool flow_lock(const struct env *env, volatile uint64_t *word)
{
	(void)env;
	while (!lock_once(word))
		__builtin_ia32_pause();
	return true;
}

#else

WEIR_IN_KERNEL bool flow_alone(const struct env *env);
WEIR_IN_KERNEL struct flow_bucket *flow_bucket(const struct env *env, uint32_t number);
WEIR_IN_KERNEL bool flow_lock(const struct env *env, volatile uint64_t *word);

#endif

WEIR_INLINE void flow_unlock(const struct env *env, volatile uint64_t *word)
{
	if (!flow_alone(env))
		*word &= ~FLOW_LOCK;
}

#endif
