/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What fuzzing the SYN proxy adds: its settings, packets of connections through it, and what holds of packets that
 * leave in place of others. Without WEIR_REWRITES it adds nothing.
 */
#ifndef C_TRACKER_PROXIED_H
#define C_TRACKER_PROXIED_H

#include "invariants.h"
#include "packets.h"

enum { PROXIED_FLOWS = 5 * FLOW_ENTRIES };

#ifdef WEIR_REWRITES

/* Beside a table of flows, and what leaves. */
struct proxied {
	struct flow_proxied flows[PROXIED_FLOWS];
	struct weir_rewrite rewrites[WEIR_BURST_MAX];
};

/* Kinds of packets, of 16, that are of connections through the proxy. */
static const uint32_t proxied_forms = 6;

/* Within a burst. The time of an answered SYN is known for 26 days (clock_at()). */
static const int64_t pause_max_ms = 3600000;

static struct flow_proxied *proxied_flows(struct proxied *proxied)
{
	return proxied->flows;
}

static struct weir_rewrite *proxied_rewrites(struct proxied *proxied, uint32_t from)
{
	return proxied->rewrites + from;
}

/* Three bytes. Returns whether a rule answers. */
static bool read_proxy(struct input *input, struct synproxy *proxy)
{
	static const uint16_t sizes[4] = {1460, 536, 1400, 65535};
	const uint8_t form = input_byte(input), on = input_byte(input), calm_s = input_byte(input);

	*proxy = (struct synproxy){
		.threshold = {.is_set = form >> 7, .on = on, .off = on / 2, .calm_s = calm_s},
		.mss = sizes[form >> 5 & 3],
		.scale = form >> 4 & 1 ? SCALE_NONE : form % 15,
		.sack = on & 1,
		.timestamp = calm_s & 1,
	};
	return (form & 15) != 15;
}

/* A connection through the proxy has these numbers. */
enum { CLIENT_ISN = 1000, SERVER_ISN = 5000 };

/* The cookie for the packet's flow, whose client sends it. */
static uint32_t cookie_for(const struct flow_head *head, const struct draft *draft, uint32_t link, uint32_t epoch,
			   uint32_t mss_index)
{
	const struct weir_frame whole = {.data = draft->bytes, .cap = draft->length, .len = draft->length};
	const struct weir_burst burst = {.frames = &whole, .count = 1, .link = link};
	const struct frame frame = burst_frame(&burst, 0);
	struct packet packet;
	struct track track;
	struct cookie_request request;

	if (parse_packet(&frame, &packet) != REASON_NONE)
		return 0;
	track_read(head, &frame, &packet, FROM_OUTSIDE, &track);
	if (track.subject != SUBJECT_TCP)
		return 0;
	request = (struct cookie_request){.key = track.key, .client = track.sender, .isn = CLIENT_ISN};
	return cookie_make(head->cookie_secret, &request, epoch, mss_index);
}

static void put_number(struct draft *draft, uint32_t at, uint32_t number)
{
	if (at + 4 <= draft->length)
		for (uint32_t i = 0; i < 4; i++)
			draft->bytes[at + i] = (uint8_t)(number >> (24 - 8 * i));
}

/*
 * A segment of a connection through the proxy: flow, flags, kind of options and payload, how far its numbers are from
 * the expected ones, options. The client acknowledges a cookie of this epoch or the one before.
 */
static void put_proxied(struct draft *draft, struct input *input, const struct flow_head *head, uint32_t link,
			uint64_t time_ns)
{
	static const uint8_t kinds[8] = {TCP_SYN,	    TCP_ACK, TCP_ACK,		TCP_ACK | TCP_SYN,
					 TCP_ACK | TCP_FIN, TCP_RST, TCP_RST | TCP_ACK, TCP_ACK | 8};
	struct flow_of flow = input_flow(input);
	const uint8_t kind = input_byte(input), form = input_byte(input);
	const int8_t seq_off = (int8_t)input_byte(input), ack_off = (int8_t)input_byte(input);
	const bool has_syn = kinds[kind & 7] & TCP_SYN;
	const uint32_t epoch = cookie_epoch(time_ns) - (kind >> 3 & 1);
	struct draft transport = {.length = 0};
	uint32_t seq = (flow.is_reply ? SERVER_ISN : CLIENT_ISN) + !has_syn, ack = CLIENT_ISN + 1, start;

	flow.protocol = PROTO_TCP;
	put_ports(&transport, &flow);
	put(&transport, 0, 8);
	put(&transport, 0x50, 1);
	put(&transport, kinds[kind & 7], 1);
	put(&transport, UINT64_C(0x40000000) << 16, 6);
	put_options(&transport, input, form & 7);
	transport.bytes[12] = (uint8_t)(transport.length / 4 << 4);
	for (uint32_t i = 0; i < (form >> 3 & 7) * 9u; i++)
		put(&transport, i, 1);
	put_link(draft, link, flow.is_ipv6 ? ETHER_IPV6 : ETHER_IPV4, kind >> 4);
	put_ip(draft, &flow, transport.length, 0);
	start = draft->length;
	for (uint32_t i = 0; i < transport.length; i++)
		put(draft, transport.bytes[i], 1);
	if (!flow.is_reply)
		ack = cookie_for(head, draft, link, epoch, form >> 6) + 1;
	put_number(draft, start + 4, seq + (uint32_t)(int32_t)seq_off);
	put_number(draft, start + 8, ack + (uint32_t)(int32_t)ack_off);
}

