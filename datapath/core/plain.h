/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Parses almost every packet in user space: TCP or UDP over IPv4 without options or over IPv6 without extension
 * headers, no fragment, well-formed, in Ethernet without tags. No branch depends on which of TCP and UDP it is, so a
 * mix of both mispredicts none. All other packets are parsed by core/packet.h, with the same result where both apply.
 * The kernel does without, because the verifier would follow both ways.
 */
#ifndef WEIR_CORE_PLAIN_H
#define WEIR_CORE_PLAIN_H

#include "core/env.h"
#include "core/fields.h"

#ifdef WEIR_BURSTS

enum {
	PLAIN_IP = ETHERNET_BYTES,
	PLAIN_IPV4_END = PLAIN_IP + 20,
	PLAIN_IPV6_END = PLAIN_IP + 40,
	PLAIN_TRANSPORT_BYTES = 20, /* of a frame with UDP, too */
};

/* Whether the transport protocol is TCP or UDP. The test of a bit needs no branch that tells them apart. */
WEIR_INLINE bool is_plain_protocol(uint32_t protocol)
{
	return protocol < 32 && ((1u << PROTO_TCP | 1u << PROTO_UDP) >> protocol & 1);
}

/*
 * Reads the header of TCP or UDP at `offset`. The IP packet ends `length` bytes behind it. Returns whether it is
 * well-formed.
 */
WEIR_INLINE bool parse_plain_transport(const struct frame *frame, struct packet *packet, uint32_t offset,
				       uint32_t length)
{
	const uint8_t *at = frame->data + offset;
	const uint32_t is_tcp = packet->proto == PROTO_TCP, of_tcp = 0 - is_tcp, of_udp = ~of_tcp;
	const uint32_t doff = at[12] >> 4, datagram = be16(at + 4);
	/* What the header says of its length, or of the datagram's. */
	const uint32_t said = is_tcp ? doff * 4 : datagram, least = is_tcp ? 20 : 8;

	packet->l4_offset = (uint16_t)offset;
	packet->l4_length = (uint16_t)length;
	packet->l4 = (uint8_t)(is_tcp ? L4_TCP : L4_UDP);
	packet->sport = be16(at);
	packet->dport = be16(at + 2);
	packet->seq = be32(at + 4) & of_tcp;
	packet->ack = be32(at + 8) & of_tcp;
	packet->doff = (uint8_t)(doff & of_tcp);
	packet->tcp_flags = (uint8_t)(at[13] & of_tcp);
	packet->window = (uint16_t)((be16(at + 14) & of_tcp) | (datagram & of_udp));
	return said >= least && said <= length;
}

/* The IPv4 packet of a frame that has PLAIN_BYTES. Returns false if it is not such a packet. */
WEIR_INLINE bool parse_plain_ipv4(const struct frame *frame, struct packet *packet)
{
	const uint8_t *at = frame->data + PLAIN_IP;
	/* If the packet is shorter than its header, the length behind it is larger than any frame. */
	const uint32_t bytes = be16(at + 2), length = bytes - 20, fragment = be16(at + 6);

	packet->ether_type = ETHER_IPV4;
	packet->l3_offset = PLAIN_IP;
	packet->l3 = L3_IPV4;
	packet->hdrlength = 5;
	packet->tos = at[1];
	packet->ip_length = (uint16_t)bytes;
	packet->ip_id = be16(at + 4);
	packet->frag_off = (uint16_t)fragment;
	packet->ttl = at[8];
	packet->proto = at[9];
	packet->next_header = at[9];
	packet->saddr = be32(at + 12);
	packet->daddr = be32(at + 16);
	return !(fragment & 0x3fff) && is_plain_protocol(at[9]) && length <= frame->len - PLAIN_IPV4_END &&
	       parse_plain_transport(frame, packet, PLAIN_IPV4_END, length);
}

/* The IPv6 packet of a frame that has PLAIN_TRANSPORT_BYTES behind PLAIN_IPV6_END. */
WEIR_INLINE bool parse_plain_ipv6(const struct frame *frame, struct packet *packet)
{
	const uint8_t *at = frame->data + PLAIN_IP;
	const uint32_t bytes = be16(at + 4);

	packet->ether_type = ETHER_IPV6;
	packet->l3_offset = PLAIN_IP;
	packet->l3 = L3_IPV6;
	packet->tos = (uint8_t)(be16(at) >> 4);
	packet->ip_length = (uint16_t)bytes;
	packet->proto = at[6];
	packet->next_header = at[6];
	packet->ttl = at[7];
	packet->saddr6 = (struct wide){be64(at + 8), be64(at + 16)};
	packet->daddr6 = (struct wide){be64(at + 24), be64(at + 32)};
	return at[0] >> 4 == 6 && is_plain_protocol(at[6]) && PLAIN_IPV6_END + bytes <= frame->len &&
	       parse_plain_transport(frame, packet, PLAIN_IPV6_END, bytes);
}

/* Parses a frame into `*packet` if it is such a packet. If not, returns false, and `*packet` is to be set anew. */
WEIR_INLINE bool parse_usual(const struct frame *frame, struct packet *packet)
{
	const uint8_t *at = frame->data;

	if (WEIR_UNLIKELY(frame->link != LINK_ETHERNET || !frame_has(frame, PLAIN_BYTES)))
		return false;
	*packet = (struct packet){.data = frame->data, .cap = frame->cap, .len = frame->len};
	if (be32(at + 12) >> 8 == (ETHER_IPV4 << 8 | 0x45))
		return parse_plain_ipv4(frame, packet);
	return be16(at + 12) == ETHER_IPV6 && frame_has(frame, PLAIN_IPV6_END + PLAIN_TRANSPORT_BYTES) &&
	       parse_plain_ipv6(frame, packet);
}

#else

WEIR_INLINE bool parse_usual(const struct frame *frame, struct packet *packet)
{
	(void)frame;
	(void)packet;
	return false;
}

#endif
#endif
