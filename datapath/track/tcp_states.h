/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The state machine of TCP connections: docs/reference/tracking.md#states. The reference is
 * crates/policy/src/ir/eval/tracking/tcp.rs.
 */
#ifndef WEIR_TRACK_TCP_STATES_H
#define WEIR_TRACK_TCP_STATES_H

#include "track/flow_table.h"
#include "proxy/syn_switch.h"
#include "track/tcp_restored.h"
#include "track/tcp_window.h"

/* What the servers behind the SYN proxy offer, and when it answers: Synproxy in crates/policy/src/tracking.rs. */
struct synproxy {
	struct syn_threshold threshold;
	uint16_t mss;
	uint8_t scale; /* SCALE_NONE: none */
	bool sack;
	bool timestamp;
};

/* The settings of `tracking { ... }`. Generated code has one constant, so compilers fold it. */
struct tracking {
	struct flow_timeouts timeouts;
	uint32_t embryonic_max; /* flows of this class in a bucket */
	uint32_t unproven_max;
	uint32_t invalid; /* the verdict on invalid packets, or VERDICT_NONE if rules decide them */
	bool pickup;
	bool one_way;
	bool vlan_ignore; /* tags are no part of a flow's key */
	struct synproxy synproxy;
};

/* What a segment does to its flow. */
enum outcome {
	OUTCOME_UPDATE, /* it passes, and the flow's timeout begins again */
	OUTCOME_KEEP,	/* it passes, and the timeout does not begin again */
	OUTCOME_REMOVE, /* it passes and ends the flow, which had no answer */
	OUTCOME_REOPEN, /* it opens the connection anew */
	OUTCOME_REFUSE,
	OUTCOME_NONE, /* it passes and changes nothing */
};

/* A step of the state machine: a state, or one of these. */
enum step {
	STEP_IGNORE = FLOW_STATES, /* the other side may know a connection that the tracker does not: it decides */
	STEP_REOPEN,
	STEP_INVALID,
};

/* Sets of states. */
#define STATES2(a, b) (1u << (a) | 1u << (b))
#define STATES_OPENING STATES2(FLOW_SYN_SENT, FLOW_SYN_SENT2)
#define STATES_ANSWERED STATES2(FLOW_SYN_RECEIVED, FLOW_SYN_RECEIVED2)
#define STATES_ESTABLISHED STATES2(FLOW_ESTABLISHED, FLOW_RESETTING)
#define STATES_OPEN (STATES_ESTABLISHED | 1u << FLOW_RESTORED)
#define STATES_HALF_CLOSED STATES2(FLOW_FIN_WAIT, FLOW_CLOSE_WAIT)

WEIR_INLINE bool state_in(const struct flow *flow, uint32_t states)
{
	return states >> flow->state & 1;
}

WEIR_INLINE uint32_t step_syn(const struct flow *flow)
{
	if (flow->state == FLOW_TIME_WAIT || (flow->state == FLOW_CLOSED && flow->from_opener))
		return STEP_REOPEN;
	if (state_in(flow, STATES_OPENING))
		return flow->from_opener ? flow->state : FLOW_SYN_SENT2;
	return flow->from_opener ? STEP_IGNORE : STEP_INVALID;
}

WEIR_INLINE uint32_t step_syn_ack(const struct flow *flow)
{
	if (flow->state == FLOW_SYN_SENT2)
		return FLOW_SYN_RECEIVED2;
	if (!flow->from_opener)
		return flow->state == FLOW_SYN_SENT ? FLOW_SYN_RECEIVED : STEP_IGNORE;
	return state_in(flow, STATES_ANSWERED) ? flow->state : STEP_INVALID;
}

/* A FIN that is sent again has no new end. One whose end was acknowledged is old, because nothing follows a FIN. */
WEIR_INLINE uint32_t step_fin(const struct flow *flow, const struct segment *segment)
{
	if (state_in(flow, STATES_OPENING))
		return STEP_INVALID;
	if (state_in(flow, STATES_ANSWERED | STATES_OPEN))
		return flow->liberal || seq_after(segment->end, flow->mine.una) ? FLOW_FIN_WAIT : flow->state;
	if (state_in(flow, STATES_HALF_CLOSED))
		return flow->liberal || seq_after(segment->end, flow->mine.next) ? FLOW_LAST_ACK : flow->state;
	return flow->state;
}

WEIR_INLINE uint32_t step_ack(const struct flow *flow, bool one_way)
{
	if (state_in(flow, STATES_ESTABLISHED))
		return FLOW_ESTABLISHED;
	if (state_in(flow, STATES_OPENING)) {
		if (!flow->from_opener)
			return STEP_IGNORE;
		return one_way && flow->state == FLOW_SYN_SENT ? FLOW_ESTABLISHED : STEP_INVALID;
	}
	if (state_in(flow, STATES_ANSWERED))
		return flow->state == FLOW_SYN_RECEIVED && !flow->from_opener ? FLOW_SYN_RECEIVED : FLOW_ESTABLISHED;
	/* Also `restored`, which tcp_judge() knows more of. */
	return state_in(flow, STATES_HALF_CLOSED) ? FLOW_CLOSE_WAIT : flow->state;
}

