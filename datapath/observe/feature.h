/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Feature extraction: what `observe` counts of the packets that pass, by address or prefix. crates/abi/src/features.rs
 * has the layout. A worker or CPU writes a sheet of its own, so there is no atomic operation. If there are few
 * protected prefixes, a prefix has a cell of its own, and no key is read. Otherwise the cell of an IPv4 prefix is among
 * the recent ones, or a search reads one group of four keys. What has no room there is counted in the rest of its
 * direction, so the sums are the packets that passed, whatever arrives.
 */
#ifndef WEIR_OBSERVE_FEATURE_H
#define WEIR_OBSERVE_FEATURE_H

#include "core/env.h"
#include "core/fields.h"
#include "core/raw.h"
#include "core/verdict.h"

enum {
	FEATURE_HEADS = 8,	     /* elements in front of the cells */
	FEATURE_REST = 0,	     /* the first of two elements, by direction: addresses without room */
	FEATURE_WITHOUT_ADDRESS = 2, /* likewise: packets that are not IP, or malformed */
	FEATURE_OUTSIDE = 4,	     /* likewise: packets whose address is not protected */
	FEATURE_SAMPLER = 6,	     /* likewise: samplers */
	FEATURE_GROUP = 4,	     /* keys of an element */
	FEATURE_RECENTS = 8,	     /* recent prefixes of an element */
	FEATURE_ONE_IN = 64,	     /* one packet in so many is sampled */
	FEATURE_RECORDS = 1024,	     /* of a direction */
	FEATURE_LANES = 8,	     /* of a sketch of peers */
	OBSERVED_RANGES = 16,	     /* of protected addresses, of each family */
	SYSTEM_PORT_MAX = 1023,	     /* services up to here; others in service_ports */
	QUIC_PORT = 443,	     /* a system port that is no reflector */
};

#define FEATURE_IPV4 UINT64_C(0xffff00000000)
#define FEATURE_ZERO (UINT64_C(1) << 63) /* stands for the key 0 */

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

/* FeatureCell in crates/abi/src/features.rs. A class below 16 is inside a cell, whatever the verifier knows of it. */
struct feature_cell {
	uint32_t packets[PACKET_CLASSES];
	uint32_t zero;
	uint64_t bytes;
	uint16_t peers[FEATURE_LANES];
} __attribute__((aligned(64)));

/* FeatureSampler in crates/abi/src/features.rs */
struct feature_sampler {
	uint64_t seen;
	uint64_t next;
	uint64_t taken;
	uint64_t zero[5];
} __attribute__((aligned(64)));

/* An address or prefix: the halves of IPv6, or FEATURE_IPV4 and an IPv4 address. */
struct feature_key {
	uint64_t high;
	uint64_t low;
};

/* FeatureGroup in crates/abi/src/features.rs: the halves of keys, both 0 where there is no key. */
struct feature_group {
	uint64_t low[FEATURE_GROUP];
	uint64_t high[FEATURE_GROUP];
};

/*
 * The cells of IPv4 prefixes that were counted lately: RECENTS in crates/abi/src/features.rs. A word is the element of
 * the cell, and the prefix << 32. The element is 0 where there is none.
 */
struct feature_recents {
	uint64_t cells[FEATURE_RECENTS];
};

/* FeatureRecord in crates/abi/src/features.rs */
struct feature_record {
	struct feature_key source;
	struct feature_key destination;
	uint32_t len;
	uint16_t sport;
	uint16_t dport;
	uint8_t proto;
	uint8_t ttl;
	uint8_t tcp_flags;
	uint8_t class;
	uint32_t zero[5];
} __attribute__((aligned(64)));

/* An element of a sheet. */
union feature_element {
	struct feature_cell cell;
	struct feature_sampler sampler;
	struct feature_group group;
	struct feature_recents recents;
	struct feature_record record;
	uint8_t at[64]; /* its bytes */
};

_Static_assert(sizeof(union feature_element) == 64, "abi: FeatureCell, FeatureSampler, FeatureRecord");

/* A range of protected addresses, and the cell of its first prefix. */
struct observed_range4 {
	uint32_t first;
	uint32_t last;
	uint32_t place;
};

struct observed_range6 {
	struct wide first;
	struct wide last;
	uint32_t place;
};

