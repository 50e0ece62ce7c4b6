/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a pipeline knows of a packet that it tracks. The tracker is the one of all engines, which parses the packet
 * again.
 *
 * Generated code declares `tracking`, the policy's settings, before it includes this.
 */
#ifndef WEIR_P4_FLOW_H
#define WEIR_P4_FLOW_H

#include "p4/externs.h"
#include "track/tracker.h"
#include "track/burst.h"

/* How far a packet is. P4_WAITS and P4_AWAY exist only with a controller (p4/split.h). */
enum p4_stage {
	P4_FRESH,   /* not tracked */
	P4_WAITS,   /* read, and waits for earlier packets */
	P4_AWAY,    /* at the controller */
	P4_TRACKED, /* tracked; the flow that it opens is not entered yet */
};

struct p4_flow {
	struct packet packet;
	struct track track;
	uint32_t now; /* ticks */
	enum p4_stage stage;
	bool is_asked; /* whether the SYN proxy has seen it */
};

_Static_assert(sizeof(struct p4_flow) <= sizeof(((struct p4_worker *)0)->scratch[0]), "what is known of a packet");

/* Without a controller no packet is decided before the one in front of it is, so all use the same memory. */
WEIR_INLINE struct p4_flow *p4_flow(const void *worker, uint32_t packet)
{
	const struct p4_worker *own = worker;

	return (struct p4_flow *)(uintptr_t)own->scratch[own->controller ? packet : 0];
}

/* Reads which flow a well-formed packet belongs to, and its numbers. */
WEIR_NOINLINE void p4_read(const struct env *env, const struct frame *frame, uint32_t now, enum from_side from,
			   struct p4_flow *flow)
{
	struct track *track = &flow->track;

	flow->now = now;
	flow->is_asked = false;
	track_keep(track);
	parse_packet(frame, &flow->packet);
	track_read(env->flows.head, frame, &flow->packet, from, track);
	if (track->subject == SUBJECT_TCP)
		read_segment(frame, &flow->packet, &track->segment);
}

/* Judges a packet whose flow was looked up. */
WEIR_NOINLINE void p4_judge_flow(const struct env *env, struct track *track, uint32_t now)
{
	track_judge(env, track, now);
}

/* Tracks a packet that was read. */
WEIR_NOINLINE void p4_judge(const struct env *env, struct p4_flow *flow)
{
	struct track *track = &flow->track;

	if (track->subject < SUBJECT_TCP)
		return;
	track_find(env, track, flow->now);
	p4_judge_flow(env, track, flow->now);
	track_finish(env, track, flow->now);
}

#endif
