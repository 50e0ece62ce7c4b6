/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The rules of slots in the kernel (slots/slot.h), which decide one packet. For bursts: slots/burst.h.
 *
 * A slot is a map that programs of all generations share. Its rules are a global function, which the verifier follows
 * once; it reads the fields of the packet from the CPU's slot, a map's value, so nothing is known of them.
 */
#ifndef WEIR_SLOTS_KERNEL_H
#define WEIR_SLOTS_KERNEL_H

#include "core/compare.h"
#include "kernel/bpf.h"
#include "kernel/mode.h"
#include "core/raw.h"
#include "slots/slot.h"
#include "kernel/hook.h"

/* 1 if the value is outside of the range of a field, else 0. A branch would double the verifier's paths. */
WEIR_INLINE uint64_t slot_misses(const volatile struct slot_rule *rule, enum slot_field field, uint32_t value)
{
	uint64_t difference = (uint64_t)rule->span[field] - (uint32_t)(value - rule->first[field]);

	__asm__ volatile("" : "+r"(difference));
	return difference >> 63;
}

/* 1 if an address is outside of a range, else 0. */
WEIR_INLINE uint64_t slot_outside(const volatile struct slot_range *range, uint64_t hi, uint64_t lo)
{
	const struct wide first = {range->first.hi, range->first.lo}, last = {range->last.hi, range->last.lo};

	return is_outside((struct wide){hi, lo}, first, last);
}

/* Whether the rule does not match the packet. `payload` has the four bytes, `headers` what the packet has. */
WEIR_INLINE uint64_t slot_misses_rule(const volatile struct slot_rule *rule, packet_view *packet, uint32_t headers,
				      uint32_t payload)
{
	uint64_t misses = rule->headers & ~headers;

	misses |= slot_misses(rule, SLOT_PROTOCOL, packet->proto);
	misses |= slot_misses(rule, SLOT_FRAGMENT, packet->fragment);
	misses |= slot_misses(rule, SLOT_SPORT, packet->sport);
	misses |= slot_misses(rule, SLOT_DPORT, packet->dport);
	misses |= slot_misses(rule, SLOT_WINDOW, packet->window);
	misses |= slot_misses(rule, SLOT_DOFF, packet->doff);
	misses |= slot_misses(rule, SLOT_ICMP_TYPE, packet->icmp_type);
	misses |= slot_misses(rule, SLOT_ICMP_CODE, packet->icmp_code);
	misses |= slot_misses(rule, SLOT_FLAGS, packet->tcp_flags & rule->flags_mask);
	misses |= slot_misses(rule, SLOT_TTL, packet->ttl);
	misses |= slot_misses(rule, SLOT_LENGTH, packet->len - packet->l3_offset);
	misses |= slot_misses(rule, SLOT_PAYLOAD, payload);
	return misses;
}

/* Whether the addresses of the rule do not match the packet. */
WEIR_INLINE uint64_t slot_misses_addresses(const volatile struct slot_rule *rule, packet_view *packet, uint32_t headers)
{
	uint64_t misses = 0;

	if (headers & SLOT_IPV4) {
		misses |= slot_outside(&rule->saddr, 0, packet->saddr);
		misses |= slot_outside(&rule->daddr, 0, packet->daddr);
	} else {
		misses |= slot_outside(&rule->saddr, packet->saddr6.hi, packet->saddr6.lo);
		misses |= slot_outside(&rule->daddr, packet->daddr6.hi, packet->daddr6.lo);
	}
	return misses;
}

/* What slot_payload() returns if the packet does not have these bytes. */
#define SLOT_NO_PAYLOAD UINT64_MAX

/* The bits `@th,64,32`. */
WEIR_INLINE uint64_t slot_payload(packet_view *packet, const struct frame *frame)
{
	struct wide raw;

	if (packet->l4 == L4_NONE || !raw_bits(frame, packet->l4_offset + 8u, 0, 32, &raw))
		return SLOT_NO_PAYLOAD;
	return raw.lo;
}

WEIR_INLINE void slot_count(struct slot_counter *counter, uint32_t len)
{
	__sync_fetch_and_add(&counter->packets, wire_packets());
	__sync_fetch_and_add(&counter->bytes, wire_bytes(len));
}

WEIR_INLINE void slot_count_dropped(struct slot_counter *counter, uint32_t len)
{
	__sync_fetch_and_add(&counter->dropped, wire_packets());
	__sync_fetch_and_add(&counter->dropped_bytes, wire_bytes(len));
}

/* Charges the packet to a bucket of a slot; false if it has no room. */
WEIR_INLINE bool slot_has_room(struct rule_slot *slot, uint32_t index, uint64_t now_ns, uint32_t len)
{
	const struct slot_rule *rule = &slot->records[bounded(index, 2 * SLOT_RULES_MAX - 1)];
	uint64_t *bucket = &slot->buckets[bounded(rule->cell, SLOT_CELLS - 1)];

	return limit_charge(bucket, now_ns << TICK_SHIFT, limit_cost(rule->limit, len), rule->limit.room) !=
	       LIMIT_NO_ROOM;
}

