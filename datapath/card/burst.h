/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Answers of a card for a burst. The body of each packet follows its `cap` bytes; the front that has removed the
 * trailer guarantees that (crates/engine/src/sealed.rs).
 */
#ifndef WEIR_CARD_BURST_H
#define WEIR_CARD_BURST_H

#include "card/answers.h"
#include "core/burst.h"

WEIR_INLINE const uint8_t *burst_answers(const struct weir_burst *burst, uint32_t i)
{
	return burst->frames[i].data + burst->frames[i].cap;
}

/* Opens all packets. A card answers only for packets that no default decides, so none must be parsed for that. */
WEIR_INLINE void open_all(const struct weir_burst *burst, struct verdicts *verdicts)
{
	read_lens(burst, verdicts);
	verdicts->open = first_bits(burst->count);
	verdicts->sampled = 0;
}

/* Frames whose ends are fetched ahead of the one that is compared. */
enum { ENDS_AHEAD = 16 };

/* Fetches the end of a frame that is compared later. */
WEIR_INLINE void prefetch_end(const struct weir_frame *frames, uint32_t count, uint32_t i)
{
	if (i < count)
		__builtin_prefetch(frames[i].data + frames[i].cap - sizeof(uint64_t));
}

/*
 * Compares the last eight bytes of each frame with a seal, and cuts a trailer off. Returns the frames that have the
 * seal; only they are written to `cut`. The engine calls this for a burst, because usually all its frames have answers.
 * It reads other seals itself (crates/engine/src/sealed.rs).
 */
uint64_t weir_answered(const struct weir_frame *frames, struct weir_frame *cut, uint32_t count, uint64_t seal,
		       uint32_t trailer);

uint64_t weir_answered(const struct weir_frame *frames, struct weir_frame *cut, uint32_t count, uint64_t seal,
		       uint32_t trailer)
{
	uint64_t answered = 0;

	for (uint32_t i = 0; i < ENDS_AHEAD; i++)
		prefetch_end(frames, count, i);
	for (uint32_t i = 0; i < count; i++) {
		const struct weir_frame frame = frames[i];
		uint64_t word;

		prefetch_end(frames, count, i + ENDS_AHEAD);
		/* The end of a frame in several buffers is not here. */
		if (WEIR_UNLIKELY(frame.cap < trailer || frame.cap != frame.len))
			continue;
		__builtin_memcpy(&word, frame.data + frame.cap - sizeof(word), sizeof(word));
		answered |= (uint64_t)(word == seal) << i;
		cut[i] = (struct weir_frame){frame.data, frame.cap - trailer, frame.len - trailer};
	}
	return answered;
}

/*
 * Whether the ranges of an entry are in the image. Entries come from a wire, so a broken card must not lead outside. In
 * BPF every index is masked instead.
 */
WEIR_INLINE bool dxr16x4_holds(struct table table, uint32_t entry)
{
	const uint32_t words = image_u32(table, (uint32_t)offsetof(struct image_header, bytes) / 4) >> 2;
	const uint32_t first = (image_section(table, DXR_RANGES_FIELD) >> 2) + (entry >> DXR_COUNT_BITS);
	uint32_t count = entry & ((1u << DXR_COUNT_BITS) - 1);

	if (WEIR_UNLIKELY(count && first >= words))
		return false;
	if (WEIR_UNLIKELY(count == DXR_COUNT_AT_HEAD))
		count = (image_u32(table, first) >> DXR_LABEL_BITS) + 2;
	return !count || count <= words - first;
}

/* Fetches the range that the search for an entry reads first. */
WEIR_INLINE void dxr16x4_prefetch(struct table table, uint32_t entry)
{
	const uint32_t count = entry & ((1u << DXR_COUNT_BITS) - 1);
	const uint32_t first = (image_section(table, DXR_RANGES_FIELD) >> 2) + (entry >> DXR_COUNT_BITS);

	if (count)
		__builtin_prefetch(table_at(table, (first + count / 2) << 2));
}

/*
 * Finishes a lookup of all packets: the R stage over the image that the card has, too. Ranges are fetched for all
 * packets before the first one is searched.
 */
WEIR_NOINLINE void finish_labels(struct table table, const struct weir_burst *burst, uint32_t offset, uint32_t *labels,
				 uint8_t *there)
{
	uint32_t entries[WEIR_BURST_MAX];
	uint16_t keys[WEIR_BURST_MAX];

	for (uint32_t i = 0; i < burst->count; i++) {
		const uint8_t *at = burst_answers(burst, i) + offset;

		entries[i] = answer_u32(at);
		keys[i] = (uint16_t)answer_u16(at + ANSWER_KEY);
		there[i] = answer_has_key(at);
		dxr16x4_prefetch(table, entries[i]);
	}
	for (uint32_t i = 0; i < burst->count; i++)
		labels[i] = dxr16x4_holds(table, entries[i]) ? dxr16x4_finish(table, entries[i], keys[i]) : 0;
}

/*
 * Decides open packets by the rule that the card says ends the chain: `words` has the verdict of each number of
 * `first`, or VERDICT_NONE where this is no rule of this place. `mask` has the bits of the number. Packets with the
 * same number are decided at once, so a counter is written once for a burst, and numbers that no packet has cost
 * nothing.
 */
WEIR_NOINLINE void decide_firsts(const struct env *env, struct verdicts *verdicts, const uint8_t *flags,
				 const uint32_t *words, uint8_t mask)
{
	uint64_t left = verdicts->open & ~u8_masked(flags, mask, 0, 0);

	while (left) {
		const uint8_t number = flags[first_of(left)] & mask;
		const uint64_t hits = left & u8_masked(flags, mask, number, number);
		const uint32_t word = words[number];

		left &= ~hits;
		if (word == VERDICT_NONE)
			continue;
		count_hits(env, word >> 16, hits, verdicts);
		settle(verdicts, hits, word);
	}
}

#endif
