/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Feature extraction for a burst (observe/feature.h). For one packet in the kernel: observe/kernel.h.
 *
 * The element that counts each packet is computed from columns of the parser, for all packets at once, and fetched
 * while the rules decide. After them, classes and peers are computed for all packets, and those that pass are counted.
 * The parser handles IPv6 packets by themselves, because most bursts have no columns of 128 bits.
 */
#ifndef WEIR_OBSERVE_BURST_H
#define WEIR_OBSERVE_BURST_H

#include "core/burst.h"
#include "observe/feature.h"
#include "observe/keys.h"
#include "core/packet.h"

#ifdef WEIR_BURSTS

/* Keeps what is observed of packet i, which is IPv6. */
WEIR_INLINE void observe_ipv6(const struct weir_burst *burst, struct observed *seen, uint32_t i, packet_view *packet,
			      const struct observing *observing, enum observed_direction direction)
{
	const struct wide saddr = {packet->saddr6.hi, packet->saddr6.lo};
	const struct wide daddr = {packet->daddr6.hi, packet->daddr6.lo};
	const struct wide own = direction == OBSERVED_UPSTREAM ? daddr : saddr;
	const uint64_t seed = burst->features.seed;
	uint32_t element = FEATURE_OUTSIDE + direction;
	bool inside = observing->is_all;

	seen->peers6[i] = feature_peer6(seed, direction == OBSERVED_UPSTREAM ? saddr : daddr);
	for (uint32_t range = 0; range < observing->count6; range++) {
		const struct observed_range6 *of = &observing->inside6[range];

		if (!wide_between(own, of->first.hi, of->first.lo, of->last.hi, of->last.lo))
			continue;
		inside = true;
		element = feature_cells(observing, direction) + of->place + feature_prefix6(observing, own) -
			  feature_prefix6(observing, of->first);
	}
	if (observing->groups && inside) {
		seen->keys6[i] = feature_key6(observing, own);
		element = feature_keys(observing, direction) +
			  (feature_group_hash(seed, seen->keys6[i]) & (observing->groups - 1));
	}
	seen->elements6[i] = element;
}

/* parse_packet() for packet i. A plain frame is never IPv6, so its way through the parser keeps no address of 128 bits.
 */
WEIR_INLINE enum reason observe_parse(const struct weir_burst *burst, struct observed *seen, uint32_t i,
				      const struct frame *frame, struct packet *packet,
				      const struct observing *observing, enum observed_direction direction)
{
	const uint8_t *at = plain_frame(frame);
	enum reason reason;

	if (WEIR_LIKELY(at))
		return parse_plain(frame, packet, at);
	reason = parse_any(frame, packet);
	if (packet->l3 == L3_IPV6)
		observe_ipv6(burst, seen, i, packet, observing, direction);
	return reason;
}

/* feature_mix() of a column. */
WEIR_INLINE u32_column observe_mix(u32_column words)
{
	words = (words ^ words >> 16) * UINT32_C(0x7feb352d);
	words = (words ^ words >> 15) * UINT32_C(0x846ca68b);
	return words ^ words >> 16;
}

/* The groups of the keys of IPv4 addresses. */
WEIR_INLINE u32_column observe_groups(const struct weir_burst *burst, u32_column own, const struct observing *observing,
				      enum observed_direction direction)
{
	const u32_column hash = observe_mix((own & observing->mask4) ^ (uint32_t)(burst->features.seed >> 32));

	return (hash & (observing->groups - 1)) + feature_keys(observing, direction);
}

/* The cells of IPv4 addresses whose prefixes are among the recent ones; 0 for all others. feature_recent() in vectors.
 */
WEIR_INLINE u32_column observe_recent(const struct weir_burst *burst, u32_column own, const struct observing *observing,
				      enum observed_direction direction)
{
	typedef uint64_t words __attribute__((vector_size(sizeof(uint64_t) * WEIR_BURST_MAX)));
	const union feature_element *sheet = burst->features.sheet;
	const uint64_t *cells = sheet[feature_recents(observing, direction)].recents.cells;
	const u32_column prefixes = own & observing->mask4;
	const u32_column numbers = prefixes >> (observing->shift4 & 31);
	const u32_column above = numbers >> __builtin_ctz(observing->size);
	const u32_column column = (numbers + above * FEATURE_RECENT_FACTOR) & (observing->size - 1);
	uint32_t places[WEIR_BURST_MAX];
	uint64_t found[WEIR_BURST_MAX];
	words recent;