WEIR_INLINE uint32_t tcp_step(const struct flow *flow, const struct segment *segment, bool one_way)
{
	switch (segment->kind) {
	case SEGMENT_SYN:
		return step_syn(flow);
	case SEGMENT_SYN_ACK:
		return step_syn_ack(flow);
	case SEGMENT_FIN:
		return step_fin(flow, segment);
	default:
		return step_ack(flow, one_way);
	}
}

/*
 * The answer to a SYN that was ignored: both sides know a connection that the tracker does not. The SYN's window and
 * options are not known, so the flow is liberal.
 */
WEIR_INLINE void begin_anew(struct flow *flow, const struct segment *segment)
{
	flow->theirs = (struct flow_side){segment->ack, segment->ack, window_of(65535), 0, true};
	flow->mine = (struct flow_side){segment->seq, segment->end, offered_window(segment->window), 0, true};
	flow->state = FLOW_SYN_RECEIVED;
	flow->liberal = true;
	flow->syn = false;
	flow->proxied = false;
}

/*
 * A segment that the receiver may answer by a reset or by a challenge ACK (RFC 5961, sections 4 and 5). It passes and
 * leaves no more than a note.
 */
WEIR_INLINE enum outcome tcp_ignore(struct flow *flow, const struct segment *segment)
{
	if (segment->kind == SEGMENT_SYN) {
		flow->syn = true;
	} else if (segment->kind == SEGMENT_SYN_ACK) {
		if (flow->syn && !flow->from_opener && segment->ack != flow->theirs.next) {
			begin_anew(flow, segment);
			return OUTCOME_UPDATE;
		}
	} else if (flow->state == FLOW_SYN_SENT) {
		/* The opener answers the ACK of an old connection by a reset with this number. */
		flow->mine.una = segment->ack;
		flow->mine.next = segment->ack;
	}
	return OUTCOME_KEEP;
}

/* A reset connection. If there was no answer yet, nothing is left of it. */
WEIR_INLINE enum outcome tcp_close(struct flow *flow)
{
	if (!flow->replied)
		return OUTCOME_REMOVE;
	flow->state = FLOW_CLOSED;
	flow->syn = false;
	return OUTCOME_UPDATE;
}

/* Whether a reset in `syn-sent` is valid. */
WEIR_INLINE bool refuses_syn(const struct flow *flow, const struct segment *segment)
{
	const struct flow_side *other = &flow->theirs;

	/* The SYN is taken back, or answers the ACK of an old connection. */
	if (flow->from_opener)
		return segment->seq == flow->mine.next || (other->una == segment->seq && other->una);
	/* A refusal acknowledges the SYN. */
	return segment->has_ack && seq_after(segment->ack, other->una) && !seq_after(segment->ack, other->next);
}

/* A reset (RFC 9293, section 3.10.7, and RFC 5961, section 3). */
WEIR_INLINE enum outcome tcp_reset(struct flow *flow, const struct segment *segment, enum reason *refused)
{
	const struct flow_side *side = &flow->mine, *other = &flow->theirs;
	const uint32_t seq = segment->seq, window = window_bytes(other->window);
	const bool is_beyond = seq_after(seq, side->una + window);
	const bool is_old = seq_after(side->una, seq);
	const bool is_established = state_in(flow, STATES_ESTABLISHED);

	*refused = REASON_RST_OUT_OF_WINDOW;
	if (flow->state == FLOW_SYN_SENT)
		return refuses_syn(flow, segment) ? tcp_close(flow) : OUTCOME_REFUSE;
	if (segment->has_ack && segment->ack && seq_after(segment->ack, other->next) && !flow->liberal) {
		*refused = REASON_BAD_ACK;
		return OUTCOME_REFUSE;
	}
	/* Before a restored connection goes on, the other side has confirmed `una` only. */
	if (seq == side->una || (seq == side->next && !is_old && flow->state != FLOW_RESTORED))
		return tcp_close(flow);
	if (is_established || state_in(flow, STATES_ANSWERED | 1u << FLOW_SYN_SENT2)) {
		if (is_old || (is_beyond && !flow->liberal))
			return OUTCOME_REFUSE;
		if (!is_established || flow->liberal)
			return OUTCOME_KEEP;
		if (!flow->replied)
			return tcp_close(flow);
		/* The receiver answers by a challenge ACK, so the connection may go on. */
		flow->state = FLOW_RESETTING;
		return OUTCOME_UPDATE;
	}
	/* Its numbers are unknown here. The receiver does, and ignores or challenges a wrong reset. */
	if (flow->liberal)
		return OUTCOME_KEEP;
	/* A closed socket answers late segments by resets with the acknowledgement of these. */
	if (is_beyond || seq_after(side->una - window, seq))
		return OUTCOME_REFUSE;
	return tcp_close(flow);
}

