/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Whether a segment fits to what both sides have sent and acknowledged: docs/reference/tracking.md#windows. The
 * reference is crates/policy/src/ir/eval/tracking/window.rs.
 */
#ifndef WEIR_TRACK_TCP_WINDOW_H
#define WEIR_TRACK_TCP_WINDOW_H

#include "track/tcp_options.h"
#include "core/verdict.h"

/* What a segment does. A reset counts before SYN, SYN before FIN, FIN before ACK. */
enum segment_kind {
	SEGMENT_INVALID = 0, /* flags that no TCP sends */
	SEGMENT_SYN = 1,
	SEGMENT_SYN_ACK = 2,
	SEGMENT_FIN = 3,
	SEGMENT_ACK = 4,
	SEGMENT_RESET = 5,
};

struct segment {
	uint32_t kind;
	uint32_t seq;
	uint32_t end; /* the sequence number behind the segment */
	uint32_t ack;
	uint32_t window; /* as written */
	bool has_ack;
	struct tcp_options options;
};

/* An acknowledgement may be this much older than the newest data, even if the window is smaller. */
#define ACK_WINDOW_MIN UINT32_C(66000)
/* No window is larger (RFC 7323, section 2.3). */
#define TCP_WINDOW_MAX (UINT32_C(1) << 30)

WEIR_INLINE uint32_t seq_max(uint32_t a, uint32_t b)
{
	return seq_after(a, b) ? a : b;
}

/* The window of a segment whose sender did not announce a scale. A window was offered, even if it is 0. */
WEIR_INLINE uint32_t offered_window(uint32_t bytes)
{
	return window_of(bytes ? bytes : 1);
}

/* The first segment of a side. A SYN was recorded before. */
WEIR_INLINE void window_pick_up(struct flow *flow, const struct segment *segment, uint32_t highest)
{
	struct flow_side *side = &flow->mine, *other = &flow->theirs;

	/* An answer to a keepalive acknowledges a byte that was not seen. */
	if (segment->has_ack && highest == other->next + 1)
		other->next++;
	/* What the other side has acknowledged before is known. */
	if (!side->una && !side->next)
		side->una = segment->seq;
	side->next = segment->end;
	side->window = offered_window(segment->window);
}

/* The oldest number of a side that is still of use. */
WEIR_INLINE uint32_t oldest(const struct flow_side *side, uint32_t window)
{
	const uint32_t below = side->next - window;

	return seq_after(below, side->una) ? side->una : below;
}

/* Before the receiver has offered a window, only what was sent may be sent again. */
WEIR_INLINE bool begins_beyond(const struct flow *flow, const struct segment *segment)
{
	const struct flow_side *sender = &flow->mine, *receiver = &flow->theirs;
	const uint32_t window = window_bytes(receiver->window);

	return seq_after(segment->seq, receiver->window == WINDOW_NONE ? sender->next : sender->una + window);
}

WEIR_INLINE bool ends_early(const struct flow *flow, const struct segment *segment)
{
	const struct flow_side *sender = &flow->mine, *receiver = &flow->theirs;

	return receiver->window != WINDOW_NONE && !seq_after(segment->end, sender->next) &&
	       seq_after(oldest(sender, window_bytes(receiver->window)), segment->end);
}

WEIR_INLINE bool acks_unsent(const struct flow *flow, const struct segment *segment, uint32_t highest)
{
	return segment->has_ack && seq_after(highest, flow->theirs.next);
}

WEIR_INLINE bool acks_old(const struct flow *flow, const struct segment *segment, uint32_t highest)
{
	const uint32_t own = window_bytes(flow->mine.window);

	return segment->has_ack &&
	       seq_after(oldest(&flow->theirs, own < ACK_WINDOW_MIN ? ACK_WINDOW_MIN : own), highest);
}

/* The bound that a segment violates; REASON_NO_MATCH if it fits. */
WEIR_INLINE enum reason window_check(const struct flow *flow, const struct segment *segment, uint32_t highest)
{
	if (begins_beyond(flow, segment))
		return REASON_OUT_OF_WINDOW;
	if (acks_unsent(flow, segment, highest))
		return REASON_BAD_ACK;
	if (ends_early(flow, segment))
		return REASON_OUT_OF_WINDOW;
	if (acks_old(flow, segment, highest))
		return REASON_BAD_ACK;
	return REASON_NO_MATCH;
}

/* What is not acknowledged before a number: from `una` on, but no more than the largest window. */
WEIR_INLINE uint32_t trail(uint32_t una, uint32_t number)
{
	return number - una > TCP_WINDOW_MAX ? number - TCP_WINDOW_MAX : una;
}

/* Raises the bound of the sender so that it may begin a segment at `seq`. */
WEIR_INLINE void begin_later(struct flow *flow, uint32_t seq)
{
	struct flow_side *side = &flow->mine, *other = &flow->theirs;
	uint32_t offered;

	side->una = trail(side->una, seq);
	offered = window_of(seq - side->una);
	if (other->window == WINDOW_NONE)
		side->next = seq;
	else if (offered > other->window)
		other->window = offered;
}

/*
 * The windows of a liberal flow are unknown, and segments may have passed unseen. If one number of a segment fits and
 * the other one lies above its bound, the bound follows.
 */
