/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The tracker: which flow a packet belongs to, its state, and why it is refused. docs/tracking.md has the rules; the
 * reference is crates/policy/src/ir/eval/tracking/mod.rs. Generated code declares `tracking`, the policy's settings.
 */
#ifndef WEIR_TRACKER_H
#define WEIR_TRACKER_H

#include "flow_place.h"
#include "track_fast.h"

/* Finds the flow of the packet, locks it and reads its state words. An expired flow is freed. */
WEIR_INLINE void find_flow(const struct env *env, struct track *track, uint32_t now)
{
	track->is_known = false;
	for (uint32_t i = 0; i < 2; i++) {
		struct flow_bucket *bucket = flow_bucket(env, track->hash.bucket[i]);
		const uint64_t *entry;
		uint32_t slot;

		slot = bucket ? flow_find_in(env, bucket, track->hash.tag, &track->key) : FLOW_SLOTS;
		if (slot >= FLOW_SLOTS)
			continue;
		entry = bucket->entries[slot];
		if (flow_expired(entry, &tracking.timeouts, now)) {
			flow_free(bucket, slot);
			return;
		}
		track->at = (struct flow_at){track->hash.bucket[i], slot};
		for (uint32_t word = 0; word < FLOW_STATE_WORDS; word++)
			track->words[word] = entry[FLOW_KEY_WORDS + word];
		track->is_known = true;
		return;
	}
}

/* Finds room for the flow that the packet opens. */
WEIR_INLINE void place_flow(const struct env *env, struct track *track, uint32_t now)
{
	track->opens = (uint8_t)find_place(env, &track->hash, now, &track->at);
}

/* Writes the flow of the packet back, or ends it, and releases it. */
WEIR_INLINE void write_flow(const struct env *env, const struct track *track)
{
	struct flow_bucket *bucket = flow_bucket(env, track->at.bucket);
	const uint32_t slot = track->at.slot & (FLOW_SLOTS - 1);

	if (!bucket)
		return;
	if (track->outcome == OUTCOME_REMOVE)
		flow_free(bucket, slot);
	else if (track->outcome == OUTCOME_UPDATE || track->outcome == OUTCOME_KEEP)
		flow_write(bucket, slot, track->words);
	else
		flow_unlock(env, &bucket->entries[slot][FLOW_STATUS]);
}

/* The flow that a TCP segment opens. Returns false if it opens none. */
WEIR_INLINE bool new_connection(struct track *track, uint32_t now)
{
	struct flow flow;

	if (!tcp_open(&flow, &track->segment, &tracking))
		return false;
	flow.time = now;
	flow_store(track->words, &flow, track->sender, track->key.is_ipv6);
	return true;
}

/* The flow that a request of another protocol opens. */
WEIR_INLINE void new_request(struct track *track, uint32_t now)
{
	const struct flow flow = {.state = FLOW_UNREPLIED, .from_opener = true, .time = now};

	flow_store(track->words, &flow, track->sender, track->key.is_ipv6);
}

/* Judges a segment of a known flow. */
WEIR_INLINE void judge_tcp(struct track *track, uint32_t now)
{
	struct flow flow = flow_load(track->words, track->sender);
	const bool is_reply = !flow.from_opener, was_replied = flow.replied;
	enum reason refused = REASON_NO_MATCH;

	keep_in_memory(&flow);
	track->outcome = (uint8_t)tcp_judge(&flow, &track->segment, &tracking, &refused);
	track->state = STATE_ESTABLISHED;
	track->refused = REASON_NO_MATCH;
	switch (track->outcome) {
	case OUTCOME_UPDATE:
	case OUTCOME_KEEP:
		flow.time = track->outcome == OUTCOME_UPDATE ? now : flow.time;
		flow.replied |= is_reply;
		flow_store(track->words, &flow, track->sender, track->key.is_ipv6);
		break;
	case OUTCOME_REOPEN:
		new_connection(track, now);
		track->opens = PLACE_KNOWN;
		track->state = STATE_NEW;
		return;
	case OUTCOME_REFUSE:
		track_refuse(track, refused);
		return;
	default:
		break;
	}
	if (!is_reply && !was_replied)
		track->state = STATE_NEW;
}

