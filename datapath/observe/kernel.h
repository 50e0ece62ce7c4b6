/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Feature extraction in the kernel (observe/feature.h), where each CPU has sheets of its own. For bursts:
 * observe/burst.h.
 *
 * Every packet passes through here, with any verdict. So there are few branches, and the verifier knows nothing of the
 * verdict. Otherwise it would follow this code for each rule.
 *
 * A packet enters a queue of its CPU. A full queue is counted at once, by a loop whose rounds do not depend on each
 * other, so the processor fetches the cells of many packets together. Each sheet has queues of its own. What waits in
 * one when the sheets are exchanged is counted by the reader (crates/state/src/features/waiting.rs).
 */
#ifndef WEIR_OBSERVE_KERNEL_H
#define WEIR_OBSERVE_KERNEL_H

#include "core/compare.h"
#include "observe/feature.h"
#include "kernel/hook.h"
#include "kernel/bpf.h"
#include "kernel/mode.h"

enum {
	FEATURE_QUEUE = 64,  /* packets that are counted together */
	FEATURE_NEAR = 8192, /* groups whose keys are usually in the cache: 512 KiB */
	FEATURE_FEW = 16,    /* searches that do not wait for much memory */
};

/* Elements of packets whose cell has a key: KEYED4 and KEYED6 in crates/abi/src/features/waiting.rs. */
#define FEATURE_KEYED4 UINT32_MAX
#define FEATURE_KEYED6 (UINT32_MAX - 1)

/* A packet that is not counted yet: WaitingPacket in crates/abi/src/features/waiting.rs, with a diagram. */
struct feature_waiting {
	struct feature_key key; /* if a hash selects cells */
	uint32_t element;	/* of the sheet, or FEATURE_KEYED4 or 6 */
	uint32_t bytes;
	uint16_t packets;
	uint16_t bit;	    /* of its peer, in the lane; 0 if it has none */
	uint8_t packets_at; /* of the counter of the class in a cell, bytes */
	uint8_t bit_at;	    /* of the lane of the peer */
	uint16_t zero;
};

/* Packets of a CPU and direction that the sheet does not have yet, and its sampler: found without a search. */
struct feature_queue {
	uint64_t waiting; /* below FEATURE_QUEUE */
	uint64_t seen;	  /* these three as in struct feature_sampler */
	uint64_t next;
	uint64_t taken;
	uint64_t zero[4];
	struct feature_waiting packets[FEATURE_QUEUE];
} __attribute__((aligned(64)));

/* FeatureHead in crates/abi/src/features.rs. The engine changes `selected`. */
struct feature_head {
	volatile uint64_t selected; /* the sheet that is written: 0 or 1 */
	uint64_t seed;
	uint64_t zero[6];
} __attribute__((aligned(64)));

/*
 * The head, and behind it the queues of sheets, CPUs and directions, in the order of queue_at() in waiting.rs. The
 * engine replaces the section by the map that programs of all generations share, with queues for all CPUs. These are
 * for one.
 */
struct feature_head weir_feature_head WEIR_SECTION(".bss.features");
struct feature_queue weir_feature_queues[4] WEIR_SECTION(".bss.features");

/* The sheets, two of each CPU. The engine replaces the map by one whose values are whole sheets. */
struct {
	int (*type)[BPF_MAP_TYPE_ARRAY];
	int (*max_entries)[1];
	uint32_t *key;
	union feature_element *value;
	int (*map_flags)[BPF_F_MMAPABLE];
} weir_features WEIR_SECTION(".maps");

/* What the policy observes, which generated code says. */
static const struct observing observing;

/* The sheet that this CPU writes, among the sheets of all CPUs. */
WEIR_INLINE uint32_t feature_sheet(void)
{
	return (uint32_t)plus(live_cpu() * 2, weir_feature_head.selected & 1);
}

WEIR_INLINE union feature_element *feature_elements_of(uint32_t sheet)
{
	return bpf_map_lookup_elem(&weir_features, &sheet);
}

/* An element of a sheet, and what is up to 255 bytes behind its start; NULL if the sheet has none with this number. */
WEIR_INLINE union feature_element *element_at(union feature_element *elements, uint32_t number)
{
	__asm__ volatile("" : "+r"(number));
	if (WEIR_UNLIKELY(number > feature_elements(&observing) - 5))
		return NULL;
	return elements + number;
}

/* a if `is` is 1, b if it is 0. */
WEIR_INLINE uint32_t selected(uint64_t is, uint32_t a, uint32_t b)
{
	return b ^ ((a ^ b) & (uint32_t)(0 - is));
}

/* The element of a sheet for an IPv4 packet: its cell, the sum of those outside; or FEATURE_KEYED4 if it has a key. */
WEIR_INLINE uint32_t observed4(const struct observing *observing, enum observed_direction direction, uint32_t own)
{
	const uint32_t cells = feature_cells(observing, direction);
	uint32_t element = observing->is_all ? FEATURE_KEYED4 : FEATURE_OUTSIDE + direction;

	for (uint32_t range = 0; range < observing->count4; range++) {
		const struct observed_range4 *of = &observing->inside4[range];
		const uint32_t cell =
			cells + of->place + (own >> (observing->shift4 & 31)) - (of->first >> (observing->shift4 & 31));

		element = selected(is_within(own, of->first, of->last), observing->groups ? FEATURE_KEYED4 : cell,
				   element);
	}
	return element;
}

