/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Slots: rules that are data, so they change while packets pass. crates/abi/src/slot.rs has the layout and says how a
 * slot is changed. For bursts: slots/burst.h; in the kernel: slots/kernel.h.
 *
 * A rule matches if the packet has all headers that it needs and the value of each field is in its range. A field that
 * the rule does not test has a range with all values.
 */
#ifndef WEIR_SLOTS_SLOT_H
#define WEIR_SLOTS_SLOT_H

#include "core/env.h"
#include "limits/charge.h"
#include "core/fields.h"
#include "core/verdict.h"

enum {
	SLOT_RULES_MAX = 64,
	SLOT_CELLS = 128,  /* buckets and counters of two sets of rules */
	SLOT_STRIPES = 32, /* of counters; a power of two */
	SLOT_FIELDS = 12,
};

/* Fields with up to 32 bits. */
enum slot_field {
	SLOT_PROTOCOL = 0,
	SLOT_FRAGMENT = 1,
	SLOT_SPORT = 2,
	SLOT_DPORT = 3,
	SLOT_WINDOW = 4,
	SLOT_DOFF = 5,
	SLOT_ICMP_TYPE = 6,
	SLOT_ICMP_CODE = 7,
	SLOT_FLAGS = 8,
	SLOT_TTL = 9,
	SLOT_LENGTH = 10,
	SLOT_PAYLOAD = 11,
};

/* What a packet has. */
enum slot_header {
	SLOT_IPV4 = 1,
	SLOT_IPV6 = 2,
	SLOT_IP = 4,
	SLOT_TCP = 8,
	SLOT_UDP = 16,
	SLOT_ICMP = 32,
	SLOT_ICMP6 = 64,
	SLOT_PORTS = 128,
	SLOT_TRANSPORT = 256,
	SLOT_HAS_PAYLOAD = 512,
};

/* Bits of slot_rule.tested besides 1 << field. */
enum slot_address {
	SLOT_SADDR = 1 << 12,
	SLOT_DADDR = 1 << 13,
};

enum slot_act {
	SLOT_COUNT = 0,
	SLOT_DROP = 1,
	SLOT_LIMIT = 2, /* drop above a rate */
};

/* Both ends of a range of addresses. IPv4 addresses are in the lower halves. */
struct slot_range {
	struct wide first;
	struct wide last;
};

/* A rate as it was written, for listings. */
struct slot_rate {
	uint64_t count;
	uint64_t burst;
	uint32_t unit;
	uint32_t zero;
};

struct slot_rule {
	struct slot_range saddr;
	struct slot_range daddr;
	uint32_t first[SLOT_FIELDS];
	uint32_t span[SLOT_FIELDS]; /* the highest value less the lowest one */
	uint32_t headers;	    /* enum slot_header */
	uint32_t tested;	    /* 1 << enum slot_field, enum slot_address */
	uint32_t flags_mask;	    /* of TCP */
	uint32_t cell;
	uint32_t act; /* enum slot_act */
	uint32_t number;
	struct limit_profile limit;
	struct slot_rate rate;
	uint64_t zero[2];
};

struct slot_counter {
	uint64_t packets;
	uint64_t bytes;
	uint64_t dropped;
	uint64_t dropped_bytes;
};

struct rule_slot {
	uint64_t active; /* copy << 32 | number of rules */
	uint64_t zero[7];
	struct slot_rule records[2 * SLOT_RULES_MAX];
	uint64_t buckets[SLOT_CELLS];
	struct slot_counter counters[SLOT_STRIPES * SLOT_CELLS];
};

_Static_assert(sizeof(struct slot_rule) == 256, "abi: SlotRule");
_Static_assert(offsetof(struct slot_rule, headers) == 160 && offsetof(struct slot_rule, limit) == 184, "abi: SlotRule");
_Static_assert(sizeof(struct slot_counter) == 32, "abi: SlotCounter");
_Static_assert(sizeof(struct rule_slot) == 164928, "abi: SlotImage");

/* What the packet has of enum slot_header, without SLOT_HAS_PAYLOAD. */
WEIR_INLINE uint32_t slot_headers(packet_view *packet)
{
	uint32_t headers = 0;

	switch (packet->l3) {
	case L3_IPV4:
		headers = SLOT_IPV4 | SLOT_IP;
		break;
	case L3_IPV6:
		headers = SLOT_IPV6 | SLOT_IP;
		break;
	default:
		break;
	}
	switch (packet->l4) {
	case L4_TCP:
		return headers | SLOT_TCP | SLOT_PORTS | SLOT_TRANSPORT;
	case L4_UDP:
		return headers | SLOT_UDP | SLOT_PORTS | SLOT_TRANSPORT;
	case L4_ICMP:
		return headers | SLOT_ICMP | SLOT_TRANSPORT;
	case L4_ICMP6:
		return headers | SLOT_ICMP6 | SLOT_TRANSPORT;
	case L4_PORTS:
		return headers | SLOT_PORTS | SLOT_TRANSPORT;
	case L4_OTHER:
		return headers | SLOT_TRANSPORT;
	default:
		return headers;
	}
}

#endif
