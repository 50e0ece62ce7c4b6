/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the tracker reads of a packet: the key of its flow, the side that sent it, and its segment.
 * docs/reference/tracking.md, crates/abi/src/flow/key.rs, and quote.rs and segment.rs in
 * crates/policy/src/ir/eval/tracking.
 */
#ifndef WEIR_TRACK_SUBJECT_H
#define WEIR_TRACK_SUBJECT_H

#include "proxy/edit.h"
#include "track/flow_table.h"
#include "core/packet.h"
#include "track/tcp_states.h"

/* The settings of the policy, which generated code defines. A program that changes them, such as a fuzz target, defines
 * WEIR_TRACKING. */
#ifndef WEIR_TRACKING
static const struct tracking tracking;
#endif

/* What the tracker does with a packet. */
enum subject {
	SUBJECT_NONE,	 /* it is not tracked */
	SUBJECT_REFUSED, /* it is refused without a lookup */
	SUBJECT_TCP,
	SUBJECT_REQUEST, /* of a protocol without connections; it may open a flow */
	SUBJECT_REPLY,	 /* the reply to an ICMP request; it opens none */
	SUBJECT_ERROR,	 /* an ICMP error, which belongs to the flow that it quotes */
};

/* A packet for the tracker, and what became of it. */
struct track {
	struct flow_key key;
	struct flow_hash hash;
	struct segment segment; /* of TCP; of an error `seq`, its offset as `end`, and `has_ack` if it quotes TCP */
	uint64_t words[FLOW_STATE_WORDS];
	struct flow_at at;
	uint8_t subject;
	uint8_t sender;	  /* enum from_side: the side from which it, or a packet that it quotes, arrived */
	uint8_t state;	  /* enum packet_state, once it is tracked */
	uint8_t refused;  /* enum reason; REASON_NO_MATCH if it is not refused */
	uint8_t opens;	  /* enum place: where the flow goes that it opens, if it is accepted; PLACE_FULL for none */
	uint8_t outcome;  /* enum outcome */
	uint8_t is_known; /* whether its flow was found */
	uint8_t zero;
#ifdef WEIR_REWRITES
	struct edit edit;
	uint32_t now;	     /* when it was judged, ticks */
	uint8_t is_stray;    /* whether it is a SYN that no host answers */
	uint8_t asks;	     /* whether it is a SYN that was judged */
	uint8_t is_unproven; /* whether its flow is that of a sender who has proven nothing */
#endif
};

/* PacketState: nftables' bits. */
enum packet_state {
	STATE_INVALID = 1,
	STATE_ESTABLISHED = 2,
	STATE_RELATED = 4,
	STATE_NEW = 8,
	STATE_UNTRACKED = 64,
};

enum {
	TCP_FIN = 1,
	TCP_SYN = 2,
	TCP_RST = 4,
	TCP_ACK = 16,
	TCP_URG = 32,
};

enum {
	ICMP_HEADER_BYTES = 8,
	QUOTED_TRANSPORT_BYTES = 8,
};

/* One end of a packet's way. */
struct flow_end {
	uint64_t hi, lo;
	uint32_t port;
};

WEIR_INLINE uint64_t key_word(uint32_t port0, uint32_t port1, uint32_t protocol, uint32_t vlan, uint32_t inner)
{
	return (uint64_t)port0 << 48 | (uint64_t)port1 << 32 | (uint64_t)protocol << 24 |
	       (uint64_t)(vlan << 12 | inner);
}

/* The tags of a packet: 12 bits each, 0 without a tag. */
struct vlans {
	uint32_t outer, inner;
};

/* Of a policy that ignores tags, 0. */
WEIR_INLINE struct vlans vlans_of(const packet_view *packet)
{
	return tracking.vlan_ignore ? (struct vlans){0, 0} : (struct vlans){packet->vlan_id, packet->inner_vlan_id};
}

