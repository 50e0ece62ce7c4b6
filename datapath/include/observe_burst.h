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

enum {
	OBSERVED_TOGETHER = 16, /* packets of one element in a burst that are summed up before they are counted */
};

/* What is observed of the packets of a burst. */
struct observed {
	/* Elements of the sheet: a cell, a sum, or a group that may have the key. */
	uint32_t elements[WEIR_BURST_MAX] WEIR_COLUMNS;
	/* Where packet i is counted: numbers of words of 32 bits, 64 bits and 16 bits of the sheet. */
	uint32_t packets[WEIR_BURST_MAX] WEIR_COLUMNS;
	uint32_t bytes[WEIR_BURST_MAX] WEIR_COLUMNS;
	uint32_t lanes[WEIR_BURST_MAX] WEIR_COLUMNS;
	uint16_t bits[WEIR_BURST_MAX] WEIR_COLUMNS; /* of peers, in their lanes */
	uint8_t classes[WEIR_BURST_MAX] WEIR_COLUMNS;
	uint64_t inside; /* packets to protected addresses */
	uint64_t open;	 /* packets that the rules decide */
	/* Of IPv6 packets, from the parser. */
	uint32_t elements6[WEIR_BURST_MAX];
	uint32_t peers6[WEIR_BURST_MAX];
	struct feature_key keys6[WEIR_BURST_MAX]; /* if a hash selects the cells */
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
		element = observe_group(observing, direction, seed, seen->keys6[i]);
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

/* Fills the elements of all packets, and fetches them. Groups are searched behind the rules. */
WEIR_INLINE void observe_elements(const struct weir_burst *burst, const struct verdicts *verdicts,
				  struct observed *seen, const struct observed_columns *columns,
				  const struct observing *observing, enum observed_direction direction)
{
	const union feature_element *sheet = burst->features.sheet;
	const uint64_t all = first_bits(burst->count);
	const uint32_t cells = feature_cells(observing, direction), shift = observing->shift4 & 31;

	seen->open = verdicts->open;
	for (uint32_t i = 0; i < WEIR_BURST_MAX; i++) {
		const uint32_t own = columns->own[i];
		uint32_t element = observing->is_all ? cells : FEATURE_OUTSIDE + direction;

		for (uint32_t range = 0; range < observing->count4; range++) {
			const struct observed_range4 *of = &observing->inside4[range];
			const uint32_t cell = cells + of->place + (own >> shift) - (of->first >> shift);

			element = own - of->first <= of->last - of->first ? observing->groups ? cells : cell : element;
		}
		seen->elements[i] = columns->l3[i] == L3_IPV4 ? element : FEATURE_WITHOUT_ADDRESS + direction;
	}
	if (observing->groups) {
		const uint64_t seed = burst->features.seed;

		for (uint32_t i = 0; i < WEIR_BURST_MAX; i++) {
			const struct feature_key key = feature_key4(observing, columns->own[i]);
			const uint32_t group = observe_group(observing, direction, seed, key);

			seen->elements[i] = seen->elements[i] >= FEATURE_HEADS ? group : seen->elements[i];
		}
	}
	for (uint64_t left = all & u8_is(columns->l3, L3_IPV6); left; left &= left - 1)
		seen->elements[first_of(left)] = seen->elements6[first_of(left)];
	seen->inside = all & u32_between(seen->elements, FEATURE_HEADS, UINT32_MAX);
	for (uint32_t i = 0; i < burst->count; i++)
		__builtin_prefetch(&sheet[seen->elements[i]], 1);
}

/* The packets that pass. */
WEIR_INLINE uint64_t accepted_hits(const struct verdicts *verdicts, uint32_t count)
{
	return u32_masked(verdicts->words, 0xff, ACTION_ACCEPT, ACTION_ACCEPT) & first_bits(count);
}

/* The classes of all packets: class_of() in vectors. */
WEIR_INLINE void observe_classes(struct observed *seen, const struct observed_columns *columns)
{
	static const uint16_t ports[][2] = {{0, SYSTEM_PORT_MAX}, SERVICE_PORT_RANGES};
	int16_t in __attribute__((vector_size(WEIR_BURST_MAX * 2))) = {0};
	int8_t services[WEIR_BURST_MAX] WEIR_COLUMNS;
	column_hits hits;
	u16_column sports;

	__builtin_memcpy(&sports, columns->sport, sizeof(sports));
	for (uint32_t range = 0; range < sizeof(ports) / sizeof(ports[0]); range++)
		in |= sports - ports[range][0] <= (uint16_t)(ports[range][1] - ports[range][0]);
	hits = __builtin_convertvector(in, column_hits);
	__builtin_memcpy(services, &hits, sizeof(services));
	for (uint32_t i = 0; i < WEIR_BURST_MAX; i++) {
		const uint8_t flags = columns->tcp_flags[i], l4 = columns->l4[i];
		const uint8_t opening = flags & 0x10 ? PACKET_SYN_ACK : PACKET_SYN;
		const uint8_t lasting = flags & 0x02 ? opening : PACKET_TCP;
		const uint8_t tcp = flags & 0x04 ? PACKET_RST : lasting;
		const uint8_t udp = (uint8_t)(PACKET_UDP + services[i]);
		uint8_t class = l4 == L4_ICMP || l4 == L4_ICMP6 ? PACKET_ICMP : PACKET_OTHER;

		class = l4 == L4_UDP ? udp : class;
		class = l4 == L4_TCP ? tcp : class;
		seen->classes[i] = columns->fragment[i] == FRAGMENT_LATER ? PACKET_FRAGMENT : class;
	}
}

/*
 * Where the packets are counted: the word of 32 bits with the packets of the class, that of 64 bits with the bytes, and
 * that of 16 bits with the lane of the peer. Those that are `malformed` have no address.
 */
WEIR_INLINE void observe_words(const struct weir_burst *burst, struct observed *seen,
			       const struct observed_columns *columns, uint64_t malformed,
			       enum observed_direction direction)
{
	const uint64_t ipv6 = first_bits(burst->count) & u8_is(columns->l3, L3_IPV6);
	uint32_t peers[WEIR_BURST_MAX] WEIR_COLUMNS;

