/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Feature extraction in the kernel (feature.h), where each CPU has sheets of its own. For bursts: observe_burst.h. */
#ifndef WEIR_CPU_OBSERVE_H
#define WEIR_CPU_OBSERVE_H

#include "feature.h"
#include "hook.h"
#include "kernel.h"
#include "mode.h"

/* FeatureHead in crates/abi/src/features.rs. The engine changes `selected`. */
struct feature_head {
	volatile uint64_t selected; /* the sheet that is written: 0 or 1 */
	uint64_t seed;
	uint64_t mask;	 /* groups of a direction - 1 */
	uint64_t stride; /* groups of a sheet */
	uint64_t cpus;
	uint64_t zero[3];
} __attribute__((aligned(64)));

struct feature_group {
	struct feature_entry entries[FEATURE_GROUP];
};

/* The engine replaces the section by the map that programs of all generations share. */
struct feature_head weir_feature_head WEIR_SECTION(".bss.features");

/* The sheets: the first one of all CPUs, then the second one. The engine replaces the map, too. */
struct {
	int (*type)[BPF_MAP_TYPE_ARRAY];
	int (*max_entries)[1];
	uint32_t *key;
	struct feature_group *value;
	int (*map_flags)[BPF_F_MMAPABLE];
} weir_features WEIR_SECTION(".maps");

/* Counts a packet with this verdict if it passes. Returns the verdict. */
WEIR_INLINE uint32_t observe(const struct env *env, packet_view *packet, const struct observing *observing,
			     enum observed_direction direction, uint32_t verdict)
{
	const struct feature_head *head = &weir_feature_head;
	const bool malformed = is_malformed(verdict);
	enum observed_as as = OBSERVED_WITHOUT_ADDRESS;
	struct feature_entry *entry = NULL;
	struct feature_group *group;
	struct feature_key key;
	uint32_t sheet;

	if (!is_accepted(verdict))
		return verdict;
	sheet = (uint32_t)((head->selected * head->cpus + live_cpu()) * head->stride);
	if (!malformed)
		as = observed_as(observing, packet, direction, &key);
	if (as == OBSERVED_INSIDE) {
		const uint64_t hash = feature_hash(head->seed, key);
		const uint32_t number = sheet + FEATURE_SUM_GROUPS +
					(uint32_t)(direction * (head->mask + 1) + (hash >> 32 & head->mask));

		group = bpf_map_lookup_elem(&weir_features, &number);
		if (group)
			entry = feature_place(group->entries, key, hash);
	}
	if (!entry) {
		group = bpf_map_lookup_elem(&weir_features, &sheet);
		if (!group)
			return verdict;
		entry = &group->entries[feature_sum(as) + direction];
	}
	/* The packets that a card makes of it. */
	feature_count(entry, malformed ? (uint32_t)PACKET_OTHER : class_of(packet), wire_packets(),
		      wire_bytes(packet->len));
	return verdict;
}

#endif
