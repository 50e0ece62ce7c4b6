/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Tracks a burst in packet order. Native code uses it; the kernel tracks packet by packet (track/kernel.h).
 *
 * Rules decide a burst rule by rule, but the flow that a packet opens is entered only when the packet is accepted. So a
 * burst is decided in segments. A segment ends before a packet that might see a flow that an earlier packet of the same
 * segment opens, or that needs a place in the same bucket. Segments of one packet are the worst case.
 *
 *	track_ahead()		finds the packets of the common case, and fetches their first lines
 *	track_begin()		reads all packets that are open or accepted, and fetches the lines of their flows;
 *				track_begin_late() does both, behind rules that need no states
 *	while (track_next())	enters the flows that the last segment opens, tracks the next segment
 *		<chain>_rules()	decides the open packets of the segment
 */
#ifndef WEIR_TRACK_BURST_H
#define WEIR_TRACK_BURST_H

#include "track/burst_packets.h"

#ifdef WEIR_BURSTS

/* Finds the acknowledgements of the common case among packets. */
WEIR_NOINLINE void track_acks(const struct env *env, const struct weir_burst *burst, uint64_t packets,
			      struct track_burst *tracked)
{
	tracked->columns.keyed = 0;
	tracked->acks = burst->link == LINK_ETHERNET ? acks_find(env, burst, packets, &tracked->columns) : 0;
}

/* Finds these acknowledgements before packets are parsed, for a chain that tracks before all rules. */
WEIR_INLINE void track_ahead(const struct env *env, const struct weir_burst *burst, struct track_burst *tracked)
{
	track_acks(env, burst, first_bits(burst->count), tracked);
}

/* The acknowledgements that track_ahead() has found. They are well-formed. */
WEIR_INLINE uint64_t track_has_read(const struct track_burst *tracked)
{
	return tracked->acks;
}

/* The packets to track: those that are open or accepted. */
WEIR_INLINE uint64_t track_which(const struct weir_burst *burst, const struct verdicts *verdicts)
{
	uint64_t which = verdicts->open;

	for (uint64_t decided = ~which & first_bits(burst->count); decided; decided &= decided - 1) {
		const uint32_t i = first_of(decided);

		which |= (uint64_t)is_tracked_late(verdicts->words[i]) << i;
	}
	return which;
}

/* Reads the packets to track, `left`, and fetches tags and then entries, so that cache misses overlap. */
WEIR_NOINLINE void track_start(const struct env *env, const struct weir_burst *burst, const struct verdicts *verdicts,
			       uint64_t left, struct track_burst *tracked)
{
	const uint64_t acks = tracked->acks & left;

	for (uint64_t rest = left & ~acks; rest; rest &= rest - 1) {
		const uint32_t i = first_of(rest);
		const struct track *track = &tracked->tracks[i];

		track_read_packet(env, burst, tracked, i);
		if (track->subject >= SUBJECT_TCP) {
			__builtin_prefetch(flow_bucket(env, track->hash.bucket[0]));
			__builtin_prefetch(flow_bucket(env, track->hash.bucket[1]));
		}
	}
	acks_begin(env, &tracked->columns, acks);
	tracked->unguessed = left & ~acks;
	for (uint32_t i = 0; i < GUESS_AHEAD; i++)
		track_guess_next(env, tracked);
	tracked->left = left;
	tracked->open = verdicts->open;
	tracked->acks = acks;
	tracked->openers = 0;
	tracked->replacing = 0;
	tracked->proxy = (struct proxy_burst){0, 0, 0};
}

/* Begins to track the burst of a chain that has called track_ahead(). */
WEIR_INLINE void track_begin(const struct env *env, const struct weir_burst *burst, const struct verdicts *verdicts,
			     struct track_burst *tracked)
{
	track_start(env, burst, verdicts, track_which(burst, verdicts), tracked);
}

/* Begins to track the burst of a chain that has decided some packets without their states. */
WEIR_INLINE void track_begin_late(const struct env *env, const struct weir_burst *burst,
				  const struct verdicts *verdicts, struct track_burst *tracked)
{
	const uint64_t left = track_which(burst, verdicts);

	track_acks(env, burst, left, tracked);
	track_start(env, burst, verdicts, left, tracked);
}

WEIR_NOINLINE void track_open(const struct env *env, struct track *track)
{
	/* Later packets of the segment may have other times. */
	const uint32_t now = status_time(track->words[FLOW_STATE_WORDS - 1]);
	struct edit edit;

	if (flow_alone(env))
		enter_alone(env, track);
	else
		enter_among_others(env, env->flows.head, track, &edit, now);
}

/* Enters the flows that accepted packets of the last segment open. */
WEIR_INLINE void track_end_segment(const struct env *env, const struct verdicts *verdicts, struct track_burst *tracked)
{
	for (uint64_t rest = tracked->openers; rest; rest &= rest - 1) {
		const uint32_t i = first_of(rest);

		if ((verdicts->words[i] & 0xff) == ACTION_ACCEPT)
			track_open(env, &tracked->tracks[i]);
	}
	tracked->openers = 0;
	tracked->replacing = 0;
	tracked->proxy.asking = 0;
}

