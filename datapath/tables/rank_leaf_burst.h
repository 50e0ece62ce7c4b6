/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Looks up bursts of keys in a rank leaf (tables/rank_leaf.h). Each part of a step runs for all keys before the next
 * part, so the keys wait for memory together. A key whose answer is in the root or in an entry takes no further part:
 * the others are moved together, without a branch that would be mispredicted.
 *
 * One key at a time, a step takes about 30 instructions. With AVX-512, 16 keys share everything but the comparison of
 * their leaf, by gathers, and a key takes 9 instructions.
 */
#ifndef WEIR_TABLES_RANK_LEAF_BURST_H
#define WEIR_TABLES_RANK_LEAF_BURST_H

#include "tables/rank_leaf.h"
#include "core/simd_words.h"

#ifdef WEIR_BURSTS

enum { RANK_FEW = 24 }; /* so many keys are looked up faster one by one than a burst by groups */

/*
 * Like rank_entry(), without a branch on nested entries. Most entries of IPv4 are not nested; about half of the entries
 * of IPv6 are.
 */
WEIR_INLINE uint32_t rank_entry_either(struct table table, uint32_t word, uint32_t chunk)
{
	uint32_t outer = (word >> RANK_NUMBER_SHIFT & RANK_NUMBER_MASK) + (chunk >> (word & RANK_LOW_MASK));
	uint32_t entry = image_u32(table, RANK_ENTRIES + outer);
	uint32_t nested = (uint32_t)((int32_t)entry >> 31); /* all ones if so */
	uint32_t inner = chunk >> (entry >> RANK_NUMBER_SHIFT & RANK_NESTED_SHIFT_MASK);

	inner &= (1u << (entry & RANK_LOW_MASK)) - 1;
	inner += entry >> RANK_NESTED_BASE_SHIFT & RANK_NESTED_BASE_MASK;
	return image_u32(table, RANK_ENTRIES + (outer ^ ((outer ^ inner) & nested)));
}

/* The keys without an answer yet: their numbers in the burst, and what they look up in their leaves. */
struct rank_left {
	uint8_t keys[WEIR_BURST_MAX];
	uint16_t chunks[WEIR_BURST_MAX];
	uint32_t words[WEIR_BURST_MAX]; /* leaves, then lanes */
};

/* Gives the first `count` keys that are left the values of their leaves. */
WEIR_INLINE void rank_values(struct table table, struct rank_lanes lanes, struct rank_left *left, uint32_t *labels,
			     uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		left->words[i] = rank_lane(table, lanes, left->words[i], left->chunks[i]);
	for (uint32_t i = 0; i < count; i++)
		labels[left->keys[i]] = rank_value(table, lanes, left->words[i]);
}

/* Like rank_values(), specialised for the width of the table's values. */
WEIR_INLINE void rank_values_of(struct table table, struct rank_left *left, uint32_t *labels, uint32_t count)
{
	struct rank_lanes lanes = rank_lanes(table);

	switch (lanes.value_bytes) {
	case 1:
		lanes.value_bytes = 1;
		return rank_values(table, lanes, left, labels, count);
	case 2:
		lanes.value_bytes = 2;
		return rank_values(table, lanes, left, labels, count);
	case 3:
		lanes.value_bytes = 3;
		return rank_values(table, lanes, left, labels, count);
	default:
		lanes.value_bytes = 4;
		return rank_values(table, lanes, left, labels, count);
	}
}

/*
 * Gives the keys the values of the root, and `left` those whose value is a block. Returns their number. Gathers would
 * take as long, because the root lies in L2.
 */
WEIR_INLINE uint32_t rank_root(struct table table, const uint32_t *addrs, uint32_t *values, struct rank_left *left,
			       uint32_t count)
{
	uint32_t asked = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t value = image_u32(table, RANK_ROOT + (addrs[i] >> 16));

		values[i] = value;
		left->keys[asked] = (uint8_t)i;
		asked += value >> 31;
	}
	return asked;
}

