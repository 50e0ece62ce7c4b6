/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Kernels for a whole burst: written once, compiled for each vector width, selected at run time.
 *
 *	WEIR_INLINE void kernel(struct table table, const uint32_t *keys, ...);	   plain C or vector types, no target
 *
 *	SIMD_AVX512 WEIR_NOINLINE void kernel_avx512(struct table table, const uint32_t *keys, ...)
 *	{
 *		kernel(table, keys, ...);	inlined, and so compiled with AVX-512
 *	}
 *
 *	if (simd_avx512())
 *		kernel_avx512(table, keys, ...);
 *	else
 *		kernel(table, keys, ...);
 *
 * Code for the compiling machine (-march=native) knows the answer, so compilers drop one of the two. A bundle for
 * x86-64-v3 has both and tests the processor once. It runs AVX-512 if the processor has it, otherwise AVX2. Code for a
 * lesser target runs what the compiler made of the kernel. The selection costs one predicted branch per burst.
 *
 * A kernel that needs gathers is written twice. The second version uses intrinsics, where SIMD_HAS_AVX512 is defined.
 */
#ifndef WEIR_SIMD_H
#define WEIR_SIMD_H

#include "env.h"

#if defined(WEIR_BURSTS) && defined(__x86_64__)

#include <immintrin.h>

#define SIMD_HAS_AVX512

/* Features of every processor with AVX-512BW and VL. */
#define SIMD_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi,bmi2,popcnt,lzcnt")))

/* EBX and ECX of one leaf of CPUID, 0 if the processor has no such leaf. */
struct simd_cpuid {
	uint32_t ebx, ecx;
};

WEIR_INLINE struct simd_cpuid simd_cpuid(uint32_t leaf)
{
	struct simd_cpuid found = {0, 0};
	uint32_t max = 0, edx;

	__asm__("cpuid" : "+a"(max), "=b"(found.ebx), "=c"(found.ecx), "=d"(edx));
	if (leaf > max)
		return (struct simd_cpuid){0, 0};
	found.ecx = 0;
	__asm__("cpuid" : "+a"(leaf), "=b"(found.ebx), "+c"(found.ecx), "=d"(edx));
	return found;
}

/*
 * Whether the processor and the operating system have AVX-512BW, VL and DQ. Tested once: all threads get the same
 * answer, so any of them may store it. WEIR_NO_AVX512 turns it off, for tests of the other kernels.
 */
WEIR_INLINE bool simd_avx512(void)
{
#if defined(WEIR_NO_AVX512)
	return false;
#elif defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
	return true;
#else
	enum { UNKNOWN, ABSENT, PRESENT };
	/* Intel's manual: leaf 7 EBX bits F, DQ, BW, VL; leaf 1 ECX bit OSXSAVE; XCR0 bits SSE, AVX, opmask, ZMM. */
	const uint32_t features = UINT32_C(1) << 16 | UINT32_C(1) << 17 | UINT32_C(1) << 30 | UINT32_C(1) << 31;
	const uint32_t registers = 0xe6;
	static uint32_t state = UNKNOWN;
	uint32_t known = __atomic_load_n(&state, __ATOMIC_RELAXED);
	uint32_t xcr0 = 0, edx;

	if (WEIR_LIKELY(known != UNKNOWN))
		return known == PRESENT;
	if (simd_cpuid(1).ecx & UINT32_C(1) << 27)
		__asm__("xgetbv" : "=a"(xcr0), "=d"(edx) : "c"(0));
	known = (xcr0 & registers) == registers && (simd_cpuid(7).ebx & features) == features ? PRESENT : ABSENT;
	__atomic_store_n(&state, known, __ATOMIC_RELAXED);
	return known == PRESENT;
#endif
}

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

#else

#define SIMD_AVX512

WEIR_INLINE bool simd_avx512(void)
{
	return false;
}

#endif
#endif