WEIR_INLINE uint32_t observed6(const struct observing *observing, enum observed_direction direction, struct wide own)
{
	const uint32_t cells = feature_cells(observing, direction);
	uint32_t element = observing->is_all ? FEATURE_KEYED6 : FEATURE_OUTSIDE + direction;

	for (uint32_t range = 0; range < observing->count6; range++) {
		const struct observed_range6 *of = &observing->inside6[range];
		const uint32_t cell =
			cells + of->place + feature_prefix6(observing, own) - feature_prefix6(observing, of->first);

		element = selected(is_outside(own, of->first, of->last) ^ 1, observing->groups ? FEATURE_KEYED6 : cell,
				   element);
	}
	return element;
}

/* The place of a key in its group; FEATURE_GROUP if it has none. */
WEIR_INLINE uint32_t key_place(const union feature_element *group, struct feature_key key)
{
	uint64_t differs = 1, place = 0;

	for (uint32_t i = 0; i < FEATURE_GROUP; i++) {
		const uint64_t bits = (group->group.low[i] ^ key.low) | (group->group.high[i] ^ key.high);
		uint64_t of = bits | (0 - bits);

		__asm__ volatile("" : "+r"(of));
		differs &= of >> 63;
		place += differs;
	}
	return (uint32_t)place;
}

/*
 * The cell of a key in its group, whose first cell is given; one without a cell gets a free one. The sum of the rest if
 * there is no room.
 */
WEIR_INLINE uint32_t observed_cell(union feature_element *group, uint32_t cell, struct feature_key key,
				   enum observed_direction direction)
{
	uint32_t place;

	if (!group)
		return FEATURE_REST + direction;
	place = key_place(group, key);
	if (WEIR_UNLIKELY(place == FEATURE_GROUP)) {
		place = key_place(group, (struct feature_key){0, 0});
		if (place == FEATURE_GROUP)
			return FEATURE_REST + direction;
		place = bounded(place, FEATURE_GROUP - 1);
		group->group.low[place] = key.low;
		group->group.high[place] = key.high;
	}
	return cell + place;
}

/* The queue of a sheet. */
WEIR_INLINE struct feature_queue *feature_queue(uint32_t sheet, enum observed_direction direction)
{
	return &weir_feature_queues[2 * sheet + direction];
}

/*
 * Writes the cells of packets whose prefix is among the recent ones, and the groups of other keys. Returns how many
 * those are.
 */
WEIR_INLINE uint32_t observe_recent(struct feature_queue *queue, union feature_element *elements,
				    enum observed_direction direction)
{
	const uint32_t keys = feature_keys(&observing, direction), last = feature_elements(&observing) - 1;
	const uint64_t *cells = elements[feature_recents(&observing, direction)].recents.cells;
	const uint64_t seed = weir_feature_head.seed;
	/* The verifier would follow the rest for each number that it knows. */
	uint32_t searched = forget(0);

#pragma unroll 4
	for (uint32_t i = 0; i < FEATURE_QUEUE; i++) {
		struct feature_waiting *packet = &queue->packets[i];
		const uint32_t prefix = (uint32_t)packet->key.low;
		uint32_t hash;

		if (WEIR_LIKELY(packet->element == FEATURE_KEYED4)) {
			const uint64_t word = cells[bounded(feature_recent(&observing, prefix), observing.size - 1)];
			/* An element, if it is the word of this prefix. */
			const uint64_t element = word ^ feature_recent_word(prefix, 0);

			if (WEIR_LIKELY(element - 1 < last)) {
				packet->element = (uint32_t)element;
				continue;
			}
			hash = feature_group_hash4(seed, prefix);
		} else if (packet->element == FEATURE_KEYED6) {
			hash = feature_group_hash(seed, packet->key);
		} else {
			continue;
		}
		packet->element = keys + (hash & (observing.groups - 1));
		searched++;
	}
	return searched;
}

/* Reads a word of each group of a queue, so the processor fetches many of them together. */
WEIR_INLINE void fetch_groups(struct feature_queue *queue, union feature_element *elements)
{
	for (uint32_t i = 0; i < FEATURE_QUEUE; i++) {
		union feature_element *group = element_at(elements, queue->packets[i].element);

		if (group)
			*(volatile uint64_t *)&group->group.low[0];
	}
}

/* Writes where the packets of a queue are counted, in place of the groups of their keys. */
WEIR_INLINE void observe_keys(struct feature_queue *queue, union feature_element *elements,
			      enum observed_direction direction)
{
	const uint32_t keys = feature_keys(&observing, direction), cells = feature_cells(&observing, direction);
	uint64_t *recent = elements[feature_recents(&observing, direction)].recents.cells;