/* Replaces the blocks of the first `asked` keys that are left by their labels. */
WEIR_INLINE void rank_leaf_kernel(struct table table, const uint32_t *addrs, uint32_t *labels, struct rank_left *left,
				  uint32_t asked)
{
	uint32_t leaves = 0;

	for (uint32_t i = 0; i < asked; i++) {
		uint32_t key = left->keys[i], chunk = addrs[key] & 0xffff;
		uint32_t entry = rank_entry(table, RANK_ENTRIES, labels[key], chunk);

		labels[key] = entry >> RANK_NUMBER_SHIFT;
		left->words[leaves] = entry;
		left->chunks[leaves] = (uint16_t)chunk;
		left->keys[leaves] = (uint8_t)key;
		leaves += rank_is_leaf(entry);
	}
	rank_values_of(table, left, labels, leaves);
}

WEIR_INLINE void rank_leaf6_kernel(struct table table, const uint64_t *hi, const uint64_t *lo, uint32_t *labels,
				   uint32_t count)
{
	struct rank_left left;
	uint8_t stay[WEIR_BURST_MAX]; /* keys whose value is a block */
	uint32_t asked = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t value = image_u32(table, RANK_ROOT + (uint32_t)(hi[i] >> 48));

		labels[i] = value;
		stay[asked] = (uint8_t)i;
		asked += value >> 31;
	}
	for (uint32_t step = 0; step < RANK_STEPS_MAX && asked > 0; step++) {
		uint32_t leaves = 0;

		for (uint32_t i = 0; i < asked; i++) {
			uint32_t key = stay[i], chunk = rank_chunk(hi[key], lo[key], step);
			uint32_t entry = rank_entry_either(table, labels[key], chunk);

			labels[key] = entry >> RANK_NUMBER_SHIFT;
			left.words[leaves] = entry;
			left.chunks[leaves] = (uint16_t)chunk;
			left.keys[leaves] = (uint8_t)key;
			leaves += rank_is_leaf(entry);
		}
		rank_values_of(table, &left, labels, leaves);
		asked = 0;
		for (uint32_t i = 0; i < leaves; i++) {
			stay[asked] = left.keys[i];
			asked += labels[left.keys[i]] >> 31;
		}
	}
	/* Only in a hostile image are there more steps than chunks of the address. */
	for (uint32_t i = 0; i < asked; i++)
		labels[stay[i]] = 0;
}

#ifdef SIMD_HAS_AVX512

/* The words of a burst. Whole groups of 16 are read and written, so there may be more words than keys. */
struct rank_words {
	uint32_t of[WEIR_BURST_MAX] __attribute__((aligned(64)));
};

/* The entries of 16 keys in the blocks that `words` name; entry 0 is 32-bit word `first`. */
SIMD_AVX512 WEIR_INLINE __m512i rank_entries_avx512(struct table table, uint32_t first, __m512i words, __m512i chunks)
{
	const uint8_t *all = table_at(table, first * 4);
	__m512i base = simd_bits(words, RANK_NUMBER_SHIFT, RANK_NUMBER_MASK);
	__m512i index = _mm512_srlv_epi32(chunks, simd_bits(words, 0, RANK_LOW_MASK));
	__m512i entries = _mm512_i32gather_epi32(_mm512_add_epi32(base, index), all, 4);
	__mmask16 nested = _mm512_movepi32_mask(entries);

	if (nested != 0) {
		__m512i width = simd_bits(entries, 0, RANK_LOW_MASK);

		base = simd_bits(entries, RANK_NESTED_BASE_SHIFT, RANK_NESTED_BASE_MASK);
		index = _mm512_srlv_epi32(chunks, simd_bits(entries, RANK_NUMBER_SHIFT, RANK_NESTED_SHIFT_MASK));
		index = _mm512_and_si512(index, simd_low_bits(width));
		entries = _mm512_mask_i32gather_epi32(entries, nested, _mm512_add_epi32(base, index), all, 4);
	}
	return entries;
}

/*
 * One step of the keys. Each block among the values is replaced by its value for the chunk; labels stay. There is at
 * least one block. What is behind the last key is undefined. There, and where a value or an entry is a label, stand-ins
 * are looked up: a block with one entry, the first of all, and lane 0.
 */
