/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Words of AVX-512, for kernels that need intrinsics: where SIMD_HAS_AVX512 is defined. They are apart from
 * core/simd.h, because the compiler reads its header of intrinsics for longer than all of Weir's. Code that looks up
 * one key at a time defines WEIR_ONE_BY_ONE and does without, as does code for a machine that runs no such kernel.
 */
#ifndef WEIR_CORE_SIMD_WORDS_H
#define WEIR_CORE_SIMD_WORDS_H

#include "core/simd.h"

#if defined(WEIR_BURSTS) && defined(__x86_64__) && !defined(WEIR_ONE_BY_ONE) && !defined(SIMD_NONE)

#include <immintrin.h>

#define SIMD_HAS_AVX512

enum { SIMD_GROUP = 16 }; /* 32-bit words of a vector */

/* The first `count` words of a group; all if `count` is larger. */
WEIR_INLINE __mmask16 simd_first(uint32_t count)
{
	return (__mmask16)(count < SIMD_GROUP ? (1u << count) - 1 : 0xffff);
}

SIMD_AVX512 WEIR_INLINE __m512i simd_set(uint32_t word)
{
	return _mm512_set1_epi32((int)word);
}

/* 0, 1, 2, ... */
SIMD_AVX512 WEIR_INLINE __m512i simd_counting(void)
{
	return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

/* word >> shift & mask */
SIMD_AVX512 WEIR_INLINE __m512i simd_bits(__m512i words, uint32_t shift, uint32_t mask)
{
	return _mm512_and_si512(_mm512_srli_epi32(words, shift), simd_set(mask));
}

/* (1 << count) - 1, for counts below 32. */
SIMD_AVX512 WEIR_INLINE __m512i simd_low_bits(__m512i counts)
{
	return _mm512_sub_epi32(_mm512_sllv_epi32(simd_set(1), counts), simd_set(1));
}

/* The number of set bits in each word. */
SIMD_AVX512 WEIR_INLINE __m512i simd_popcount(__m512i words)
{
#ifdef __AVX512VPOPCNTDQ__
	return _mm512_popcnt_epi32(words);
#else
	const __m512i of_nibble = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
	const __m512i nibbles = _mm512_set1_epi8(15);
	__m512i low = _mm512_shuffle_epi8(of_nibble, _mm512_and_si512(words, nibbles));
	__m512i high = _mm512_shuffle_epi8(of_nibble, _mm512_and_si512(_mm512_srli_epi16(words, 4), nibbles));
	__m512i pairs = _mm512_maddubs_epi16(_mm512_add_epi8(low, high), _mm512_set1_epi8(1));

	return _mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#endif
}

#endif
#endif
