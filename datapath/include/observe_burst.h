/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Feature extraction for a burst (feature.h). For one packet in the kernel: cpu_observe.h.
 *
 * The element that counts each packet is computed from columns of the parser, for all packets at once, and fetched
 * while the rules decide. After them, classes and peers are computed for all packets, and those that pass are counted.
 * The parser handles IPv6 packets by themselves, because most bursts have no columns of 128 bits.
 */
#ifndef WEIR_OBSERVE_BURST_H
#define WEIR_OBSERVE_BURST_H

#include "burst.h"
#include "feature.h"
#include "packet.h"

#ifdef WEIR_BURSTS

/* What is observed of the packets of a burst. */
struct observed {
	uint32_t elements[WEIR_BURST_MAX] WEIR_COLUMNS; /* of the sheet: a cell, a sum, or a group that may have the key
							 */
	uint32_t peers[WEIR_BURST_MAX]; /* first feature_peer6(), then a lane, and its bit from bit 16 */
	uint8_t classes[WEIR_BURST_MAX];
	struct feature_key keys[WEIR_BURST_MAX]; /* if a hash selects the cells */
};

/* The columns of a chain that are read. */
struct observed_columns {
	const uint8_t *l3;
	const uint8_t *l4;
	const uint8_t *fragment;
	const uint8_t *tcp_flags;
	const uint16_t *sport;
	const uint32_t *own; /* the protected address, if it is IPv4 */
	const uint32_t *peer;
};

/* The group of a key. */
WEIR_INLINE uint32_t observe_group(const struct observing *observing, enum observed_direction direction, uint64_t seed,
				   struct feature_key key)
{
	return feature_keys(observing, direction) +
	       ((uint32_t)(feature_hash(seed, key) >> 32) & (observing->groups - 1));
}

/* Fills the columns of packet i, which is IPv6. */
WEIR_INLINE void observe_ipv6(const struct weir_burst *burst, struct observed *seen, uint32_t i, packet_view *packet,
			      const struct observing *observing, enum observed_direction direction)
{
	const struct wide saddr = {packet->saddr6.hi, packet->saddr6.lo};
	const struct wide daddr = {packet->daddr6.hi, packet->daddr6.lo};
	const struct wide own = direction == OBSERVED_UPSTREAM ? daddr : saddr;
	const uint64_t seed = burst->features.seed;
	uint32_t element = FEATURE_OUTSIDE + direction;
	bool inside = observing->is_all;

	seen->peers[i] = feature_peer6(seed, direction == OBSERVED_UPSTREAM ? saddr : daddr);
	for (uint32_t range = 0; range < observing->count6; range++) {
		const struct observed_range6 *of = &observing->inside6[range];

		if (!wide_between(own, of->first.hi, of->first.lo, of->last.hi, of->last.lo))
			continue;
		inside = true;
		element = feature_cells(observing, direction) + of->place + feature_prefix6(observing, own) -
			  feature_prefix6(observing, of->first);
	}
	if (observing->groups && inside) {
		seen->keys[i] = feature_key6(observing, own);
		element = observe_group(observing, direction, seed, seen->keys[i]);
	}
	seen->elements[i] = element;
}

/* Fills the elements of all packets but IPv6, and fetches all. Groups are searched behind the rules. */
WEIR_INLINE void observe_elements(const struct weir_burst *burst, struct observed *seen,
				  const struct observed_columns *columns, const struct observing *observing,
				  enum observed_direction direction)
{
	const union feature_element *sheet = burst->features.sheet;
	const uint32_t cells = feature_cells(observing, direction), shift = observing->shift4 & 31;

	for (uint32_t i = 0; i < WEIR_BURST_MAX; i++) {
		const uint32_t own = columns->own[i];
		uint32_t element = observing->is_all ? cells : FEATURE_OUTSIDE + direction;

		for (uint32_t range = 0; range < observing->count4; range++) {
			const struct observed_range4 *of = &observing->inside4[range];
			const uint32_t cell = cells + of->place + (own >> shift) - (of->first >> shift);

			element = own - of->first <= of->last - of->first ? cell : element;
		}
		element = columns->l3[i] == L3_IPV4 ? element : FEATURE_WITHOUT_ADDRESS + direction;
		seen->elements[i] = columns->l3[i] == L3_IPV6 ? seen->elements[i] : element;
	}
	for (uint32_t i = 0; i < burst->count; i++) {
		if (observing->groups && columns->l3[i] == L3_IPV4 && seen->elements[i] >= FEATURE_HEADS) {
			seen->keys[i] = feature_key4(observing, columns->own[i]);
			seen->elements[i] = observe_group(observing, direction, burst->features.seed, seen->keys[i]);
		}
		__builtin_prefetch(&sheet[seen->elements[i]], 1);
	}
}

/* The packets that pass, and those that are malformed. */
WEIR_INLINE uint64_t accepted_hits(const struct verdicts *verdicts, uint32_t count)
{
	return u32_masked(verdicts->words, 0xff, ACTION_ACCEPT, ACTION_ACCEPT) & first_bits(count);
}

WEIR_INLINE uint64_t malformed_hits(const struct verdicts *verdicts)
{
	return u32_masked(verdicts->words, UINT32_C(0xffff0000), (uint32_t)REASON_MALFORMED_LINK << 16,
			  (uint32_t)REASON_MALFORMED_TRANSPORT << 16);
}