SIMD_AVX512 WEIR_INLINE void rank_steps_avx512(struct table table, struct rank_lanes lanes, struct rank_words *found,
					       const struct rank_words *chunks, uint32_t count)
{
	const uint8_t *starts = table_at(table, lanes.starts << 1);
	const uint8_t *values = table_at(table, lanes.values);
	const __m512i value_bytes = _mm512_set1_epi32((int)lanes.value_bytes);
	const __m512i value_mask = _mm512_set1_epi32((int)(UINT32_MAX >> (32 - 8 * lanes.value_bytes)));
	const __m512i stand_in = simd_set(RANK_LOW_MASK);
	const uint32_t whole = (count + SIMD_GROUP - 1) & ~(uint32_t)(SIMD_GROUP - 1);
	__mmask16 is_leaf[WEIR_BURST_MAX / SIMD_GROUP];
	struct rank_words lines, leaves, below;

	for (uint32_t i = 0; i < whole; i += SIMD_GROUP) {
		__m512i value = _mm512_load_si512(found->of + i);
		__mmask16 is_block = _mm512_movepi32_mask(value) & simd_first(count - i);
		__m512i blocks = _mm512_mask_mov_epi32(stand_in, is_block, value);
		__m512i entries = rank_entries_avx512(table, RANK_ENTRIES, blocks, _mm512_load_si512(chunks->of + i));
		__mmask16 leaf_here = _mm512_mask_test_epi32_mask(is_block, entries, stand_in);
		__m512i number = _mm512_srli_epi32(entries, RANK_NUMBER_SHIFT);
		__m512i lane = _mm512_maskz_mov_epi32(leaf_here, number);
		__m512i in_line = simd_bits(lane, 0, RANK_LINE_MASK);
		/* The leaf's lanes behind its first. Bit 31 may be shifted out, but then it is not set. */
		__m512i leaf = _mm512_slli_epi32(simd_low_bits(simd_bits(entries, 0, RANK_LOW_MASK)), 1);

		is_leaf[i / SIMD_GROUP] = leaf_here;
		_mm512_store_si512(found->of + i, _mm512_mask_mov_epi32(value, is_block, number));
		_mm512_store_si512(lines.of + i, _mm512_slli_epi32(_mm512_sub_epi32(lane, in_line), 1));
		_mm512_store_si512(leaves.of + i, _mm512_sllv_epi32(leaf, in_line));
	}
	for (uint32_t i = 0; i < whole; i++)
		below.of[i] = lanes_at_most(starts + lines.of[i], (uint16_t)chunks->of[i]);
	for (uint32_t i = 0; i < whole; i += SIMD_GROUP) {
		__m512i at_most = _mm512_and_si512(_mm512_load_si512(below.of + i), _mm512_load_si512(leaves.of + i));
		__m512i label = _mm512_load_si512(found->of + i); /* or first lane */
		__m512i lane = _mm512_add_epi32(label, simd_popcount(at_most));
		__mmask16 leaf_here = is_leaf[i / SIMD_GROUP];
		__m512i value =
			_mm512_mask_i32gather_epi32(label, leaf_here, _mm512_mullo_epi32(lane, value_bytes), values, 1);

		_mm512_store_si512(found->of + i, _mm512_mask_and_epi32(value, leaf_here, value, value_mask));
	}
}

/* Replaces the blocks among the values of the keys by their labels. */
SIMD_AVX512 __attribute__((unused)) WEIR_NOINLINE void
rank_leaf_kernel_avx512(struct table table, const uint32_t *addrs, uint32_t *labels, uint32_t count)
{
	struct rank_words found, chunks;

	for (uint32_t i = 0; i < count; i += SIMD_GROUP) {
		__mmask16 here = simd_first(count - i);

		_mm512_store_si512(found.of + i, _mm512_maskz_loadu_epi32(here, labels + i));
		_mm512_store_si512(chunks.of + i, simd_bits(_mm512_maskz_loadu_epi32(here, addrs + i), 0, 0xffff));
	}
	rank_steps_avx512(table, rank_lanes(table), &found, &chunks, count);
	for (uint32_t i = 0; i < count; i += SIMD_GROUP)
		_mm512_mask_storeu_epi32(labels + i, simd_first(count - i), _mm512_load_si512(found.of + i));
}

/* Bits 16 * chunk and following (from the highest) of the addresses with the numbers `keys`. */
SIMD_AVX512 WEIR_INLINE __m512i rank_chunks_avx512(const uint64_t *hi, const uint64_t *lo, __m512i keys, uint32_t chunk)
{
	const uint8_t *halves = (const uint8_t *)(chunk < 4 ? hi : lo) + (chunk & 2 ? 0 : 4);
	__m512i pairs = _mm512_i32gather_epi32(keys, halves, 8);

	return chunk & 1 ? simd_bits(pairs, 0, 0xffff) : _mm512_srli_epi32(pairs, 16);
}

