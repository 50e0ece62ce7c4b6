/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The common case: an ACK of an established connection whose numbers are between what was acknowledged and what may be
 * sent. It fulfils all bounds and changes three words, so most of the tracker is not needed. Everything else takes the
 * long way (track/tracker.h), with the same result where both apply.
 */
#ifndef WEIR_TRACK_FAST_H
#define WEIR_TRACK_FAST_H

#include "track/subject.h"

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

/*
 * Whether the last packet of an established TCP connection was so long ago that the connection may have expired, or
 * another CPU has written a later time.
 */
WEIR_INLINE bool is_old(uint64_t status, const struct flow_timeouts *timeouts, uint32_t now)
{
	const uint32_t established = timeouts->of[CLASS_TCP * FLOW_STATES + FLOW_ESTABLISHED];
	const uint32_t unacknowledged = timeouts->unacknowledged;

	return ((now - (uint32_t)status) & STATUS_TIME_MASK) >
	       (established < unacknowledged ? established : unacknowledged);
}

/*
 * Where the fields of almost all packets are: TCP over IPv4 without options, over Ethernet without tags. Such an
 * acknowledgement need not be parsed for the tracker.
 */
enum {
	ACK_ETHER_TYPE = 12,
	ACK_IP = ETHERNET_BYTES,
	ACK_IP_LENGTH = ACK_IP + 2,
	ACK_FRAGMENT = ACK_IP + 6,
	ACK_SOURCE = ACK_IP + 12,
	ACK_DESTINATION = ACK_IP + 16,
	ACK_TCP = ACK_IP + 20,
	ACK_SEQ = ACK_TCP + 4,
	ACK_ACK = ACK_TCP + 8,
	ACK_OFFSET = ACK_TCP + 12, /* flags and window follow */
	ACK_FLAGS = ACK_OFFSET + 1,
	ACK_OPTIONS = ACK_TCP + TCP_HEADER_BYTES,
};

_Static_assert((int)ACK_OPTIONS == (int)PLAIN_BYTES, "what plain_frame() reads");

/* Whether a well-formed frame of Ethernet, whose first PLAIN_BYTES are here, is a segment with such headers. */
WEIR_INLINE bool is_segment_frame(const uint8_t *at)
{
	return !((be32(at + ACK_ETHER_TYPE) >> 8 ^ (ETHER_IPV4 << 8 | 0x45)) |
		 ((be32(at + ACK_FRAGMENT) & 0x3fff00ff) ^ PROTO_TCP));
}

/*
 * Whether a well-formed frame of Ethernet, whose first PLAIN_BYTES are here, is such an acknowledgement, without SYN,
 * FIN and RST, and without options but timestamps.
 */
WEIR_INLINE bool is_ack_frame(const struct frame *frame, const uint8_t *at)
{
	const uint32_t flags = TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK;
	const uint32_t header = (at[ACK_OFFSET] >> 4) * 4u;

	if ((be32(at + ACK_ETHER_TYPE) >> 8 ^ (ETHER_IPV4 << 8 | 0x45)) |
	    ((be32(at + ACK_FRAGMENT) & 0x3fff00ff) ^ PROTO_TCP) | ((be32(at + ACK_OFFSET) >> 16 & flags) ^ TCP_ACK))
		return false;
	if (header == TCP_HEADER_BYTES)
		return true;
	at = frame_start(frame, ACK_OPTIONS + 4);
	return header == TCP_HEADER_BYTES + TIMESTAMPS_BYTES && at && be32(at + ACK_OPTIONS) == OPTIONS_TIMESTAMPS;
}

/* The start of a well-formed frame if it is such an acknowledgement; else NULL. */
WEIR_INLINE const uint8_t *ack_frame(const struct frame *frame)
{
	const uint8_t *at = frame->link == LINK_ETHERNET ? frame_start(frame, PLAIN_BYTES) : NULL;

	return at && is_ack_frame(frame, at) ? at : NULL;
}

/* Bytes of the headers of such a frame, without Ethernet. */
WEIR_INLINE uint32_t ack_headers(const uint8_t *at)
{
	return ACK_TCP - ACK_IP + (at[ACK_OFFSET] >> 4) * 4u;
}

/* What is read of a plain ACK. */
struct fast_ack {
	uint32_t seq;
	uint32_t end; /* the sequence number behind the segment */
	uint32_t ack;
	uint32_t window; /* as written */
};