	for (uint64_t left = malformed; left; left &= left - 1) {
		seen->elements[first_of(left)] = FEATURE_WITHOUT_ADDRESS + direction;
		seen->classes[first_of(left)] = PACKET_OTHER;
	}
	for (uint32_t i = 0; i < WEIR_BURST_MAX; i++)
		peers[i] = feature_peer4(burst->features.seed, columns->peer[i]);
	for (uint64_t left = ipv6; left; left &= left - 1)
		peers[first_of(left)] = seen->peers6[first_of(left)];
	for (uint32_t i = 0; i < WEIR_BURST_MAX; i++) {
		const uint32_t element = seen->elements[i], hash = feature_peer_hash(peers[i]);
		const uint32_t bit = columns->l3[i] >= L3_IPV4 ? feature_peer_bit(hash) : 0;

		seen->packets[i] = element * (sizeof(union feature_element) / 4) + seen->classes[i];
		seen->bytes[i] =
			element * (sizeof(union feature_element) / 8) + offsetof(struct feature_cell, bytes) / 8;
		seen->lanes[i] = element * (sizeof(union feature_element) / 2) +
				 offsetof(struct feature_cell, peers) / 2 + hash % FEATURE_LANES;
		seen->bits[i] = (uint16_t)bit;
	}
	for (uint64_t left = malformed; left; left &= left - 1)
		seen->bits[first_of(left)] = 0;
}

/* The places of a group that have a key, a bit for each. All keys are compared at once. */
WEIR_INLINE uint32_t observe_same(const union feature_element *group, struct feature_key key)
{
	uint32_t same = 0;

#ifdef __clang__
	typedef uint64_t halves __attribute__((vector_size(sizeof(union feature_element))));
	typedef bool bits __attribute__((ext_vector_type(2 * FEATURE_GROUP)));
	const halves wanted = {key.high, key.low, key.high, key.low, key.high, key.low, key.high, key.low};
	halves known;
	uint8_t equal;
	bits set;

	__builtin_memcpy(&known, group, sizeof(known));
	set = __builtin_convertvector(known == wanted, bits);
	__builtin_memcpy(&equal, &set, sizeof(equal));
	/* Bit 2i if both halves of key i are equal. */
	same = equal & equal >> 1 & 0x55;
#else
	for (uint32_t i = 0; i < FEATURE_GROUP; i++)
		same |= (uint32_t)feature_same(group->keys[i], key) << 2 * i;
#endif
	return same;
}

/* The cell of a key in its group; one without a cell gets a free one. The sum of the rest if there is no room. */
WEIR_INLINE uint32_t observe_cell(union feature_element *sheet, uint32_t group, struct feature_key key,
				  const struct observing *observing, enum observed_direction direction)
{
	const uint32_t first =
		feature_cells(observing, direction) + (group - feature_keys(observing, direction)) * FEATURE_GROUP;
	uint32_t same = observe_same(&sheet[group], key);

	if (WEIR_UNLIKELY(!same)) {
		same = observe_same(&sheet[group], (struct feature_key){0, 0});
		if (!same)
			return FEATURE_REST + direction;
		sheet[group].keys[__builtin_ctz(same) / 2] = key;
	}
	return first + (uint32_t)__builtin_ctz(same) / 2;
}

/* Searches the keys of packets, and fetches their cells. Most packets of an attack have one key, which is searched
 * once. */
WEIR_INLINE void observe_cells(union feature_element *sheet, struct observed *seen,
			       const struct observed_columns *columns, uint64_t inside, uint64_t ipv6,
			       const struct observing *observing, enum observed_direction direction)
{
	const uint32_t own = columns->own[first_of(inside)] & observing->mask4;
	uint64_t alike = inside & ~ipv6 & u32_masked(columns->own, observing->mask4, own, own);

	if (__builtin_popcountll(alike) >= OBSERVED_TOGETHER) {
		const uint32_t one = first_of(alike);
		const uint32_t cell =
			observe_cell(sheet, seen->elements[one], feature_whole4(own), observing, direction);

		__builtin_prefetch(&sheet[cell], 1);
		for (uint32_t i = 0; i < WEIR_BURST_MAX; i++)
			seen->elements[i] = alike >> i & 1 ? cell : seen->elements[i];
	} else {
		alike = 0;
	}
	for (uint64_t left = inside & ~alike; left; left &= left - 1) {
		const uint32_t i = first_of(left);
		struct feature_key key = feature_key4(observing, columns->own[i]);

		if (WEIR_UNLIKELY(ipv6 >> i & 1))
			key = seen->keys6[i];
		seen->elements[i] = observe_cell(sheet, seen->elements[i], key, observing, direction);
		__builtin_prefetch(&sheet[seen->elements[i]], 1);
	}
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

/* The packets of the first one's element. */
WEIR_INLINE uint64_t observe_together(const struct observed *seen, uint64_t passed)
{
	const uint32_t first = seen->elements[first_of(passed)];

	return passed & u32_between(seen->elements, first, first);
}

/*
 * Counts packets of one element: most packets of a burst are to the victim of an attack. Their sums are computed in
 * vectors. One after the other, each packet would wait until the counts of the one before are stored.
 */
WEIR_INLINE void observe_sums(union feature_element *sheet, const struct observed *seen,
			      const struct verdicts *verdicts, uint64_t together)
{
	struct feature_cell *cell = &sheet[seen->elements[first_of(together)]].cell;
	uint64_t bytes = 0, low = 0, high = 0;

	for (uint32_t class = 0; class < PACKET_CLASSES; class ++)
		cell->packets[class] += (uint32_t)__builtin_popcountll(u8_is(seen->classes, (uint8_t)class) & together);
	for (uint32_t i = 0; i < WEIR_BURST_MAX; i++) {
		const uint64_t is_counted = 0 - (together >> i & 1);
		const uint32_t lane = seen->lanes[i] % FEATURE_LANES;
		const uint64_t bit = (uint64_t)seen->bits[i] << 16 * (lane % 4) & is_counted;

		bytes += verdicts->lens[i] & is_counted;
		low |= lane < 4 ? bit : 0;
		high |= lane < 4 ? 0 : bit;
	}
	cell->bytes += bytes;
	for (uint32_t lane = 0; lane < 4; lane++) {
		cell->peers[lane] |= (uint16_t)(low >> 16 * lane);
		cell->peers[lane + 4] |= (uint16_t)(high >> 16 * lane);
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
	uint64_t malformed = passed & ~seen->open, inside, together;

	if (!passed)
		return;
	if (malformed)
		malformed &= u32_masked(verdicts->words, UINT32_C(0xffff0000), (uint32_t)REASON_MALFORMED_LINK << 16,
					(uint32_t)REASON_MALFORMED_TRANSPORT << 16);
	inside = seen->inside & passed & ~malformed;
	if (observing->groups && inside)
		observe_cells(sheet, seen, columns, inside, inside & u8_is(columns->l3, L3_IPV6), observing, direction);
	observe_classes(seen, columns);
	observe_words(burst, seen, columns, malformed, direction);
	together = observe_together(seen, passed);
	if (__builtin_popcountll(together) >= OBSERVED_TOGETHER)
		observe_sums(sheet, seen, verdicts, together);
	else
		together = 0;
	for (uint64_t left = passed & ~together; left; left &= left - 1) {
		const uint32_t i = first_of(left);

		((uint32_t *)sheet)[seen->packets[i]]++;
		((uint64_t *)sheet)[seen->bytes[i]] += verdicts->lens[i];
		((uint16_t *)sheet)[seen->lanes[i]] |= seen->bits[i];
	}
	if (sampler->next - sampler->seen < (uint32_t)__builtin_popcountll(inside))
		observe_samples(burst, verdicts, seen, inside, feature_records(observing, direction), direction);
	else
		sampler->seen += (uint32_t)__builtin_popcountll(inside);
}

#endif

#endif
