/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Feature extraction for a burst (feature.h). Keys and classes are columns, which the parser fills. After the rules,
 * the entries of all packets that pass are fetched, then counted. For one packet in the kernel: cpu_observe.h.
 */
#ifndef WEIR_OBSERVE_BURST_H
#define WEIR_OBSERVE_BURST_H

#include "burst.h"
#include "feature.h"

/* What is observed of the packets of a burst. */
struct observed {
	struct feature_key keys[WEIR_BURST_MAX];
	uint8_t classes[WEIR_BURST_MAX];
	uint8_t as[WEIR_BURST_MAX]; /* enum observed_as */
};

/* Fills the columns of packet i. */
WEIR_INLINE void observe_packet(struct observed *seen, uint32_t i, packet_view *packet,
				const struct observing *observing, enum observed_direction direction)
{
	seen->as[i] = (uint8_t)observed_as(observing, packet, direction, &seen->keys[i]);
	seen->classes[i] = (uint8_t)class_of(packet);
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

static void __attribute__((noinline, unused)) observe_burst(const struct weir_burst *burst,
							    const struct verdicts *verdicts,
							    const struct observed *seen,
							    enum observed_direction direction)
{
	const uint64_t passed = accepted_hits(verdicts, burst->count);
	const uint64_t malformed = malformed_hits(verdicts);
	const uint64_t inside = passed & ~malformed & u8_is(seen->as, OBSERVED_INSIDE);
	const uint64_t seed = burst->features.seed, mask = burst->features.mask;
	struct feature_entry *sums = burst->features.sheet + direction;
	struct feature_entry *entries =
		burst->features.sheet + (FEATURE_SUM_GROUPS + direction * (mask + 1)) * FEATURE_GROUP;
	uint64_t places[WEIR_BURST_MAX];

	for (uint64_t left = inside; left; left &= left - 1) {
		const uint32_t i = first_of(left);
		const uint64_t hash = feature_hash(seed, seen->keys[i]);

		places[i] = (hash >> 32 & mask) * FEATURE_GROUP + (hash & (FEATURE_GROUP - 1));
		__builtin_prefetch(&entries[places[i]], 1);
	}
	for (uint64_t left = inside; left; left &= left - 1) {
		const uint32_t i = first_of(left);
		struct feature_entry *group = &entries[places[i] & ~(uint64_t)(FEATURE_GROUP - 1)];
		struct feature_entry *entry = feature_place(group, seen->keys[i], places[i]);

		feature_count(entry ? entry : &sums[FEATURE_REST], seen->classes[i], 1, verdicts->lens[i]);
	}
	for (uint64_t left = passed & ~inside; left; left &= left - 1) {
		const uint32_t i = first_of(left);

		if (malformed >> i & 1)
			feature_count(&sums[FEATURE_WITHOUT_ADDRESS], PACKET_OTHER, 1, verdicts->lens[i]);
		else
			feature_count(&sums[feature_sum((enum observed_as)seen->as[i])], seen->classes[i], 1,
				      verdicts->lens[i]);
	}
}

#endif
