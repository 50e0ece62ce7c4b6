/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The tracker: which flow a packet belongs to, its state, and why it is refused. docs/reference/tracking.md has the
 * rules; the reference is crates/policy/src/ir/eval/tracking/mod.rs. Generated code declares `tracking`, the policy's
 * settings.
 */
#ifndef WEIR_TRACK_TRACKER_H
#define WEIR_TRACK_TRACKER_H

#include "track/fast.h"
#include "track/judge.h"
#ifdef WEIR_REWRITES
#include "proxy/syn_answer.h"
#else
#include "proxy/no_synproxy.h"
#endif

/* Finds the flow of the packet, locks it and reads its state words. An expired flow is freed. */
WEIR_INLINE void find_flow(const struct env *env, struct track *track, uint32_t now)
{
	track->is_known = false;
	for (uint32_t i = 0; i < 2; i++) {
		struct flow_bucket *bucket = flow_bucket(env, track->hash.bucket[i]);
		const uint64_t *entry;
		uint32_t index;

		index = bucket ? flow_find_in(env, bucket, track->hash.tag, &track->key) : FLOW_ENTRIES;
		if (index >= FLOW_ENTRIES)
			continue;
		entry = bucket->entries[index];
		if (flow_expired(entry, &tracking.timeouts, now)) {
			flow_free(bucket, index);
			return;
		}
		track->at = (struct flow_at){track->hash.bucket[i], index};
		for (uint32_t word = 0; word < FLOW_STATE_WORDS; word++)
			track->words[word] = entry[FLOW_KEY_WORDS + word];
		track->is_known = true;
		return;
	}
}

/* Finds room for the flow that the packet opens. */
WEIR_INLINE void place_flow(const struct env *env, struct track *track, uint32_t now)
{
	const uint32_t class = track->subject == SUBJECT_TCP ? FLOW_EMBRYONIC : FLOW_UNPROVEN;

	track->opens = (uint8_t)find_place(env, &track->hash, class, now, &track->at);
}

/* Writes the flow of the packet back, or ends it, and releases it. */
WEIR_INLINE void write_flow(const struct env *env, const struct track *track)
{
	struct flow_bucket *bucket = flow_bucket(env, track->at.bucket);
	const uint32_t index = track->at.entry & (FLOW_ENTRIES - 1);

	if (!bucket)
		return;
	if (track->outcome == OUTCOME_REMOVE)
		flow_free(bucket, index);
	else if (track->outcome == OUTCOME_UPDATE || track->outcome == OUTCOME_KEEP)
		flow_write(bucket, index, track->words);
	else
		flow_unlock(env, &bucket->entries[index][FLOW_STATUS]);
}

/* Judges a packet whose flow was looked up: sets its state, and the words of its flow or of the one that it opens. */
WEIR_INLINE void judge(const struct env *env, struct track *track, uint32_t now)
{
	track->opens = PLACE_FULL;
	if (proxy_judges(env, track, now))
		return;
	if (track->is_known) {
		if (track->subject == SUBJECT_TCP)
			track_judge_tcp(track, now);
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

WEIR_INLINE void track_judge(const struct env *env, struct track *track, uint32_t now)
{
	judge(env, track, now);
}

#else

WEIR_IN_KERNEL void track_find(const struct env *env, struct track *track, uint32_t now);
WEIR_IN_KERNEL void track_place(const struct env *env, struct track *track, uint32_t now);
WEIR_IN_KERNEL void track_judge(const struct env *env, struct track *track, uint32_t now);

#endif

/* Whether the packet opens a flow that was not known. */
WEIR_INLINE bool opens_unknown(const struct track *track)
{
	return !track->is_known && track->state == STATE_NEW;
}

/* Reads the key of a well-formed packet that arrived from a side, and finds the buckets of its flow. */
WEIR_INLINE void track_read(const struct flow_head *head, const struct frame *frame, packet_view *packet,
			    enum from_side from, struct track *track)
{
	track->opens = PLACE_FULL;
	track->subject = (uint8_t)read_subject(frame, packet, from, track);
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
		if (track->opens == PLACE_FULL) {
			track_refuse(track, REASON_STATE_FULL);
			track_keep(track);
		}
	}
}

/* The packet belongs to an established flow, and its flow is written back. */
WEIR_INLINE void track_established(struct track *track)
{
	track->state = STATE_ESTABLISHED;
	track->refused = REASON_NO_MATCH;
	track->outcome = OUTCOME_UPDATE;
}

/*
 * Enters the flow that an accepted packet opens, where track_packet() has found room. No other worker may use the
 * table.
 */
WEIR_INLINE void enter_alone(const struct env *env, struct track *track)
{
	struct flow_bucket *bucket = flow_bucket(env, track->at.bucket);
	const uint32_t index = track->at.entry & (FLOW_ENTRIES - 1);

	if (!bucket)
		return;
	enter_proxied(env, track);
	/* Also in place of the known flow: a later packet of the segment may have found it expired and freed its entry.
	 */
	flow_enter(bucket, index, track->hash.tag, &track->key, track->words);
}

/* Takes the entry of the packet's `at`, and enters its flow. Returns false if another CPU has changed the entry. */
WEIR_INLINE bool enter_placed(const struct env *env, const struct track *track)
{
	struct flow_bucket *bucket = flow_bucket(env, track->at.bucket);
	const uint32_t index = track->at.entry & (FLOW_ENTRIES - 1);

	if (!bucket || !flow_claim(env, bucket, index, (enum place)track->opens))
		return false;
	enter_proxied(env, track);
	flow_enter(bucket, index, track->hash.tag, &track->key, track->words);
	return true;
}

/*
 * Enters the flow that an accepted packet opens, while other CPUs use the table. `now` is the time of the packet. If
 * its key was entered meanwhile, the packet is judged again, as one that comes after the other CPU's packet. What
 * becomes of the packet does not change; it is in `edit` in the meantime.
 */
WEIR_INLINE void enter_among_others(const struct env *env, struct flow_head *head, struct track *track,
				    struct edit *edit, uint32_t now)
{
	volatile uint64_t *opening = &head->opening[track->hash.tag & (OPENING_LOCKS - 1)];

	*edit = track_edit(track);
	if (!flow_lock(env, opening))
		return;
	/* The words belong to the new flow, unless the key is known. */
	track_find(env, track, now);
	if (track->is_known) {
		track_judge(env, track, now);
		if (track->outcome == OUTCOME_REOPEN) {
			track->outcome = OUTCOME_UPDATE;
			enter_proxied(env, track);
		}
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
	track_set_edit(track, edit);
}

/* Whether a packet that was decided before its tracking point is tracked: if it is accepted and well-formed. */
WEIR_INLINE bool is_tracked_late(uint32_t verdict)
{
	const uint32_t reason = verdict >> 16;

	return (verdict & 0xff) == ACTION_ACCEPT &&
	       (reason < REASON_MALFORMED_LINK || reason > REASON_MALFORMED_TRANSPORT);
}

#endif
