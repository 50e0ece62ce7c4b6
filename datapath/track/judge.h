/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a packet means for its flow, by protocol. The reference is crates/policy/src/ir/eval/tracking/mod.rs. Generated
 * code declares `tracking`, the policy's settings.
 */
#ifndef WEIR_TRACK_JUDGE_H
#define WEIR_TRACK_JUDGE_H

#include "track/flow_place.h"

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
WEIR_NATIVE_FUNCTION void reopen_by_syn(struct track *track, uint32_t now)
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

WEIR_NOINLINE void track_judge_tcp(struct track *track, uint32_t now)
{
	judge_tcp(track, now);
}

#else

WEIR_IN_KERNEL void track_judge_tcp(struct track *track, uint32_t now);

#endif

/* The exchanges of a flow that is no connection: Exchanges in crates/abi/src/flow/exchanges.rs. */
enum {
	EXCHANGES_ANSWERED_LAST = 63,
	EXCHANGES_SINCE = 32,
	EXCHANGES_ASSURED = 3,
	EXCHANGES_ASSURED_TICKS = 119,
};

/* The exchanges after an answer. */
WEIR_INLINE uint64_t exchanges_answered(uint64_t exchanges, uint32_t state, uint32_t now)
{
	if (state == FLOW_UNREPLIED)
		exchanges = (exchanges & UINT32_MAX) | (uint64_t)now << EXCHANGES_SINCE;
	return exchanges | UINT64_C(1) << EXCHANGES_ANSWERED_LAST;
}

/* The exchanges after a packet of the opener. */
WEIR_INLINE uint64_t exchanges_asked(uint64_t exchanges)
{
	const uint64_t count = (exchanges & UINT32_MAX) + (exchanges >> EXCHANGES_ANSWERED_LAST);
	const uint64_t since = exchanges & ~(UINT64_C(1) << EXCHANGES_ANSWERED_LAST) & ~(uint64_t)UINT32_MAX;

	return since | (count > EXCHANGES_ASSURED ? (uint64_t)EXCHANGES_ASSURED : count);
}

WEIR_INLINE bool is_assured(uint64_t exchanges, uint32_t now)
{
	const uint32_t since = (uint32_t)(exchanges >> EXCHANGES_SINCE) & (FLOW_TICKS - 1);

	return (exchanges & UINT32_MAX) >= EXCHANGES_ASSURED && flow_age(now, since) >= EXCHANGES_ASSURED_TICKS;
}

/* Judges a packet of a known flow of another protocol. */
WEIR_INLINE void judge_other(struct track *track, uint32_t now)
{
	uint64_t status = track->words[FLOW_STATE_WORDS - 1], exchanges = track->words[0];
	uint32_t state = status_state(status);

	if (status_bit(status, STATUS_OPENER) != track->sender) {
		exchanges = exchanges_answered(exchanges, state, now);
		state = state == FLOW_UNREPLIED ? FLOW_REPLIED : state;
	} else {
		exchanges = exchanges_asked(exchanges);
		state = state == FLOW_REPLIED && is_assured(exchanges, now) ? FLOW_ASSURED : state;
	}
	track->words[0] = exchanges;
	/* Without the lock: written back, the words release it. */
	status &= ~(FLOW_LOCK | (uint64_t)(FLOW_STATES - 1) << STATUS_STATE | (uint64_t)(FLOW_TICKS - 1));
	track->words[FLOW_STATE_WORDS - 1] =
		status | now | (uint64_t)state << STATUS_STATE | (uint64_t)(state != FLOW_UNREPLIED) << STATUS_REPLIED;
	track->outcome = OUTCOME_UPDATE;
	track->state = state != FLOW_UNREPLIED ? STATE_ESTABLISHED : STATE_NEW;
	track->refused = REASON_NO_MATCH;
}

/* Whether the sender of the quoted packet may have sent it: has_sent() in window.rs. Errors change no flow. */
WEIR_NATIVE_FUNCTION void judge_error(struct track *track)
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
