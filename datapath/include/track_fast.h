/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The common case: an ACK of an established connection whose numbers are between what was acknowledged and what may be
 * sent. It fulfils all bounds and changes three words, so most of the tracker is not needed. Everything else takes the
 * long way (tracker.h), with the same result where both apply.
 */
#ifndef WEIR_TRACK_FAST_H
#define WEIR_TRACK_FAST_H

#include "track_subject.h"

/* Half of a word of an entry. */
typedef uint32_t flow_half __attribute__((may_alias));

#define STATUS_TIME_MASK ((uint64_t)(FLOW_TICKS - 1))

/* The fields of the status word that tell whether the common case applies, and their values then. */
#define FAST_MASK                                                                                                      \
	((uint64_t)(FLOW_STATES - 1) << STATUS_STATE | UINT64_C(1) << STATUS_LIBERAL | UINT64_C(1) << STATUS_REPLIED | \
	 UINT64_C(1) << STATUS_SYN | UINT64_C(1) << STATUS_PROXIED)
#define FAST_STATUS ((uint64_t)FLOW_ESTABLISHED << STATUS_STATE | UINT64_C(1) << STATUS_REPLIED)

/* Whether the packet is an ACK without SYN, FIN and RST. */
WEIR_INLINE bool is_plain_ack(packet_view *packet)
{
	return (packet->tcp_flags & (TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK)) == TCP_ACK;
}

/* flow_expired() of an established TCP connection. Of other flows it says nothing, but track_fast() refuses them. */
WEIR_INLINE bool established_expired(const uint64_t *entry, const struct flow_timeouts *timeouts, uint32_t now)
{
	const uint32_t age = flow_age(now, status_time(entry[FLOW_STATUS]));

	if (age > timeouts->of[CLASS_TCP * FLOW_STATES + FLOW_ESTABLISHED])
		return true;
	return WEIR_UNLIKELY(age > timeouts->unacknowledged) && entry[FLOW_KEY_WORDS] != entry[FLOW_KEY_WORDS + 1];
}

/*
 * Tracks a plain ACK of the flow in an entry, whose lock is held if others use the table, and releases it. Its options
 * say nothing of selective acknowledgements, and the flow has not expired. Returns false, and changes nothing, if this
 * is not the common case.
 */
WEIR_INLINE bool track_fast(uint64_t *entry, packet_view *packet, uint32_t sender, uint32_t now)
{
	const uint64_t status = entry[FLOW_STATUS];
	const uint32_t receiver = 1 - sender;
	/* Side 0 has the upper half of each word. */
	const uint32_t mine = receiver, theirs = sender;
	flow_half *una = (flow_half *)&entry[FLOW_KEY_WORDS], *next = (flow_half *)&entry[FLOW_KEY_WORDS + 1];
	const uint32_t own_window = status >> (STATUS_WINDOW + 8 * sender) & 0xff;
	const uint32_t window = status >> (STATUS_WINDOW + 8 * receiver) & 0xff;
	const uint32_t scale = status >> (STATUS_SCALE + 4 * sender) & 0xf;
	const uint32_t seq = packet->seq, ack = packet->ack;
	const uint32_t end = seq + packet->l4_length - (uint32_t)packet->doff * 4;

	if ((status & FAST_MASK) != FAST_STATUS || own_window == WINDOW_NONE)
		return false;
	if (seq - una[mine] > window_bytes(window) || ack - una[theirs] > next[theirs] - una[theirs])
		return false;
	/* A larger window than before. */
	if ((uint32_t)packet->window << scale > window_bytes(own_window))
		return false;
	next[mine] = seq_max(end, next[mine]);
	una[theirs] = ack;
	*(volatile uint64_t *)&entry[FLOW_STATUS] = (status & ~(STATUS_TIME_MASK | FLOW_LOCK)) | now;
	return true;
}

#endif
