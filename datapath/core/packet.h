/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Parses a frame: Ethernet, 802.1Q and QinQ, IPv4, IPv6 with extension headers, TCP, UDP, ICMP.
 *
 * parse_packet() reads every header through frame_at() and copies the fields that rules can match. It returns
 * REASON_NONE if the rules decide the packet, otherwise the reason for its verdict. Lengths are compared with the wire
 * length, reads with the captured length. It never verifies checksums, reassembles fragments or reads payload. The
 * reference in Rust is crates/policy/src/ir/eval/packet.rs.
 */
#ifndef WEIR_CORE_PACKET_H
#define WEIR_CORE_PACKET_H

#include "core/env.h"
#include "core/fields.h"
#include "core/plain.h"
#include "core/verdict.h"

/* Skips the link header. Finds the EtherType and the offset of the network header, or returns a reason. */
WEIR_INLINE enum reason parse_link(const struct frame *frame, uint32_t *ether_type, uint32_t *offset)
{
	const uint8_t *at;

	switch (frame->link) {
	case LINK_ETHERNET:
		at = frame_at(frame, 0, ETHERNET_BYTES);
		*offset = ETHERNET_BYTES;
		*ether_type = at ? be16(at + 12) : 0;
		break;
	case LINK_COOKED:
		at = frame_at(frame, 0, 16);
		*offset = 16;
		*ether_type = at ? be16(at + 14) : 0;
		break;
	case LINK_COOKED2:
		at = frame_at(frame, 0, 20);
		*offset = 20;
		*ether_type = at ? be16(at) : 0;
		break;
	default:
		at = frame_at(frame, 0, 1);
		*offset = 0;
		*ether_type = !at ? 0 : at[0] >> 4 == 4 ? ETHER_IPV4 : at[0] >> 4 == 6 ? ETHER_IPV6 : 0;
		break;
	}
	return at ? REASON_NONE : REASON_MALFORMED_LINK;
}

WEIR_INLINE bool is_vlan(uint32_t ether_type)
{
	return ether_type == ETHER_VLAN || ether_type == ETHER_QINQ || ether_type == ETHER_QINQ_OLD;
}

/* IEEE 802.1Q: up to two tags. A third one stays, as an EtherType that is not IP. */
WEIR_INLINE enum reason parse_vlan(const struct frame *frame, struct packet *packet, uint32_t *ether_type,
				   uint32_t *offset)
{
	for (uint32_t tag = 0; tag < VLAN_TAGS_MAX && is_vlan(*ether_type); tag++) {
		const uint8_t *at = frame_at(frame, *offset, 4);

		if (!at)
			return REASON_MALFORMED_VLAN;
		if (tag == 0) {
			packet->vlan_id = be16(at) & 0xfff;
			packet->vlan_pcp = at[0] >> 5;
		} else {
			packet->inner_vlan_id = be16(at) & 0xfff;
		}
		packet->vlan_tags++;
		*ether_type = be16(at + 2);
		*offset += 4;
	}
	return REASON_NONE;
}

/* Sets the offset of the transport header, and the length from there to the end of the IP packet. */
WEIR_INLINE void set_transport(struct packet *packet, uint32_t offset, uint32_t end)
{
	packet->l4_offset = (uint16_t)offset;
	packet->l4_length = (uint16_t)(end - offset);
}

WEIR_INLINE enum reason parse_tcp(const struct frame *frame, struct packet *packet)
{
	const uint8_t *at = packet->l4_length < 20 ? NULL : frame_at(frame, packet->l4_offset, 20);

	if (!at)
		return REASON_MALFORMED_TCP;
	packet->l4 = L4_TCP;
	packet->sport = be16(at);
	packet->dport = be16(at + 2);
	packet->seq = be32(at + 4);
	packet->ack = be32(at + 8);
	packet->doff = at[12] >> 4;
	packet->tcp_flags = at[13];
	packet->window = be16(at + 14);
	return packet->doff < 5 || packet->doff * 4 > packet->l4_length ? REASON_MALFORMED_TCP : REASON_NONE;
}