/* What a policy observes. */
struct observing {
	uint32_t size;	 /* cells of a direction */
	uint32_t groups; /* of keys, a power of two; 0 if prefixes have cells of their own */
	uint32_t shift4; /* bits behind the prefix, below the bits of an address if prefixes have cells of their own */
	uint32_t shift6;
	uint32_t mask4; /* of prefixes */
	struct feature_key mask6;
	bool is_all; /* whether every address is protected */
	uint32_t count4;
	uint32_t count6;
	struct observed_range4 inside4[OBSERVED_RANGES];
	struct observed_range6 inside6[OBSERVED_RANGES];
};

enum observed_direction {
	OBSERVED_UPSTREAM = 0,	 /* by destination */
	OBSERVED_DOWNSTREAM = 1, /* by source */
};

/* The first cell of a direction, and the first element of keys, of recent prefixes, and of records. */
WEIR_INLINE uint32_t feature_cells(const struct observing *observing, enum observed_direction direction)
{
	return FEATURE_HEADS + direction * observing->size;
}

WEIR_INLINE uint32_t feature_keys(const struct observing *observing, enum observed_direction direction)
{
	return FEATURE_HEADS + 2 * observing->size + direction * observing->groups;
}

/* Elements of recent prefixes of a direction: as many prefixes as there are cells, if a hash selects those. */
WEIR_INLINE uint32_t feature_recents_count(const struct observing *observing)
{
	return observing->groups ? observing->size / FEATURE_RECENTS : 0;
}

WEIR_INLINE uint32_t feature_recents(const struct observing *observing, enum observed_direction direction)
{
	return FEATURE_HEADS + 2 * (observing->size + observing->groups) + direction * feature_recents_count(observing);
}

WEIR_INLINE uint32_t feature_records(const struct observing *observing, enum observed_direction direction)
{
	return feature_recents(observing, 2) + direction * FEATURE_RECORDS;
}

WEIR_INLINE uint32_t feature_elements(const struct observing *observing)
{
	return feature_records(observing, 2);
}

/* hash() in crates/abi/src/features.rs */
WEIR_INLINE uint64_t feature_hash(uint64_t seed, struct feature_key key)
{
	uint64_t mixed = (key.low ^ seed) * UINT64_C(0x9e3779b97f4a7c15);

	mixed = ((mixed ^ mixed >> 32) + (key.high ^ (seed << 32 | seed >> 32))) * UINT64_C(0xd6e8feb86659fd93);
	return mixed ^ mixed >> 32;
}

/* mix() in crates/abi/src/features.rs. In vectors: observe_mix(). */
WEIR_INLINE uint32_t feature_mix(uint32_t word)
{
	word = (word ^ word >> 16) * UINT32_C(0x7feb352d);
	word = (word ^ word >> 15) * UINT32_C(0x846ca68b);
	return word ^ word >> 16;
}

/* The hash whose lower bits are the group of a key, for IPv4 and for any: group_of() in crates/abi/src/features.rs. */
WEIR_INLINE uint32_t feature_group_hash4(uint64_t seed, uint32_t prefix)
{
	return feature_mix(prefix ^ (uint32_t)(seed >> 32));
}

WEIR_INLINE bool is_ipv4_key(struct feature_key key)
{
	return !key.high && key.low >> 32 == FEATURE_IPV4 >> 32;
}

WEIR_INLINE uint32_t feature_group_hash(uint64_t seed, struct feature_key key)
{
	if (is_ipv4_key(key))
		return feature_group_hash4(seed, (uint32_t)key.low);
	return (uint32_t)(feature_hash(seed, key) >> 32);
}

/* Spreads what is above the places of recent prefixes over all of them (Knuth's multiplicative hash). */
#define FEATURE_RECENT_FACTOR UINT32_C(0x9e3779b1)

/*
 * The place of a recent IPv4 prefix. Neighbours are next to each other, so they share lines of the cache and do not
 * replace each other.
 */
WEIR_INLINE uint32_t feature_recent(const struct observing *observing, uint32_t prefix)
{
	const uint32_t number = prefix >> (observing->shift4 & 31), above = number >> __builtin_ctz(observing->size);

	return (number + above * FEATURE_RECENT_FACTOR) & (observing->size - 1);
}

/* The word of a recent prefix. */
WEIR_INLINE uint64_t feature_recent_word(uint32_t prefix, uint32_t element)
{
	return (uint64_t)prefix << 32 | element;
}

