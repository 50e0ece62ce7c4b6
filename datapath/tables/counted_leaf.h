/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Counted leaf: IPv4 prefixes to labels that count up from prefix to prefix, as in a list of limits.
 * crates/tables/src/layout/counted_leaf/mod.rs has the bit diagrams.
 *
 * This is a rank leaf (tables/rank_leaf.h) with one addition: for each block, the root has the label from which the
 * block's leaves count. So the leaves need no labels, and equally divided blocks are equal. Where that saves nothing,
 * the image is a rank leaf. Each lookup, or each burst of lookups, tests once which it is.
 */
#ifndef WEIR_TABLES_COUNTED_LEAF_H
#define WEIR_TABLES_COUNTED_LEAF_H

#include "tables/rank_leaf.h"
#include "tables/rank_leaf_burst.h"

enum {
	COUNTED_ROOT = 64 / 8,			/* first 64-bit word of the root */
	COUNTED_ENTRIES = (64 + (8 << 16)) / 4, /* first 32-bit word of the entries */
	COUNTED_FIELD = 9,			/* header field: the first lane of counted leaves */
	COUNTED_LABELLED = 60,			/* byte of a counted line: the bits of the lanes with a label */
};

_Static_assert(COUNTED_ENTRIES * 4 == 524352, "abi: entries offset");

WEIR_INLINE bool counted_leaf_is_rank_leaf(struct table table)
{
	return image_u32(table, (uint32_t)offsetof(struct image_header, layout) / 4) != LAYOUT_COUNTED_LEAF;
}

/* The label of the chunk in a leaf of a block that counts from `before`. */
WEIR_INLINE uint32_t counted_label(struct table table, struct rank_lanes lanes, uint32_t entry, uint32_t chunk,
				   uint32_t before)
{
	uint32_t first = entry >> RANK_NUMBER_SHIFT;
	uint32_t lane = rank_lane(table, lanes, entry, chunk);
	uint32_t line = (lanes.starts << 1) + ((first & ~(uint32_t)RANK_LINE_MASK) << 1);
	uint32_t labelled;

	if (first < image_section(table, COUNTED_FIELD))
		return rank_value(table, lanes, lane);
	/* The runs from the leaf's first to the chunk's, which becomes the highest bit. */
	labelled = image_u32(table, (line + COUNTED_LABELLED) >> 2) >> (first & RANK_LINE_MASK);
	labelled <<= RANK_LINE_MASK - ((lane - first) & RANK_LINE_MASK);
	before += image_u16(table, lanes.starts + first) + (uint32_t)__builtin_popcount(labelled);
	/* 0 if the run has no label. There is no branch, because gaps are frequent. */
	return before & (uint32_t)((int32_t)labelled >> 31);
}

/* The label of the longest prefix that holds addr (host byte order), 0 if none does. */
WEIR_INLINE uint32_t counted_leaf_find(struct table table, uint32_t addr)
{
	uint64_t word;
	uint32_t entry;

	if (counted_leaf_is_rank_leaf(table))
		return rank_leaf_find(table, addr);
	word = image_u64(table, COUNTED_ROOT + (addr >> 16));
	entry = rank_entry(table, COUNTED_ENTRIES, (uint32_t)word, addr & 0xffff);
	return counted_label(table, rank_lanes(table), entry, addr & 0xffff, (uint32_t)(word >> 32));
}

#ifdef WEIR_BURSTS

WEIR_INLINE void counted_leaf_kernel(struct table table, const uint32_t *addrs, uint32_t *labels, uint32_t count)
{
	const struct rank_lanes lanes = rank_lanes(table);
	uint64_t words[WEIR_BURST_MAX];

	for (uint32_t i = 0; i < count; i++)
		words[i] = image_u64(table, COUNTED_ROOT + (addrs[i] >> 16));
	for (uint32_t i = 0; i < count; i++)
		labels[i] = rank_entry(table, COUNTED_ENTRIES, (uint32_t)words[i], addrs[i] & 0xffff);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t before = (uint32_t)(words[i] >> 32);

		labels[i] = counted_label(table, lanes, labels[i], addrs[i] & 0xffff, before);
	}
}

#ifdef SIMD_HAS_AVX512

/* The lower and the upper halves of 16 words of 64 bits. */
SIMD_AVX512 WEIR_INLINE void counted_halves(__m512i first, __m512i second, __m512i *lower, __m512i *upper)
{
	const __m512i even = _mm512_slli_epi32(simd_counting(), 1);

	*lower = _mm512_permutex2var_epi32(first, even, second);
	*upper = _mm512_permutex2var_epi32(first, _mm512_or_si512(even, simd_set(1)), second);
}

/* The leaf data of 16 keys. */
struct counted_group {
	__m512i first;	  /* lane */
	__m512i in_line;  /* lane in its line */
	__m512i at_most;  /* lanes of the line behind the first, in the leaf, and not above the key */
	__m512i labelled; /* lanes of the line with a label */
	__m512i before;
};

