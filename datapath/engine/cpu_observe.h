/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Feature extraction in the kernel (feature.h), where each CPU has sheets of its own. For bursts: observe_burst.h.
 *
 * Every packet passes through here, with any verdict. So there are few branches, and the verifier knows nothing of the
 * verdict. Otherwise it would follow this code for each rule.
 */
#ifndef WEIR_CPU_OBSERVE_H
#define WEIR_CPU_OBSERVE_H

#include "compare.h"
#include "feature.h"
#include "hook.h"
#include "kernel.h"
#include "mode.h"

/* FeatureHead in crates/abi/src/features.rs. The engine changes `selected`. */
struct feature_head {
	volatile uint64_t selected; /* the sheet that is written: 0 or 1 */
	uint64_t seed;
	uint64_t cpus;
	uint64_t zero[5];
} __attribute__((aligned(64)));

/* The engine replaces the section by the map that programs of all generations share. */
struct feature_head weir_feature_head WEIR_SECTION(".bss.features");

/* The sheets: the first one of all CPUs, then the second one. The engine replaces the map, too. */
struct {
	int (*type)[BPF_MAP_TYPE_ARRAY];
	int (*max_entries)[1];
	uint32_t *key;
	union feature_element *value;
	int (*map_flags)[BPF_F_MMAPABLE];
} weir_features WEIR_SECTION(".maps");

WEIR_INLINE union feature_element *feature_element(uint32_t number)
{
	return bpf_map_lookup_elem(&weir_features, &number);
}

/* The lowest bit of a number from 1 to 15: two bits of a word for each. */
WEIR_INLINE uint32_t lowest_of_four(uint64_t bits)
{
	return UINT32_C(0x12131210) >> 2 * (bits & 15) & 3;
}

/* a if `is` is 1, b if it is 0. */
WEIR_INLINE uint32_t selected(uint64_t is, uint32_t a, uint32_t b)
{
	return b ^ ((a ^ b) & (uint32_t)(0 - is));
}

/* The element of a sheet for an IPv4 packet: its cell, the sum of those outside; or FEATURE_REST if it has a key. */
WEIR_INLINE uint32_t observed4(const struct observing *observing, enum observed_direction direction, uint32_t own)
{
	const uint32_t cells = feature_cells(observing, direction);
	uint32_t element = (observing->is_all ? FEATURE_REST : FEATURE_OUTSIDE) + direction;

	for (uint32_t range = 0; range < observing->count4; range++) {
		const struct observed_range4 *of = &observing->inside4[range];
		const uint32_t cell =
			cells + of->place + (own >> (observing->shift4 & 31)) - (of->first >> (observing->shift4 & 31));

		element = selected(is_within(own, of->first, of->last),
				   observing->groups ? FEATURE_REST + direction : cell, element);
	}
	return element;
}

WEIR_INLINE uint32_t observed6(const struct observing *observing, enum observed_direction direction, struct wide own)
{
	const uint32_t cells = feature_cells(observing, direction);
	uint32_t element = (observing->is_all ? FEATURE_REST : FEATURE_OUTSIDE) + direction;

	for (uint32_t range = 0; range < observing->count6; range++) {
		const struct observed_range6 *of = &observing->inside6[range];
		const uint32_t cell =
			cells + of->place + feature_prefix6(observing, own) - feature_prefix6(observing, of->first);

		element = selected(is_outside(own, of->first, of->last) ^ 1,
				   observing->groups ? FEATURE_REST + direction : cell, element);
	}
	return element;
}

/*
 * The cell of a key in its group; one without a cell gets a free one. The sum of the rest if there is no room. `group`
 * is an element of all sheets, and `cell` that of the group's first cell in its own sheet.
 */
WEIR_INLINE uint32_t observed_cell(uint32_t group, uint32_t cell, struct feature_key key,
				   enum observed_direction direction)
{
	union feature_element *element = feature_element(group);
	uint64_t known = 0, is_free = 0;
	uint32_t at;

