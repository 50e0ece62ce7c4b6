/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Compares the lanes of a cache line at once: bit i of the result is the comparison of lane i.
 *
 * This is written with clang's vector types. clang makes of them one AVX-512 comparison into a mask register, AVX2 or
 * SSE2 comparisons and a movemask, or NEON's, depending on the target. Other compilers get the loop.
 */
#ifndef WEIR_CORE_LANES_H
#define WEIR_CORE_LANES_H

#include "core/env.h"

#ifdef WEIR_BURSTS

enum { LANES = 32, LANES32 = 16 }; /* lanes of 16 and of 32 bits in a cache line */

#ifdef __clang__

typedef uint16_t lanes_line __attribute__((vector_size(64)));
typedef uint32_t lanes32_line __attribute__((vector_size(64)));
typedef _Bool lanes_bits __attribute__((ext_vector_type(32)));
typedef _Bool lanes32_bits __attribute__((ext_vector_type(16)));

/* Lanes of 16 bits of the 64 bytes at `line` (aligned to 64) that are at most `key`. */
WEIR_INLINE uint32_t lanes_at_most(const uint8_t *line, uint16_t key)
{
	lanes_bits bits = __builtin_convertvector(*(const lanes_line *)(const void *)line <= key, lanes_bits);
	uint32_t mask;

	__builtin_memcpy(&mask, &bits, sizeof(mask));
	return mask;
}

/* Likewise, of 32 bits. */
WEIR_INLINE uint32_t lanes32_at_most(const uint8_t *line, uint32_t key)
{
	lanes32_bits bits = __builtin_convertvector(*(const lanes32_line *)(const void *)line <= key, lanes32_bits);
	uint16_t mask;

	__builtin_memcpy(&mask, &bits, sizeof(mask));
	return mask;
}

#else

WEIR_INLINE uint32_t lanes_at_most(const uint8_t *line, uint16_t key)
{
	const uint16_t *lanes = __builtin_assume_aligned(line, 64);
	uint32_t mask = 0;

	for (uint32_t i = 0; i < LANES; i++)
		mask |= (uint32_t)(lanes[i] <= key) << i;
	return mask;
}

WEIR_INLINE uint32_t lanes32_at_most(const uint8_t *line, uint32_t key)
{
	const uint32_t *lanes = __builtin_assume_aligned(line, 64);
	uint32_t mask = 0;

	for (uint32_t i = 0; i < LANES32; i++)
		mask |= (uint32_t)(lanes[i] <= key) << i;
	return mask;
}

#endif
#endif
#endif