/* The labels of 16 keys. */
SIMD_AVX512 WEIR_INLINE __m512i counted_labels_avx512(struct table table, struct rank_lanes lanes, __m512i counted_from,
						      struct counted_group group)
{
	const __m512i one = simd_set(1);
	__mmask16 counted = _mm512_cmpge_epu32_mask(group.first, counted_from);
	__m512i rank = simd_popcount(group.at_most);
	__m512i seen = _mm512_or_si512(group.at_most, _mm512_sllv_epi32(one, group.in_line));
	__m512i own = _mm512_srlv_epi32(group.labelled, _mm512_add_epi32(group.in_line, rank));
	__mmask16 has_label = _mm512_mask_test_epi32_mask(counted, own, one);
	__m512i offset = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), counted, group.first,
						     table_at(table, lanes.starts << 1), 2);
	__m512i label = _mm512_add_epi32(group.before, _mm512_and_si512(offset, simd_set(0xffff)));

	label = _mm512_maskz_add_epi32(has_label, label, simd_popcount(_mm512_and_si512(seen, group.labelled)));
	if (WEIR_UNLIKELY(counted != 0xffff)) {
		__m512i at = _mm512_mullo_epi32(_mm512_add_epi32(group.first, rank), simd_set(lanes.value_bytes));
		__m512i value =
			_mm512_mask_i32gather_epi32(label, (__mmask16)~counted, at, table_at(table, lanes.values), 1);

		value = _mm512_and_si512(value, simd_set(UINT32_MAX >> (32 - 8 * lanes.value_bytes)));
		label = _mm512_mask_mov_epi32(value, counted, label);
	}
	return label;
}

SIMD_AVX512 WEIR_NOINLINE void counted_leaf_kernel_avx512(struct table table, const uint32_t *addrs, uint32_t *labels,
							  uint32_t count)
{
	const struct rank_lanes lanes = rank_lanes(table);
	const uint8_t *root = table_at(table, COUNTED_ROOT * 8), *starts = table_at(table, lanes.starts << 1);
	const __m512i counted_from = simd_set(image_section(table, COUNTED_FIELD));
	const uint32_t whole = (count + SIMD_GROUP - 1) & ~(uint32_t)(SIMD_GROUP - 1);
	struct rank_words words, chunks, befores, lines, leaves, below, labelled;

	/* Positions behind the last key get key 0. */
	for (uint32_t i = 0; i < count; i += SIMD_GROUP) {
		__m512i keys = _mm512_maskz_loadu_epi32(simd_first(count - i), addrs + i);
		__m512i index = _mm512_srli_epi32(keys, 16), word, before;

		counted_halves(_mm512_i32gather_epi64(_mm512_castsi512_si256(index), root, 8),
			       _mm512_i32gather_epi64(_mm512_extracti64x4_epi64(index, 1), root, 8), &word, &before);
		_mm512_store_si512(words.of + i, word);
		_mm512_store_si512(befores.of + i, before);
		_mm512_store_si512(chunks.of + i, simd_bits(keys, 0, 0xffff));
	}
	for (uint32_t i = 0; i < count; i += SIMD_GROUP) {
		__m512i chunk = _mm512_load_si512(chunks.of + i);
		__m512i entries = rank_entries_avx512(table, COUNTED_ENTRIES, _mm512_load_si512(words.of + i), chunk);
		__m512i lane = _mm512_srli_epi32(entries, RANK_NUMBER_SHIFT);
		__m512i in_line = simd_bits(lane, 0, RANK_LINE_MASK);
		__m512i leaf = _mm512_slli_epi32(simd_low_bits(simd_bits(entries, 0, RANK_LOW_MASK)), 1);

		_mm512_store_si512(words.of + i, lane);
		_mm512_store_si512(lines.of + i, _mm512_slli_epi32(_mm512_sub_epi32(lane, in_line), 1));
		_mm512_store_si512(leaves.of + i, _mm512_sllv_epi32(leaf, in_line));
	}
	for (uint32_t i = 0; i < whole; i++) {
		const uint8_t *line = starts + lines.of[i];

		below.of[i] = lanes_at_most(line, (uint16_t)chunks.of[i]);
		labelled.of[i] = host32(line + COUNTED_LABELLED);
	}
	for (uint32_t i = 0; i < count; i += SIMD_GROUP) {
		__m512i lane = _mm512_load_si512(words.of + i), at_most = _mm512_load_si512(below.of + i);
		struct counted_group group = {
			.first = lane,
			.in_line = simd_bits(lane, 0, RANK_LINE_MASK),
			.at_most = _mm512_and_si512(at_most, _mm512_load_si512(leaves.of + i)),
			.labelled = _mm512_load_si512(labelled.of + i),
			.before = _mm512_load_si512(befores.of + i),
		};

		_mm512_mask_storeu_epi32(labels + i, simd_first(count - i),
					 counted_labels_avx512(table, lanes, counted_from, group));
	}
}

#endif

/* labels[i] = counted_leaf_find(table, addrs[i]) for a burst of at most WEIR_BURST_MAX. */
WEIR_NOINLINE void counted_leaf_find_burst(struct table table, const uint32_t *addrs, uint32_t *labels, uint32_t count)
{
	if (counted_leaf_is_rank_leaf(table))
		return rank_leaf_find_burst(table, addrs, labels, count);
#ifdef SIMD_HAS_AVX512
	if (simd_avx512(SIMD_RANK))
		return counted_leaf_kernel_avx512(table, addrs, labels, count);
#endif
	counted_leaf_kernel(table, addrs, labels, count);
}

#endif
#endif