WEIR_INLINE void set_addresses(struct track *track, const struct flow_end *source, const struct flow_end *destination)
{
	const struct flow_end *first = track->sender ? destination : source;
	const struct flow_end *second = track->sender ? source : destination;

	track->key.words[0] = first->hi;
	track->key.words[1] = first->lo;
	track->key.words[2] = second->hi;
	track->key.words[3] = second->lo;
}

/* FlowKey::of(). The sender is known. */
WEIR_INLINE void set_key(struct track *track, const struct flow_end *source, const struct flow_end *destination,
			 uint32_t protocol, struct vlans vlans)
{
	const bool swap = track->sender;

	set_addresses(track, source, destination);
	track->key.words[4] = key_word(swap ? destination->port : source->port, swap ? source->port : destination->port,
				       protocol, vlans.outer, vlans.inner);
}

/* set_key() of an IPv4 packet with ports or without: selects between registers, where set_key() selects an address. */
WEIR_INLINE void set_ipv4_key(struct track *track, packet_view *packet, struct vlans vlans)
{
	const bool swap = track->sender;
	const uint32_t port0 = swap ? packet->dport : packet->sport, port1 = swap ? packet->sport : packet->dport;

	track->key.words[0] = 0;
	track->key.words[1] = swap ? packet->daddr : packet->saddr;
	track->key.words[2] = 0;
	track->key.words[3] = swap ? packet->saddr : packet->daddr;
	track->key.words[4] = key_word(port0, port1, packet->proto, vlans.outer, vlans.inner);
}

/* What an ICMP message is to the tracker. */
struct icmp_message {
	uint32_t request; /* the type of the request; 0 if it is none, nor a reply */
	bool is_reply;
};

/* FlowKey::of_icmp(). The ports of the ends are 0. */
WEIR_INLINE void set_icmp_key(struct track *track, const struct flow_end *source, const struct flow_end *destination,
			      uint32_t identifier, struct icmp_message message, uint32_t protocol, struct vlans vlans)
{
	const uint32_t asks = track->sender ^ message.is_reply;

	set_addresses(track, source, destination);
	track->key.words[4] = key_word(identifier, message.request | asks << 8, protocol, vlans.outer, vlans.inner);
}

/* The types of requests and replies: RFC 792, 950, 4443. Of packets, the type tells the family too. */
WEIR_INLINE struct icmp_message icmp_message(uint32_t type)
{
	switch (type) {
	case 8:
	case 13:
	case 15:
	case 17:
	case 128:
		return (struct icmp_message){type, false};
	case 0:
		return (struct icmp_message){8, true};
	case 14:
	case 16:
	case 18:
	case 129:
		return (struct icmp_message){type - 1, true};
	default:
		return (struct icmp_message){0, false};
	}
}

/* The kind of a segment, by FIN, SYN, RST and ACK, in four bits each; 0: no TCP sends it. */
WEIR_INLINE uint32_t segment_kind(uint32_t flags)
{
	const uint64_t kinds = (uint64_t)SEGMENT_SYN << 4 * 2 | (uint64_t)SEGMENT_SYN_ACK << 4 * 10 |
			       (uint64_t)SEGMENT_FIN << 4 * 9 | (uint64_t)SEGMENT_ACK << 4 * 8 |
			       (uint64_t)SEGMENT_RESET << 4 * 4 | (uint64_t)SEGMENT_RESET << 4 * 12;
	const uint32_t kind = kinds >> 4 * ((flags & 7) | (flags & TCP_ACK) >> 1) & 15;

	return (flags & TCP_URG) && (kind == SEGMENT_SYN_ACK || kind == SEGMENT_RESET) ? SEGMENT_INVALID : kind;
}

/*
 * Reads the options of a segment, `bytes` of them at `offset`, into `found`. Nothing is read if the capture ends before
 * the last one.
 */