WEIR_INLINE bool share_bucket(const struct flow_hash *a, const struct flow_hash *b)
{
	return a->bucket[0] == b->bucket[0] || a->bucket[0] == b->bucket[1] || a->bucket[1] == b->bucket[0] ||
	       a->bucket[1] == b->bucket[1];
}

/* The bit of a bucket in `opening`. */
WEIR_INLINE uint64_t opening_bit(uint32_t bucket)
{
	return UINT64_C(1) << (bucket & 63);
}

WEIR_INLINE uint32_t opening_word(uint32_t bucket)
{
	return bucket / 64 % (OPENING_BITS / 64);
}

/* Notes a packet that may open a flow. */
WEIR_INLINE void track_note_opener(struct track_burst *tracked, const struct track *track, uint32_t i)
{
	const uint64_t bit = UINT64_C(1) << i;

	if (!tracked->openers)
		__builtin_memset(tracked->opening, 0, sizeof(tracked->opening));
	for (uint32_t n = 0; n < 2; n++)
		tracked->opening[opening_word(track->hash.bucket[n])] |= opening_bit(track->hash.bucket[n]);
	tracked->openers |= bit;
	tracked->replacing |= track->opens == PLACE_FREE ? 0 : bit;
}

/*
 * Whether an earlier packet of the segment may open the flow of the packet, takes the place of its flow, or needs a
 * place in one of its buckets.
 */
WEIR_NOINLINE bool track_waits_for_one(const struct track_burst *tracked, const struct track *track)
{
	for (uint64_t rest = track->is_known ? tracked->replacing : tracked->openers; rest; rest &= rest - 1) {
		const struct track *opener = &tracked->tracks[first_of(rest)];

		if (track->is_known ? opener->at.bucket == track->at.bucket && opener->at.entry == track->at.entry
				    : share_bucket(&opener->hash, &track->hash))
			return true;
	}
	return false;
}

/* track_waits_for_one(), if an opener may share a bucket with the packet. */
WEIR_INLINE bool track_waits(const struct track_burst *tracked, const struct track *track)
{
	const uint32_t *buckets = track->hash.bucket;
	uint64_t shared;

	if (!tracked->openers)
		return false;
	shared = tracked->opening[opening_word(buckets[0])] & opening_bit(buckets[0]);
	shared |= tracked->opening[opening_word(buckets[1])] & opening_bit(buckets[1]);
	return WEIR_UNLIKELY(shared) && track_waits_for_one(tracked, track);
}

/*
 * Whether the packet must wait because limits of connections see the states of flows: of the packets before it as they
 * are before it, and of the packets behind one that may open a flow as they are once it is entered.
 */
WEIR_INLINE bool track_waits_for_claims(const struct track_burst *tracked, const struct track *track)
{
	if (!WEIR_COUNTS_CONNECTIONS || !tracked->segment)
		return false;
	return tracked->openers || track->subject == SUBJECT_TCP || !track->is_known;
}

/* Tracks the next packet. Returns false if it must wait for the end of the segment. */
WEIR_NOINLINE bool track_in_segment(const struct env *env, const struct weir_burst *burst, struct track_burst *tracked,
				    uint32_t i, uint32_t now)
{
	struct track *track = &tracked->tracks[i];
	const struct frame frame = burst_frame(burst, i);

	track_guess_next(env, tracked);
	if (track->subject < SUBJECT_TCP)
		return true;
	track_find(env, track, now);
	if (track_waits_for_claims(tracked, track) ||
	    (WEIR_UNLIKELY(tracked->openers | tracked->proxy.asking) &&
	     (track_waits(tracked, track) || proxy_waits(env, &tracked->proxy, track, burst_time(burst, i), now)))) {
		track->outcome = OUTCOME_REFUSE;
		if (track->is_known)
			write_flow(env, track);
		return false;
	}
	if (track->subject == SUBJECT_TCP)
		track_read_segment(&frame, tracked, i);
	track_judge(env, track, now);
	track_finish(env, track, now);
	proxy_note(&tracked->proxy, track, i);
	if (track->opens != PLACE_FULL)
		track_note_opener(tracked, track, i);
	return true;
}

/* The acknowledgements with which a segment continues. */
WEIR_INLINE uint64_t leading_acks(const struct track_burst *tracked, uint64_t left)
{
	const uint64_t others = left & ~tracked->acks;

	const uint64_t before = WEIR_COUNTS_CONNECTIONS ? tracked->openers : tracked->replacing;

	return before ? 0 : left & tracked->acks & ((others & -others) - 1);
}