	__builtin_memcpy(places, &column, sizeof(places));
	for (uint32_t i = 0; i < WEIR_BURST_MAX; i++)
		found[i] = cells[places[i]];
	__builtin_memcpy(&recent, found, sizeof(recent));
	return __builtin_convertvector(recent, u32_column) &
	       (u32_column)(__builtin_convertvector(recent >> 32, u32_column) == prefixes);
}

/*
 * Fills the elements of all packets, and fetches them: cells, or groups, which are searched behind the rules. An
 * element of a packet without an address means nothing: observe_peers() replaces it.
 */
WEIR_INLINE void observe_elements(const struct weir_burst *burst, const struct verdicts *verdicts,
				  struct observed *seen, const struct observed_columns *columns,
				  const struct observing *observing, enum observed_direction direction)
{
	const uint64_t all = first_bits(burst->count);
	const uint32_t cells = feature_cells(observing, direction), shift = observing->shift4 & 31;

	u32_column elements = (u32_column){0} + (observing->is_all ? cells : FEATURE_OUTSIDE + direction);
	u32_column own;

	seen->open = verdicts->open;
	__builtin_memcpy(&own, columns->own, sizeof(own));
	for (uint32_t range = 0; range < observing->count4; range++) {
		const struct observed_range4 *of = &observing->inside4[range];
		const u32_column cell = (own >> shift) + (cells + of->place - (of->first >> shift));
		const i32_column inside = own - of->first <= of->last - of->first;

		elements = u32_select(__builtin_convertvector(inside, column_hits),
				      observing->groups ? (u32_column){0} + cells : cell, elements);
	}
	if (observing->groups) {
		const i32_column inside = elements >= FEATURE_HEADS;
		const u32_column recent = observe_recent(burst, own, observing, direction);
		const column_hits searched = __builtin_convertvector(inside & (recent == 0), column_hits);

		elements = u32_select(__builtin_convertvector(inside, column_hits), recent, elements);
		seen->searched = mask_of(&searched);
		if (seen->searched)
			elements = u32_select(searched, observe_groups(burst, own, observing, direction), elements);
		seen->searched |= u8_is(columns->l3, L3_IPV6);
	}
	elements *= (uint32_t)sizeof(union feature_element);
	__builtin_memcpy(seen->offsets, &elements, sizeof(elements));
	for (uint64_t left = all & u8_is(columns->l3, L3_IPV6); left; left &= left - 1)
		seen->offsets[first_of(left)] = observed_offset(seen->elements6[first_of(left)]);
	seen->inside = all & u32_between(seen->offsets, observed_offset(FEATURE_HEADS), UINT32_MAX);
	for (uint32_t i = 0; i < burst->count; i++)
		__builtin_prefetch(observed_at(burst->features.sheet, seen->offsets[i]), 1);
}

/* The packets that pass. */
WEIR_INLINE uint64_t accepted_hits(const struct verdicts *verdicts, uint32_t count)
{
	return u32_masked(verdicts->words, 0xff, ACTION_ACCEPT, ACTION_ACCEPT) & first_bits(count);
}

/* Gives `class` to the packets with a hit. */
WEIR_INLINE u8_column observe_class(u8_column classes, column_hits hits, u8_column class)
{
	return (classes & ~(u8_column)hits) | (class & (u8_column)hits);
}

/* Which ports are ports of services: is_service() in vectors. One comparison at the end is for all services. */
WEIR_INLINE column_hits observe_services(const uint16_t *sports)
{
	u16_column ports, differs;

	_Static_assert(SYSTEM_PORT_MAX == (1 << 10) - 1, "the upper bits of system ports are 0");
	__builtin_memcpy(&ports, sports, sizeof(ports));
	differs = ports >> 10;
	/* Unrolled, so that the free places of the table take no instruction. */
#pragma GCC unroll 16
	for (uint32_t place = 0; place < sizeof(service_ports) / sizeof(service_ports[0]); place++)
		if (service_ports[place])
			differs = u16_min(differs, ports ^ service_ports[place]);
	return __builtin_convertvector((differs == 0) & (ports != QUIC_PORT), column_hits);
}

