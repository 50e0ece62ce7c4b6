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
	for (uint32_t i = 0; i < count; i++)
		values[i] = image_u32(table, RANK_ROOT + (addrs[i] >> 16));
	return lanes_flagged(values, left->keys, count);
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

/* IPv6 keys on their way, by number in the burst. */
struct rank6_keys {
	uint64_t halves[WEIR_BURST_MAX];
	uint8_t left[WEIR_BURST_MAX];	/* bits of the half */
	uint8_t grains[WEIR_BURST_MAX]; /* bits below the starts of leaves with more than 32 bits left */
};

/*
 * The entries of the keys of `asked`, whose values in `labels` are blocks. Gives keys whose entry is a label that
 * label, and `leaves` the others. Returns their number.
 */
WEIR_INLINE uint32_t rank6_entries(struct table table, struct rank6_keys *keys, uint32_t *labels, uint8_t *asked,
				   uint32_t count, struct rank_left *leaves)
{
	uint32_t found = 0;

	for (uint32_t level = 0; level < RANK6_LEVELS && count > 0; level++) {
		uint32_t blocks = 0;

		for (uint32_t i = 0; i < count; i++) {
			uint32_t key = asked[i], word = labels[key], width = rank_width(word), entry;
			uint32_t left = keys->left[key] - width;

			word = rank_base(word) + ((uint32_t)(keys->halves[key] >> (left & 63)) & ((1u << width) - 1));
			entry = image_u32(table, RANK_ENTRIES + word);
			keys->left[key] = (uint8_t)left;
			asked[blocks] = (uint8_t)key;
			leaves->keys[found] = (uint8_t)key;
			leaves->words[found] = entry;
			labels[key] = entry & RANK_FLAG ? entry : entry >> RANK_NUMBER_SHIFT;
			blocks += entry >> 31;
			found += rank_is_leaf(entry) & ~(entry >> 31);
		}
		count = blocks;
	}
	/* Only a hostile image has more levels. */
	for (uint32_t i = 0; i < count; i++)
		labels[asked[i]] = 0;
	return found;
}

/*
 * Gives the keys in `leaves` the values of their leaves, and `asked` those whose value is a block. Returns their
 * number.
 */
WEIR_INLINE uint32_t rank6_values(struct table table, struct rank_lanes lanes, struct rank6_keys *keys,
				  const uint64_t *lo, uint32_t *labels, struct rank_left *leaves, uint32_t count,
				  uint8_t *asked)
{
	uint32_t blocks = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t key = leaves->keys[i];
		uint32_t grain = keys->left[key] > RANK6_START_BITS ? keys->grains[key] : 0;

		leaves->words[i] = rank6_lane(table, lanes, leaves->words[i], (uint32_t)(keys->halves[key] >> grain));
		keys->left[key] = (uint8_t)grain;
	}
	for (uint32_t i = 0; i < count; i++) {
		uint32_t key = leaves->keys[i], value = rank_value(table, lanes, leaves->words[i]);

		labels[key] = value;
		asked[blocks] = (uint8_t)key;
		blocks += value >> 31;
	}
	for (uint32_t i = 0; i < blocks; i++) {
		uint32_t key = asked[i];

		if (keys->left[key] != 0)
			continue;
		keys->halves[key] = lo[key];
		keys->left[key] = RANK6_LOWER_BITS;
		keys->grains[key] = RANK6_LOWER_BITS - RANK6_START_BITS;
	}
	return blocks;
}

/* Looks up the rest of the way of the keys of `asked`, whose values in `labels` are blocks. */
WEIR_INLINE void rank_leaf6_kernel(struct table table, struct rank6_keys *keys, const uint64_t *lo, uint32_t *labels,
				   uint8_t *asked, uint32_t blocks)
{
	const struct rank_lanes lanes = rank6_lanes(table);
	struct rank_left leaves;

	for (uint32_t leaf = 0; leaf < RANK6_LEAVES && blocks > 0; leaf++) {
		uint32_t found = rank6_entries(table, keys, labels, asked, blocks, &leaves);

		blocks = rank6_values(table, lanes, keys, lo, labels, &leaves, found, asked);
	}
	/* Only in a hostile image are there more leaves. */
	for (uint32_t i = 0; i < blocks; i++)
		labels[asked[i]] = 0;
}

