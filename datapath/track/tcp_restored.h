/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A restored connection: established when it was saved, and not seen since. It becomes exact again once each side has
 * acknowledged what the other one sent last. The reference, which says why, is
 * crates/policy/src/ir/eval/tracking/restored.rs.
 */
#ifndef WEIR_TRACK_TCP_RESTORED_H
#define WEIR_TRACK_TCP_RESTORED_H

#include "track/tcp_window.h"

/* What a side acknowledges may be this much older than what the other side has sent. */
#define RESTORED_NEAR (UINT32_C(1) << 20)

/* Whether a number is at most RESTORED_NEAR before another one. */
WEIR_INLINE bool is_near(uint32_t number, uint32_t end)
{
	return end - number <= RESTORED_NEAR;
}

/* Takes a segment that is not a reset. It passes; returns REASON_NO_MATCH if it fits. */
WEIR_INLINE enum reason restored_pass(struct flow *flow, const struct segment *segment)
{
	struct flow_side *side = &flow->mine, *other = &flow->theirs;
	const bool fits = segment->has_ack && is_near(segment->ack, other->next);
	const bool continues = is_near(segment->end, side->next) || is_near(side->next, segment->end);

	/* What the other side has acknowledged is another number. */
	if (!continues)
		other->window = WINDOW_NONE;
	if (!continues || seq_after(segment->end, side->next))
		side->next = segment->end;
	side->window = fits ? offered_window(segment->window << side->scale) : (uint32_t)WINDOW_NONE;
	if (fits)
		other->una = segment->ack;
	if (side->window == WINDOW_NONE || other->window == WINDOW_NONE)
		return fits && continues ? REASON_NO_MATCH : REASON_OUT_OF_WINDOW;
	flow->liberal = false;
	return REASON_NO_MATCH;
}

#endif