/* The UDP length in a first fragment is the length of the whole datagram. */
WEIR_INLINE enum reason parse_udp(const struct frame *frame, struct packet *packet)
{
	const uint8_t *at = packet->l4_length < 8 ? NULL : frame_at(frame, packet->l4_offset, 8);

	if (!at)
		return REASON_MALFORMED_UDP;
	packet->l4 = L4_UDP;
	packet->sport = be16(at);
	packet->dport = be16(at + 2);
	packet->window = be16(at + 4);
	if (packet->window < 8 || (packet->window > packet->l4_length && packet->fragment == FRAGMENT_NONE))
		return REASON_MALFORMED_UDP;
	return REASON_NONE;
}

WEIR_INLINE enum reason parse_icmp(const struct frame *frame, struct packet *packet, enum l4 l4)
{
	const uint8_t *at = packet->l4_length < 8 ? NULL : frame_at(frame, packet->l4_offset, 8);

	if (!at)
		return REASON_MALFORMED_ICMP;
	packet->l4 = l4;
	packet->icmp_type = at[0];
	packet->icmp_code = at[1];
	return REASON_NONE;
}

/* SCTP (RFC 9260), DCCP (RFC 4340), UDP-Lite (RFC 3828) all start with the two ports. */
WEIR_INLINE enum reason parse_ports(const struct frame *frame, struct packet *packet)
{
	const uint8_t *at = packet->l4_length < 8 ? NULL : frame_at(frame, packet->l4_offset, 8);

	if (!at)
		return REASON_MALFORMED_TRANSPORT;
	packet->l4 = L4_PORTS;
	packet->sport = be16(at);
	packet->dport = be16(at + 2);
	return REASON_NONE;
}

WEIR_INLINE enum reason parse_transport(const struct frame *frame, struct packet *packet)
{
	if (packet->fragment == FRAGMENT_LATER)
		return REASON_NONE;
	switch (packet->proto) {
	case PROTO_TCP:
		return parse_tcp(frame, packet);
	case PROTO_UDP:
		return parse_udp(frame, packet);
	case PROTO_SCTP:
	case PROTO_DCCP:
	case PROTO_UDPLITE:
		return parse_ports(frame, packet);
	case PROTO_ICMP:
		if (packet->l3 == L3_IPV4)
			return parse_icmp(frame, packet, L4_ICMP);
		break;
	case PROTO_ICMP6:
		if (packet->l3 == L3_IPV6)
			return parse_icmp(frame, packet, L4_ICMP6);
		break;
	case PROTO_ESP:
	case PROTO_NONE:
		return REASON_NONE;
	default:
		break;
	}
	packet->l4 = L4_OTHER;
	return REASON_NONE;
}

/*
 * RFC 791: all fragments but the last carry a multiple of 8 bytes, and none ends beyond 65535. RFC 1858 and 3128: a TCP
 * fragment at offset 8 has no use but to overwrite the flags. `units` is the offset in 8 bytes, `payload` the number of
 * bytes carried.
 */
WEIR_INLINE enum reason check_fragment(struct packet *packet, uint32_t units, bool more, uint32_t payload)
{
	if (!units && !more)
		return REASON_NONE;
	packet->fragment = units ? FRAGMENT_LATER : FRAGMENT_FIRST;
	if ((more && (payload % 8 || !payload)) || units * 8 + payload > 65535)
		return REASON_MALFORMED_FRAGMENT;
	return units == 1 && packet->proto == PROTO_TCP ? REASON_MALFORMED_FRAGMENT : REASON_NONE;
}

/* What determines how an IPv4 packet is read; a constant for plain packets. */
struct ipv4_shape {
	uint32_t header;   /* bytes, from the header */
	uint32_t frag_off; /* flags and offset */
};