/* The classes of all packets: class_of() in vectors. */
WEIR_INLINE void observe_classes(struct observed *seen, const struct observed_columns *columns)
{
	uint8_t services[WEIR_BURST_MAX];

	for (uint32_t i = 0; i < WEIR_BURST_MAX; i++) {
		const uint16_t port = columns->sport[i];
		bool is_known = port <= SYSTEM_PORT_MAX;

		for (uint32_t known = 0; known < 16; known++)
			is_known |= port == service_ports[known];
		services[i] = is_known;
	}
	for (uint32_t i = 0; i < WEIR_BURST_MAX; i++) {
		const uint8_t flags = columns->tcp_flags[i], l4 = columns->l4[i];
		const uint8_t opening = flags & 0x10 ? PACKET_SYN_ACK : PACKET_SYN;
		const uint8_t lasting = flags & 0x02 ? opening : PACKET_TCP;
		const uint8_t tcp = flags & 0x04 ? PACKET_RST : lasting;
		const uint8_t udp = (uint8_t)(PACKET_UDP - services[i]);
		uint8_t class = l4 == L4_ICMP || l4 == L4_ICMP6 ? PACKET_ICMP : PACKET_OTHER;

		class = l4 == L4_UDP ? udp : class;
		class = l4 == L4_TCP ? tcp : class;
		seen->classes[i] = columns->fragment[i] == FRAGMENT_LATER ? PACKET_FRAGMENT : class;
	}
}

/* The lanes and bits of the peers of all packets. */
WEIR_INLINE void observe_peers(const struct weir_burst *burst, struct observed *seen,
			       const struct observed_columns *columns)
{
	for (uint32_t i = 0; i < WEIR_BURST_MAX; i++) {
		const uint32_t ipv4 = feature_peer4(burst->features.seed, columns->peer[i]);
		const uint32_t hash = feature_peer_hash(columns->l3[i] == L3_IPV6 ? seen->peers[i] : ipv4);

		seen->peers[i] = hash % FEATURE_LANES | feature_peer_bit(hash) << 16;
		seen->peers[i] = columns->l3[i] >= L3_IPV4 ? seen->peers[i] : 0;
	}
}

/* The cell of a key in its group; one without a cell gets a free one. The sum of the rest if there is no room. */
WEIR_INLINE uint32_t observe_cell(union feature_element *sheet, uint32_t group, struct feature_key key,
				  const struct observing *observing, enum observed_direction direction)
{
	const uint32_t first = (group - feature_keys(observing, direction)) * FEATURE_GROUP;

	for (uint32_t i = 0; i < FEATURE_GROUP; i++) {
		struct feature_key *known = &sheet[group].keys[i];

		if (!(known->high | known->low))
			*known = key;
		if (feature_same(*known, key))
			return feature_cells(observing, direction) + first + i;
	}
	return FEATURE_REST + direction;
}

/* Writes the records of sampled packets. `inside` are packets to protected addresses. */
static void __attribute__((noinline, unused)) observe_samples(const struct weir_burst *burst,
							      const struct verdicts *verdicts,
							      const struct observed *seen, uint64_t inside,
							      uint32_t records, enum observed_direction direction)
{
	union feature_element *sheet = burst->features.sheet;
	struct feature_sampler *sampler = &sheet[FEATURE_SAMPLER + direction].sampler;
	const uint64_t seed = burst->features.seed;

	for (uint64_t left = inside; left; left &= left - 1) {
		const uint32_t i = first_of(left);
		uint64_t place;

		if (sampler->seen++ != sampler->next)
			continue;
		place = feature_record_place(seed, sampler->taken++);
		sampler->next = feature_next(seed, sampler->taken);
		if (place < FEATURE_RECORDS) {
			const struct frame frame = burst_frame(burst, i);
			struct packet packet;

			parse_packet(&frame, &packet);
			feature_fill(&sheet[records + place].record, &packet, seen->classes[i], verdicts->lens[i]);
		}
	}
}

/* Counts the packets that pass. */
WEIR_INLINE void observe_burst(const struct weir_burst *burst, const struct verdicts *verdicts, struct observed *seen,
			       const struct observed_columns *columns, const struct observing *observing,
			       enum observed_direction direction)
{
	const uint64_t passed = accepted_hits(verdicts, burst->count);
	union feature_element *sheet = burst->features.sheet;
	struct feature_sampler *sampler = &sheet[FEATURE_SAMPLER + direction].sampler;
	uint64_t inside;

	if (!passed)
		return;
	observe_classes(seen, columns);
	observe_peers(burst, seen, columns);
	for (uint64_t left = passed & malformed_hits(verdicts); left; left &= left - 1) {
		const uint32_t i = first_of(left);

		seen->elements[i] = FEATURE_WITHOUT_ADDRESS + direction;
		seen->classes[i] = PACKET_OTHER;
		seen->peers[i] = 0;
	}
	inside = passed & ~u32_between(seen->elements, FEATURE_WITHOUT_ADDRESS, FEATURE_SAMPLER - 1);
	if (observing->groups) {
		for (uint64_t left = inside; left; left &= left - 1) {
			const uint32_t i = first_of(left);

			seen->elements[i] = observe_cell(sheet, seen->elements[i], seen->keys[i], observing, direction);
			__builtin_prefetch(&sheet[seen->elements[i]], 1);
		}
	}
	for (uint64_t left = passed; left; left &= left - 1) {
		const uint32_t i = first_of(left);
		struct feature_cell *cell = &sheet[seen->elements[i]].cell;

		cell->packets[seen->classes[i]]++;
		cell->bytes += verdicts->lens[i];
		cell->peers[seen->peers[i] % FEATURE_LANES] |= (uint16_t)(seen->peers[i] >> 16);
	}
	if (sampler->next - sampler->seen < (uint32_t)__builtin_popcountll(inside))
		observe_samples(burst, verdicts, seen, inside, feature_records(observing, direction), direction);
	else
		sampler->seen += (uint32_t)__builtin_popcountll(inside);
}

#endif

#endif
