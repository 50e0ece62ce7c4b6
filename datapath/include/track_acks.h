/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The common case of a burst: acknowledgements of TCP over IPv4 and Ethernet without tags. Their headers are at fixed
 * places, so they are not parsed for the tracker: their keys become columns, which are hashed together, and their
 * numbers are read from the frame when they are judged. All other packets are tracked one by one (track_burst.h), with
 * the same result where both apply.
 *
 *	acks_read()	which packets are such, and the ends of their keys
 *	acks_hash()	sorts the ends, hashes the keys
 *	ack_fetch()	fetches the tags of both buckets
 *	ack_guess()	fetches the entry whose tag is that of the key
 *	ack_track()	tracks it, if the guess was right
 *
 * A core waits for two dozen lines at most. So each step fetches while another step computes: tags while packets are
 * parsed, if the chain tracks first, and entries while earlier packets are tracked.
 */
#ifndef WEIR_TRACK_ACKS_H
#define WEIR_TRACK_ACKS_H

#include "burst.h"
#include "flow_place.h"
#include "track_fast.h"

#ifdef WEIR_BURSTS

enum {
	ACK_LANES = 16,	  /* packets that are hashed at a time: the 32-bit words of the longest vector */
	GUESS_AHEAD = 16, /* packets whose entries are fetched at a time */
};

/* Who uses the table. */
enum flow_users {
	USERS_ONE,
	USERS_SEVERAL, /* workers, so each entry is locked */
};

/* The keys of a burst. */
struct ack_columns {
	uint32_t first[WEIR_BURST_MAX];	  /* address of the source; from acks_hash() on, of side 0 */
	uint32_t second[WEIR_BURST_MAX];  /* of the destination; of side 1 */
	uint32_t ports[WEIR_BURST_MAX];	  /* of both, the first one in the upper half */
	uint32_t senders[WEIR_BURST_MAX]; /* sides */
	uint32_t tags[WEIR_BURST_MAX];
	struct flow_bucket *buckets[2][WEIR_BURST_MAX];
	uint64_t *entries[WEIR_BURST_MAX];
	uint64_t unguessed; /* packets without an entry yet */
} WEIR_COLUMNS;

/* Whether such a frame has the lengths of a well-formed one: those that the parser compares. */
WEIR_INLINE bool ack_is_whole(const struct frame *frame, const uint8_t *at)
{
	const uint32_t bytes = be32(at + ACK_IP_LENGTH) >> 16;

	return bytes >= ACK_TCP - ACK_IP + (at[ACK_OFFSET] >> 4) * 4u && ACK_IP + bytes <= frame->len;
}