#ifdef SIMD_HAS_AVX512

/* The words of a burst. Whole groups of 16 are read and written, so there may be more words than keys. */
struct rank_words {
	uint32_t of[WEIR_BURST_MAX] __attribute__((aligned(64)));
};

/* The entries of 16 IPv4 keys in the blocks that `words` name; entry 0 is 32-bit word `first`. */
SIMD_AVX512 WEIR_INLINE __m512i rank_entries_avx512(struct table table, uint32_t first, __m512i words, __m512i chunks)
{
	const uint8_t *all = table_at(table, first * 4);
	__m512i left = _mm512_sub_epi32(simd_set(RANK_BITS), simd_bits(words, 0, RANK_LOW_MASK));
	__m512i base = simd_bits(words, RANK_NUMBER_SHIFT, RANK_NUMBER_MASK);
	__m512i entries = _mm512_i32gather_epi32(_mm512_add_epi32(base, _mm512_srlv_epi32(chunks, left)), all, 4);
	__mmask16 blocks = _mm512_movepi32_mask(entries);

	if (blocks != 0) {
		__m512i width = simd_bits(entries, 0, RANK_LOW_MASK);
		/* A shift by 32 or more bits gives 0. */
		__m512i index = _mm512_srlv_epi32(chunks, _mm512_sub_epi32(left, width));

		base = simd_bits(entries, RANK_NUMBER_SHIFT, RANK_NUMBER_MASK);
		index = _mm512_and_si512(index, simd_low_bits(width));
		entries = _mm512_mask_i32gather_epi32(entries, blocks, _mm512_add_epi32(base, index), all, 4);
	}
	return entries;
}

/*
 * Replaces each block among the values by its value for the chunk; labels stay. There is at least one block. What is
 * behind the last key is undefined. There, and where a value or an entry is a label, stand-ins are looked up: a block
 * with one entry, the first of all, and lane 0.
 */
SIMD_AVX512 WEIR_INLINE void rank_steps_avx512(struct table table, struct rank_lanes lanes, struct rank_words *found,
					       const struct rank_words *chunks, uint32_t count)
{
	const uint8_t *starts = table_at(table, lanes.starts << 1);
	const uint8_t *values = table_at(table, lanes.values);
	const __m512i value_bytes = _mm512_set1_epi32((int)lanes.value_bytes);
	const __m512i value_mask = _mm512_set1_epi32((int)(UINT32_MAX >> (32 - 8 * lanes.value_bytes)));
	const __m512i low = simd_set(RANK_LOW_MASK);
	const uint32_t whole = (count + SIMD_GROUP - 1) & ~(uint32_t)(SIMD_GROUP - 1);
	__mmask16 is_leaf[WEIR_BURST_MAX / SIMD_GROUP];
	struct rank_words lines, leaves, below;

	for (uint32_t i = 0; i < whole; i += SIMD_GROUP) {
		__m512i value = _mm512_load_si512(found->of + i);
		__mmask16 is_block = _mm512_movepi32_mask(value) & simd_first(count - i);
		__m512i blocks = _mm512_maskz_mov_epi32(is_block, value);
		__m512i entries = rank_entries_avx512(table, RANK_ENTRIES, blocks, _mm512_load_si512(chunks->of + i));
		__mmask16 leaf_here = _mm512_mask_test_epi32_mask(is_block, entries, low);
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
SIMD_AVX512 WEIR_NOINLINE void rank_leaf_kernel_avx512(struct table table, const uint32_t *addrs, uint32_t *labels,
						       uint32_t count)
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

/* Keys that have no leaf yet. Whole groups are written, so there is room behind them. */
struct rank6_asked {
	uint64_t halves[WEIR_BURST_MAX + SIMD_GROUP] __attribute__((aligned(64)));
	uint32_t words[WEIR_BURST_MAX + SIMD_GROUP] __attribute__((aligned(64))); /* blocks */
	uint32_t left[WEIR_BURST_MAX + SIMD_GROUP] __attribute__((aligned(64)));  /* bits of the half */
	uint32_t keys[WEIR_BURST_MAX + SIMD_GROUP] __attribute__((aligned(64)));
};

/* Keys that have a leaf. */
struct rank6_leaves {
	uint32_t words[WEIR_BURST_MAX + SIMD_GROUP] __attribute__((aligned(64)));
	uint32_t chunks[WEIR_BURST_MAX + SIMD_GROUP]
		__attribute__((aligned(64))); /* what the leaf's starts are compared with */
	uint32_t keys[WEIR_BURST_MAX + SIMD_GROUP]
		__attribute__((aligned(64))); /* with RANK_FLAG if the leaf has grains */
};

/* The lower 32 bits of two vectors of 64-bit words. */
SIMD_AVX512 WEIR_INLINE __m512i rank6_narrow(__m512i first, __m512i second)
{
	return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi64_epi32(first)), _mm512_cvtepi64_epi32(second),
				  1);
}

