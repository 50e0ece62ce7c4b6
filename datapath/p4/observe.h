/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The extern object of `observe`, behind the verdict of each packet. It counts packets one after the other into the
 * sheet that native code fills by bursts (observe/burst.h). It parses the packet again.
 *
 * Generated code declares `observing`, the policy's settings, before it includes this.
 */
#ifndef WEIR_P4_OBSERVE_H
#define WEIR_P4_OBSERVE_H

#include "observe/feature.h"
#include "observe/keys.h"
#include "p4/externs.h"

struct p4_observe {
	uint32_t packet;
	uint8_t from; /* enum from_side, and enum observed_direction */
	uint8_t action;
	uint16_t reason;
} P4_MAILBOX;

/* What is observed of a packet. */
struct p4_seen {
	uint32_t element; /* a cell, a sum, or a group that may have the key */
	bool is_inside;
	bool is_keyed;
	struct feature_key key;
	uint32_t peer; /* before it is mixed */
	bool has_peer;
};

WEIR_INLINE struct p4_seen p4_seen4(uint64_t seed, enum observed_direction direction, uint32_t own, uint32_t peer)
{
	const uint32_t cells = feature_cells(&observing, direction), shift = observing.shift4 & 31;
	struct p4_seen seen = {
		.element = observing.is_all ? cells : FEATURE_OUTSIDE + direction,
		.is_inside = observing.is_all,
		.key = feature_key4(&observing, own),
		.peer = feature_peer4(seed, peer),
		.has_peer = true,
	};

	for (uint32_t range = 0; range < observing.count4; range++) {
		const struct observed_range4 *of = &observing.inside4[range];

		if (own < of->first || own > of->last)
			continue;
		seen.is_inside = true;
		seen.element = cells + of->place + (own >> shift) - (of->first >> shift);
	}
	return seen;
}

WEIR_INLINE struct p4_seen p4_seen6(uint64_t seed, enum observed_direction direction, struct wide own, struct wide peer)
{
	const uint32_t cells = feature_cells(&observing, direction);
	struct p4_seen seen = {
		.element = observing.is_all ? cells : FEATURE_OUTSIDE + direction,
		.is_inside = observing.is_all,
		.key = feature_key6(&observing, own),
		.peer = feature_peer6(seed, peer),
		.has_peer = true,
	};

	for (uint32_t range = 0; range < observing.count6; range++) {
		const struct observed_range6 *of = &observing.inside6[range];

		if (!wide_between(own, of->first.hi, of->first.lo, of->last.hi, of->last.lo))
			continue;
		seen.is_inside = true;
		seen.element =
			cells + of->place + feature_prefix6(&observing, own) - feature_prefix6(&observing, of->first);
	}
	return seen;
}

/* The cell of a key: a recent one, or the one of a search. */
WEIR_INLINE uint32_t p4_cell(union feature_element *sheet, uint64_t seed, enum observed_direction direction,
			     struct feature_key key)
{
	uint64_t *recents = sheet[feature_recents(&observing, direction)].recents.cells;
	const uint32_t prefix = (uint32_t)key.low, hash = feature_group_hash(seed, key) & (observing.groups - 1);
	uint64_t *recent = is_ipv4_key(key) ? &recents[feature_recent(&observing, prefix)] : NULL;
	uint32_t cell;

	if (recent && (uint32_t)*recent && *recent >> 32 == prefix)
		return (uint32_t)*recent;
	cell = observe_cell(sheet, observed_offset(feature_keys(&observing, direction) + hash), key, &observing,
			    direction) /
	       (uint32_t)sizeof(union feature_element);
	if (recent && cell >= FEATURE_HEADS)
		*recent = feature_recent_word(prefix, cell);
	return cell;
}

/* Writes the record of a packet that is sampled. */
WEIR_INLINE void p4_record(union feature_element *sheet, uint64_t seed, enum observed_direction direction,
			   packet_view *packet, uint32_t class, uint32_t len)
{
	struct feature_sampler *sampler = &sheet[FEATURE_SAMPLER + direction].sampler;
	uint32_t place;

	if (sampler->seen++ != sampler->next)
		return;
	place = feature_record_place(seed, sampler->taken++);
	sampler->next = feature_next(seed, sampler->taken, sampler->next);
	feature_fill(&sheet[feature_records(&observing, direction) + place].record, packet, class, len);
}

/* Counts a packet that passes. */
WEIR_NOINLINE void p4_observe_packet(const struct weir_burst *burst, const struct p4_observe *mail)
{
	const enum observed_direction direction = (enum observed_direction)mail->from;
	const uint64_t seed = burst->features.seed;
	const struct frame frame = burst_frame(burst, mail->packet);
	union feature_element *sheet = burst->features.sheet;
	struct p4_seen seen = {.element = FEATURE_WITHOUT_ADDRESS + direction};
	const bool is_upstream = direction == OBSERVED_UPSTREAM;
	struct feature_cell *cell;
	uint32_t class = PACKET_OTHER;
	struct packet packet;

	parse_packet(&frame, &packet);
	if (is_malformed((uint32_t)mail->reason << 16)) {
		class = PACKET_OTHER;
	} else if (packet.l3 == L3_IPV4) {
		seen = p4_seen4(seed, direction, is_upstream ? packet.daddr : packet.saddr,
				is_upstream ? packet.saddr : packet.daddr);
	} else if (packet.l3 == L3_IPV6) {
		const struct wide saddr = {packet.saddr6.hi, packet.saddr6.lo};
		const struct wide daddr = {packet.daddr6.hi, packet.daddr6.lo};

		seen = p4_seen6(seed, direction, is_upstream ? daddr : saddr, is_upstream ? saddr : daddr);
	}
	if (seen.has_peer)
		class = (uint8_t)class_at(&packet) / (uint32_t)sizeof(uint32_t);
	if (seen.is_inside) {
		p4_record(sheet, seed, direction, &packet, class, frame.len);
		if (observing.groups)
			seen.element = p4_cell(sheet, seed, direction, seen.key);
	}
	cell = &sheet[seen.element].cell;
	cell->packets[class]++;
	cell->bytes += frame.len;
	if (seen.has_peer) {
		const uint32_t hash = feature_mix(seen.peer);

		cell->peers[hash % FEATURE_LANES] |= (uint16_t)feature_peer_bit(hash);
	}
}

WEIR_INLINE int p4_observe(const void *worker, const void *mailbox)
{
	const struct p4_observe *mail = mailbox;

	if (mail->action == ACTION_ACCEPT)
		p4_observe_packet(p4_burst(worker), mail);
	return 1;
}

#endif
