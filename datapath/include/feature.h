/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Feature extraction: what `observe` counts of the packets that pass, by address or prefix. crates/abi/src/features.rs
 * has the layout. A worker or CPU writes a sheet of its own, so there is no atomic operation. A search for an address
 * reads one group of eight entries. An address without room there is counted in the rest of its direction, so the sums
 * are the packets that passed, whatever arrives.
 */
#ifndef WEIR_FEATURE_H
#define WEIR_FEATURE_H

#include "env.h"
#include "packet_fields.h"
#include "raw.h"
#include "verdict.h"

enum {
	FEATURE_GROUP = 8,
	FEATURE_SUM_GROUPS = 1,
	FEATURE_REST = 0,	     /* the first of the sums, by direction */
	FEATURE_WITHOUT_ADDRESS = 2, /* the same for packets that are not IP, or malformed */
	FEATURE_OUTSIDE = 4,	     /* the same for packets whose address is not protected */
	OBSERVED_RANGES = 16,	     /* of protected addresses, of each family */
	SYSTEM_PORT_MAX = 1023,	     /* services up to here; others in is_service() */
};

#define FEATURE_IPV4 UINT64_C(0xffff00000000)

/* PacketClass in crates/abi/src/features.rs */
enum packet_class {
	PACKET_SYN = 0,
	PACKET_SYN_ACK = 1,
	PACKET_RST = 2,
	PACKET_TCP = 3,
	PACKET_UDP_SERVICE = 4,
	PACKET_UDP = 5,
	PACKET_ICMP = 6,
	PACKET_FRAGMENT = 7,
	PACKET_OTHER = 8,
};

enum { PACKET_CLASSES = 9 };

/* FeatureEntry in crates/abi/src/features.rs */
struct feature_entry {
	uint64_t key[2];
	uint64_t bytes; /* 0: free */
	uint32_t packets[PACKET_CLASSES];
	uint32_t new_sources;
} __attribute__((aligned(64)));

_Static_assert(sizeof(struct feature_entry) == 64, "abi: FeatureEntry");

/* An address or prefix: the halves of IPv6, or FEATURE_IPV4 and an IPv4 address. */
struct feature_key {
	uint64_t high;
	uint64_t low;
};

/* What a policy observes. */
struct observing {
	uint32_t mask4; /* of the prefixes that are counted together */
	struct feature_key mask6;
	bool is_all; /* whether every address is protected */
	uint32_t count4;
	uint32_t count6;
	uint32_t inside4[OBSERVED_RANGES][2]; /* the first and the last address of each range */
	struct wide inside6[OBSERVED_RANGES][2];
};

/* What is counted of a packet. */
enum observed_as {
	OBSERVED_WITHOUT_ADDRESS = 0,
	OBSERVED_INSIDE = 1,
	OBSERVED_OUTSIDE = 2,
};

enum observed_direction {
	OBSERVED_UPSTREAM = 0,	 /* by destination */
	OBSERVED_DOWNSTREAM = 1, /* by source */
};

/* hash() in crates/abi/src/features.rs: the group from bit 32, the first place in it in the lowest bits. */
WEIR_INLINE uint64_t feature_hash(uint64_t seed, struct feature_key key)
{
	uint64_t mixed = (key.low ^ seed) * UINT64_C(0x9e3779b97f4a7c15);

	mixed = ((mixed ^ mixed >> 32) + (key.high ^ (seed << 32 | seed >> 32))) * UINT64_C(0xd6e8feb86659fd93);
	return mixed ^ mixed >> 32;
}

/* Ports above the system ports whose services are known to amplify: SERVICE_PORTS. */
WEIR_INLINE bool is_service(uint16_t port)
{
	switch (port) {
	case 1194:
	case 1434:
	case 1900:
	case 3283:
	case 3389:
	case 3478:
	case 3702:
	case 4500:
	case 5353:
	case 10001:
	case 11211:
	case 37810:
		return true;
	default:
		return port <= SYSTEM_PORT_MAX;
	}
}

/* The class of a TCP segment: a nibble for each combination of ACK, RST and SYN. */
WEIR_INLINE uint32_t tcp_class(uint8_t flags)
{
	const uint32_t wanted = (flags >> 1 & 3) | (flags >> 2 & 4);

	return UINT32_C(0x22132203) >> 4 * wanted & 0xf;
}

