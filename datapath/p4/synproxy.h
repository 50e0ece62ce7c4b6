/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The extern objects of a policy with a SYN proxy: `synproxy` answers SYNs of a rule, `left` follows the verdict in
 * place of `tracked` (p4/track.h) and makes what leaves in place of the packet. Such a pipeline has no controller.
 */
#ifndef WEIR_P4_SYNPROXY_H
#define WEIR_P4_SYNPROXY_H

#include "p4/track.h"
#include "proxy/rewrite.h"

struct p4_synproxy {
	uint32_t packet;
	uint8_t answered;
} P4_MAILBOX;

struct p4_left {
	struct p4_tracked tracked;
	uint8_t rewritten;
} P4_MAILBOX;

/* Answers a packet that asks to open a connection, if the proxy is on. It counts the packet only once. */
WEIR_INLINE int p4_synproxy(void *worker, void *mailbox)
{
	struct p4_synproxy *mail = mailbox;
	struct p4_flow *flow = p4_flow(worker, mail->packet);

	mail->answered = 0;
	if (flow->is_asked || !asks_to_open(&flow->track))
		return 1;
	flow->is_asked = true;
	mail->answered = answer(p4_env(worker), &flow->track, burst_time(p4_burst(worker), mail->packet));
	return 1;
}

WEIR_INLINE int p4_left(void *worker, void *mailbox)
{
	struct p4_left *mail = mailbox;
	const struct weir_burst *burst = p4_burst(worker);
	const uint32_t i = mail->tracked.packet, action = mail->tracked.action;
	struct p4_flow *flow = p4_flow(worker, i);
	const bool leaves = p4_follow(worker, &mail->tracked) == P4_ACCEPTED || action == ACTION_REPLY;

	mail->rewritten = leaves && flow->track.edit.kind != EDIT_NONE;
	if (mail->rewritten) {
		const struct frame frame = burst_frame(burst, i);

		rewrite_packet(&frame, &flow->packet, &flow->track.edit, flow->track.segment.end,
			       &burst->rewrites.packets[i]);
	}
	return 1;
}

#endif
