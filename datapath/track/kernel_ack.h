/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The common case in the kernel (track/fast.h): an acknowledgement whose flow is found, locked, judged and written in
 * one function, without what the other steps keep of a packet. track/kernel.h includes it.
 */
#ifndef WEIR_TRACK_KERNEL_ACK_H
#define WEIR_TRACK_KERNEL_ACK_H

/* The key of an acknowledgement, as far as it is not the same for all. */
struct ack_key {
	uint64_t first, second; /* addresses, the outer one first */
	uint64_t ends;		/* the last word */
};

WEIR_INLINE struct ack_key ack_key(const uint8_t *at, uint32_t from)
{
	const uint64_t ports = be32(at + ACK_TCP);
	const uint64_t source = (uint64_t)be32(at + ACK_SOURCE) << 16 | ports >> 16;
	const uint64_t destination = (uint64_t)be32(at + ACK_DESTINATION) << 16 | (ports & 0xffff);
	/* Not a branch, which the verifier would follow twice. */
	const uint64_t change = (source ^ destination) & (0 - (uint64_t)opaque(from));
	const uint64_t first = source ^ change, second = destination ^ change;

	return (struct ack_key){
		.first = first >> 16,
		.second = second >> 16,
		.ends = first << 48 | (second & 0xffff) << 32 | (uint64_t)PROTO_TCP << 24,
	};
}

WEIR_INLINE struct flow_hash ack_hash(const struct flow_head *head, const struct ack_key *key)
{
	const uint64_t sum = ipv4_hash_start(head) + hash_word(key->first, head->hash_words[1]) +
			     hash_word(key->second, head->hash_words[3]) + hash_word(key->ends, head->hash_words[4]);

	return flow_hash_of(head, sum);
}

/*
 * The entries with a tag: bit 16 * t + w is entry 4 * w + t. Bits above the lowest one may be wrong, because
 * differences borrow. Four tags at a time.
 */
WEIR_INLINE uint64_t entries_near(const struct flow_bucket *bucket, uint32_t tag)
{
	const uint64_t each = UINT64_C(0x0001000100010001), high = each << 15;
	const volatile uint64_t *words = (const volatile uint64_t *)bucket->tags;
	uint64_t entries = 0;

	for (uint32_t i = 0; i < FLOW_ENTRIES / 4; i++) {
		const uint64_t word = words[i] ^ tag * each;

		entries |= ((word - each) & ~word & high) >> (15 - i);
	}
	return entries;
}

/*
 * Finds the entry with the tag of the key. It is nearly always the entry of the flow, and nearly always in the first
 * bucket. FLOW_PROVEN is 0, so the whole tag is compared.
 */
WEIR_INLINE uint64_t *ack_guess(const struct flow_hash *hash)
{
	struct flow_bucket *bucket = flow_bucket(NULL, hash->bucket[0]);
	uint64_t entries = bucket ? entries_near(bucket, hash->tag) : 0;
	uint32_t place;

	if (!entries) {
		bucket = flow_bucket(NULL, hash->bucket[1]);
		entries = bucket ? entries_near(bucket, hash->tag) : 0;
	}
	if (!entries)
		return NULL;
	place = (uint32_t)__builtin_ctzll(entries);
	return bucket->entries[bounded((place & 7) * 4 + (place >> 4), FLOW_ENTRIES - 1)];
}

/* Keeps what a limit of connections asks of the packet (connections/holding.h). */
WEIR_INLINE void ack_note(const struct flow_hash *hash, uint64_t status, uint32_t now)
{
#ifdef WEIR_CONNECTIONS
	struct cpu_track *own = own_track();

	own->now = now;
	own->track.subject = SUBJECT_TCP;
	own->track.hash = *hash;
	own->track.words[FLOW_STATE_WORDS - 1] = status;
#else
	(void)hash;
	(void)status;
	(void)now;
#endif
}

/* Tracks an acknowledgement in the common case. Returns false, and changes nothing, if it is not. */
WEIR_INLINE bool track_ack(const uint8_t *at, uint32_t from, uint32_t now)
{
	const uint64_t mask = FAST_MASK | UINT64_C(1) << STATUS_IPV6;
	const struct ack_key key = ack_key(at, from);
	const struct flow_hash hash = ack_hash(&weir_flow_head, &key);
	const struct fast_ack ack = read_ack_frame(at, (be32(at + ACK_IP_LENGTH) >> 16) - ack_headers(at));
	uint64_t *entry = ack_guess(&hash), old;
	volatile uint64_t *status;

	if (!entry)
		return false;
	status = &entry[FLOW_STATUS];
	old = *status;
	if ((old & FLOW_LOCK) || is_old(old, &tracking.timeouts, now))
		return false;
	if (__sync_val_compare_and_swap(status, old, old | FLOW_LOCK) != old)
		return false;
	if (ack_entry_is(entry, key.first, key.second, key.ends) && track_fast(entry, mask, &ack, from, now)) {
		ack_note(&hash, old, now);
		return true;
	}
	*status = old;
	return false;
}

#endif
