/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The extern objects of tracking: `track` at the point of a chain where packets are tracked, and `tracked` at the end
 * of each packet. The tracker is the one of all engines, which parses the packet again. A pipeline decides one packet
 * after the other, so a flow that a packet opens is entered before the next packet.
 *
 * Generated code declares `tracking`, the policy's settings, before it includes this.
 */
#ifndef WEIR_P4_TRACK_H
#define WEIR_P4_TRACK_H

#include "p4/externs.h"
#include "track/tracker.h"
#include "track/burst.h"

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

/* What the worker knows of its packet. */
struct p4_flow {
	struct packet packet;
	struct track track;
	uint32_t now; /* ticks */
	bool is_tracked;
	bool is_asked; /* whether the SYN proxy has seen it */
};

_Static_assert(sizeof(struct p4_flow) <= sizeof(((struct p4_worker *)0)->scratch), "what is known of a packet");

WEIR_INLINE struct p4_flow *p4_flow(void *worker)
{
	return (struct p4_flow *)((struct p4_worker *)worker)->scratch;
}

/* Tracks a well-formed packet. */
static void __attribute__((noinline, unused)) p4_track_packet(void *worker, uint32_t i, enum from_side from)
{
	const struct env *env = p4_env(worker);
	const struct weir_burst *burst = p4_burst(worker);
	const struct frame frame = burst_frame(burst, i);
	struct p4_flow *flow = p4_flow(worker);
	struct track *track = &flow->track;

	flow->now = track_time(env->flows.head, burst_time(burst, i));
	flow->is_tracked = true;
	flow->is_asked = false;
	track_keep(track);
	parse_packet(&frame, &flow->packet);
	track_read(env->flows.head, &frame, &flow->packet, from, track);
	if (track->subject < SUBJECT_TCP)
		return;
	if (track->subject == SUBJECT_TCP)
		read_segment(&frame, &flow->packet, &track->segment);
	track_find(env, track, flow->now);
	track_judge(env, track, flow->now);
	track_finish(env, track, flow->now);
}

WEIR_INLINE int p4_track(void *worker, void *mailbox)
{
	struct p4_track *mail = mailbox;
	const struct track *track = &p4_flow(worker)->track;

	p4_track_packet(worker, mail->packet, (enum from_side)mail->from);
	mail->state = track->state;
	mail->refused = track->state == STATE_INVALID ? track->refused : (uint16_t)REASON_NO_MATCH;
	return 1;
}

/*
 * Tracks a packet that is accepted and was not tracked before, and enters the flow that it opens. Returns false for
 * packets that are not accepted.
 */
WEIR_INLINE bool p4_follow(void *worker, const struct p4_tracked *mail)
{
	struct p4_flow *flow = p4_flow(worker);
	const bool is_accepted = is_tracked_late((uint32_t)mail->action | (uint32_t)mail->reason << 16);

	if (is_accepted) {
		if (!flow->is_tracked)
			p4_track_packet(worker, mail->packet, (enum from_side)mail->from);
		if (flow->track.opens != PLACE_FULL)
			track_open(p4_env(worker), &flow->track);
	}
	flow->is_tracked = false;
	return is_accepted;
}

WEIR_INLINE int p4_tracked(void *worker, const void *mailbox)
{
	p4_follow(worker, mailbox);
	return 1;
}

#endif
