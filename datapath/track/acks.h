/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The common case of a burst: acknowledgements of TCP over IPv4 and Ethernet without tags. Their headers are at fixed
 * places, so they are not parsed for the tracker: their keys become columns, which are hashed together, and their
 * numbers are read from the frame when they are judged. All other packets are tracked one by one (track/burst.h), with
 * the same result where both apply; other segments of TCP with such headers have their keys in the columns, too.
 *
 *	acks_read()	which packets are such, and the ends of the keys
 *	acks_hash()	puts the outer end first, hashes the keys
 *	acks_find()	both, and fetches the tags of the first bucket
 *	ack_guess()	finds the entry whose tag is that of the key
 *	ack_fetch()	fetches it
 *	ack_track()	tracks it, if the guess was right
 *
 * A core waits for two dozen lines at most. So each step fetches while another one computes: tags while later packets
 * are read, and entries while earlier packets are tracked.
 */
#ifndef WEIR_TRACK_ACKS_H
#define WEIR_TRACK_ACKS_H

#include "core/burst.h"
#include "track/flow_place.h"
#include "track/fast.h"

#ifdef WEIR_BURSTS

/* Whether the policy limits connections (connections/burst.h). */
#ifdef WEIR_CONNECTIONS
#define WEIR_COUNTS_CONNECTIONS 1
#else
#define WEIR_COUNTS_CONNECTIONS 0
#endif

enum {
	ACK_LANES = 16,	  /* packets that are hashed at a time: the 32-bit words of the longest vector */
	FETCH_AHEAD = 16, /* packets whose entries are fetched at a time */
};

/* How many workers use the table. */
enum flow_users {
	USERS_ONE,
	USERS_SEVERAL, /* workers, so each entry is locked */
};

/* The keys of a burst. */
struct ack_columns {
	uint32_t first[WEIR_BURST_MAX];	 /* address of the source as in the frame; once hashed, of side 0 */
	uint32_t second[WEIR_BURST_MAX]; /* of the destination; of side 1 */
	uint32_t ports[WEIR_BURST_MAX];	 /* of both, the first one in the upper half */
	uint32_t bytes[WEIR_BURST_MAX];	 /* of the payload */
	uint32_t tags[WEIR_BURST_MAX];
	struct flow_bucket *buckets[WEIR_BURST_MAX]; /* the first of each key */
	uint32_t seconds[WEIR_BURST_MAX];	     /* numbers of the second ones */
	uint64_t *entries[WEIR_BURST_MAX];
	uint64_t keyed;	    /* packets that have a key here: the acknowledgements, and segments that may open a flow */
	uint64_t unfetched; /* packets whose entries are not fetched yet */
} WEIR_COLUMNS;

/* A SYN proxy needs the other fields of packets that are not acknowledgements, so they are parsed. */
#ifdef WEIR_REWRITES
#define WEIR_KEYS_OF_ALL 0
#else
#define WEIR_KEYS_OF_ALL 1
#endif

/* Whether ack_opens() tracks the end of a handshake: it asks no SYN proxy, and claims no seat for the connection. */
#define WEIR_OPENS_BY_ACK (WEIR_KEYS_OF_ALL && !WEIR_COUNTS_CONNECTIONS)

/* Reads the ends of the key of a frame with such headers. */
WEIR_INLINE void acks_read_key(struct ack_columns *acks, uint32_t i, const uint8_t *at)
{
	acks->first[i] = host32(at + ACK_SOURCE);
	acks->second[i] = host32(at + ACK_DESTINATION);
	acks->ports[i] = host32(at + ACK_TCP);
}

/*
 * Returns the packets that are such acknowledgements and have the lengths of well-formed ones, and reads the ends of
 * their keys, and of the keys of other segments. Whether these are well-formed, the parser decides. The packets are
 * frames of Ethernet.
 */