/* The classes of all packets: class_of() in vectors of bytes. Compilers make wider ones of a loop over bytes. */
WEIR_INLINE void observe_classes(struct observed *seen, const struct observed_columns *columns)
{
	const u8_column services = (u8_column)observe_services(columns->sport), none = {0};
	u8_column flags, l4, fragments, tcp, classes;

	__builtin_memcpy(&flags, columns->tcp_flags, sizeof(flags));
	__builtin_memcpy(&l4, columns->l4, sizeof(l4));
	__builtin_memcpy(&fragments, columns->fragment, sizeof(fragments));
	tcp = observe_class(none + PACKET_SYN, (flags & 0x10) != 0, none + PACKET_SYN_ACK);
	tcp = observe_class(none + PACKET_TCP, (flags & 0x02) != 0, tcp);
	tcp = observe_class(tcp, (flags & 0x04) != 0, none + PACKET_RST);
	classes = observe_class(none + PACKET_OTHER, (l4 == L4_ICMP) | (l4 == L4_ICMP6), none + PACKET_ICMP);
	/* A hit is -1, and the class of services is below the other one. */
	classes = observe_class(classes, l4 == L4_UDP, none + PACKET_UDP + services);
	classes = observe_class(classes, l4 == L4_TCP, tcp);
	classes = observe_class(classes, fragments == FRAGMENT_LATER, none + PACKET_FRAGMENT);
	__builtin_memcpy(seen->classes, &classes, sizeof(classes));
}

/* The lanes and bits of the peers of all packets. `ipv6` and `without_address` say which packets are so. */
WEIR_INLINE void observe_peers(const struct weir_burst *burst, struct observed *seen,
			       const struct observed_columns *columns, uint64_t ipv6, uint64_t without_address,
			       enum observed_direction direction)
{
	u32_column peers, hash, bits, places;
	u8_column classes;

	for (uint64_t left = without_address; left; left &= left - 1) {
		seen->offsets[first_of(left)] = observed_offset(FEATURE_WITHOUT_ADDRESS + direction);
		seen->classes[first_of(left)] = PACKET_OTHER;
	}
	__builtin_memcpy(&classes, seen->classes, sizeof(classes));
	__builtin_memcpy(&peers, columns->peer, sizeof(peers));
	peers ^= (uint32_t)burst->features.seed;
	for (uint64_t left = ipv6; left; left &= left - 1)
		peers[first_of(left)] = seen->peers6[first_of(left)];
	hash = observe_mix(peers);
	bits = hash / FEATURE_LANES | 0x8000;
	places = __builtin_convertvector(classes, u32_column) | hash % FEATURE_LANES << 8 | (bits & (0 - bits)) << 16;
	__builtin_memcpy(seen->places, &places, sizeof(places));
	for (uint64_t left = without_address; left; left &= left - 1)
		seen->places[first_of(left)] = PACKET_OTHER;
}

/* `mask` without its first `count` packets, which it has. */
WEIR_INLINE uint64_t without_first(uint64_t mask, uint64_t count)
{
	while (count--)
		mask &= mask - 1;
	return mask;
}

/* Writes the record of the next sampled packet, which is `inside`. Returns the packets behind it. */
WEIR_NOINLINE uint64_t observe_sample(const struct weir_burst *burst, const struct verdicts *verdicts,
				      const struct observed *seen, uint64_t inside, uint32_t records,
				      struct feature_sampler *sampler)
{
	const uint64_t seed = burst->features.seed;
	const uint64_t sampled = without_first(inside, sampler->next - sampler->seen);
	const uint32_t i = first_of(sampled), place = feature_record_place(seed, sampler->taken++);
	const struct frame frame = burst_frame(burst, i);
	union feature_element *sheet = burst->features.sheet;
	struct packet packet;

	sampler->seen = sampler->next + 1;
	sampler->next = feature_next(seed, sampler->taken, sampler->next);
	parse_again(&frame, &packet);
	feature_fill(&sheet[records + place].record, &packet, seen->classes[i], verdicts->lens[i]);
	return without_first(sampled, 1);
}

/* The packets of the first one's element. */
WEIR_INLINE uint64_t observe_together(const struct observed *seen, uint64_t passed)
{
	const uint32_t first = seen->offsets[first_of(passed)];

	return passed & u32_between(seen->offsets, first, first);
}

/*
 * Counts packets of one element: most packets of a burst are to the victim of an attack. Their sums are computed in
 * vectors. One after the other, each packet would wait until the counts of the one before are stored.
 */