/* The IPv4 packet at `offset`, whose first 20 bytes are at `at`. */
WEIR_INLINE enum reason parse_ipv4_at(const struct frame *frame, struct packet *packet, uint32_t offset,
				      const uint8_t *at, struct ipv4_shape shape)
{
	enum reason reason;
	uint32_t end;

	packet->l3 = L3_IPV4;
	packet->hdrlength = (uint8_t)(shape.header / 4);
	packet->tos = at[1];
	packet->ip_length = be16(at + 2);
	packet->ip_id = be16(at + 4);
	packet->frag_off = (uint16_t)shape.frag_off;
	packet->ttl = at[8];
	packet->proto = at[9];
	packet->next_header = at[9];
	packet->saddr = be32(at + 12);
	packet->daddr = be32(at + 16);
	end = offset + packet->ip_length;
	if (shape.header < 20 || packet->ip_length < shape.header || end > frame->len)
		return REASON_MALFORMED_IPV4;
	if (shape.header > 20) {
		if (!frame_has(frame, offset + shape.header))
			return REASON_MALFORMED_IPV4;
		packet->flags |= FLAG_IP_OPTIONS;
	}
	set_transport(packet, offset + shape.header, end);
	reason = check_fragment(packet, shape.frag_off & 0x1fff, shape.frag_off & 0x2000, packet->l4_length);
	return reason == REASON_NONE ? parse_transport(frame, packet) : reason;
}

WEIR_INLINE enum reason parse_ipv4(const struct frame *frame, struct packet *packet, uint32_t offset)
{
	const uint8_t *at = frame_at(frame, offset, 20);

	if (!at || at[0] >> 4 != 4)
		return REASON_MALFORMED_IPV4;
	return parse_ipv4_at(frame, packet, offset, at,
			     (struct ipv4_shape){.header = (at[0] & 0xf) * 4, .frag_off = be16(at + 6)});
}

/* The bit of an extension header that the parser skips, 0 for everything else. */
WEIR_INLINE uint8_t ext_bit(uint32_t proto)
{
	switch (proto) {
	case PROTO_HBH:
		return EXT_HBH;
	case PROTO_RT:
		return EXT_RT;
	case PROTO_FRAG:
		return EXT_FRAG;
	case PROTO_DST:
		return EXT_DST;
	case PROTO_AH:
		return EXT_AH;
	case PROTO_MH:
		return EXT_MH;
	default:
		return 0;
	}
}

/* Bytes of an extension header: RFC 8200 sections 4.3 to 4.6, RFC 4302 (AH counts 4-byte words, less 2). */
WEIR_INLINE uint32_t ext_bytes(uint8_t bit, uint8_t length)
{
	if (bit == EXT_FRAG)
		return 8;
	return bit == EXT_AH ? (length + 2) * 4 : (length + 1) * 8;
}

/*
 * RFC 8200: the chain of extension headers up to the transport header or a later fragment. A hop-by-hop header comes
 * first or not at all. Each header lies entirely inside the packet and the window.
 */
WEIR_INLINE enum reason parse_ext(const struct frame *frame, struct packet *packet, uint32_t offset, uint32_t end)
{
	enum reason reason;

	for (uint32_t i = 0; i < EXT_HEADERS_MAX; i++) {
		uint8_t bit = (uint8_t)forget(ext_bit(forget(packet->proto)));
		const uint8_t *at;
		uint32_t bytes;

		if (!bit || packet->fragment == FRAGMENT_LATER)
			break;
		at = offset + 8 > end ? NULL : frame_at(frame, offset, 8);
		if (!at || (bit == EXT_HBH && i > 0))
			return REASON_MALFORMED_IPV6_EXT;
		bytes = ext_bytes(bit, at[1]);
		if (offset + bytes > end || !frame_has(frame, offset + bytes))
			return REASON_MALFORMED_IPV6_EXT;
		packet->ext = (uint8_t)forget(packet->ext | bit);
		packet->proto = at[0];
		offset = forget(offset + bytes);
		if (bit == EXT_FRAG) {
			packet->frag_off = be16(at + 2);
			reason = check_fragment(packet, packet->frag_off >> 3, packet->frag_off & 1, end - offset);
			if (reason != REASON_NONE)
				return reason;
		}
	}
	if (packet->ext & EXT_HBH)
		packet->flags |= FLAG_IP_OPTIONS;
	set_transport(packet, offset, end);
	if (packet->fragment != FRAGMENT_LATER && ext_bit(packet->proto))
		return REASON_MALFORMED_IPV6_EXT;
	return parse_transport(frame, packet);
}