WEIR_INLINE uint64_t acks_read(const struct weir_burst *burst, uint64_t packets, struct ack_columns *acks)
{
	uint64_t found = 0;

	for (uint64_t rest = packets; rest; rest &= rest - 1) {
		const uint32_t i = first_of(rest);
		const struct frame frame = burst_frame(burst, i);
		const uint8_t *at = frame.data;
		uint32_t bytes, headers;

		prefetch_frame(burst, i + FRAMES_AHEAD);
		if (WEIR_UNLIKELY(frame.cap < PLAIN_BYTES))
			continue;
		if (WEIR_UNLIKELY(!is_ack_frame(&frame, at))) {
			if (WEIR_KEYS_OF_ALL && is_segment_frame(at)) {
				acks_read_key(acks, i, at);
				acks->keyed |= UINT64_C(1) << i;
			}
			continue;
		}
		bytes = be32(at + ACK_IP_LENGTH) >> 16;
		headers = ack_headers(at);
		if (WEIR_UNLIKELY(bytes < headers || ACK_IP + bytes > frame.len))
			continue;
		acks_read_key(acks, i, at);
		acks->bytes[i] = bytes - headers;
		found |= UINT64_C(1) << i;
	}
	acks->keyed |= found;
	return found;
}

/* The keys and hashes of ACK_LANES packets, beginning with packet `i`. */
WEIR_INLINE void acks_hash(const struct env *env, struct ack_columns *acks, uint32_t i)
{
	const struct flow_head *head = env->flows.head;
	const uint64_t start = ipv4_hash_start(head), mix = head->hash_mix, count = head->buckets;
	const uint64_t secrets[] = {head->hash_words[1], head->hash_words[3], head->hash_words[4]};
	const uint32_t protocol = (uint32_t)PROTO_TCP << 24;
	struct flow_bucket *const buckets = env->flows.buckets;
	const bool swap = env->from;

	for (uint32_t n = 0; n < ACK_LANES; n++, i++) {
		const uint32_t source = __builtin_bswap32(acks->first[i]);
		const uint32_t destination = __builtin_bswap32(acks->second[i]);
		const uint32_t ports = __builtin_bswap32(acks->ports[i]);
		const uint32_t first = swap ? destination : source, second = swap ? source : destination;
		const uint32_t ends = swap ? ports << 16 | ports >> 16 : ports;
		const struct flow_hash hash =
			flow_hash_mixed(start + hash_word(first, secrets[0]) + hash_word(second, secrets[1]) +
						hash_word((uint64_t)ends << 32 | protocol, secrets[2]),
					mix, count);

		acks->first[i] = first;
		acks->second[i] = second;
		acks->ports[i] = ends;
		acks->tags[i] = hash.tag;
		acks->buckets[i] = buckets + hash.bucket[0];
		acks->seconds[i] = hash.bucket[1];
	}
}

/*
 * Finds acknowledgements among packets, hashes the keys of all segments, and fetches the tags of the first of their
 * buckets, where nearly all flows are. Lanes without a packet have the keys of an earlier burst. `keyed` is 0 before.
 */
WEIR_INLINE uint64_t acks_find(const struct env *env, const struct weir_burst *burst, uint64_t packets,
			       struct ack_columns *acks)
{
	const uint64_t lanes = first_bits(ACK_LANES);
	uint64_t found = 0;

	for (uint32_t i = 0; i < FRAMES_AHEAD; i++)
		prefetch_frame(burst, i);
	for (uint32_t i = 0; i < burst->count; i += ACK_LANES) {
		const uint64_t some = acks_read(burst, packets & lanes << i, acks);

		if (!(acks->keyed >> i & lanes))
			continue;
		acks_hash(env, acks, i);
		for (uint32_t n = i; n < i + ACK_LANES; n++)
			__builtin_prefetch(acks->buckets[n]);
		found |= some;
	}
	return found;
}

/*
 * Guesses the entry of a packet by the tags of one of its buckets. Returns whether there is one. FLOW_PROVEN is 0, so
 * the whole tag is compared.
 */
WEIR_INLINE bool ack_guess(struct ack_columns *acks, uint32_t i, struct flow_bucket *bucket)
{
	const uint32_t entries = entries_with(bucket, UINT16_MAX, acks->tags[i]);

	acks->entries[i] = bucket->entries[__builtin_ctz(entries | UINT32_C(1) << (FLOW_ENTRIES - 1))];
	return entries;
}