WEIR_INLINE uint32_t class_of(packet_view *packet)
{
	if (WEIR_UNLIKELY(packet->fragment == FRAGMENT_LATER))
		return PACKET_FRAGMENT;
	switch (packet->l4) {
	case L4_TCP:
		return tcp_class(packet->tcp_flags);
	case L4_UDP:
		return is_service(packet->sport) ? PACKET_UDP_SERVICE : PACKET_UDP;
	case L4_ICMP:
	case L4_ICMP6:
		return PACKET_ICMP;
	default:
		return PACKET_OTHER;
	}
}

WEIR_INLINE bool is_inside4(const struct observing *observing, uint32_t address)
{
	bool inside = observing->is_all;

	for (uint32_t i = 0; i < observing->count4; i++)
		inside |= address - observing->inside4[i][0] <= observing->inside4[i][1] - observing->inside4[i][0];
	return inside;
}

WEIR_INLINE bool is_inside6(const struct observing *observing, struct wide address)
{
	bool inside = observing->is_all;

	for (uint32_t i = 0; i < observing->count6; i++) {
		const struct wide first = observing->inside6[i][0], last = observing->inside6[i][1];

		inside |= wide_between(address, first.hi, first.lo, last.hi, last.lo);
	}
	return inside;
}

/* What is counted of a well-formed packet. `key` is the prefix of its protected address, if it has one. */
WEIR_INLINE enum observed_as observed_as(const struct observing *observing, packet_view *packet,
					 enum observed_direction direction, struct feature_key *key)
{
	if (packet->l3 == L3_IPV4) {
		const uint32_t address = direction == OBSERVED_UPSTREAM ? packet->daddr : packet->saddr;

		*key = (struct feature_key){0, FEATURE_IPV4 | (address & observing->mask4)};
		return is_inside4(observing, address) ? OBSERVED_INSIDE : OBSERVED_OUTSIDE;
	}
	if (packet->l3 == L3_IPV6) {
		const struct wide address = {direction == OBSERVED_UPSTREAM ? packet->daddr6.hi : packet->saddr6.hi,
					     direction == OBSERVED_UPSTREAM ? packet->daddr6.lo : packet->saddr6.lo};

		*key = (struct feature_key){address.hi & observing->mask6.high, address.lo & observing->mask6.low};
		return is_inside6(observing, address) ? OBSERVED_INSIDE : OBSERVED_OUTSIDE;
	}
	*key = (struct feature_key){0, 0};
	return OBSERVED_WITHOUT_ADDRESS;
}

/* The sum that counts a packet without an entry. */
WEIR_INLINE uint32_t feature_sum(enum observed_as as)
{
	return as == OBSERVED_INSIDE	? FEATURE_REST
	       : as == OBSERVED_OUTSIDE ? FEATURE_OUTSIDE
					: FEATURE_WITHOUT_ADDRESS;
}

/* Whether a verdict lets the packet pass, and whether a packet with this verdict is malformed. */
WEIR_INLINE bool is_accepted(uint32_t verdict)
{
	return (verdict & 0xff) == ACTION_ACCEPT;
}

WEIR_INLINE bool is_malformed(uint32_t verdict)
{
	return (verdict >> 16) - REASON_MALFORMED_LINK <= REASON_MALFORMED_TRANSPORT - REASON_MALFORMED_LINK;
}

/* The entry of a key in its group, or a free one, which gets the key; NULL if there is no room. */
WEIR_INLINE struct feature_entry *feature_place(struct feature_entry *group, struct feature_key key, uint64_t hash)
{
	for (uint32_t step = 0; step < FEATURE_GROUP; step++) {
		struct feature_entry *entry = &group[(hash ^ step) & (FEATURE_GROUP - 1)];

		if (entry->key[1] == key.low && entry->key[0] == key.high && entry->bytes)
			return entry;
		if (!entry->bytes) {
			entry->key[0] = key.high;
			entry->key[1] = key.low;
			return entry;
		}
	}
	return NULL;
}

WEIR_INLINE void feature_count(struct feature_entry *entry, uint32_t class, uint32_t packets, uint32_t bytes)
{
	entry->bytes += bytes;
	entry->packets[class] += packets;
}

#endif