WEIR_INLINE enum reason parse_ipv6(const struct frame *frame, struct packet *packet, uint32_t offset)
{
	const uint8_t *at = frame_at(frame, offset, 40);
	uint32_t end;

	if (!at || at[0] >> 4 != 6)
		return REASON_MALFORMED_IPV6;
	packet->l3 = L3_IPV6;
	packet->tos = (uint8_t)(be16(at) >> 4);
	packet->ip_length = be16(at + 4);
	packet->proto = at[6];
	packet->next_header = at[6];
	packet->ttl = at[7];
	packet->saddr6 = (struct wide){be64(at + 8), be64(at + 16)};
	packet->daddr6 = (struct wide){be64(at + 24), be64(at + 32)};
	end = offset + 40 + packet->ip_length;
	if (end > frame->len)
		return REASON_MALFORMED_IPV6;
	return parse_ext(frame, packet, offset + 40, end);
}

/*
 * The kind of almost every frame: Ethernet without tags, IPv4 without options, no fragment, with room for a TCP header.
 * This test comes first and decides most later tests of the parser, so compilers leave those out. `at` has PLAIN_BYTES,
 * or is NULL.
 */
WEIR_INLINE bool is_plain(const uint8_t *at)
{
	return at && be16(at + 12) == ETHER_IPV4 && at[14] == 0x45 && !(be16(at + 20) & 0x3fff);
}

/* The first PLAIN_BYTES of a plain frame; NULL if the frame is not plain. */
WEIR_INLINE const uint8_t *plain_frame(const struct frame *frame)
{
	const uint8_t *at = frame->link == LINK_ETHERNET ? frame_start(frame, PLAIN_BYTES) : NULL;

	return is_plain(at) ? at : NULL;
}

/* Parses a plain frame at `at`, with the result of parse_packet(). All headers are in its first buffer. */
WEIR_INLINE enum reason parse_plain(const struct frame *frame, struct packet *packet, const uint8_t *at)
{
	const struct ipv4_shape shape = {.header = 20, .frag_off = be16(at + 20) & 0xc000};
	struct frame first = *frame;

	first.ctx = NULL;
#ifdef WEIR_SENT
	first.tagged = false;
#endif
	*packet = (struct packet){.data = frame->data, .cap = frame->cap, .len = frame->len};
	packet->ether_type = ETHER_IPV4;
	packet->l3_offset = ETHERNET_BYTES;
	return parse_ipv4_at(&first, packet, ETHERNET_BYTES, at + ETHERNET_BYTES, shape);
}

/* Parses any frame, with the result of parse_packet(). */
WEIR_INLINE enum reason parse_any(const struct frame *frame, struct packet *packet)
{
	uint32_t ether_type, offset;
	enum reason reason;
	struct frame again;

	*packet = (struct packet){.data = frame->data, .cap = frame->cap, .len = frame->len};
	reason = parse_link(frame, &ether_type, &offset);
	if (reason != REASON_NONE)
		return reason;
	if (frame->link != LINK_RAW_IP) {
		reason = parse_vlan(frame, packet, &ether_type, &offset);
		if (reason != REASON_NONE)
			return reason;
	}
	packet->ether_type = (uint16_t)ether_type;
	packet->l3_offset = (uint16_t)offset;
	/* What follows is the same to the verifier, whichever headers came before. */
	again = frame_again(frame);
	offset = forget(offset);
	switch (ether_type) {
	case ETHER_IPV4:
		return parse_ipv4(&again, packet, offset);
	case ETHER_IPV6:
		return parse_ipv6(&again, packet, offset);
	case ETHER_ARP:
		packet->l3 = L3_ARP;
		return REASON_NONE;
	default:
		return REASON_NONE;
	}
}

/*
 * Parses the frame into `*packet`. Returns REASON_NONE if the rules decide it, otherwise the reason for its verdict. A
 * frame that is not IP also gives REASON_NONE: see l3.
 */
WEIR_INLINE enum reason parse_packet(const struct frame *frame, struct packet *packet)
{
	const uint8_t *at;

	if (parse_usual(frame, packet))
		return REASON_NONE;
	at = plain_frame(frame);
	return at ? parse_plain(frame, packet, at) : parse_any(frame, packet);
}

#ifdef WEIR_BURSTS

/* parse_packet() as a call, for packets that are parsed again. */
WEIR_NOINLINE enum reason parse_again(const struct frame *frame, struct packet *packet)
{
	return parse_packet(frame, packet);
}

#endif

#endif