#ifdef WEIR_BURSTS
WEIR_INLINE void frame_options(const struct frame *frame, uint32_t offset, uint32_t bytes, struct tcp_options *found)
{
	uint8_t options[OPTIONS_ROOM + OPTIONS_BEYOND] = {0};
	const uint8_t *at = frame_at(frame, offset, bytes);

	if (!at)
		return;
	/* Word by word: for a length that is not known, clang would call the C library. */
	for (uint32_t i = 0; i < bytes; i += 4)
		__builtin_memcpy(options + i, at + i, 4);
	read_options(options, bytes, found);
}
#else
WEIR_IN_KERNEL void frame_options(const struct frame *frame, uint32_t offset, uint32_t bytes,
				  struct tcp_options *found);
#endif

/* Whether a segment has no options that the tracker reads in an ACK. */
WEIR_INLINE bool has_plain_options(const struct frame *frame, packet_view *packet)
{
	const uint8_t *at;

	if (packet->doff * 4 == TCP_HEADER_BYTES)
		return true;
	if (packet->doff * 4 != TCP_HEADER_BYTES + TIMESTAMPS_BYTES)
		return false;
	at = frame_at(frame, packet->l4_offset + TCP_HEADER_BYTES, 4);
	return at && be32(at) == OPTIONS_TIMESTAMPS;
}

#ifdef WEIR_REWRITES
/* Reads the only option of a segment with plain options. */
WEIR_INLINE void read_plain_timestamps(const struct frame *frame, packet_view *packet, struct tcp_options *found)
{
	const uint8_t *at = frame_at(frame, packet->l4_offset + TCP_HEADER_BYTES + 4, 8);

	if (!at)
		return;
	found->has_stamp = true;
	found->stamp = be32(at);
	found->echo = be32(at + 4);
}
#endif

/* Reads a segment of a known kind. */
WEIR_INLINE void read_segment(const struct frame *frame, packet_view *packet, struct segment *segment)
{
	const uint32_t flags = packet->tcp_flags, header = (uint32_t)packet->doff * 4;
	const uint32_t payload = packet->l4_length - header;

	*segment = (struct segment){
		.kind = segment->kind,
		.seq = packet->seq,
		.end = packet->seq + payload + !!(flags & TCP_SYN) + (flags & TCP_FIN),
		.ack = packet->ack,
		.window = packet->window,
		.has_ack = flags & TCP_ACK,
		.options = {.scale = SCALE_NONE, .highest = packet->ack},
	};
	if (!has_plain_options(frame, packet))
		frame_options(frame, packet->l4_offset + TCP_HEADER_BYTES, header - TCP_HEADER_BYTES,
			      &segment->options);
#ifdef WEIR_REWRITES
	else if (header != TCP_HEADER_BYTES)
		read_plain_timestamps(frame, packet, &segment->options);
#endif
}

WEIR_INLINE bool has_ports(uint32_t protocol)
{
	return protocol == PROTO_TCP || protocol == PROTO_UDP || protocol == PROTO_DCCP || protocol == PROTO_SCTP ||
	       protocol == PROTO_UDPLITE;
}

/* The quoted IP header: its protocol and length, 0 if it is none or a later fragment. */
struct quoted_header {
	struct flow_end source, destination;
	uint32_t protocol;
	uint32_t bytes;
};

WEIR_INLINE void read_quoted_ipv4(const struct frame *frame, uint32_t offset, struct quoted_header *quoted)
{
	const uint8_t *at = frame_at(frame, offset, 20);

	if (!at || at[0] >> 4 != 4 || (at[0] & 15) < 5 || (be16(at + 6) & 0x1fff))
		return;
	quoted->protocol = at[9];
	quoted->source.lo = be32(at + 12);
	quoted->destination.lo = be32(at + 16);
	quoted->bytes = (at[0] & 15) * 4;
}