/* The rules of a slot for one packet. */
struct slot_walk {
	uint64_t payload; /* slot_payload() */
	uint64_t now_ns;
	uint32_t copy; /* index of the first record */
	uint32_t drops;
};

/* Asks one rule of the slot. Returns 1 if it drops the packet, which ends the loop. `room` is slot_has_room() of it. */
WEIR_INLINE long slot_step(struct rule_slot *slot, uint32_t step, struct slot_walk *walk,
			   uint32_t (*room)(uint32_t index, uint64_t now_ns, uint32_t len))
{
	packet_view *packet = &weir_packets[live_cpu()].packet;
	const uint32_t has_payload = walk->payload == SLOT_NO_PAYLOAD ? 0 : SLOT_HAS_PAYLOAD;
	const uint32_t headers = slot_headers(packet) | has_payload;
	const uint32_t index = bounded(walk->copy + step, 2 * SLOT_RULES_MAX - 1);
	const volatile struct slot_rule *rule = &slot->records[index];
	const uint32_t stripe = (live_cpu() & (SLOT_STRIPES - 1)) * SLOT_CELLS;
	const uint32_t len = packet->len;
	struct slot_counter *counter;
	uint32_t act;

	if (slot_misses_rule(rule, packet, headers, (uint32_t)walk->payload))
		return 0;
	if ((rule->tested & (SLOT_SADDR | SLOT_DADDR)) && slot_misses_addresses(rule, packet, headers))
		return 0;
	counter = &slot->counters[bounded(stripe + rule->cell, SLOT_STRIPES * SLOT_CELLS - 1)];
	slot_count(counter, len);
	act = rule->act;
	if (act == SLOT_COUNT || (act == SLOT_LIMIT && room(index, walk->now_ns, len)))
		return 0;
	slot_count_dropped(counter, len);
	walk->drops = 1;
	return 1;
}

/* Whether a rule of the slot drops the packet of this CPU. The verifier follows `step` a few times only. */
WEIR_INLINE uint32_t slot_drops(struct rule_slot *slot, uint64_t payload, uint64_t now_ns,
				long (*step)(uint32_t step, void *walk))
{
	const uint64_t active = *(volatile uint64_t *)&slot->active;
	const uint32_t copy = (uint32_t)(active >> 32) * SLOT_RULES_MAX;
	struct slot_walk walk = {.payload = payload, .now_ns = now_ns, .copy = copy};

	read_fence();
	repeat((uint32_t)active, step, &walk);
	return walk.drops;
}

/* Drops a packet by a slot. Counts it by reason, and in `beside`: packets that slots of the rule dropped. */
WEIR_INLINE uint32_t decide_by_slot(const struct env *env, uint32_t beside, uint32_t len)
{
	count(env, beside, len);
	return decide(env, ACTION_DROP, REASON_SLOT, len);
}

/*
 * Defines a slot: its section, which the engine replaces by the map that all programs share, and
 * slot_<number>_drops().
 */
#define WEIR_SLOT(number)                                                                                              \
	struct rule_slot weir_slot_##number __attribute__((aligned(64))) WEIR_SECTION(".bss.slot" #number);            \
                                                                                                                       \
	WEIR_GLOBAL uint32_t weir_slot_##number##_room(uint32_t index, uint64_t now_ns, uint32_t len)                  \
	{                                                                                                              \
		return slot_has_room(&weir_slot_##number, index, now_ns, len);                                         \
	}                                                                                                              \
                                                                                                                       \
	static long weir_slot_##number##_step(uint32_t step, void *walk)                                               \
	{                                                                                                              \
		return slot_step(&weir_slot_##number, step, walk, weir_slot_##number##_room);                          \
	}                                                                                                              \
                                                                                                                       \
	WEIR_GLOBAL uint32_t weir_slot_##number##_rules(uint64_t payload, uint64_t now_ns)                             \
	{                                                                                                              \
		return slot_drops(&weir_slot_##number, payload, now_ns, weir_slot_##number##_step);                    \
	}                                                                                                              \
                                                                                                                       \
	/* No rule may ask it. */                                                                                      \
	__attribute__((unused)) WEIR_INLINE bool slot_##number##_drops(const struct env *env, packet_view *packet,     \
								       const struct frame *frame)                      \
	{                                                                                                              \
		if (!(uint32_t)*(volatile uint64_t *)&weir_slot_##number.active)                                       \
			return false;                                                                                  \
		return weir_slot_##number##_rules(slot_payload(packet, frame), env_now(env));                          \
	}

#endif
