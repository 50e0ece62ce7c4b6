/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The extern objects of tracking: `track` at the point of a chain where packets are tracked, and `tracked` at the end
 * of each packet. A pipeline decides one packet after the other, so a flow that a packet opens is entered before the
 * next packet. With a controller, p4/split.h says who tracks, and which packets wait.
 *
 * Generated code declares `tracking`, the policy's settings, before it includes this.
 */
#ifndef WEIR_P4_TRACK_H
#define WEIR_P4_TRACK_H

#include "p4/split.h"

struct p4_track {
	uint32_t packet;
	uint8_t from;	  /* enum from_side */
	uint8_t state;	  /* as rules test it */
	uint16_t refused; /* reason, if the state is STATE_INVALID; else 0 */
} P4_MAILBOX;

/* The verdict of a packet. */
struct p4_tracked {
	uint32_t packet;
	uint8_t from;
	uint8_t action;
	uint16_t reason;
} P4_MAILBOX;

/* Tracks a well-formed packet. Returns false if it waits for a controller, and must be called again then. */
WEIR_NOINLINE bool p4_track_packet(void *worker, uint32_t i, enum from_side from)
{
	const struct env *env = p4_env(worker);
	const struct weir_burst *burst = p4_burst(worker);
	struct p4_flow *flow = p4_flow(worker, i);
	struct frame frame;

	if (((struct p4_worker *)worker)->controller)
		return split_track(worker, i, from);
	frame = burst_frame(burst, i);
	p4_read(env, &frame, track_time(env->flows.head, burst_time(burst, i)), from, flow);
	p4_judge(env, flow);
	flow->stage = P4_TRACKED;
	return true;
}

WEIR_INLINE int p4_track(void *worker, void *mailbox)
{
	struct p4_track *mail = mailbox;
	const struct track *track = &p4_flow(worker, mail->packet)->track;

	if (!p4_track_packet(worker, mail->packet, (enum from_side)mail->from))
		return 0;
	mail->state = track->state;
	mail->refused = track->state == STATE_INVALID ? track->refused : (uint16_t)REASON_NO_MATCH;
	return 1;
}

/* Enters the flow that an accepted packet opens. */
WEIR_INLINE void p4_open(struct p4_worker *worker, struct track *track)
{
	if (track->opens == PLACE_FULL)
		return;
	if (worker->controller)
		split_accept(worker->controller);
	else
		track_open(&worker->env, track);
}

/* What p4_follow() made of a packet. */
enum p4_followed {
	P4_NOT_ACCEPTED,
	P4_ACCEPTED,
	P4_NOT_YET, /* it waits for a controller */
};

/* Tracks a packet that is accepted and was not tracked before, and enters the flow that it opens. */
WEIR_INLINE enum p4_followed p4_follow(void *worker, const struct p4_tracked *mail)
{
	struct p4_flow *flow = p4_flow(worker, mail->packet);
	const bool is_accepted = is_tracked_late((uint32_t)mail->action | (uint32_t)mail->reason << 16);

	if (is_accepted) {
		if (flow->stage != P4_TRACKED && !p4_track_packet(worker, mail->packet, (enum from_side)mail->from))
			return P4_NOT_YET;
		p4_open(worker, &flow->track);
	}
	flow->stage = P4_FRESH;
	return is_accepted ? P4_ACCEPTED : P4_NOT_ACCEPTED;
}

WEIR_INLINE int p4_tracked(void *worker, const void *mailbox)
{
	return p4_follow(worker, mailbox) != P4_NOT_YET;
}

#endif