/* Fetches the entry of the first of the packets, and returns the others. */
WEIR_INLINE uint64_t ack_fetch(const struct ack_columns *acks, uint64_t packets)
{
	if (packets)
		__builtin_prefetch(acks->entries[first_of(packets)], 1);
	return packets & (packets - 1);
}

/* Guesses the entry of a connection that is not open yet, whose tag has another class. */
WEIR_INLINE bool ack_guess_opening(struct ack_columns *acks, uint32_t i)
{
	const uint32_t entries = entries_with(acks->buckets[i], TAG_HASH, acks->tags[i]);

	if (entries)
		acks->entries[i] = acks->buckets[i]->entries[first_entry(entries)];
	return entries;
}

/*
 * Guesses the entries of the packets, and fetches the first ones. Entries that are not in their first bucket come last
 * and together, because no branch could predict which they are.
 */
WEIR_INLINE void acks_begin(const struct env *env, struct ack_columns *acks, uint64_t packets)
{
	uint64_t others = 0;

	for (uint64_t rest = packets; rest; rest &= rest - 1) {
		const uint32_t i = first_of(rest);

		others |= (uint64_t)!ack_guess(acks, i, acks->buckets[i]) << i;
	}
	for (uint64_t rest = others; rest; rest &= rest - 1) {
		const uint32_t i = first_of(rest);

		if (WEIR_UNLIKELY(ack_guess_opening(acks, i)))
			others &= ~(UINT64_C(1) << i);
		else
			__builtin_prefetch(flow_bucket(env, acks->seconds[i]));
	}
	acks->unfetched = packets;
	for (uint32_t i = 0; i < FETCH_AHEAD; i++)
		acks->unfetched = ack_fetch(acks, acks->unfetched);
	for (uint64_t rest = others; rest; rest &= rest - 1) {
		const uint32_t i = first_of(rest);

		ack_guess(acks, i, flow_bucket(env, acks->seconds[i]));
		__builtin_prefetch(acks->entries[i], 1);
	}
}

/* The last word of a key. */
WEIR_INLINE uint64_t ack_ends(const struct ack_columns *acks, uint32_t i)
{
	return (uint64_t)acks->ports[i] << 32 | (uint64_t)PROTO_TCP << 24;
}

WEIR_INLINE bool ack_is_of(const struct ack_columns *acks, uint32_t i, const uint64_t *entry)
{
	return ack_entry_is(entry, acks->first[i], acks->second[i], ack_ends(acks, i));
}

/* The fields of the status word of a connection that its opener's acknowledgement opens. */
#define OPENS_MASK (FAST_MASK | UINT64_C(1) << STATUS_IPV6)
#define OPENS_STATUS ((uint64_t)FLOW_SYN_RECEIVED << STATUS_STATE | UINT64_C(1) << STATUS_REPLIED)

/* The tag of an entry. */
WEIR_INLINE volatile uint16_t *entry_tag(const struct env *env, const uint64_t *entry)
{
	const uint64_t bytes = (uint64_t)((const uint8_t *)entry - (const uint8_t *)env->flows.buckets);
	struct flow_bucket *bucket = flow_bucket(env, (uint32_t)(bytes / sizeof(struct flow_bucket)));

	return &bucket->tags[(uint64_t)(entry - bucket->entries[0]) / FLOW_ENTRY_WORDS];
}

/*
 * Tracks the acknowledgement that ends a handshake, if its numbers fit: the connection is proven then. The entry has
 * the key, and its lock is held if others use the table; the status word releases it. Returns false, and changes
 * nothing, in all other cases.
 */