/* The word that stands for a peer of IPv4 or IPv6. Mixed it is peer_hash() in crates/abi/src/features.rs. */
WEIR_INLINE uint32_t feature_peer4(uint64_t seed, uint32_t address)
{
	return address ^ (uint32_t)seed;
}

WEIR_INLINE uint32_t feature_peer6(uint64_t seed, struct wide address)
{
	return (uint32_t)(feature_hash(seed, (struct feature_key){address.hi, address.lo}) >> 32);
}

/* The bit of a lane that a peer sets. Lanes are the lowest bits of the hash. */
WEIR_INLINE uint32_t feature_peer_bit(uint32_t hash)
{
	const uint32_t low = hash / FEATURE_LANES | 0x8000;

	return low & (0 - low) & 0xffff;
}

/* Ports above the system ports whose services are known to amplify (SERVICE_PORTS), at the places of service_place().
 */
static const uint16_t service_ports[16] = {
	3478, 0, 5353, 0, 1434, 0, 4500, 3283, 3702, 37810, 11211, 1900, 10001, 3389, 0, 1194,
};

/* No two of these ports have the same place. */
WEIR_INLINE uint32_t service_place(uint16_t port)
{
	return (uint32_t)port * 20031 >> 12 & 15;
}

/* The upper bit is set for the port of a service. Without a branch, so that the verifier follows one path. */
WEIR_INLINE uint32_t service_bit(uint16_t port)
{
	const uint32_t differs = (uint32_t)port ^ service_ports[service_place(port)];
	const uint32_t quic = ((uint32_t)port ^ QUIC_PORT) - 1;

	return ((differs - 1) | ((uint32_t)port - (SYSTEM_PORT_MAX + 1))) & ~quic;
}

/* Where a cell counts a class, bytes. */
#define CLASS_AT(class) ((class) * (uint32_t)sizeof(uint32_t))
/* The upper bit says that the port decides. */
#define CLASS_BY_PORT (UINT32_C(1) << 31)
/* By protocol: 3 bits. */
#define CLASS_OF_TCP(tcp)                                                                                              \
	CLASS_AT(PACKET_OTHER), CLASS_AT(tcp), CLASS_AT(PACKET_UDP) | CLASS_BY_PORT, CLASS_AT(PACKET_ICMP),            \
		CLASS_AT(PACKET_ICMP), CLASS_AT(PACKET_OTHER), CLASS_AT(PACKET_OTHER), CLASS_AT(PACKET_OTHER)
#define CLASS_FRAGMENTS                                                                                                \
	CLASS_AT(PACKET_FRAGMENT), CLASS_AT(PACKET_FRAGMENT), CLASS_AT(PACKET_FRAGMENT), CLASS_AT(PACKET_FRAGMENT),    \
		CLASS_AT(PACKET_FRAGMENT), CLASS_AT(PACKET_FRAGMENT), CLASS_AT(PACKET_FRAGMENT),                       \
		CLASS_AT(PACKET_FRAGMENT)

/* Where a cell counts the class of a packet: the byte. What is above it means nothing. */
WEIR_INLINE uint32_t class_at(packet_view *packet)
{
	/* By ACK, later fragment, RST, SYN, and the protocol; the class of UDP is that without a service. */
	static const uint32_t classes[128] = {
		CLASS_OF_TCP(PACKET_TCP), CLASS_OF_TCP(PACKET_SYN),
		CLASS_OF_TCP(PACKET_RST), CLASS_OF_TCP(PACKET_RST),
		CLASS_FRAGMENTS,	  CLASS_FRAGMENTS,
		CLASS_FRAGMENTS,	  CLASS_FRAGMENTS,
		CLASS_OF_TCP(PACKET_TCP), CLASS_OF_TCP(PACKET_SYN_ACK),
		CLASS_OF_TCP(PACKET_RST), CLASS_OF_TCP(PACKET_RST),
		CLASS_FRAGMENTS,	  CLASS_FRAGMENTS,
		CLASS_FRAGMENTS,	  CLASS_FRAGMENTS,
	};
	/* SYN, RST and ACK */
	const uint32_t flags = packet->tcp_flags & 0x16, later = packet->fragment & FRAGMENT_LATER;
	const uint32_t place = packet->l4 | flags << 2 | later << 4;
	const uint32_t class = classes[bounded(place, sizeof(classes) / sizeof(classes[0]) - 1)];

	/* A service is the class below the others. */
	return class - (class & service_bit(packet->sport)) / CLASS_BY_PORT * CLASS_AT(1);
}