WEIR_INLINE void read_quoted_ipv6(const struct frame *frame, uint32_t offset, struct quoted_header *quoted)
{
	const uint8_t *at = frame_at(frame, offset, 40);

	if (!at || at[0] >> 4 != 6)
		return;
	quoted->protocol = at[6];
	quoted->source.hi = be64(at + 8);
	quoted->source.lo = be64(at + 16);
	quoted->destination.hi = be64(at + 24);
	quoted->destination.lo = be64(at + 32);
	quoted->bytes = 40;
}

/*
 * Reads the packet that an ICMP error quotes (RFC 792; RFC 4443, section 2.4): an IP header without IPv6 extension
 * headers, and eight bytes behind it. `destination` is the destination of the error. The quoted packet came from the
 * other side. Returns false if the error quotes no packet of a flow, or goes to another host than the sender of the
 * quoted packet.
 */
WEIR_INLINE bool read_quote(const struct frame *frame, packet_view *packet, const struct flow_end *destination,
			    struct vlans vlans, struct track *track)
{
	const uint32_t start = packet->l4_offset + ICMP_HEADER_BYTES, end = packet->l4_offset + packet->l4_length;
	struct quoted_header quoted = {.bytes = 0};
	struct icmp_message message;
	const uint8_t *at;

	track->sender ^= 1;
	if (track->key.is_ipv6)
		read_quoted_ipv6(frame, start, &quoted);
	else
		read_quoted_ipv4(frame, start, &quoted);
	if (!quoted.bytes || start + quoted.bytes + QUOTED_TRANSPORT_BYTES > end)
		return false;
	track->segment.has_ack = false;
	at = frame_at(frame, start + quoted.bytes, QUOTED_TRANSPORT_BYTES);
	if (!at || quoted.source.hi != destination->hi || quoted.source.lo != destination->lo)
		return false;
	if (quoted.protocol == (track->key.is_ipv6 ? PROTO_ICMP6 : PROTO_ICMP)) {
		message = icmp_message(at[0]);
		if (!message.request)
			return false;
		set_icmp_key(track, &quoted.source, &quoted.destination, be16(at + 4), message, quoted.protocol, vlans);
		return true;
	}
	if (has_ports(quoted.protocol)) {
		quoted.source.port = be16(at);
		quoted.destination.port = be16(at + 2);
	}
	track->segment.seq = be32(at + 4);
	track->segment.end = start + quoted.bytes + 4;
	track->segment.has_ack = quoted.protocol == PROTO_TCP;
	set_key(track, &quoted.source, &quoted.destination, quoted.protocol, vlans);
	return true;
}

/* Reads an ICMP message. */
WEIR_INLINE enum subject read_icmp(const struct frame *frame, packet_view *packet, const struct flow_end *source,
				   const struct flow_end *destination, struct vlans vlans, struct track *track)
{
	const uint32_t type = packet->icmp_type;
	const bool is_six = packet->l4 == L4_ICMP6;
	const struct icmp_message message = is_six == (type >= 128) ? icmp_message(type) : (struct icmp_message){0};
	const uint8_t *at;

	if (is_six ? type < 128 : type == 3 || type == 4 || type == 5 || type == 11 || type == 12)
		return read_quote(frame, packet, destination, vlans, track) ? SUBJECT_ERROR : SUBJECT_REFUSED;
	if (is_six && ((type >= 130 && type <= 137) || type == 143))
		return SUBJECT_NONE;
	at = message.request ? frame_at(frame, packet->l4_offset + 4, 2) : NULL;
	if (!at)
		return SUBJECT_REFUSED;
	set_icmp_key(track, source, destination, be16(at), message, packet->proto, vlans);
	return message.is_reply ? SUBJECT_REPLY : SUBJECT_REQUEST;
}

#ifdef WEIR_REWRITES

/* Whether no host can have an IPv4 address: the unspecified one, limited broadcast, multicast. */
WEIR_INLINE bool is_no_host4(uint32_t address)
{
	return !address || address == UINT32_MAX || address >> 28 == 0xe;
}