/* Returns those of the packets that are such acknowledgements, all well-formed, and reads the ends of their keys. */
WEIR_INLINE uint64_t acks_read(const struct weir_burst *burst, uint64_t packets, struct ack_columns *acks)
{
	uint64_t found = 0;

	if (burst->link != LINK_ETHERNET)
		return 0;
	for (uint64_t rest = packets; rest; rest &= rest - 1) {
		const uint32_t i = first_of(rest);
		struct frame frame = burst_frame(burst, i);
		const uint8_t *at;

		frame.link = LINK_ETHERNET;
		at = ack_frame(&frame);
		prefetch_frame(burst, i + FRAMES_AHEAD);
		if (WEIR_UNLIKELY(!at || !ack_is_whole(&frame, at)))
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

WEIR_INLINE void ack_fetch(const struct ack_columns *acks, uint32_t i)
{
	__builtin_prefetch(acks->buckets[0][i]);
	__builtin_prefetch(acks->buckets[1][i]);
}

/* An established flow is not embryonic, so the whole tag is compared. */
WEIR_INLINE void ack_guess(struct ack_columns *acks, uint32_t i)
{
	struct flow_bucket *first = acks->buckets[0][i], *second = acks->buckets[1][i];
	const uint64_t slots = slots_with(first, UINT16_MAX, acks->tags[i]) |
			       (uint64_t)slots_with(second, UINT16_MAX, acks->tags[i]) << FLOW_SLOTS;
	const uint32_t slot = (uint32_t)__builtin_ctzll(slots | UINT64_C(1) << 63);
	uint64_t *entry = (slot < FLOW_SLOTS ? first : second)->entries[slot % FLOW_SLOTS];

	acks->entries[i] = entry;
	__builtin_prefetch(entry, 1);
}

/* Guesses the next entry that is not guessed yet. That is never one of a packet before the one that is tracked. */
WEIR_INLINE void ack_guess_next(struct ack_columns *acks)
{
	if (!acks->unguessed)
		return;
	ack_guess(acks, first_of(acks->unguessed));
	acks->unguessed &= acks->unguessed - 1;
}

WEIR_INLINE void acks_begin(struct ack_columns *acks, uint64_t packets)
{
	acks->unguessed = packets;
	for (uint32_t i = 0; i < GUESS_AHEAD; i++)
		ack_guess_next(acks);
}

WEIR_INLINE bool ack_is_of(const struct ack_columns *acks, uint32_t i, const uint64_t *entry)
{
	const uint64_t ends = (uint64_t)acks->ports[i] << 32 | (uint64_t)PROTO_TCP << 24;

	return !(entry[0] | (entry[1] ^ acks->first[i]) | entry[2] | (entry[3] ^ acks->second[i]) | (entry[4] ^ ends));
}

/*
 * Tracks an acknowledgement in the common case: the guess was right, and the last packet was not long ago. A slot with
 * the key of the flow is in use. If others use the table, the slot is locked; the status word releases it. Returns
 * false, and changes nothing, in all other cases.
 */
WEIR_INLINE bool ack_track(const struct ack_columns *acks, const uint8_t *at, uint32_t i, uint32_t now,
			   enum flow_users users)
{
	const uint64_t mask = FAST_MASK | UINT64_C(1) << STATUS_IPV6;
	const struct fast_ack ack = read_ack_frame(at);
	uint64_t *entry = acks->entries[i];

	if (users == USERS_SEVERAL && !lock_once(&entry[FLOW_STATUS]))
		return false;
	if (ack_is_of(acks, i, entry) && !is_old(entry[FLOW_STATUS], &tracking.timeouts, now) &&
	    track_fast(entry, mask, &ack, acks->senders[i], now))
		return true;
	if (users == USERS_SEVERAL)
		*(volatile uint64_t *)&entry[FLOW_STATUS] &= ~FLOW_LOCK;
	return false;
}

/* The acknowledgements that acks_track() does not track. */
WEIR_INLINE uint64_t acks_left(const struct env *env, const struct weir_burst *burst, struct ack_columns *acks,
			       uint64_t packets, uint32_t now, enum flow_users users)
{
	const struct weir_frame *frames = burst->frames;
	const uint64_t *times_ns = burst->times.each_ns;
	uint64_t left = packets;

	for (; left; left &= left - 1) {
		const uint32_t i = first_of(left);

		ack_guess_next(acks);
		if (WEIR_UNLIKELY(times_ns))
			now = track_time(env->flows.head, times_ns[i]);
		if (WEIR_UNLIKELY(!ack_track(acks, frames[i].data, i, now, users)))
			break;
	}
	return left;
}

/*
 * Tracks acknowledgements in their order, up to the first one that is not the common case. `now` is the time of the
 * first one. Sets the states of those that were tracked, and returns them.
 */
static uint64_t __attribute__((noinline, unused)) acks_track(const struct env *env, const struct weir_burst *burst,
							     struct ack_columns *acks, uint64_t packets, uint32_t now,
							     uint8_t *states)
{
	packets &= ~(flow_alone(env) ? acks_left(env, burst, acks, packets, now, USERS_ONE)
				     : acks_left(env, burst, acks, packets, now, USERS_SEVERAL));
	for (uint32_t i = 0; i < WEIR_BURST_MAX; i++)
		states[i] = packets >> i & 1 ? STATE_ESTABLISHED : states[i];
	return packets;
}

#endif
#endif
