/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The common case of a burst: acknowledgements of TCP over IPv4 and Ethernet without tags. Their headers are at fixed
 * places, so they are not parsed for the tracker: their keys become columns, which are hashed together, and their
 * numbers are read from the frame when they are judged. All other packets are tracked one by one (track_burst.h), with
 * the same result where both apply.
 *
 *	acks_read()	which packets are such, and the ends of their keys
 *	acks_hash()	sorts the ends, hashes the keys
 *	acks_fetch()	fetches the tags of both buckets
 *	acks_guess()	fetches the entry whose tag is that of the key
 *	ack_track()	tracks one of them, if the guess was right
 */
#ifndef WEIR_TRACK_ACKS_H
#define WEIR_TRACK_ACKS_H

#include "burst.h"
#include "flow_place.h"
#include "track_fast.h"

#ifdef WEIR_BURSTS

/* Packets that are hashed at a time: the 32-bit words of the longest vector. */
enum { ACK_LANES = 16 };

/* The keys of a burst. */
struct ack_columns {
	uint32_t first[WEIR_BURST_MAX];	  /* address of the source; from acks_hash() on, of side 0 */
	uint32_t second[WEIR_BURST_MAX];  /* of the destination; of side 1 */
	uint32_t ports[WEIR_BURST_MAX];	  /* of both, the first one in the upper half */
	uint32_t senders[WEIR_BURST_MAX]; /* sides */
	uint32_t tags[WEIR_BURST_MAX];
	struct flow_bucket *buckets[2][WEIR_BURST_MAX];
	uint64_t *entries[WEIR_BURST_MAX];
} WEIR_COLUMNS;

/* Returns those of the packets that are such acknowledgements, and reads the ends of their keys. All are well-formed.
 */
WEIR_INLINE uint64_t acks_read(const struct weir_burst *burst, uint64_t packets, struct ack_columns *acks)
{
	uint64_t found = 0;

	if (burst->link != LINK_ETHERNET)
		return 0;
	for (uint64_t rest = packets; rest; rest &= rest - 1) {
		const uint32_t i = first_of(rest);
		const struct frame frame = burst_frame(burst, i);
		const uint8_t *at = ack_frame(&frame);

		if (WEIR_UNLIKELY(!at))
			continue;
		acks->first[i] = be32(at + ACK_SOURCE);
		acks->second[i] = be32(at + ACK_DESTINATION);
		acks->ports[i] = be32(at + ACK_TCP);
		found |= UINT64_C(1) << i;
	}
	return found;
}

/* The keys and hashes of ACK_LANES packets, of which the first is `i`. */
WEIR_INLINE void acks_hash_lanes(const struct env *env, struct ack_columns *acks, uint32_t i)
{
	const struct flow_head *head = env->flows.head;
	const uint64_t start = ipv4_hash_start(head), mix = head->hash_mix, buckets = head->buckets;
	const uint64_t *secrets = head->hash_words;
	const uint32_t protocol = (uint32_t)PROTO_TCP << 24;

	for (uint32_t end = i + ACK_LANES; i < end; i++) {
		const uint32_t source = acks->first[i], destination = acks->second[i], ports = acks->ports[i];
		const bool swap = source > destination || (source == destination && ports >> 16 > (ports & 0xffff));
		const uint32_t first = swap ? destination : source, second = swap ? source : destination;
		const uint32_t sorted = swap ? ports << 16 | ports >> 16 : ports;
		const struct flow_hash hash =
			flow_hash_mixed(start + hash_word(first, secrets[1]) + hash_word(second, secrets[3]) +
						hash_word((uint64_t)sorted << 32 | protocol, secrets[4]),
					mix, buckets);

		acks->first[i] = first;
		acks->second[i] = second;
		acks->ports[i] = sorted;
		acks->senders[i] = swap;
		acks->tags[i] = hash.tag;
		for (uint32_t n = 0; n < 2; n++)
			acks->buckets[n][i] = env->flows.buckets + hash.bucket[n];
	}
}

WEIR_INLINE void acks_hash(const struct env *env, struct ack_columns *acks, uint32_t count)
{
	for (uint32_t i = 0; i < count; i += ACK_LANES)
		acks_hash_lanes(env, acks, i);
}

WEIR_INLINE void acks_fetch(const struct ack_columns *acks, uint64_t packets)
{
	for (uint64_t rest = packets; rest; rest &= rest - 1) {
		const uint32_t i = first_of(rest);

		__builtin_prefetch(acks->buckets[0][i]);
		__builtin_prefetch(acks->buckets[1][i]);
	}
}

/* An established flow is not embryonic, so the whole tag is compared. */
WEIR_INLINE void acks_guess(struct ack_columns *acks, uint64_t packets)
{
	for (uint64_t rest = packets; rest; rest &= rest - 1) {
		const uint32_t i = first_of(rest), tag = acks->tags[i];
		struct flow_bucket *first = acks->buckets[0][i], *second = acks->buckets[1][i];
		const uint64_t slots = slots_with(first, UINT16_MAX, tag) |
				       (uint64_t)slots_with(second, UINT16_MAX, tag) << FLOW_SLOTS;
		const uint32_t slot = (uint32_t)__builtin_ctzll(slots | UINT64_C(1) << 63);
		uint64_t *entry = (slot < FLOW_SLOTS ? first : second)->entries[slot % FLOW_SLOTS];

		acks->entries[i] = entry;
		__builtin_prefetch(entry, 1);
	}
}

/*
 * Tracks an acknowledgement in the common case: the guess was right, and the last packet was not long ago. Nobody else
 * uses the table, so a slot with the key of the flow is in use. Returns false, and changes nothing, in all other cases.
 */
WEIR_INLINE bool ack_track(const struct ack_columns *acks, const uint8_t *at, uint32_t i, uint32_t now)
{
	uint64_t *entry = acks->entries[i];
	const uint64_t ends = (uint64_t)acks->ports[i] << 32 | (uint64_t)PROTO_TCP << 24;
	const struct fast_ack ack = read_ack_frame(at);

	if (entry[0] | (entry[1] ^ acks->first[i]) | entry[2] | (entry[3] ^ acks->second[i]) | (entry[4] ^ ends))
		return false;
	if (is_old(entry[FLOW_STATUS], &tracking.timeouts, now))
		return false;
	return track_fast(entry, FAST_MASK | UINT64_C(1) << STATUS_IPV6, &ack, acks->senders[i], now);
}

/*
 * Tracks acknowledgements in their order, up to the first one that is not the common case. Sets the states of those
 * that were tracked, and returns them.
 */
static uint64_t __attribute__((noinline, unused)) acks_track(const struct weir_frame *frames,
							     const struct ack_columns *acks, uint64_t packets,
							     uint32_t now, uint8_t *states)
{
	uint64_t left = packets;

	for (; left; left &= left - 1) {
		const uint32_t i = first_of(left);

		if (WEIR_UNLIKELY(!ack_track(acks, frames[i].data, i, now)))
			break;
	}
	packets &= ~left;
	for (uint32_t i = 0; i < WEIR_BURST_MAX; i++)
		states[i] = packets >> i & 1 ? STATE_ESTABLISHED : states[i];
	return packets;
}

#endif
#endif