WEIR_INLINE void observe_sums(union feature_element *sheet, const struct observed *seen,
			      const struct verdicts *verdicts, uint64_t together)
{
	enum { TOGETHER = 8 }; /* packets whose peers are in a vector of words */
	typedef uint64_t words __attribute__((vector_size(TOGETHER * 8)));
	typedef uint32_t places __attribute__((vector_size(TOGETHER * 4)));
	struct feature_cell *cell = &observed_at(sheet, seen->offsets[first_of(together)])->cell;
	uint64_t sums[2] = {0, 0};
	words low = {0}, high = {0};
	u8_column classes;
	u32_column all;

	__builtin_memcpy(&classes, seen->classes, sizeof(classes));
	for (uint32_t class = 0; class < PACKET_CLASSES; class ++) {
		const column_hits hits = (column_hits)(classes == (uint8_t)class);

		cell->packets[class] += (uint32_t)__builtin_popcountll(mask_of(&hits) & together);
	}
	cell->bytes += bytes_of(together, verdicts);
	__builtin_memcpy(&all, seen->places, sizeof(all));
	all = u32_select(hits_of(together), all, (u32_column){0});
	for (uint32_t i = 0; i < WEIR_BURST_MAX; i += TOGETHER) {
		const uint32_t *at = (const uint32_t *)&all + i;
		words lane, bit;
		places some;

		__builtin_memcpy(&some, at, sizeof(some));
		lane = __builtin_convertvector(some, words) >> 8 & (FEATURE_LANES - 1);
		bit = (__builtin_convertvector(some, words) >> 16) << (lane % 4 * 16);
		low |= bit & (words)(lane < 4);
		high |= bit & (words)(lane >= 4);
	}
	for (uint32_t i = 0; i < TOGETHER; i++) {
		sums[0] |= low[i];
		sums[1] |= high[i];
	}
	for (uint32_t lane = 0; lane < FEATURE_LANES; lane++)
		cell->peers[lane] |= (uint16_t)(sums[lane / 4] >> 16 * (lane % 4));
}

WEIR_INLINE void observe_one(union feature_element *sheet, const struct observed *seen, const struct verdicts *verdicts,
			     uint32_t i)
{
	struct feature_cell *cell = &observed_at(sheet, seen->offsets[i])->cell;
	const uint32_t place = seen->places[i];

	cell->packets[place & 0xff]++;
	cell->bytes += verdicts->lens[i];
	cell->peers[place >> 8 & 0xff] |= (uint16_t)(place >> 16);
}

/* Counts the packets that pass. */
WEIR_INLINE void observe_burst(const struct weir_burst *burst, const struct verdicts *verdicts, struct observed *seen,
			       const struct observed_columns *columns, const struct observing *observing,
			       enum observed_direction direction)
{
	const uint32_t count = burst->count;
	const uint64_t passed = accepted_hits(verdicts, count);
	union feature_element *sheet = burst->features.sheet;
	struct feature_sampler *sampler = &sheet[FEATURE_SAMPLER + direction].sampler;
	const uint64_t ipv6 = first_bits(count) & u8_is(columns->l3, L3_IPV6);
	uint64_t without_address = passed & ~seen->open, inside, together;

	if (!passed)
		return;
	if (without_address)
		without_address &=
			u32_masked(verdicts->words, UINT32_C(0xffff0000), (uint32_t)REASON_MALFORMED_LINK << 16,
				   (uint32_t)REASON_MALFORMED_TRANSPORT << 16);
	without_address |= passed & ~(u8_is(columns->l3, L3_IPV4) | ipv6);
	inside = seen->inside & passed & ~without_address;
	if (observing->groups && (inside & seen->searched))
		observe_cells(burst, seen, columns, inside & seen->searched, ipv6, observing, direction);
	observe_classes(seen, columns);
	observe_peers(burst, seen, columns, ipv6, without_address, direction);
	together = observe_together(seen, passed);
	if (__builtin_popcountll(together) >= OBSERVED_TOGETHER)
		observe_sums(sheet, seen, verdicts, together);
	else
		together = 0;
	if ((passed & ~together) == first_bits(count))
		for (uint32_t i = 0; i < count; i++)
			observe_one(sheet, seen, verdicts, i);
	else
		for (uint64_t left = passed & ~together; left; left &= left - 1)
			observe_one(sheet, seen, verdicts, first_of(left));
	while (sampler->next - sampler->seen < (uint32_t)__builtin_popcountll(inside))
		inside = observe_sample(burst, verdicts, seen, inside, feature_records(observing, direction), sampler);
	sampler->seen += (uint32_t)__builtin_popcountll(inside);
}

#endif

#endif