/*
 * Ends the last segment and tracks the next one. `states` becomes the column of the packets' states. Open packets of
 * the segment are open for the rules. Returns false if there are no more packets.
 */
WEIR_NOINLINE bool track_next(const struct env *env, const struct weir_burst *burst, struct verdicts *verdicts,
			      struct track_burst *tracked, uint8_t *states)
{
	uint64_t open = 0, left = tracked->left;

	track_end_segment(env, verdicts, tracked);
	if (!left)
		return false;
	tracked->invalid = 0;
	tracked->segment = 0;
	tracked->clock = *(volatile uint64_t *)&env->flows.head->clock;
	while (left) {
		const uint32_t i = first_of(left), now = track_time(env->flows.head, burst_time(burst, i));
		const uint64_t bit = UINT64_C(1) << i, leading = leading_acks(tracked, left);
		const uint64_t done = leading ? acks_track(env, burst, &tracked->columns, leading, now, states) : 0;
		struct track *track = &tracked->tracks[i];

		open |= done & tracked->open;
		left &= ~done;
		tracked->segment |= done;
		if (WEIR_LIKELY(done))
			continue;
		if (tracked->acks & bit)
			track_read_packet(env, burst, tracked, i);
		tracked->acks &= ~bit;
		tracked->columns.unfetched &= ~bit;
		if (!track_in_segment(env, burst, tracked, i, now))
			break;
		left &= ~bit;
		tracked->segment |= bit;
		states[i] = track->state;
		if (!(tracked->open & bit))
			continue;
		if (track->state == STATE_INVALID && tracking.invalid != VERDICT_NONE) {
			verdicts->words[i] = decide(env, (enum action)tracking.invalid, (enum reason)track->refused,
						    verdicts->lens[i]);
			continue;
		}
		tracked->invalid |= track->state == STATE_INVALID ? bit : 0;
		open |= bit;
	}
	tracked->left = left;
	verdicts->open = open;
	return true;
}

/* Tracks the accepted packets of a chain whose rules do not need their state. */
WEIR_INLINE void track_accepted(const struct env *env, const struct weir_burst *burst, struct verdicts *verdicts,
				struct track_burst *tracked)
{
	uint8_t states[WEIR_BURST_MAX];

	verdicts->open = 0;
	track_begin_late(env, burst, verdicts, tracked);
	while (track_next(env, burst, verdicts, tracked, states))
		continue;
}

/* Drops those hits of a rule with `tcp track` that the tracker refused. Returns the others. */
WEIR_NOINLINE uint64_t drop_refused(const struct env *env, struct verdicts *verdicts, const struct track_burst *tracked,
				    uint64_t hits)
{
	for (uint64_t rest = hits & tracked->invalid; rest; rest &= rest - 1) {
		const uint32_t i = first_of(rest);
		const uint64_t bit = rest & -rest;

		if (tracked->packets[i].l4 != L4_TCP)
			continue;
		verdicts->words[i] =
			decide(env, ACTION_DROP, (enum reason)tracked->tracks[i].refused, verdicts->lens[i]);
		verdicts->open &= ~bit;
		hits &= ~bit;
	}
	return hits;
}

#ifdef WEIR_REWRITES

/* Counts those hits of a rule with `tcp synproxy` that ask to open a connection, and answers them if the proxy is on.
 * Returns the others. */
WEIR_NOINLINE uint64_t answer_hits(const struct env *env, const struct weir_burst *burst, struct verdicts *verdicts,
				   struct track_burst *tracked, uint64_t hits)
{
	for (uint64_t rest = hits & tracked->proxy.asking & ~tracked->proxy.asked; rest; rest &= rest - 1) {
		const uint32_t i = first_of(rest);
		const uint64_t bit = rest & -rest;

		tracked->proxy.asked |= bit;
		if (!answer(env, &tracked->tracks[i], burst_time(burst, i)))
			continue;
		verdicts->words[i] = decide(env, ACTION_REPLY, REASON_SYN_COOKIE, verdicts->lens[i]);
		verdicts->open &= ~bit;
		tracked->proxy.edits |= bit;
		hits &= ~bit;
	}
	return hits;
}

/* Makes what leaves in place of packets that are accepted or answered. */
WEIR_NOINLINE void rewrite_burst(const struct weir_burst *burst, struct verdicts *verdicts, struct track_burst *tracked)
{
	for (uint64_t rest = tracked->proxy.edits; rest; rest &= rest - 1) {
		const uint32_t i = first_of(rest), action = verdicts->words[i] & 0xff;
		struct track *track = &tracked->tracks[i];
		const struct frame frame = burst_frame(burst, i);

		if (action != ACTION_ACCEPT && action != ACTION_REPLY)
			continue;
		rewrite_packet(&frame, &tracked->packets[i], &track->edit, track->segment.end,
			       &burst->rewrites.packets[i]);
		verdicts->words[i] |= VERDICT_REWRITTEN;
	}
}

#endif
#endif
#endif