/* Judges a packet of a known flow of another protocol. */
WEIR_INLINE void judge_other(struct track *track, uint32_t now)
{
	struct flow flow = flow_load(track->words, track->sender);

	flow.replied |= !flow.from_opener;
	flow.state = flow.replied ? FLOW_REPLIED : FLOW_UNREPLIED;
	flow.time = now;
	flow_store(track->words, &flow, track->sender, track->key.is_ipv6);
	track->outcome = OUTCOME_UPDATE;
	track->state = flow.replied ? STATE_ESTABLISHED : STATE_NEW;
	track->refused = REASON_NO_MATCH;
}

/* Whether the sender of the quoted packet may have sent it: has_sent() in window.rs. Errors change no flow. */
WEIR_INLINE void judge_error(struct track *track)
{
	const struct flow flow = flow_load(track->words, track->sender);
	const uint32_t window = window_bytes(flow.theirs.window), seq = track->segment.seq;

	track->outcome = OUTCOME_REFUSE;
	if (track->segment.has_ack && !flow.liberal &&
	    (seq_after(flow.mine.una - window, seq) || seq_after(seq, flow.mine.next))) {
		track_refuse(track, REASON_OUT_OF_WINDOW);
		return;
	}
	track->state = STATE_RELATED;
	track->refused = REASON_NO_MATCH;
}

/* Judges a packet whose flow was looked up: sets its state, and the words of its flow or of the one that it opens. */
WEIR_INLINE void judge(struct track *track, uint32_t now)
{
	track->opens = PLACE_FULL;
	if (track->is_known) {
		if (track->subject == SUBJECT_TCP)
			judge_tcp(track, now);
		else if (track->subject == SUBJECT_ERROR)
			judge_error(track);
		else
			judge_other(track, now);
		return;
	}
	track_refuse(track, REASON_NO_STATE);
	if (track->subject == SUBJECT_REQUEST)
		new_request(track, now);
	else if (track->subject != SUBJECT_TCP || !new_connection(track, now))
		return;
	track->state = STATE_NEW;
	track->refused = REASON_NO_MATCH;
}

/* The steps of a packet. In the kernel each one is a function that the verifier follows once. */
#ifdef WEIR_BURSTS

WEIR_INLINE void track_find(const struct env *env, struct track *track, uint32_t now)
{
	find_flow(env, track, now);
}

WEIR_INLINE void track_place(const struct env *env, struct track *track, uint32_t now)
{
	place_flow(env, track, now);
}

WEIR_INLINE void track_judge(struct track *track, uint32_t now)
{
	judge(track, now);
}

#else

WEIR_IN_KERNEL void track_find(const struct env *env, struct track *track, uint32_t now);
WEIR_IN_KERNEL void track_place(const struct env *env, struct track *track, uint32_t now);
WEIR_IN_KERNEL void track_judge(struct track *track, uint32_t now);

#endif

/* Whether the packet opens a flow that was not known. */
WEIR_INLINE bool opens_unknown(const struct track *track)
{
	return !track->is_known && track->state == STATE_NEW;
}

/* Reads the key of a well-formed packet, and finds the buckets of its flow. */
WEIR_INLINE void track_read(const struct flow_head *head, const struct frame *frame, packet_view *packet,
			    struct track *track)
{
	track->opens = PLACE_FULL;
	track->subject = (uint8_t)read_subject(frame, packet, track);
	if (track->subject == SUBJECT_NONE) {
		track->state = STATE_UNTRACKED;
		track->refused = REASON_NO_MATCH;
	} else if (track->subject >= SUBJECT_TCP) {
		track->hash = flow_hash(head, &track->key);
	}
}