WEIR_INLINE struct fast_ack read_fast_ack(packet_view *packet)
{
	return (struct fast_ack){
		.seq = packet->seq,
		.end = packet->seq + packet->l4_length - (uint32_t)packet->doff * 4,
		.ack = packet->ack,
		.window = packet->window,
	};
}

/* Reads these fields of a frame with a plain ACK and `bytes` of payload. */
WEIR_INLINE struct fast_ack read_ack_frame(const uint8_t *at, uint32_t bytes)
{
	return (struct fast_ack){
		.seq = be32(at + ACK_SEQ),
		.end = be32(at + ACK_SEQ) + bytes,
		.ack = be32(at + ACK_ACK),
		.window = be32(at + ACK_OFFSET) & 0xffff,
	};
}

/*
 * Whether an entry has the key of such a frame: addresses, and the last word. That it is one of IPv4, whose other words
 * are 0, remains to be seen from its status word.
 */
WEIR_INLINE bool ack_entry_is(const uint64_t *entry, uint64_t first, uint64_t second, uint64_t ends)
{
	return !((entry[1] ^ first) | (entry[3] ^ second) | (entry[4] ^ ends));
}

/* window_bytes() of the eight windows with an exponent, and of those with this and the next three. */
#define FAST_WINDOWS(shift)                                                                                            \
	UINT32_C(8) << (shift), UINT32_C(9) << (shift), UINT32_C(10) << (shift), UINT32_C(11) << (shift),              \
		UINT32_C(12) << (shift), UINT32_C(13) << (shift), UINT32_C(14) << (shift), UINT32_C(15) << (shift)
#define FAST_WINDOWS4(shift)                                                                                           \
	FAST_WINDOWS(shift), FAST_WINDOWS((shift) + 1), FAST_WINDOWS((shift) + 2), FAST_WINDOWS((shift) + 3)

/* window_bytes() of every window up to WINDOW_MAX. */
static const uint32_t fast_windows[256] = {0,
					   1,
					   2,
					   3,
					   4,
					   5,
					   6,
					   7,
					   FAST_WINDOWS4(0),
					   FAST_WINDOWS4(4),
					   FAST_WINDOWS4(8),
					   FAST_WINDOWS4(12),
					   FAST_WINDOWS4(16),
					   FAST_WINDOWS4(20),
					   FAST_WINDOWS4(24)};

/*
 * Tracks a plain ACK of the flow in an entry, whose lock is held if others use the table, and releases it. Its options
 * say nothing of selective acknowledgements, and the flow has not expired. Returns false, and changes nothing, if this
 * is not the common case. The fields of the status word in `mask`, which has FAST_MASK, must equal the fields of
 * FAST_STATUS.
 */
WEIR_INLINE bool track_fast(uint64_t *entry, uint64_t mask, const struct fast_ack *segment, uint32_t sender,
			    uint32_t now)
{
	const uint64_t status = entry[FLOW_STATUS];
	const uint32_t receiver = 1 - sender;
	/* Side 0 has the upper half of each word. */
	const uint32_t mine = receiver, theirs = sender;
	flow_half *una = (flow_half *)&entry[FLOW_KEY_WORDS], *next = (flow_half *)&entry[FLOW_KEY_WORDS + 1];
	const uint32_t fields = (uint32_t)(status >> STATUS_WINDOW);
	const uint32_t own_window = fast_windows[bounded(fields >> 8 * sender & 0xff, 0xff)];
	const uint32_t window = fast_windows[bounded(fields >> 8 * receiver & 0xff, 0xff)];
	const uint32_t scale = fields >> (STATUS_SCALE - STATUS_WINDOW + 4 * sender) & 0xf;
	const uint32_t seq = segment->seq, ack = segment->ack;

	/* Half by half, because the constants are in the instructions then. */
	if ((status >> 32 & mask >> 32) != FAST_STATUS >> 32 || ((uint32_t)status & (uint32_t)mask) || !own_window)
		return false;
	if (seq - una[mine] > window || ack - una[theirs] > next[theirs] - una[theirs])
		return false;
	/* A larger window than before. */
	if (segment->window << scale > own_window)
		return false;
	una[theirs] = ack;
	if (seq_after(segment->end, next[mine]))
		next[mine] = segment->end;
	*(volatile uint64_t *)&entry[FLOW_STATUS] = (status & ~(STATUS_TIME_MASK | FLOW_LOCK)) | now;
	return true;
}

#endif