WEIR_INLINE bool ack_opens(const struct env *env, const struct ack_columns *acks, uint32_t i, uint64_t *entry,
			   const struct fast_ack *ack, uint32_t now)
{
	const uint64_t status = entry[FLOW_STATUS];
	const uint32_t mine = 1 - env->from, theirs = env->from;
	flow_half *una = (flow_half *)&entry[FLOW_KEY_WORDS], *next = (flow_half *)&entry[FLOW_KEY_WORDS + 1];
	const uint32_t own_window = status >> (STATUS_WINDOW + 8 * env->from) & 0xff;
	const uint32_t window = status >> (STATUS_WINDOW + 8 * mine) & 0xff;
	const uint32_t scale = status >> (STATUS_SCALE + 4 * env->from) & 0xf;
	const uint32_t offered = window_of(ack->window << scale), age = (now - (uint32_t)status) & STATUS_TIME_MASK;
	const uint64_t clear =
		OPENS_MASK | STATUS_TIME_MASK | FLOW_LOCK | UINT64_C(0xff) << (STATUS_WINDOW + 8 * env->from);

	if ((status & OPENS_MASK) != OPENS_STATUS || status_bit(status, STATUS_OPENER) != env->from || !own_window ||
	    !window || age > tracking.timeouts.of[CLASS_TCP * FLOW_STATES + FLOW_SYN_RECEIVED])
		return false;
	/* It acknowledges more than before, as acknowledges_opening() demands. */
	if (ack->seq - una[mine] > window_bytes(window) || ack->ack - una[theirs] - 1 >= next[theirs] - una[theirs])
		return false;
	/* FLOW_PROVEN is 0. */
	*entry_tag(env, entry) = (uint16_t)acks->tags[i];
	una[theirs] = ack->ack;
	if (seq_after(ack->end, next[mine]))
		next[mine] = ack->end;
	*(volatile uint64_t *)&entry[FLOW_STATUS] = (status & ~clear) | FAST_STATUS | now |
						    (uint64_t)(offered > own_window ? offered : own_window)
							    << (STATUS_WINDOW + 8 * env->from);
	return true;
}

/*
 * Tracks an acknowledgement in the common case: the guess was right, and the last packet was not long ago. An entry
 * with the key of the flow is in use. If others use the table, the entry is locked; the status word releases it.
 * Returns false, and changes nothing, in all other cases.
 */
WEIR_INLINE bool ack_track(const struct env *env, const struct ack_columns *acks, const uint8_t *at, uint32_t i,
			   uint32_t now, enum flow_users users)
{
	const uint32_t sender = env->from;
	const uint64_t mask = FAST_MASK | UINT64_C(1) << STATUS_IPV6;
	const struct fast_ack ack = read_ack_frame(at, acks->bytes[i]);
	uint64_t *entry = acks->entries[i];

	if (users == USERS_SEVERAL && !lock_once(&entry[FLOW_STATUS]))
		return false;
	if (WEIR_LIKELY(ack_is_of(acks, i, entry))) {
		if (WEIR_LIKELY(!is_old(entry[FLOW_STATUS], &tracking.timeouts, now) &&
				track_fast(entry, mask, &ack, sender, now)))
			return true;
		if (WEIR_OPENS_BY_ACK && ack_opens(env, acks, i, entry, &ack, now))
			return true;
	}
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
	uint64_t left = packets, unfetched = acks->unfetched;

	for (; left; left &= left - 1) {
		const uint32_t i = first_of(left);

		unfetched = ack_fetch(acks, unfetched);
		if (WEIR_UNLIKELY(times_ns))
			now = track_time(env->flows.head, times_ns[i]);
		if (WEIR_UNLIKELY(!ack_track(env, acks, frames[i].data, i, now, users)))
			break;
	}
	acks->unfetched = unfetched;
	return left;
}

/*
 * Tracks acknowledgements in their order, up to the first one that is not the common case. `now` is the time of the
 * first one. Sets the states of those that were tracked, and returns them.
 */
WEIR_NOINLINE uint64_t acks_track(const struct env *env, const struct weir_burst *burst, struct ack_columns *acks,
				  uint64_t packets, uint32_t now, uint8_t *states)
{
	packets &= ~(flow_alone(env) ? acks_left(env, burst, acks, packets, now, USERS_ONE)
				     : acks_left(env, burst, acks, packets, now, USERS_SEVERAL));
	for (uint32_t i = 0; i < WEIR_BURST_MAX; i++)
		states[i] = packets >> i & 1 ? STATE_ESTABLISHED : states[i];
	return packets;
}

#endif
#endif