	for (uint32_t i = 0; i < FEATURE_QUEUE; i++) {
		struct feature_waiting *packet = &queue->packets[i];
		const uint32_t group = packet->element - keys, prefix = (uint32_t)packet->key.low;

		if (packet->element < keys)
			continue;
		packet->element = forget(observed_cell(element_at(elements, packet->element),
						       cells + group * FEATURE_GROUP, packet->key, direction));
		if (is_ipv4_key(packet->key))
			recent[bounded(feature_recent(&observing, prefix), observing.size - 1)] =
				feature_recent_word(prefix, packet->element);
	}
}

/*
 * Counts the packets of a full queue. Their cells are often not in the cache. A program that counts its packet at once
 * waits for each of them; the loop here waits for many of them at once.
 */
WEIR_INLINE int observe_queue(uint32_t sheet, enum observed_direction direction)
{
	struct feature_queue *queue = feature_queue(bounded(sheet, 2 * weir_mode.cpu_mask + 1), direction);
	union feature_element *elements = feature_elements_of(sheet);

	if (!elements)
		return 0;
	if (observing.groups) {
		const uint32_t searched = observe_recent(queue, elements, direction);

		if (observing.groups > FEATURE_NEAR && searched > FEATURE_FEW)
			fetch_groups(queue, elements);
		if (searched)
			observe_keys(queue, elements, direction);
	}
#pragma unroll 8
	for (uint32_t i = 0; i < FEATURE_QUEUE; i++) {
		const struct feature_waiting *packet = &queue->packets[i];
		union feature_element *counted = element_at(elements, packet->element);

		if (!counted)
			continue;
		*(uint32_t *)(counted->at + packet->packets_at) += packet->packets;
		counted->cell.bytes += packet->bytes;
		*(uint16_t *)(counted->at + packet->bit_at) |= packet->bit;
	}
	queue->waiting = 0;
	return 0;
}

/* Global functions, which the verifier follows once. */
__attribute__((noinline)) int weir_observe_upstream(uint32_t sheet)
{
	return observe_queue(sheet, OBSERVED_UPSTREAM);
}

__attribute__((noinline)) int weir_observe_downstream(uint32_t sheet)
{
	return observe_queue(sheet, OBSERVED_DOWNSTREAM);
}

/* Writes the record of a packet that is sampled. */
WEIR_INLINE void observe_sample(packet_view *packet, uint32_t sheet, struct feature_queue *queue,
				enum observed_direction direction, uint32_t class)
{
	const uint64_t seed = weir_feature_head.seed;
	const uint32_t first = feature_records(&observing, direction);
	const uint32_t place = feature_record_place(seed, queue->taken++);
	union feature_element *elements = feature_elements_of(sheet);

	queue->next = feature_next(seed, queue->taken, queue->next);
	if (elements)
		feature_fill(&elements[first + bounded(place, FEATURE_RECORDS - 1)].record, packet, class, packet->len);
}

/* Observes a packet with this verdict if it passes. Returns the verdict. */
WEIR_INLINE uint32_t observe(packet_view *packet, const struct observing *observing, enum observed_direction direction,
			     uint32_t verdict)
{
	const struct feature_head *head = &weir_feature_head;
	const uint32_t decided = forget(verdict);
	uint32_t sheet, element = FEATURE_WITHOUT_ADDRESS + direction, counted_at, hash;
	struct feature_queue *queue;
	struct feature_waiting *waiting;
	struct feature_key key = {0, 0};
	uint32_t peer = 0, peer_mask = 0;
	uint64_t at;

	if (!is_accepted(decided))
		return verdict;
	sheet = feature_sheet();
	queue = feature_queue(sheet, direction);
	counted_at = class_at(packet);
	if (WEIR_UNLIKELY(is_malformed(decided))) {
		counted_at = CLASS_AT(PACKET_OTHER);
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
	if (element - FEATURE_WITHOUT_ADDRESS >= FEATURE_SAMPLER - FEATURE_WITHOUT_ADDRESS &&
	    WEIR_UNLIKELY(queue->seen++ == queue->next))
		observe_sample(packet, sheet, queue, direction, (uint8_t)counted_at / (uint32_t)sizeof(uint32_t));
	at = bounded64(queue->waiting, FEATURE_QUEUE - 1);
	waiting = &queue->packets[at];
	if (observing->groups)
		waiting->key = key;
	hash = feature_mix(peer);
	waiting->element = element;
	/* The packets that a card makes of it. */
	waiting->bytes = wire_bytes(packet->len);
	waiting->packets = (uint16_t)wire_packets();
	waiting->bit = (uint16_t)(feature_peer_bit(hash) & peer_mask);
	waiting->packets_at = (uint8_t)counted_at;
	waiting->bit_at = (uint8_t)(offsetof(struct feature_cell, peers) + hash % FEATURE_LANES * sizeof(uint16_t));
	queue->waiting = at + 1;
	if (WEIR_UNLIKELY(at == FEATURE_QUEUE - 1)) {
		if (direction == OBSERVED_UPSTREAM)
			weir_observe_upstream(sheet);
		else
			weir_observe_downstream(sheet);
	}
	return verdict;
}

#endif