	if (!element)
		return FEATURE_REST + direction;
	for (uint32_t i = 0; i < FEATURE_GROUP; i++) {
		const struct feature_key of = element->keys[i];

		known |= is_same((of.low ^ key.low) | (of.high ^ key.high), 0) << i;
		is_free |= is_same(of.low | of.high, 0) << i;
	}
	if (!known) {
		if (!is_free)
			return FEATURE_REST + direction;
		known = is_free;
		at = lowest_of_four(known);
		element->keys[at] = key;
		return cell + at;
	}
	return cell + lowest_of_four(known);
}

/* Writes the record of a packet if it is sampled. */
WEIR_INLINE void observe_sample(packet_view *packet, uint32_t sheet, const struct observing *observing,
				enum observed_direction direction, uint32_t class)
{
	union feature_element *element = feature_element(sheet + FEATURE_SAMPLER + direction), *record;
	const uint64_t seed = weir_feature_head.seed;
	struct feature_sampler *sampler;
	uint64_t place;

	if (!element)
		return;
	sampler = &element->sampler;
	if (WEIR_LIKELY(sampler->seen++ != sampler->next))
		return;
	place = feature_record_place(seed, sampler->taken++);
	sampler->next = feature_next(seed, sampler->taken);
	if (place >= FEATURE_RECORDS)
		return;
	record = feature_element(sheet + feature_records(observing, direction) + (uint32_t)place);
	if (record)
		feature_fill(&record->record, packet, class, packet->len);
}

/* Counts a packet with this verdict if it passes. Returns the verdict. */
WEIR_INLINE uint32_t observe(packet_view *packet, const struct observing *observing, enum observed_direction direction,
			     uint32_t verdict)
{
	const struct feature_head *head = &weir_feature_head;
	const uint32_t decided = forget(verdict);
	uint32_t sheet, element = FEATURE_WITHOUT_ADDRESS + direction, class, hash;
	union feature_element *counted;
	struct feature_key key = {0, 0};
	uint32_t peer = 0, peer_mask = 0;

	if (!is_accepted(decided))
		return verdict;
	sheet = (uint32_t)(head->selected * head->cpus + live_cpu()) * feature_elements(observing);
	class = class_of(packet);
	if (WEIR_UNLIKELY(is_malformed(decided))) {
		class = PACKET_OTHER;
	} else if (packet->l3 == L3_IPV4) {
		const uint32_t own = direction == OBSERVED_UPSTREAM ? packet->daddr : packet->saddr;

		element = observed4(observing, direction, own);
		key = feature_key4(observing, own);
		peer_mask = 0xffff;
		peer = feature_peer4(head->seed, direction == OBSERVED_UPSTREAM ? packet->saddr : packet->daddr);
	} else if (packet->l3 == L3_IPV6) {
		const struct wide saddr = {packet->saddr6.hi, packet->saddr6.lo};
		const struct wide daddr = {packet->daddr6.hi, packet->daddr6.lo};
		const struct wide own = direction == OBSERVED_UPSTREAM ? daddr : saddr;

		element = observed6(observing, direction, own);
		key = feature_key6(observing, own);
		peer_mask = 0xffff;
		peer = feature_peer6(head->seed, direction == OBSERVED_UPSTREAM ? saddr : daddr);
	}
	element = forget(element);
	if (observing->groups && element < FEATURE_WITHOUT_ADDRESS) {
		const uint32_t group = (uint32_t)(feature_hash(head->seed, key) >> 32) & (observing->groups - 1);

		element = forget(observed_cell(sheet + feature_keys(observing, direction) + group,
					       feature_cells(observing, direction) + group * FEATURE_GROUP, key,
					       direction));
	}
	counted = feature_element(sheet + element);
	if (!counted)
		return verdict;
	hash = feature_peer_hash(peer);
	/* The packets that a card makes of it. */
	counted->cell.packets[class & 15] += wire_packets();
	counted->cell.bytes += wire_bytes(packet->len);
	counted->cell.peers[hash % FEATURE_LANES] |= (uint16_t)(feature_peer_bit(hash) & peer_mask);
	if (element - FEATURE_WITHOUT_ADDRESS >= FEATURE_SAMPLER - FEATURE_WITHOUT_ADDRESS)
		observe_sample(packet, sheet, observing, direction, class);
	return verdict;
}

#endif
