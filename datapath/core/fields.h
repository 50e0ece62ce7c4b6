/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A parsed packet: the fields that rules can match, and the protocol numbers that say which of them it has.
 * core/packet.h fills it; the same layout in Rust is crates/abi/src/packet.rs.
 */
#ifndef WEIR_CORE_FIELDS_H
#define WEIR_CORE_FIELDS_H

#include "core/env.h"

enum link {
	LINK_ETHERNET = 0,
	LINK_RAW_IP = 1,
	LINK_COOKED = 2,
	LINK_COOKED2 = 3,
};

enum l3 {
	L3_NONE = 0,
	L3_ARP = 1,
	L3_IPV4 = 2,
	L3_IPV6 = 3,
};

enum l4 {
	L4_NONE = 0,
	L4_TCP = 1,
	L4_UDP = 2,
	L4_ICMP = 3,
	L4_ICMP6 = 4,
	L4_PORTS = 5,
	L4_OTHER = 6,
};

enum fragment {
	FRAGMENT_NONE = 0,
	FRAGMENT_FIRST = 1,
	FRAGMENT_LATER = 2,
};

enum ext {
	EXT_HBH = 1,
	EXT_RT = 2,
	EXT_FRAG = 4,
	EXT_DST = 8,
	EXT_AH = 16,
	EXT_MH = 32,
};

enum {
	FLAG_IP_OPTIONS = 1,
	FLAG_EXCEEDED = 2, /* set by rules */
};

enum {
	ETHERNET_BYTES = 14,
	PLAIN_BYTES = ETHERNET_BYTES + 20 + 20, /* up to the end of a TCP header */
	VLAN_TAGS_MAX = 2,
	EXT_HEADERS_MAX = 8, /* more than RFC 8200 defines uses for; RFC 7112 lets a middlebox drop longer chains */
};

enum ether_type {
	ETHER_IPV4 = 0x0800,
	ETHER_ARP = 0x0806,
	ETHER_VLAN = 0x8100,
	ETHER_IPV6 = 0x86dd,
	ETHER_QINQ = 0x88a8,
	ETHER_QINQ_OLD = 0x9100,
};

enum proto {
	PROTO_HBH = 0,
	PROTO_ICMP = 1,
	PROTO_TCP = 6,
	PROTO_UDP = 17,
	PROTO_DCCP = 33,
	PROTO_RT = 43,
	PROTO_FRAG = 44,
	PROTO_ESP = 50,
	PROTO_AH = 51,
	PROTO_ICMP6 = 58,
	PROTO_NONE = 59,
	PROTO_DST = 60,
	PROTO_SCTP = 132,
	PROTO_MH = 135,
	PROTO_UDPLITE = 136,
};

/* 128 bits, the higher half first. */
struct wide {
	uint64_t hi;
	uint64_t lo;
};

/* A parsed packet, laid out as PacketView in crates/abi/src/packet.rs. Fields that the packet does not have are 0. */
struct packet {
	const uint8_t *data;
	uint32_t cap;
	uint32_t len;
	union {
		uint32_t saddr;
		struct wide saddr6;
	};
	union {
		uint32_t daddr;
		struct wide daddr6;
	};
	uint16_t l3_offset;
	uint16_t l4_offset;
	uint16_t ether_type;
	uint16_t vlan_id;
	uint16_t inner_vlan_id;
	uint16_t ip_length;
	uint16_t ip_id;
	uint16_t sport;
	uint16_t dport;
	uint16_t window; /* TCP window, UDP length */
	uint32_t seq;
	uint32_t ack;
	uint8_t l3;
	uint8_t l4;
	uint8_t proto;
	uint8_t fragment;
	uint8_t ttl;
	uint8_t tos;
	uint8_t tcp_flags;
	uint8_t ext;
	uint8_t vlan_tags;
	uint8_t vlan_pcp;
	uint8_t icmp_type;
	uint8_t icmp_code;
	uint8_t flags;
	uint8_t next_header;
	uint16_t frag_off;
	uint16_t l4_length; /* bytes of the IP packet from l4_offset on */
	uint8_t doff;
	uint8_t hdrlength;
};

_Static_assert(sizeof(struct packet) == 96, "abi: PacketView");
_Static_assert(offsetof(struct packet, saddr) == 16, "abi: PacketView");
_Static_assert(offsetof(struct packet, l3_offset) == 48, "abi: PacketView");
_Static_assert(offsetof(struct packet, seq) == 68, "abi: PacketView");
_Static_assert(offsetof(struct packet, l3) == 76 && offsetof(struct packet, hdrlength) == 95, "abi: PacketView");

/* A parsed packet as rules read it. */
typedef const WEIR_FRESH struct packet packet_view;

/* Whether a packet is no fragment and of these protocols: four fields in one comparison. */
WEIR_INLINE bool is_whole(packet_view *packet, enum l3 l3, enum l4 l4, enum proto proto)
{
	const uint8_t wanted[] = {(uint8_t)l3, (uint8_t)l4, (uint8_t)proto, FRAGMENT_NONE};
	uint32_t fields, same;

	__builtin_memcpy(&fields, (const void *)&packet->l3, sizeof(fields));
	__builtin_memcpy(&same, wanted, sizeof(same));
	return fields == same;
}

#endif
