/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The rules of a slot decide a burst (slots/slot.h), one rule after the other as compiled rules do (core/burst.h). The
 * headers are parsed again into columns of all fields, so an empty slot costs a load and policies keep no columns for
 * it.
 */
#ifndef WEIR_SLOTS_BURST_H
#define WEIR_SLOTS_BURST_H

#include "core/burst.h"
#include "core/packet.h"
#include "core/raw.h"
#include "slots/slot.h"

#ifdef WEIR_BURSTS

struct slot_packets {
	struct wide_column saddr6;
	struct wide_column daddr6;
	uint32_t saddr[WEIR_BURST_MAX];
	uint32_t daddr[WEIR_BURST_MAX];
	uint32_t length[WEIR_BURST_MAX];
	uint32_t payload[WEIR_BURST_MAX];
	uint16_t headers[WEIR_BURST_MAX]; /* enum slot_header */
	uint16_t sport[WEIR_BURST_MAX];
	uint16_t dport[WEIR_BURST_MAX];
	uint16_t window[WEIR_BURST_MAX];
	uint8_t proto[WEIR_BURST_MAX];
	uint8_t fragment[WEIR_BURST_MAX];
	uint8_t doff[WEIR_BURST_MAX];
	uint8_t icmp_type[WEIR_BURST_MAX];
	uint8_t icmp_code[WEIR_BURST_MAX];
	uint8_t flags[WEIR_BURST_MAX];
	uint8_t ttl[WEIR_BURST_MAX];
} WEIR_COLUMNS;

/* Parses the hits. They are well-formed, because rules decide them. */
WEIR_INLINE void slot_parse(const struct weir_burst *burst, struct slot_packets *packets, uint64_t hits)
{
	for (uint64_t left = hits; left; left &= left - 1) {
		const uint32_t i = first_of(left);
		const struct frame frame = burst_frame(burst, i);
		struct wide raw = {0, 0};
		struct packet parsed;
		packet_view *packet = &parsed;
		uint32_t headers;

		parse_again(&frame, &parsed);
		headers = slot_headers(packet);
		if ((headers & SLOT_TRANSPORT) && raw_bits(&frame, packet->l4_offset + 8u, 0, 32, &raw))
			headers |= SLOT_HAS_PAYLOAD;
		packets->saddr6.hi[i] = packet->saddr6.hi;
		packets->saddr6.lo[i] = packet->saddr6.lo;
		packets->daddr6.hi[i] = packet->daddr6.hi;
		packets->daddr6.lo[i] = packet->daddr6.lo;
		packets->saddr[i] = packet->saddr;
		packets->daddr[i] = packet->daddr;
		packets->length[i] = packet->len - packet->l3_offset;
		packets->payload[i] = (uint32_t)raw.lo;
		packets->headers[i] = (uint16_t)headers;
		packets->sport[i] = packet->sport;
		packets->dport[i] = packet->dport;
		packets->window[i] = packet->window;
		packets->proto[i] = packet->proto;
		packets->fragment[i] = packet->fragment;
		packets->doff[i] = packet->doff;
		packets->icmp_type[i] = packet->icmp_type;
		packets->icmp_code[i] = packet->icmp_code;
		packets->flags[i] = packet->tcp_flags;
		packets->ttl[i] = packet->ttl;
	}
}

/* The packets with an address in the range. The headers say which family the rule is for. */
WEIR_INLINE uint64_t slot_in_range(const struct slot_rule *rule, const struct slot_range *range, const uint32_t *narrow,
				   const struct wide_column *wide)
{
	if (rule->headers & SLOT_IPV4)
		return u32_between(narrow, (uint32_t)range->first.lo, (uint32_t)range->last.lo);
	return wide_column_between(wide, range->first.hi, range->first.lo, range->last.hi, range->last.lo);
}

/* Tests one field of a rule, if the rule does. */
#define SLOT_TEST(rule, hits, field, bits, column)                                                                     \
	do {                                                                                                           \
		const uint##bits##_t low = (uint##bits##_t)(rule)->first[field];                                       \
		const uint##bits##_t span = (uint##bits##_t)(rule)->span[field];                                       \
                                                                                                                       \
		if ((rule)->tested & 1u << (field))                                                                    \
			(hits) &= u##bits##_between(column, low, (uint##bits##_t)(low + span));                        \
	} while (0)