/* Each of two vectors of 64-bit words, shifted right by the words of `counts`, in 32 bits. */
SIMD_AVX512 WEIR_INLINE __m512i rank6_shift(__m512i first, __m512i second, __m512i counts)
{
	__m512i lower = _mm512_cvtepu32_epi64(_mm512_castsi512_si256(counts));
	__m512i upper = _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(counts, 1));

	/* A shift by 64 or more bits gives 0. */
	return rank6_narrow(_mm512_srlv_epi64(first, lower), _mm512_srlv_epi64(second, upper));
}

/*
 * One level of 16 keys: those whose entry is a leaf are appended to `leaves`, those whose entry is a block to the first
 * `blocks` keys of `asked`. The other keys get their label.
 */
SIMD_AVX512 WEIR_INLINE void rank6_level_avx512(struct table table, struct rank6_asked *asked, uint32_t from,
						uint32_t count, struct rank6_leaves *leaves, uint32_t *found,
						uint32_t *blocks, uint32_t *labels)
{
	const __mmask16 here = simd_first(count - from);
	__m512i word = _mm512_load_si512(asked->words + from), key = _mm512_load_si512(asked->keys + from);
	__m512i first = _mm512_load_si512(asked->halves + from);
	__m512i second = _mm512_load_si512(asked->halves + from + SIMD_GROUP / 2);
	__m512i width = simd_bits(word, 0, RANK_LOW_MASK);
	__m512i left = _mm512_sub_epi32(_mm512_load_si512(asked->left + from), width);
	__m512i index = _mm512_and_si512(rank6_shift(first, second, left), simd_low_bits(width));
	__m512i at = _mm512_add_epi32(simd_bits(word, RANK_NUMBER_SHIFT, RANK_NUMBER_MASK), index);
	__m512i entry =
		_mm512_mask_i32gather_epi32(_mm512_setzero_si512(), here, at, table_at(table, RANK_ENTRIES * 4), 4);
	__mmask16 is_block = _mm512_movepi32_mask(entry);
	__mmask16 is_leaf = _mm512_test_epi32_mask(entry, simd_set(RANK_LOW_MASK)) & (__mmask16)~is_block;
	__mmask16 is_label = here & (__mmask16) ~(is_block | is_leaf);
	__mmask16 grains = _mm512_cmpgt_epu32_mask(left, simd_set(RANK6_START_BITS));
	__m512i chunk = rank6_narrow(first, second);

	if (is_label)
		_mm512_mask_i32scatter_epi32(labels, is_label, key, _mm512_srli_epi32(entry, RANK_NUMBER_SHIFT), 4);
	if (is_leaf) {
		const uint32_t shift = RANK6_UPPER_BITS - RANK6_START_BITS;
		__m512i coarse = rank6_narrow(_mm512_srli_epi64(first, shift), _mm512_srli_epi64(second, shift));
		__m512i flagged = _mm512_mask_or_epi32(key, grains, key, simd_set(RANK_FLAG));

		chunk = _mm512_mask_mov_epi32(chunk, grains, coarse);
		_mm512_storeu_si512(leaves->words + *found, _mm512_maskz_compress_epi32(is_leaf, entry));
		_mm512_storeu_si512(leaves->chunks + *found, _mm512_maskz_compress_epi32(is_leaf, chunk));
		_mm512_storeu_si512(leaves->keys + *found, _mm512_maskz_compress_epi32(is_leaf, flagged));
		*found += (uint32_t)__builtin_popcount(is_leaf);
	}
	if (is_block) {
		const __mmask8 lower = (__mmask8)is_block, upper = (__mmask8)(is_block >> 8);
		uint32_t middle = *blocks + (uint32_t)__builtin_popcount(lower);

		_mm512_storeu_si512(asked->words + *blocks, _mm512_maskz_compress_epi32(is_block, entry));
		_mm512_storeu_si512(asked->left + *blocks, _mm512_maskz_compress_epi32(is_block, left));
		_mm512_storeu_si512(asked->keys + *blocks, _mm512_maskz_compress_epi32(is_block, key));
		_mm512_storeu_si512(asked->halves + *blocks, _mm512_maskz_compress_epi64(lower, first));
		_mm512_storeu_si512(asked->halves + middle, _mm512_maskz_compress_epi64(upper, second));
		*blocks = middle + (uint32_t)__builtin_popcount(upper);
	}
}

