/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The headers of a packet that a tap tests before the packet is copied, and whether they exclude it
 * (crates/abi/src/tap_where.rs). It may miss that a packet is excluded, and never excludes one that matches:
 * crates/engine/src/live/tap/head.rs is the same in Rust.
 */
#ifndef WEIR_OBSERVE_TAP_HEAD_H
#define WEIR_OBSERVE_TAP_HEAD_H

#include "core/env.h"

enum {
	TAP_HEAD_BYTES = 128,
	TAP_UNKNOWN = 1 << 16,
	TAP_LINK_BYTES = 14,
	TAP_VLAN_TAGS = 2,
};

/* Ranges that a packet must be in. Addresses are their first and their last, each with its higher half first. */
struct tap_where {
	uint64_t saddr[4];
	uint64_t daddr[4];
	uint32_t sport[2];
	uint32_t dport[2];
	uint32_t proto[2];
	uint32_t family; /* 4 or 6; 0 for both */
	uint32_t zero[9];
};

struct tap_head {
	uint64_t saddr[2];
	uint64_t daddr[2];
	uint32_t family; /* 0: nothing is known */
	uint32_t proto;	 /* these may be TAP_UNKNOWN */
	uint32_t sport;
	uint32_t dport;
	uint64_t zero[2];
};

_Static_assert(sizeof(struct tap_where) == 128 && sizeof(struct tap_head) == 64, "TapWhere, TapHead");

WEIR_INLINE uint64_t tap_be32(const uint8_t *at)
{
	return __builtin_bswap32(host32(at));
}

WEIR_INLINE uint64_t tap_be64(const uint8_t *at)
{
	return tap_be32(at) << 32 | tap_be32(at + 4);
}

/* Whether a header of IPv6 may stand in front of another one. */
WEIR_INLINE bool tap_is_extension(uint32_t proto)
{
	return proto == 0 || proto == 43 || proto == 44 || proto == 51 || proto == 60 || proto == 135 || proto == 139 ||
	       proto == 140;
}

/* Reads IPv4 at `l3`. Returns where the next header begins; 0 if that or its kind is not known. */
WEIR_INLINE uint32_t tap_read_ipv4(const uint8_t *bytes, uint32_t l3, uint32_t have, struct tap_head *head)
{
	const uint8_t *ip = bytes + bounded(l3, TAP_HEAD_BYTES - 1);

	if (have < l3 + 20 || ip[0] >> 4 != 4)
		return 0;
	head->family = 4;
	head->proto = ip[9];
	head->saddr[1] = tap_be32(ip + 12);
	head->daddr[1] = tap_be32(ip + 16);
	return be16(ip + 6) & 0x3fff ? 0 : l3 + 4 * (ip[0] & 15);
}

WEIR_INLINE uint32_t tap_read_ipv6(const uint8_t *bytes, uint32_t l3, uint32_t have, struct tap_head *head)
{
	const uint8_t *ip = bytes + bounded(l3, TAP_HEAD_BYTES - 1);

	if (have < l3 + 40 || ip[0] >> 4 != 6)
		return 0;
	head->family = 6;
	head->saddr[0] = tap_be64(ip + 8);
	head->saddr[1] = tap_be64(ip + 16);
	head->daddr[0] = tap_be64(ip + 24);
	head->daddr[1] = tap_be64(ip + 32);
	if (tap_is_extension(ip[6]))
		return 0;
	head->proto = ip[6];
	return l3 + 40;
}

/* Reads the headers of an Ethernet frame. `have` bytes of it are there, and room for more behind them. */
WEIR_INLINE void tap_read_head(const uint8_t *bytes, uint32_t have, struct tap_head *head)
{
	uint32_t type, l3 = TAP_LINK_BYTES, l4;

	*head = (struct tap_head){.proto = TAP_UNKNOWN, .sport = TAP_UNKNOWN, .dport = TAP_UNKNOWN};
	if (have < TAP_LINK_BYTES)
		return;
	type = be16(bytes + 12);
	for (uint32_t i = 0; i < TAP_VLAN_TAGS; i++) {
		if ((type != 0x8100 && type != 0x88a8 && type != 0x9100) || have < l3 + 4)
			break;
		type = be16(bytes + bounded(l3, TAP_HEAD_BYTES - 1) + 2);
		l3 = forget(l3 + 4);
	}
	if (type == 0x0800)
		l4 = tap_read_ipv4(bytes, l3, have, head);
	else if (type == 0x86dd)
		l4 = tap_read_ipv6(bytes, l3, have, head);
	else
		return;
	if (!l4 || (head->proto != 6 && head->proto != 17) || have < l4 + 4)
		return;
	head->sport = be16(bytes + bounded(l4, TAP_HEAD_BYTES - 1));
	head->dport = be16(bytes + bounded(l4, TAP_HEAD_BYTES - 1) + 2);
}

WEIR_INLINE bool tap_address_in(const uint64_t range[4], const uint64_t address[2])
{
	const bool from = address[0] > range[0] || (address[0] == range[0] && address[1] >= range[1]);
	const bool to = address[0] < range[2] || (address[0] == range[2] && address[1] <= range[3]);

	return from && to;
}

WEIR_INLINE bool tap_number_in(const uint32_t range[2], uint32_t number)
{
	return number == TAP_UNKNOWN || (number >= range[0] && number <= range[1]);
}

/* Whether headers are outside of a range. */
WEIR_INLINE bool tap_excludes(const struct tap_where *where, const struct tap_head *head)
{
	if (!head->family)
		return false;
	if (where->family && where->family != head->family)
		return true;
	if (!tap_number_in(where->proto, head->proto) || !tap_number_in(where->sport, head->sport))
		return true;
	if (!tap_number_in(where->dport, head->dport))
		return true;
	return !tap_address_in(where->saddr, head->saddr) || !tap_address_in(where->daddr, head->daddr);
}

#endif