/* Whether no host can have an IPv6 address: the unspecified one, multicast. */
WEIR_INLINE bool is_no_host6(uint64_t hi, uint64_t lo)
{
	return !(hi | lo) || hi >> 56 == 0xff;
}

/*
 * Whether one end of a packet cannot be a host, or both ends are equal (RFC 9293, MUST-57 and MUST-63; RFC 1122,
 * section 3.2.1.3): proxied.rs.
 */
WEIR_INLINE bool is_stray(const struct frame *frame, packet_view *packet)
{
	const uint8_t *ends = frame->link == LINK_ETHERNET ? frame_at(frame, 0, 12) : NULL;

	/* The bit of group addresses (IEEE 802, section 8.2.2). */
	if (ends && ((ends[0] | ends[6]) & 1))
		return true;
	if (packet->l3 == L3_IPV4)
		return packet->saddr == packet->daddr || is_no_host4(packet->saddr) || is_no_host4(packet->daddr);
	return (packet->saddr6.hi == packet->daddr6.hi && packet->saddr6.lo == packet->daddr6.lo) ||
	       is_no_host6(packet->saddr6.hi, packet->saddr6.lo) || is_no_host6(packet->daddr6.hi, packet->daddr6.lo);
}

WEIR_INLINE void note_stray(const struct frame *frame, packet_view *packet, struct track *track)
{
	track->is_stray = track->segment.kind == SEGMENT_SYN && is_stray(frame, packet);
}

#else

WEIR_INLINE void note_stray(const struct frame *frame, packet_view *packet, struct track *track)
{
	(void)frame;
	(void)packet;
	(void)track;
}

#endif

WEIR_INLINE void track_refuse(struct track *track, enum reason reason)
{
	track->state = STATE_INVALID;
	track->refused = (uint8_t)reason;
}

/*
 * Reads the key of a well-formed packet that arrived from a side, and the kind of its segment, but not the segment.
 * Sets the reason if it is refused.
 */
WEIR_INLINE enum subject read_subject(const struct frame *frame, packet_view *packet, enum from_side from,
				      struct track *track)
{
	const bool is_ipv6 = packet->l3 == L3_IPV6;
	const struct vlans vlans = vlans_of(packet);
	struct flow_end source = {0, packet->saddr, 0}, destination = {0, packet->daddr, 0};

	track->sender = (uint8_t)from;
	if ((!is_ipv6 && packet->l3 != L3_IPV4) || packet->fragment == FRAGMENT_LATER)
		return SUBJECT_NONE;
	track->key.is_ipv6 = is_ipv6;
	if (WEIR_LIKELY(!is_ipv6 && packet->l4 != L4_ICMP)) {
		set_ipv4_key(track, packet, vlans);
	} else {
		if (is_ipv6) {
			source = (struct flow_end){packet->saddr6.hi, packet->saddr6.lo, 0};
			destination = (struct flow_end){packet->daddr6.hi, packet->daddr6.lo, 0};
		}
		if (packet->l4 == L4_ICMP || packet->l4 == L4_ICMP6) {
			track_refuse(track, REASON_NO_STATE);
			return read_icmp(frame, packet, &source, &destination, vlans, track);
		}
		source.port = packet->sport;
		destination.port = packet->dport;
		set_key(track, &source, &destination, packet->proto, vlans);
	}
	if (packet->l4 != L4_TCP)
		return SUBJECT_REQUEST;
	track->segment.kind = segment_kind(packet->tcp_flags);
	note_stray(frame, packet, track);
	if (WEIR_LIKELY(packet->fragment != FRAGMENT_FIRST && track->segment.kind != SEGMENT_INVALID))
		return SUBJECT_TCP;
	/* The end of the segment of a fragment is not known. */
	track_refuse(track, packet->fragment == FRAGMENT_FIRST ? REASON_OUT_OF_WINDOW : REASON_BAD_FLAGS);
	return SUBJECT_REFUSED;
}

#endif
