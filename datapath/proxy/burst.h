/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the SYN proxy notes of the packets of a burst (track/burst.h). Without a SYN proxy it notes nothing. */
#ifndef WEIR_PROXY_BURST_H
#define WEIR_PROXY_BURST_H

#include "track/tracker.h"
#ifdef WEIR_REWRITES
#include "proxy/rewrite.h"
#endif

struct proxy_burst {
	uint64_t asking; /* packets of the segment whose SYN the proxy counts */
	uint64_t asked;	 /* packets that the proxy has seen */
	uint64_t edits;	 /* packets that change if they leave */
};

#ifdef WEIR_REWRITES

/* After the judgement of a packet. */
WEIR_INLINE void proxy_note(struct proxy_burst *proxy, const struct track *track, uint32_t i)
{
	proxy->edits |= (uint64_t)(track->edit.kind != EDIT_NONE) << i;
	proxy->asking |= (uint64_t)asks_to_open(track) << i;
}

/*
 * Whether what becomes of the packet may depend on answers to earlier SYNs of the segment: a cookie is valid only if
 * one was made, and a SYN near the threshold is answered only if enough came before it.
 */
WEIR_INLINE bool proxy_waits(const struct env *env, const struct proxy_burst *proxy, const struct track *track,
			     uint64_t time_ns, uint32_t now)
{
	const struct syn_switch *syns = &flow_head(env)->syns;
	const struct syn_threshold *threshold = &tracking.synproxy.threshold;

	if (!proxy->asking || track->subject != SUBJECT_TCP)
		return false;
	if (track->segment.kind == SEGMENT_SYN)
		return !switch_is_steady(syns, time_ns, threshold);
	return track->segment.kind == SEGMENT_ACK && switch_may_answer(syns, threshold) &&
	       flow_head(env)->cookies_made != (uint64_t)epoch_at(env, now) + 1;
}

#else

WEIR_INLINE void proxy_note(struct proxy_burst *proxy, const struct track *track, uint32_t i)
{
	(void)proxy;
	(void)track;
	(void)i;
}

WEIR_INLINE bool proxy_waits(const struct env *env, const struct proxy_burst *proxy, const struct track *track,
			     uint64_t time_ns, uint32_t now)
{
	(void)env;
	(void)proxy;
	(void)track;
	(void)time_ns;
	(void)now;
	return false;
}

#endif

#endif