/* Gives the first `count` keys of `leaves` their values. */
SIMD_AVX512 WEIR_INLINE void rank6_values_avx512(struct table table, struct rank_lanes lanes,
						 struct rank6_leaves *leaves, uint32_t *values, uint32_t count)
{
	const uint8_t *starts = table_at(table, lanes.starts << 2);
	const __m512i value_bytes = simd_set(lanes.value_bytes);
	const __m512i value_mask = simd_set(UINT32_MAX >> (32 - 8 * lanes.value_bytes));
	const __m512i line_mask = simd_set(RANK6_LINE_MASK);
	struct rank_words lines, below;

	for (uint32_t i = 0; i < count; i += SIMD_GROUP) {
		__m512i lane = _mm512_srli_epi32(_mm512_load_si512(leaves->words + i), RANK_NUMBER_SHIFT);

		_mm512_store_si512(lines.of + i, _mm512_slli_epi32(_mm512_andnot_si512(line_mask, lane), 2));
	}
	for (uint32_t i = 0; i < count; i++)
		below.of[i] = lanes32_at_most(starts + lines.of[i], leaves->chunks[i]);
	for (uint32_t i = 0; i < count; i += SIMD_GROUP) {
		__m512i word = _mm512_load_si512(leaves->words + i);
		__m512i lane = _mm512_srli_epi32(word, RANK_NUMBER_SHIFT);
		__m512i behind = _mm512_slli_epi32(simd_low_bits(simd_bits(word, 0, RANK_LOW_MASK)), 1);
		__m512i leaf = _mm512_sllv_epi32(behind, _mm512_and_si512(lane, line_mask));
		__m512i rank = simd_popcount(_mm512_and_si512(_mm512_load_si512(below.of + i), leaf));
		__m512i at = _mm512_mullo_epi32(_mm512_add_epi32(lane, rank), value_bytes);
		__m512i value = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), simd_first(count - i), at,
							    table_at(table, lanes.values), 1);

		_mm512_store_si512(values + i, _mm512_and_si512(value, value_mask));
	}
}

/*
 * Looks up the first leaf of the `count` keys of `asked`. Gives `left` those whose value is a block, and `keys` what
 * they continue with. Returns their number.
 */
SIMD_AVX512 WEIR_NOINLINE uint32_t rank_leaf6_kernel_avx512(struct table table, struct rank6_asked *asked,
							    const uint64_t *hi, const uint64_t *lo, uint32_t *labels,
							    struct rank6_keys *keys, uint8_t *left, uint32_t count)
{
	struct rank6_leaves leaves;
	struct rank_words values;
	uint32_t found = 0, more = 0;