WEIR_INLINE void window_stretch(struct flow *flow, const struct segment *segment, uint32_t highest)
{
	struct flow_side *other = &flow->theirs;
	bool beyond, unsent;

	if (other->window == WINDOW_NONE && !other->una && !other->next && segment->has_ack) {
		/* The first acknowledgement of a side that passes unseen. */
		other->una = segment->ack;
		other->next = highest;
	}
	beyond = begins_beyond(flow, segment);
	unsent = acks_unsent(flow, segment, highest);
	if (beyond && !unsent && !acks_old(flow, segment, highest)) {
		begin_later(flow, segment->seq);
	} else if (unsent && !beyond && !ends_early(flow, segment)) {
		/* What it acknowledges was sent unseen. */
		other->una = trail(other->una, highest);
		other->next = highest;
	}
}

WEIR_INLINE void window_update(struct flow *flow, const struct segment *segment, uint32_t highest)
{
	struct flow_side *side = &flow->mine, *other = &flow->theirs;
	const bool has_syn = segment->kind == SEGMENT_SYN || segment->kind == SEGMENT_SYN_ACK;
	/* The window of a SYN is never scaled (RFC 7323, section 2.2). */
	const uint32_t scaled = segment->window << (has_syn ? 0 : side->scale);
	const uint64_t bytes = (uint64_t)scaled + (segment->has_ack ? highest - segment->ack : 0);
	const uint32_t window = window_of(bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes);

	side->window = window > side->window ? window : side->window;
	side->next = seq_max(segment->end, side->next);
	if (segment->has_ack)
		other->una = seq_max(segment->ack, other->una);
}

/*
 * Whether a segment of a side in `syn-recv` or `syn-recv2` acknowledges what the other side has opened with: only its
 * receiver knows that number.
 */
WEIR_INLINE bool acknowledges_opening(const struct flow *flow, const struct segment *segment)
{
	const struct flow_side *other = &flow->theirs;
	const bool is_sent = !seq_after(segment->ack, other->next);

	if (!segment->has_ack)
		return true;
	if (flow->state == FLOW_SYN_RECEIVED && flow->from_opener)
		return is_sent && seq_after(segment->ack, other->una);
	return flow->state != FLOW_SYN_RECEIVED2 || (is_sent && !seq_after(other->una, segment->ack));
}

/*
 * Checks a segment that is not a reset, and updates both sides. A liberal flow is only updated by segments that fit.
 * Returns why it does not fit, or REASON_NO_MATCH.
 */
WEIR_GLOBAL enum reason weir_window_pass(struct flow *flow, const struct segment *segment);

WEIR_GLOBAL enum reason weir_window_pass(struct flow *flow, const struct segment *segment)
{
	enum reason refused;
	uint32_t highest;

	/* The verifier wants to know. */
	if (!flow || !segment)
		return REASON_OUT_OF_WINDOW;
	highest = flow->theirs.sack ? segment->options.highest : segment->ack;
	if (flow->mine.window == WINDOW_NONE)
		window_pick_up(flow, segment, highest);
	if (flow->liberal)
		window_stretch(flow, segment, highest);
	refused = window_check(flow, segment, highest);
	if (refused == REASON_NO_MATCH)
		window_update(flow, segment, highest);
	return refused;
}

/*
 * Records the SYN of a side, also one with another number. Which of two the other side answers, and so which windows
 * and options hold, is not known then.
 */
WEIR_INLINE void record_syn(struct flow *flow, const struct segment *segment)
{
	struct flow_side *side = &flow->mine, *other = &flow->theirs;
	const bool is_first = side->window == WINDOW_NONE;
	const uint32_t una = is_first || seq_after(side->una, segment->seq) ? segment->seq : side->una;
	const uint32_t window = offered_window(segment->window);

	flow->liberal |= !is_first && segment->end != side->next;
	side->una = una;
	if (is_first || seq_after(segment->end, side->next)) {
		side->next = segment->end;
		side->window = window;
		side->scale = segment->options.scale;
		side->sack = segment->options.sack;
	} else if (window > side->window) {
		side->window = window;
	}
	/* Windows are scaled only if both SYNs have the option (RFC 7323, section 2.2). */
	if (!flow->from_opener && (side->scale == SCALE_NONE || other->scale == SCALE_NONE)) {
		side->scale = 0;
		other->scale = 0;
	}
}

/* Checks a SYN-ACK that answers a SYN, and records it (RFC 9293, section 3.10.7.3). */
WEIR_INLINE enum reason pass_syn_ack(struct flow *flow, const struct segment *segment)
{
	const struct flow_side *side = &flow->mine, *other = &flow->theirs;

	if (!segment->has_ack || !seq_after(segment->ack, other->una) || seq_after(segment->ack, other->next))
		return REASON_BAD_ACK;
	/* In a simultaneous open it repeats the number of the SYN. */
	if (side->window != WINDOW_NONE && !flow->liberal &&
	    (seq_after(side->una, segment->seq) || !seq_after(side->next, segment->seq)))
		return REASON_OUT_OF_WINDOW;
	record_syn(flow, segment);
	window_update(flow, segment, segment->ack);
	return REASON_NO_MATCH;
}

#endif