_Static_assert(PACKET_UDP_SERVICE + 1 == PACKET_UDP && FRAGMENT_LATER == 2, "class_at()");

/* Whether a verdict lets the packet pass, and whether a packet with this verdict is malformed. */
WEIR_INLINE bool is_accepted(uint32_t verdict)
{
	return (verdict & 0xff) == ACTION_ACCEPT;
}

WEIR_INLINE bool is_malformed(uint32_t verdict)
{
	return (verdict >> 16) - REASON_MALFORMED_LINK <= REASON_MALFORMED_TRANSPORT - REASON_MALFORMED_LINK;
}

/* The lower 32 bits of the number of an IPv6 prefix. */
WEIR_INLINE uint32_t feature_prefix6(const struct observing *observing, struct wide address)
{
	const uint32_t shift = observing->shift6;

	if (shift >= 64)
		return (uint32_t)(address.hi >> (shift & 63));
	return (uint32_t)(shift ? address.lo >> shift | address.hi << (64 - shift) : address.lo);
}

WEIR_INLINE struct feature_key feature_whole4(uint32_t address)
{
	return (struct feature_key){0, FEATURE_IPV4 | address};
}

WEIR_INLINE struct feature_key feature_key4(const struct observing *observing, uint32_t address)
{
	return feature_whole4(address & observing->mask4);
}

WEIR_INLINE struct feature_key feature_key6(const struct observing *observing, struct wide address)
{
	const struct feature_key key = {address.hi & observing->mask6.high, address.lo & observing->mask6.low};

	return (struct feature_key){key.high, key.high | key.low ? key.low : FEATURE_ZERO};
}

/* SAMPLE_GAPS in crates/abi/src/features.rs */
static const uint16_t sample_gaps[64] = {
	2,   6,	  10,  14,  19,	 23,  27,  32,	36,  41,  46,  51,  56,	 61,  66,  71,	76,  82,  87,  93,  99,	 105,
	111, 117, 124, 130, 137, 144, 151, 158, 166, 173, 181, 190, 198, 207, 216, 226, 236, 246, 257, 268, 279, 291,
	304, 318, 332, 347, 363, 380, 398, 418, 440, 463, 488, 517, 549, 586, 629, 680, 745, 832, 966, 1321};

/* The number of the next sampled packet: FeatureSampler::see() in crates/abi/src/features.rs. */
WEIR_INLINE uint64_t feature_next(uint64_t seed, uint64_t taken, uint64_t last)
{
	const uint64_t hash = feature_hash(seed, (struct feature_key){0, taken}), next = last / FEATURE_ONE_IN + 1;
	const uint64_t left_out = taken < FEATURE_RECORDS ? 0
							  : (2 * next + 2 - FEATURE_RECORDS) * sample_gaps[hash >> 58] /
								    (2 * 256 * FEATURE_RECORDS);

	return (next + left_out) * FEATURE_ONE_IN + hash % FEATURE_ONE_IN;
}

/* The place of the nth record, counted from 0. */
WEIR_INLINE uint32_t feature_record_place(uint64_t seed, uint64_t nth)
{
	return (uint32_t)(nth < FEATURE_RECORDS ? nth : feature_hash(seed, (struct feature_key){1, nth}) >> 54);
}

WEIR_INLINE struct feature_key feature_whole(packet_view *packet, const WEIR_FRESH struct wide *address)
{
	if (packet->l3 == L3_IPV4)
		return feature_whole4(*(const WEIR_FRESH uint32_t *)address);
	return (struct feature_key){address->hi, address->lo};
}

WEIR_INLINE void feature_fill(struct feature_record *record, packet_view *packet, uint32_t class, uint32_t len)
{
	record->source = feature_whole(packet, &packet->saddr6);
	record->destination = feature_whole(packet, &packet->daddr6);
	record->len = len;
	record->sport = packet->sport;
	record->dport = packet->dport;
	record->proto = packet->proto;
	record->ttl = packet->ttl;
	record->tcp_flags = packet->tcp_flags;
	record->class = (uint8_t)class;
}

#endif