/*
 * Why a segment other than a reset is refused, or REASON_NO_MATCH. Updates both sides. Segments of a liberal flow fit,
 * unless they are FINs.
 */
WEIR_INLINE enum reason tcp_pass(struct flow *flow, const struct segment *segment, bool opening)
{
	enum reason unfit;

	if (segment->kind == SEGMENT_SYN) {
		record_syn(flow, segment);
		return REASON_NO_MATCH;
	}
	if (segment->kind == SEGMENT_SYN_ACK && opening)
		return pass_syn_ack(flow, segment);
	/* One-way: the first ACK must continue the SYN. */
	if (segment->kind == SEGMENT_ACK && opening && segment->seq != flow->mine.next)
		return REASON_OUT_OF_WINDOW;
	unfit = flow->state == FLOW_RESTORED ? restored_pass(flow, segment) : weir_window_pass(flow, segment);
	return flow->liberal && segment->kind != SEGMENT_FIN ? REASON_NO_MATCH : unfit;
}

/* Judges a segment of a known flow, and changes the flow. After a refusal the flow must be dropped. */
WEIR_INLINE enum outcome tcp_judge(struct flow *flow, const struct segment *segment, const struct tracking *tracking,
				   enum reason *refused)
{
	const bool opening = state_in(flow, STATES_OPENING), was_liberal = flow->liberal;
	const bool keeps = segment->kind == SEGMENT_SYN && !flow->replied && flow->from_opener;
	uint32_t step;

	if (segment->kind == SEGMENT_RESET)
		return tcp_reset(flow, segment, refused);
	step = tcp_step(flow, segment, tracking->one_way);
	*refused = REASON_BAD_FLAGS;
	if (step == STEP_IGNORE)
		return tcp_ignore(flow, segment);
	if (step == STEP_REOPEN)
		return OUTCOME_REOPEN;
	if (step == STEP_INVALID)
		return OUTCOME_REFUSE;
	if (segment->kind != SEGMENT_SYN && segment->kind != SEGMENT_SYN_ACK && !acknowledges_opening(flow, segment)) {
		*refused = REASON_BAD_ACK;
		return OUTCOME_REFUSE;
	}
	*refused = tcp_pass(flow, segment, opening);
	if (*refused != REASON_NO_MATCH && (!was_liberal || segment->kind != SEGMENT_FIN))
		return OUTCOME_REFUSE;
	if (step == FLOW_RESTORED)
		flow->state = flow->liberal ? FLOW_RESTORED : FLOW_ESTABLISHED;
	/* The sender of a forged FIN does not know the numbers, so the connection goes on. */
	else if (*refused == REASON_NO_MATCH)
		flow->state = step;
	flow->syn = false;
	flow->replied |= opening && segment->kind == SEGMENT_ACK;
	if (flow->state == FLOW_LAST_ACK && segment->kind == SEGMENT_ACK &&
	    (was_liberal || (flow->mine.una == flow->mine.next && flow->theirs.una == flow->theirs.next)))
		flow->state = FLOW_TIME_WAIT;
	/* A SYN that is sent again must not keep a flow without an answer. */
	return keeps ? OUTCOME_KEEP : OUTCOME_UPDATE;
}

/* A connection in its midst: neither windows nor options are known. */
WEIR_INLINE void tcp_pick_up(struct flow *flow, const struct segment *segment)
{
	flow->state = FLOW_ESTABLISHED;
	flow->liberal = true;
	flow->mine = (struct flow_side){segment->seq, segment->end, offered_window(segment->window), 0, true};
	flow->theirs = (struct flow_side){segment->ack, segment->ack, WINDOW_NONE, 0, true};
}

/* Makes the flow that a segment without a flow opens. Returns false if it cannot open one. */
WEIR_INLINE bool tcp_open(struct flow *flow, const struct segment *segment, const struct tracking *tracking)
{
	*flow = (struct flow){.state = FLOW_SYN_SENT, .from_opener = true, .liberal = tracking->one_way};
	if (segment->kind == SEGMENT_SYN) {
		record_syn(flow, segment);
		return true;
	}
	/* In one-way mode the SYN went another way. */
	if ((segment->kind == SEGMENT_ACK && tracking->pickup) ||
	    (segment->kind == SEGMENT_SYN_ACK && tracking->one_way)) {
		tcp_pick_up(flow, segment);
		return true;
	}
	return false;
}

#endif
