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
 *	if (simd_avx512(SIMD_PLAIN))
 *		kernel_avx512(table, keys, ...);
 *	else
 *		kernel(table, keys, ...);
 *
 * A processor with AVX-512 is not always faster with it. So the engine times both kernels of each kind on its machine
 * (crates/engine/src/kernels.rs). Code for the compiling machine (-march=native) gets the answer as WEIR_KERNELS, so
 * compilers drop one of the two. If plain C is faster without AVX-512, none of this code has it outside of kernels. A
 * bundle for x86-64-v3 has both kernels, and the loader stores the answer in weir_kernels. Code for a lesser target
 * runs what the compiler made of the kernel. The selection costs one predicted branch per burst.
 *
 * A kernel that needs gathers is written twice. The second version uses intrinsics (core/simd_words.h).
 */
#ifndef WEIR_CORE_SIMD_H
#define WEIR_CORE_SIMD_H

#include "core/env.h"

#if defined(WEIR_BURSTS) && defined(__x86_64__)

/* Features of every processor with AVX-512BW and VL. */
#define SIMD_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi,bmi2,popcnt,lzcnt")))

/* What may have AVX-512 or not. crates/engine/src/kernels.rs has the same numbers. */
enum simd_kind {
	SIMD_PLAIN = 1, /* vectors of the compiler: exact sets of IPv4 */
	SIMD_RANK = 2,	/* gathers of 32-bit words */
	SIMD_RANK6 = 4, /* gathers, and compression of vectors of 32 and 64 bits */
	SIMD_SETS6 = 8, /* vectors of the compiler, of whole lines: exact sets of IPv6 */
};

#ifdef WEIR_KERNELS

#if !WEIR_KERNELS
#define SIMD_NONE /* no lookup takes AVX-512 */
#endif

/* Whether bursts take the AVX-512 kernels of this kind. */
WEIR_INLINE bool simd_avx512(enum simd_kind kind)
{
	return (WEIR_KERNELS & kind) != 0;
}

#else

/*
 * The kinds whose AVX-512 kernels run. The loader writes it before the first burst: 0 without AVX-512. A bundle has no
 * relocations, so the symbol is protected.
 */
uint32_t weir_kernels __attribute__((weak, visibility("protected")));

WEIR_INLINE bool simd_avx512(enum simd_kind kind)
{
	return (weir_kernels & kind) != 0;
}

#endif
#else

#define SIMD_AVX512

enum simd_kind { SIMD_PLAIN, SIMD_RANK, SIMD_RANK6, SIMD_SETS6 };

WEIR_INLINE bool simd_avx512(enum simd_kind kind)
{
	(void)kind;
	return false;
}

#endif
#endif