/* After the judgement: writes the flow back, or finds room for the flow that the packet opens. */
WEIR_INLINE void track_finish(const struct env *env, struct track *track, uint32_t now)
{
	if (track->is_known) {
		write_flow(env, track);
	} else if (opens_unknown(track)) {
		track_place(env, track, now);
		if (track->opens == PLACE_FULL)
			track_refuse(track, REASON_STATE_FULL);
	}
}

/* The packet belongs to an established flow, and its flow is written back. */
WEIR_INLINE void track_established(struct track *track)
{
	track->state = STATE_ESTABLISHED;
	track->refused = REASON_NO_MATCH;
}

/* Enters the flow that an accepted packet opens, where track_packet() has found room. Nobody else uses the table. */
WEIR_INLINE void enter_alone(const struct env *env, struct track *track)
{
	struct flow_bucket *bucket = flow_bucket(env, track->at.bucket);
	const uint32_t slot = track->at.slot & (FLOW_SLOTS - 1);

	if (!bucket)
		return;
	if (track->opens == PLACE_KNOWN)
		flow_write(bucket, slot, track->words);
	else
		flow_enter(bucket, slot, track->hash.tag, &track->key, track->words);
}

/* Takes the slot of the packet's `at`, and enters its flow. Returns false if another CPU has changed the slot. */
WEIR_INLINE bool enter_placed(const struct env *env, const struct track *track)
{
	struct flow_bucket *bucket = flow_bucket(env, track->at.bucket);
	const uint32_t slot = track->at.slot & (FLOW_SLOTS - 1);

	if (!bucket || !flow_claim(env, bucket, slot, (enum place)track->opens))
		return false;
	flow_enter(bucket, slot, track->hash.tag, &track->key, track->words);
	return true;
}

/*
 * Enters the flow that an accepted packet opens, while other CPUs use the table. `now` is the time of the packet. If
 * its key was entered meanwhile, the packet is judged again, as one that comes after the other CPU's packet.
 */
WEIR_INLINE void enter_among_others(const struct env *env, struct flow_head *head, struct track *track, uint32_t now)
{
	volatile uint64_t *opening = &head->opening[track->hash.tag & (OPENING_LOCKS - 1)];

	if (!flow_lock(env, opening))
		return;
	/* The words are those of the new flow unless the key is known. */
	track_find(env, track, now);
	if (track->is_known) {
		track_judge(track, now);
		if (track->outcome == OUTCOME_REOPEN)
			track->outcome = OUTCOME_UPDATE;
		write_flow(env, track);
	} else {
		for (uint32_t try = 0; try < PLACE_TRIES; try++) {
			/* The place that track_finish() has found, unless its connection has ended meanwhile. */
			if (try || track->opens == PLACE_KNOWN)
				track_place(env, track, now);
			if (track->opens == PLACE_FULL || enter_placed(env, track))
				break;
		}
	}
	flow_unlock(env, opening);
}

/* Whether a packet that was decided before its tracking point is tracked: if it is accepted and well-formed. */
WEIR_INLINE bool is_tracked_late(uint32_t verdict)
{
	const uint32_t reason = verdict >> 16;

	return (verdict & 0xff) == ACTION_ACCEPT &&
	       (reason < REASON_MALFORMED_LINK || reason > REASON_MALFORMED_TRANSPORT);
}

/* The time of a packet in ticks. It never goes back. */
WEIR_INLINE uint32_t track_time(struct flow_head *head, uint64_t time_ns)
{
	const uint64_t ticks = time_ns >> FLOW_TICK_SHIFT, clock = *(volatile uint64_t *)&head->clock;

	if (ticks <= clock)
		return (uint32_t)clock & (FLOW_TICKS - 1);
	*(volatile uint64_t *)&head->clock = ticks;
	return (uint32_t)ticks & (FLOW_TICKS - 1);
}

#endif
