/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Exact sets of IPv6: several sets of /64s and /128s in the same buckets. crates/tables/src/layout/exact_set6/mod.rs
 * has the bit diagrams.
 *
 * A key is in a bucket once, whichever members have it. Its word says which.
 */
#ifndef WEIR_TABLES_EXACT_SETS6_H
#define WEIR_TABLES_EXACT_SETS6_H

#include "tables/exact_set6.h"

/* The members (a bit each) that contain the address of the given 64-bit halves (host byte order). */
WEIR_INLINE uint32_t exact_sets6_find(struct table table, uint64_t hi, uint64_t lo)
{
	return exact6_find_both(table, EXACT6_FUSED, hi, lo);
}

#ifdef WEIR_BURSTS

WEIR_INLINE void exact_sets6_kernel(struct table table, const uint64_t *hi, const uint64_t *lo, uint32_t *masks,
				    uint32_t count)
{
	exact6_find_burst(table, EXACT6_FUSED, hi, lo, masks, count);
}

SIMD_AVX512 WEIR_NOINLINE void exact_sets6_kernel_avx512(struct table table, const uint64_t *hi, const uint64_t *lo,
							 uint32_t *masks, uint32_t count)
{
	exact_sets6_kernel(table, hi, lo, masks, count);
}

/* masks[i] = exact_sets6_find(table, hi[i], lo[i]) for a burst of at most WEIR_BURST_MAX. */
WEIR_NOINLINE void exact_sets6_find_burst(struct table table, const uint64_t *hi, const uint64_t *lo, uint32_t *masks,
					  uint32_t count)
{
	if (simd_avx512(SIMD_SETS6))
		exact_sets6_kernel_avx512(table, hi, lo, masks, count);
	else
		exact_sets6_kernel(table, hi, lo, masks, count);
}

#endif
#endif
