/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The SYN proxy's answers to SYNs. The reference is SynProxy in crates/policy/src/ir/eval/tracking/synproxy.rs, and
 * Tracker::answer() in proxied.rs.
 */
#ifndef WEIR_PROXY_SYN_ANSWER_H
#define WEIR_PROXY_SYN_ANSWER_H

#include "proxy/syn_switch.h"
#include "proxy/synproxy.h"

/* Whether the packet is a SYN that was not refused. The proxy counts it. */
WEIR_INLINE bool asks_to_open(const struct track *track)
{
	return track->asks && track->state != STATE_INVALID;
}

/* Whether such a SYN opens a connection, or might as well. */
WEIR_INLINE bool may_be_answered(const struct track *track)
{
	return track->opens != PLACE_FULL || track->is_unproven;
}

/* Replaces a SYN by the SYN-ACK with a cookie. Its window is 0, so that the client sends nothing yet. */
WEIR_INLINE void edit_answer(const struct env *env, struct track *track)
{
	const struct segment *segment = &track->segment;
	const uint64_t clock = clock_at(env, track->now);
	const uint32_t epoch = (uint32_t)(clock >> EPOCH_TICKS_SHIFT);
	volatile uint64_t *made = &flow_head(env)->cookies_made;
	const bool has_stamp = segment->options.has_stamp && tracking.synproxy.timestamp;
	const bool scales = tracking.synproxy.scale != SCALE_NONE;
	const uint32_t scale = scales ? segment->options.scale : (uint32_t)SCALE_NONE;
	const uint32_t told = scale == SCALE_NONE ? (uint32_t)SCALE_NONE : tracking.synproxy.scale;
	const bool sack = tracking.synproxy.sack && segment->options.sack;

	if (*made != (uint64_t)epoch + 1)
		*made = (uint64_t)epoch + 1;
	track->edit.kind = EDIT_BACK;
	track->edit.segment = (struct new_segment){
		.seq = track_cookie(env, track, segment->seq, epoch, cookie_mss_index(segment->options.mss)),
		.ack = segment->seq + 1,
		.stamp = cookie_stamp(clock << FLOW_TICK_SHIFT, scale, told == SCALE_NONE ? 0 : told, sack),
		.echo = segment->options.stamp,
		.mss = tracking.synproxy.mss,
		.scale = (uint8_t)told,
		.flags = TCP_SYN | TCP_ACK,
		.has_stamp = has_stamp,
		.sack = sack,
	};
}

/* Counts the SYN of a packet that asks to open a connection, and answers it if the proxy is on. */
WEIR_INLINE bool answer(const struct env *env, struct track *track, uint64_t time_ns)
{
	const struct syn_threshold *threshold = &tracking.synproxy.threshold;

	if (threshold->is_set && !switch_counts(&flow_head(env)->syns, time_ns, threshold))
		return false;
	if (!may_be_answered(track))
		return false;
	edit_answer(env, track);
	return true;
}

#endif