SIMD_AVX512 __attribute__((unused)) WEIR_NOINLINE void
rank_leaf6_kernel_avx512(struct table table, const uint64_t *hi, const uint64_t *lo, uint32_t *labels, uint32_t count)
{
	const uint8_t *root = table_at(table, RANK_ROOT * 4);
	const struct rank_lanes lanes = rank_lanes(table);
	struct rank_words words, chunks, keys; /* of keys without an answer yet */
	uint32_t left = 0;

	for (uint32_t i = 0; i < count; i += SIMD_GROUP) {
		/* Number 0 where there are no more keys. */
		__mmask16 here = simd_first(count - i);
		__m512i number = _mm512_maskz_add_epi32(here, simd_counting(), simd_set(i));
		__m512i found = _mm512_i32gather_epi32(rank_chunks_avx512(hi, lo, number, 0), root, 4);
		__mmask16 more = _mm512_movepi32_mask(found) & here;

		_mm512_mask_storeu_epi32(labels + i, here, found);
		/* Stored behind the others, never beyond the keys that were read. */
		_mm512_storeu_si512(words.of + left, _mm512_maskz_compress_epi32(more, found));
		_mm512_storeu_si512(keys.of + left, _mm512_maskz_compress_epi32(more, number));
		left += (uint32_t)__builtin_popcount(more);
	}
	for (uint32_t step = 0; step < RANK_STEPS_MAX && left > 0; step++) {
		uint32_t asked = left;

		for (uint32_t i = 0; i < asked; i += SIMD_GROUP) {
			__m512i number = _mm512_maskz_load_epi32(simd_first(asked - i), keys.of + i);

			_mm512_store_si512(chunks.of + i, rank_chunks_avx512(hi, lo, number, step + 1));
		}
		rank_steps_avx512(table, lanes, &words, &chunks, asked);
		left = 0;
		for (uint32_t i = 0; i < asked; i += SIMD_GROUP) {
			__m512i value = _mm512_load_si512(words.of + i), number = _mm512_load_si512(keys.of + i);
			__mmask16 here = simd_first(asked - i), more = _mm512_movepi32_mask(value) & here;
			__mmask16 last = step + 1 == RANK_STEPS_MAX ? more : 0;

			_mm512_mask_i32scatter_epi32(labels, here & (__mmask16)~more, number, value, 4);
			/* Only in a hostile image are there more steps than chunks of the address. */
			_mm512_mask_i32scatter_epi32(labels, last, number, _mm512_setzero_si512(), 4);
			_mm512_storeu_si512(words.of + left, _mm512_maskz_compress_epi32(more, value));
			_mm512_storeu_si512(keys.of + left, _mm512_maskz_compress_epi32(more, number));
			left += (uint32_t)__builtin_popcount(more);
		}
	}
}

#endif

/* labels[i] = rank_leaf_find(table, addrs[i]) for a burst of at most WEIR_BURST_MAX. */
WEIR_INLINE void rank_leaf_find_burst(struct table table, const uint32_t *addrs, uint32_t *labels, uint32_t count)
{
	struct rank_left left;
	uint32_t asked = rank_root(table, addrs, labels, &left, count);

#ifdef SIMD_HAS_AVX512
	if (asked > RANK_FEW && simd_avx512())
		return rank_leaf_kernel_avx512(table, addrs, labels, count);
#endif
	rank_leaf_kernel(table, addrs, labels, &left, asked);
}

/* labels[i] = rank_leaf6_find(table, hi[i], lo[i]) for a burst of at most WEIR_BURST_MAX. */
WEIR_INLINE void rank_leaf6_find_burst(struct table table, const uint64_t *hi, const uint64_t *lo, uint32_t *labels,
				       uint32_t count)
{
#ifdef SIMD_HAS_AVX512
	if (simd_avx512())
		return rank_leaf6_kernel_avx512(table, hi, lo, labels, count);
#endif
	rank_leaf6_kernel(table, hi, lo, labels, count);
}

#endif
#endif
