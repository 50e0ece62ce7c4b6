/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Comparisons without branches. Each branch would double the paths that the verifier follows. */
#ifndef WEIR_CORE_COMPARE_H
#define WEIR_CORE_COMPARE_H

#include "core/env.h"
#include "core/raw.h"

/* 1 if a is below b, else 0. */
WEIR_INLINE uint64_t is_below(uint64_t a, uint64_t b)
{
	uint64_t borrow = (~a & b) | ((~a | b) & (a - b));

	__asm__ volatile("" : "+r"(borrow));
	return borrow >> 63;
}

/* 1 if they are equal, else 0. */
WEIR_INLINE uint64_t is_same(uint64_t a, uint64_t b)
{
	uint64_t differ = (a ^ b) | (0 - (a ^ b));

	__asm__ volatile("" : "+r"(differ));
	return (differ >> 63) ^ 1;
}

/* 1 if an address is outside of a range, else 0. */
WEIR_INLINE uint64_t is_outside(struct wide at, struct wide first, struct wide last)
{
	const uint64_t before = is_below(at.hi, first.hi) | (is_same(at.hi, first.hi) & is_below(at.lo, first.lo));
	const uint64_t after = is_below(last.hi, at.hi) | (is_same(at.hi, last.hi) & is_below(last.lo, at.lo));

	return before | after;
}

/* 1 if a number is in a range, else 0. */
WEIR_INLINE uint64_t is_within(uint32_t value, uint32_t first, uint32_t last)
{
	uint64_t room = (uint64_t)(last - first) - (uint32_t)(value - first);

	__asm__ volatile("" : "+r"(room));
	return (room >> 63) ^ 1;
}

#endif