/* The packets among `hits` that the rule matches. */
WEIR_NOINLINE uint64_t slot_matching(const struct slot_rule *rule, const struct slot_packets *packets, uint64_t hits)
{
	const uint16_t headers = (uint16_t)rule->headers;

	hits &= u16_masked(packets->headers, headers, headers, headers);
	if (rule->tested & SLOT_DADDR)
		hits &= slot_in_range(rule, &rule->daddr, packets->daddr, &packets->daddr6);
	if (rule->tested & SLOT_SADDR)
		hits &= slot_in_range(rule, &rule->saddr, packets->saddr, &packets->saddr6);
	SLOT_TEST(rule, hits, SLOT_PROTOCOL, 8, packets->proto);
	SLOT_TEST(rule, hits, SLOT_FRAGMENT, 8, packets->fragment);
	SLOT_TEST(rule, hits, SLOT_SPORT, 16, packets->sport);
	SLOT_TEST(rule, hits, SLOT_DPORT, 16, packets->dport);
	SLOT_TEST(rule, hits, SLOT_WINDOW, 16, packets->window);
	SLOT_TEST(rule, hits, SLOT_DOFF, 8, packets->doff);
	SLOT_TEST(rule, hits, SLOT_ICMP_TYPE, 8, packets->icmp_type);
	SLOT_TEST(rule, hits, SLOT_ICMP_CODE, 8, packets->icmp_code);
	SLOT_TEST(rule, hits, SLOT_TTL, 8, packets->ttl);
	SLOT_TEST(rule, hits, SLOT_LENGTH, 32, packets->length);
	SLOT_TEST(rule, hits, SLOT_PAYLOAD, 32, packets->payload);
	if (rule->tested & 1u << SLOT_FLAGS) {
		const uint8_t flags = (uint8_t)rule->first[SLOT_FLAGS];

		hits &= u8_masked(packets->flags, (uint8_t)rule->flags_mask, flags, flags);
	}
	return hits;
}

/* Charges the hits to the rule's bucket. Returns those without room. */
WEIR_NOINLINE uint64_t slot_exceeding(const struct weir_burst *burst, struct rule_slot *slot,
				      const struct slot_rule *rule, uint64_t hits)
{
	uint64_t exceeding = 0;

	for (uint64_t left = hits; left; left &= left - 1) {
		const uint32_t i = first_of(left);
		const uint64_t now = burst_time(burst, i) << TICK_SHIFT;
		const uint64_t cost = limit_cost(rule->limit, burst->frames[i].len);

		if (limit_charge(&slot->buckets[rule->cell], now, cost, rule->limit.room) == LIMIT_NO_ROOM)
			exceeding |= UINT64_C(1) << i;
	}
	return exceeding;
}

/* Workers whose stripes are the same count at once. */
WEIR_INLINE void slot_add(uint64_t *packets, uint64_t *bytes, const struct verdicts *verdicts, uint64_t hits)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < WEIR_BURST_MAX; i++)
		sum += hits >> i & 1 ? verdicts->lens[i] : 0;
	__sync_fetch_and_add(packets, (uint64_t)__builtin_popcountll(hits));
	__sync_fetch_and_add(bytes, sum);
}

/* The packets among `hits` that the rules of a slot drop. */
WEIR_NOINLINE uint64_t slot_rules(const struct weir_burst *burst, const struct verdicts *verdicts,
				  struct rule_slot *slot, uint64_t active, uint64_t hits)
{
	const struct slot_rule *rules = &slot->records[(active >> 32) * SLOT_RULES_MAX];
	struct slot_counter *counters = &slot->counters[burst->slots.stripe * SLOT_CELLS];
	const uint32_t count = (uint32_t)active;
	struct slot_packets packets;
	uint64_t open = hits;

	slot_parse(burst, &packets, hits);
	for (uint32_t i = 0; i < count && open; i++) {
		const struct slot_rule *rule = &rules[i];
		struct slot_counter *counter = &counters[rule->cell];
		const uint64_t matching = slot_matching(rule, &packets, open);
		uint64_t dropped = 0;

		if (!matching)
			continue;
		slot_add(&counter->packets, &counter->bytes, verdicts, matching);
		if (rule->act == SLOT_DROP)
			dropped = matching;
		else if (rule->act == SLOT_LIMIT)
			dropped = slot_exceeding(burst, slot, rule, matching);
		if (!dropped)
			continue;
		slot_add(&counter->dropped, &counter->dropped_bytes, verdicts, dropped);
		open &= ~dropped;
	}
	return hits & ~open;
}

/*
 * Drops packets among `hits` as the rules of a slot say. Returns the others. `beside` counts packets that slots of the
 * rule dropped.
 */
WEIR_INLINE uint64_t slot_hits(const struct env *env, const struct weir_burst *burst, struct verdicts *verdicts,
			       uint32_t number, uint32_t beside, uint64_t hits)
{
	struct rule_slot *slot = burst->slots.slots[number];
	const uint64_t active = __atomic_load_n(&slot->active, __ATOMIC_ACQUIRE);
	uint64_t dropped;

	if (WEIR_LIKELY(!(uint32_t)active) || !hits)
		return hits;
	dropped = slot_rules(burst, verdicts, slot, active, hits);
	if (!dropped)
		return hits;
	count_hits(env, REASON_SLOT, dropped, verdicts);
	count_hits(env, beside, dropped, verdicts);
	settle(verdicts, dropped, (uint32_t)ACTION_DROP | (uint32_t)REASON_SLOT << 16);
	return hits & ~dropped;
}

#endif
#endif
