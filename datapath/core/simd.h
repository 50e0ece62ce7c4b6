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
 * A kernel that needs gathers is written twice. The second version uses intrinsics (core/simd_words.h).
 */
#ifndef WEIR_CORE_SIMD_H
#define WEIR_CORE_SIMD_H

#include "core/env.h"

#if defined(WEIR_BURSTS) && defined(__x86_64__)

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

#else

#define SIMD_AVX512

WEIR_INLINE bool simd_avx512(void)
{
	return false;
}

#endif
#endif