	for (uint32_t i = 0; i < count; i += SIMD_GROUP)
		_mm512_store_si512(asked->left + i, simd_set(RANK6_UPPER_BITS));
	for (uint32_t level = 0; level < RANK6_LEVELS && count > 0; level++) {
		uint32_t blocks = 0;

		for (uint32_t i = 0; i < count; i += SIMD_GROUP)
			rank6_level_avx512(table, asked, i, count, &leaves, &found, &blocks, labels);
		count = blocks;
	}
	/* Only a hostile image has more levels. */
	for (uint32_t i = 0; i < count; i++)
		labels[asked->keys[i]] = 0;
	rank6_values_avx512(table, rank6_lanes(table), &leaves, values.of, found);
	for (uint32_t i = 0; i < found; i++) {
		uint32_t key = leaves.keys[i] & ~RANK_FLAG;

		labels[key] = values.of[i];
		left[more] = (uint8_t)i;
		more += values.of[i] >> 31;
	}
	for (uint32_t i = 0; i < more; i++) {
		uint32_t key = leaves.keys[left[i]] & ~RANK_FLAG, grains = leaves.keys[left[i]] >> 31;

		left[i] = (uint8_t)key;
		keys->halves[key] = grains ? hi[key] : lo[key];
		keys->left[key] = grains ? RANK6_UPPER_BITS - RANK6_START_BITS : RANK6_LOWER_BITS;
		keys->grains[key] = RANK6_LOWER_BITS - RANK6_START_BITS;
	}
	return more;
}

#endif

/* labels[i] = rank_leaf_find(table, addrs[i]) for a burst of at most WEIR_BURST_MAX. */
WEIR_NOINLINE void rank_leaf_find_burst(struct table table, const uint32_t *addrs, uint32_t *labels, uint32_t count)
{
	struct rank_left left;
	uint32_t asked = rank_root(table, addrs, labels, &left, count);

#ifdef SIMD_HAS_AVX512
	if (asked > RANK_FEW && simd_avx512(SIMD_RANK))
		return rank_leaf_kernel_avx512(table, addrs, labels, count);
#endif
	rank_leaf_kernel(table, addrs, labels, &left, asked);
}

/* labels[i] = rank_leaf6_find(table, hi[i], lo[i]) for a burst of at most WEIR_BURST_MAX. */
WEIR_NOINLINE void rank_leaf6_find_burst(struct table table, const uint64_t *hi, const uint64_t *lo, uint32_t *labels,
					 uint32_t count)
{
	struct rank6_keys keys;
	uint8_t asked[WEIR_BURST_MAX]; /* keys whose value is a block */
	uint32_t blocks;

	for (uint32_t i = 0; i < count; i++)
		labels[i] = image_u32(table, RANK_ROOT + (uint32_t)(hi[i] >> 48));
	blocks = lanes_flagged(labels, asked, count);
	if (blocks == 0)
		return;
#ifdef SIMD_HAS_AVX512
	if (blocks > RANK_FEW && simd_avx512(SIMD_RANK6)) {
		struct rank6_asked vector;

		for (uint32_t i = 0; i < blocks; i++) {
			vector.keys[i] = asked[i];
			vector.words[i] = labels[asked[i]];
			vector.halves[i] = hi[asked[i]];
		}
		blocks = rank_leaf6_kernel_avx512(table, &vector, hi, lo, labels, &keys, asked, blocks);
		return rank_leaf6_kernel(table, &keys, lo, labels, asked, blocks);
	}
#endif
	for (uint32_t i = 0; i < blocks; i++) {
		keys.halves[asked[i]] = hi[asked[i]];
		keys.left[asked[i]] = RANK6_UPPER_BITS;
		keys.grains[asked[i]] = RANK6_UPPER_BITS - RANK6_START_BITS;
	}
	rank_leaf6_kernel(table, &keys, lo, labels, asked, blocks);
}

#endif
#endif