static uint32_t sum_of(const uint8_t *bytes, uint32_t count)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < count; i++)
		sum += (uint32_t)bytes[i] << (i & 1 ? 0 : 8);
	return sum;
}

/* Checks a segment that was made anew: it can be parsed, it is nothing but headers, and its checksum is right. */
static void check_built(const struct weir_rewrite *rewrite, uint32_t link)
{
	const struct weir_frame whole = {.data = rewrite->bytes, .cap = rewrite->head, .len = rewrite->len};
	const struct weir_burst burst = {.frames = &whole, .count = 1, .link = link};
	const struct frame frame = burst_frame(&burst, 0);
	struct packet packet;
	uint32_t sum, segment;

	check(parse_packet(&frame, &packet) == REASON_NONE && packet.l4 == L4_TCP, "a new segment is well-formed");
	segment = rewrite->head - packet.l4_offset;
	check(segment - packet.doff * 4 <= 1, "a new segment has an octet of data at most");
	sum = sum_of(rewrite->bytes + packet.l4_offset, segment) + PROTO_TCP + segment + sum_of_addresses(&packet);
	check(sum_folded(sum_folded(sum)) == 0xffff, "a new segment has the right checksum");
}

/* Checks what leaves in place of a packet. */
static void check_rewritten(const struct proxied *proxied, const struct weir_frame *frame, uint32_t link, uint32_t i,
			    uint32_t verdict)
{
	const struct weir_rewrite *rewrite = &proxied->rewrites[i];
	const uint32_t action = verdict & 0xff;

	check((action == ACTION_REPLY) <= !!(verdict & VERDICT_REWRITTEN), "an answer is a new packet");
	if (!(verdict & VERDICT_REWRITTEN))
		return;
	check(action == ACTION_REPLY || action == ACTION_ACCEPT, "only packets that leave are rewritten");
	check(rewrite->head <= REWRITE_BYTES && rewrite->head <= rewrite->len, "the new bytes have room");
	if (rewrite->head == rewrite->len && !rewrite->checksum_at && rewrite->len != frame->len)
		check_built(rewrite, link);
	else
		check(rewrite->len == frame->len || rewrite->head == rewrite->len,
		      "a translated packet keeps its length");
	check(!rewrite->checksum_at || rewrite->checksum_at + 2 <= rewrite->head, "the checksum is in the new bytes");
	check(rewrite->head <= frame->cap || rewrite->head == rewrite->len, "what follows was received");
}

/* Whether both rewrote the packets alike and keep the same of proxied flows. */
static bool same_proxied(const struct proxied *a, const struct proxied *b, const uint32_t *verdicts, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct weir_rewrite *one = &a->rewrites[i], *other = &b->rewrites[i];

		if (!(verdicts[i] & VERDICT_REWRITTEN))
			continue;
		if (one->len != other->len || one->head != other->head || one->checksum_at != other->checksum_at ||
		    memcmp(one->bytes, other->bytes, one->head))
			return false;
	}
	return !memcmp(a->flows, b->flows, sizeof(a->flows));
}

#else

struct proxied {
	char none;
};

static const uint32_t proxied_forms = 0;
static const int64_t pause_max_ms = INT64_MAX;

static struct flow_proxied *proxied_flows(struct proxied *proxied)
{
	(void)proxied;
	return NULL;
}

static struct weir_rewrite *proxied_rewrites(struct proxied *proxied, uint32_t from)
{
	(void)proxied;
	(void)from;
	return NULL;
}

static bool read_proxy(struct input *input, struct synproxy *proxy)
{
	(void)input;
	(void)proxy;
	return false;
}

static void put_proxied(struct draft *draft, struct input *input, const struct flow_head *head, uint32_t link,
			uint64_t time_ns)
{
	(void)draft;
	(void)input;
	(void)head;
	(void)link;
	(void)time_ns;
}

static void check_rewritten(const struct proxied *proxied, const struct weir_frame *frame, uint32_t link, uint32_t i,
			    uint32_t verdict)
{
	(void)proxied;
	(void)frame;
	(void)link;
	(void)i;
	check(!(verdict & VERDICT_REWRITTEN), "nothing is rewritten");
}

static bool same_proxied(const struct proxied *a, const struct proxied *b, const uint32_t *verdicts, uint32_t count)
{
	(void)a;
	(void)b;
	(void)verdicts;
	(void)count;
	return true;
}

#endif
#endif
