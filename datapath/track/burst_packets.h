/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The packets of a burst for the tracker (track/burst.h): how each is read, and which lines of the table of flows it
 * will need. Acknowledgements of the common case are in track/acks.h.
 */
#ifndef WEIR_TRACK_BURST_PACKETS_H
#define WEIR_TRACK_BURST_PACKETS_H

#include "core/burst.h"
#include "proxy/burst.h"
#include "track/acks.h"

#ifdef WEIR_BURSTS

enum {
	OPENING_BITS = 4096, /* so many that few packets have a bit of another packet's bucket */
	GUESS_AHEAD = 8,     /* packets whose entries are fetched at a time, other than acknowledgements */
};

/* The packets of a burst as the tracker sees them. */
struct track_burst {
	struct packet packets[WEIR_BURST_MAX];
	struct track tracks[WEIR_BURST_MAX];
	struct ack_columns columns;
	uint64_t left;	  /* packets that are still to be tracked */
	uint64_t open;	  /* those of them that rules decide */
	uint64_t acks;	  /* those of them that ack_track() may track; what else is known of them is only in columns */
	uint64_t invalid; /* packets of the segment that were refused */
	uint64_t openers; /* packets of the segment that may open a flow */
	uint64_t replacing;		     /* those of them that take the place of a flow */
	uint64_t unguessed;		     /* packets other than acknowledgements whose entries are not fetched yet */
	uint64_t opening[OPENING_BITS / 64]; /* both buckets of each opener, by the lower bits of their numbers */
	struct proxy_burst proxy;
	uint64_t segment; /* packets of the segment */
	uint64_t clock;	  /* time of the last packet before the segment: flow_head.clock */
} WEIR_COLUMNS;

/* Fetches the entries of a mask. */
WEIR_INLINE void fetch_entries(const struct flow_bucket *bucket, uint32_t entries)
{
	for (; entries; entries &= entries - 1)
		__builtin_prefetch(bucket->entries[first_entry(entries)], 1);
}

/* Whether a packet without a flow may open one. */
WEIR_INLINE bool may_open(const struct track *track)
{
	return track->subject == SUBJECT_REQUEST ||
	       (track->subject == SUBJECT_TCP && track->segment.kind == SEGMENT_SYN);
}

/* Fetches the entry of a new flow: a free one of the first bucket, or all entries whose oldest flow makes room. */
WEIR_INLINE void track_guess_place(const struct flow_bucket *first, const struct track *track)
{
	const uint32_t class = track->subject == SUBJECT_TCP ? FLOW_EMBRYONIC : FLOW_UNPROVEN;
	uint32_t entries = entries_of(first, class);

	if ((uint32_t)__builtin_popcount(entries) < share_of(class)) {
		entries = entries_with(first, UINT16_MAX, 0);
		entries &= -entries;
	}
	fetch_entries(first, entries);
}

/*
 * Fetches the first entry with the tag of the packet's flow. It is nearly always that flow. If there is none, fetches
 * where a new flow goes.
 */
WEIR_INLINE void track_guess(const struct env *env, const struct track *track)
{
	const struct flow_bucket *first = flow_bucket(env, track->hash.bucket[0]);
	const struct flow_bucket *second = flow_bucket(env, track->hash.bucket[1]);
	const uint32_t entries = entries_with(first, TAG_HASH, track->hash.tag);
	const uint32_t others = entries_with(second, TAG_HASH, track->hash.tag);

	if (entries)
		fetch_entries(first, entries & -entries);
	else if (others)
		fetch_entries(second, others & -others);
	else if (may_open(track))
		track_guess_place(first, track);
}

/* Guesses for the first of the packets whose entries are not fetched yet. */
WEIR_INLINE void track_guess_next(const struct env *env, struct track_burst *tracked)
{
	const struct track *track;

	if (!tracked->unguessed)
		return;
	track = &tracked->tracks[first_of(tracked->unguessed)];
	if (track->subject >= SUBJECT_TCP)
		track_guess(env, track);
	tracked->unguessed &= tracked->unguessed - 1;
}

/* Reads a packet that is not tracked as an acknowledgement of the common case. */
WEIR_NOINLINE void track_read_whole(const struct env *env, const struct weir_burst *burst, struct track_burst *tracked,
				    uint32_t i)
{
	const struct frame frame = burst_frame(burst, i);

	parse_again(&frame, &tracked->packets[i]);
	track_read(env->flows.head, &frame, &tracked->packets[i], env->from, &tracked->tracks[i]);
}

/* Reads a packet whose key is in the columns: track_read_whole() without parsing it. */
WEIR_INLINE void track_read_keyed(const struct env *env, const struct weir_burst *burst, struct track_burst *tracked,
				  uint32_t i)
{
	const struct ack_columns *acks = &tracked->columns;
	struct track *track = &tracked->tracks[i];

	track->key = (struct flow_key){{0, acks->first[i], 0, acks->second[i], ack_ends(acks, i)}, 0};
	track->hash.bucket[0] = (uint32_t)(acks->buckets[i] - env->flows.buckets);
	track->hash.bucket[1] = acks->seconds[i];
	track->hash.tag = acks->tags[i];
	track->segment.kind = segment_kind(burst->frames[i].data[ACK_FLAGS]);
	track->subject = SUBJECT_TCP;
	track->sender = (uint8_t)env->from;
	track->opens = PLACE_FULL;
	tracked->packets[i].l4 = L4_TCP;
	if (WEIR_LIKELY(track->segment.kind != SEGMENT_INVALID))
		return;
	track->subject = SUBJECT_REFUSED;
	track_refuse(track, REASON_BAD_FLAGS);
}

WEIR_INLINE void track_read_packet(const struct env *env, const struct weir_burst *burst, struct track_burst *tracked,
				   uint32_t i)
{
	if (WEIR_KEYS_OF_ALL && tracked->columns.keyed >> i & 1)
		track_read_keyed(env, burst, tracked, i);
	else
		track_read_whole(env, burst, tracked, i);
}

/* Reads the segment of a packet whose key is in the columns. */
WEIR_INLINE void read_keyed_segment(const struct frame *frame, struct segment *segment)
{
	const uint8_t *at = frame->data;
	const struct packet packet = {
		.seq = be32(at + ACK_SEQ),
		.ack = be32(at + ACK_ACK),
		.window = be16(at + ACK_OFFSET + 2),
		.doff = at[ACK_OFFSET] >> 4,
		.tcp_flags = at[ACK_FLAGS],
		.l4_offset = ACK_TCP,
		.l4_length = (uint16_t)(be16(at + ACK_IP_LENGTH) - (ACK_TCP - ACK_IP)),
	};

	read_segment(frame, &packet, segment);
}

WEIR_INLINE void track_read_segment(const struct frame *frame, struct track_burst *tracked, uint32_t i)
{
	if (WEIR_KEYS_OF_ALL && tracked->columns.keyed >> i & 1)
		read_keyed_segment(frame, &tracked->tracks[i].segment);
	else
		read_segment(frame, &tracked->packets[i], &tracked->tracks[i].segment);
}

#endif
#endif
