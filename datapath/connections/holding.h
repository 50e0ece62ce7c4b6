/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What a tracked packet wants of the seats of its address: holding() in crates/policy/src/ir/eval/tracking/holding.rs.
 */
#ifndef WEIR_CONNECTIONS_HOLDING_H
#define WEIR_CONNECTIONS_HOLDING_H

#include "connections/seats.h"
#include "track/tracker.h"

/* The claim of a packet, after its judgement. */
WEIR_INLINE uint32_t track_claim(const struct track *track)
{
	if (track->subject != SUBJECT_TCP || !(track->state & (STATE_NEW | STATE_ESTABLISHED)))
		return CLAIM_NONE;
	if (track->opens != PLACE_FULL)
		return CLAIM_FREE;
	return track->outcome == OUTCOME_REMOVE ? (uint32_t)CLAIM_NONE : claim_of(track->words[FLOW_STATE_WORDS - 1]);
}

WEIR_INLINE struct holding track_holding(const struct track *track, uint32_t now)
{
	const struct flow_hash *hash = &track->hash;

	return (struct holding){seat_of(hash->bucket[0], hash->bucket[1], hash->tag), track_claim(track), now};
}

#endif
