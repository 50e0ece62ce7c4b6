/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a packet means for its flow, by protocol. The reference is crates/policy/src/ir/eval/tracking/mod.rs. Generated
 * code declares `tracking`, the policy's settings.
 */
#ifndef WEIR_TRACK_JUDGE_H
#define WEIR_TRACK_JUDGE_H

#include "flow_place.h"

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

/* A SYN begins a known connection anew. */
WEIR_INLINE void reopen_by_syn(struct track *track, uint32_t now)
{
	new_connection(track, now);
	track->opens = PLACE_KNOWN;
	track->outcome = OUTCOME_REOPEN;
	track->state = STATE_NEW;
	track->refused = REASON_NO_MATCH;
}

/* Refuses a packet of a known flow, which does not change. */
WEIR_INLINE void refuse_known(struct track *track, enum reason reason)
{
	track->outcome = OUTCOME_REFUSE;
	track_refuse(track, reason);
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

/* In the kernel a function that the verifier follows once. */
#ifdef WEIR_BURSTS

WEIR_INLINE void track_judge_tcp(struct track *track, uint32_t now)
{
	judge_tcp(track, now);
}

#else

WEIR_IN_KERNEL void track_judge_tcp(struct track *track, uint32_t now);

#endif

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

#endif
