/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Compares the lanes of a cache line at once: bit i of the result is the comparison of lane i. lanes_flagged() does so
 * for the words of a burst.
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
typedef int32_t lanes_four __attribute__((vector_size(16), aligned(4)));
typedef _Bool lanes_four_bits __attribute__((ext_vector_type(4)));

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

/* The words of four whose bit 31 is set. */
WEIR_INLINE uint32_t lanes_four_flagged(const uint32_t *words)
{
	lanes_four_bits bits = __builtin_convertvector(*(const lanes_four *)(const void *)words < 0, lanes_four_bits);
	uint8_t mask;

	__builtin_memcpy(&mask, &bits, sizeof(mask));
	return mask & 15;
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

WEIR_INLINE uint32_t lanes_four_flagged(const uint32_t *words)
{
	return words[0] >> 31 | words[1] >> 31 << 1 | words[2] >> 31 << 2 | words[3] >> 31 << 3;
}

#endif

/*
 * Gives `numbers` the numbers of the words whose bit 31 is set, in ascending order, and returns how many they are.
 * There are at most 256 words. `numbers` has a byte for each word, and what is behind the last number is undefined.
 */
WEIR_INLINE uint32_t lanes_flagged(const uint32_t *words, uint8_t *numbers, uint32_t count)
{
	/* The numbers of the bits that are set in a mask. */
	static const uint8_t of_mask[16][4] = {
		{0}, {0},    {1},    {0, 1},	{2},	{0, 2},	   {1, 2},    {0, 1, 2},
		{3}, {0, 3}, {1, 3}, {0, 1, 3}, {2, 3}, {0, 2, 3}, {1, 2, 3}, {0, 1, 2, 3},
	};
	uint32_t found = 0, i = 0;

	for (; i + 4 <= count; i += 4) {
		uint32_t mask = lanes_four_flagged(words + i), four;

		__builtin_memcpy(&four, of_mask[mask], sizeof(four));
		four += i * 0x01010101u;
		__builtin_memcpy(numbers + found, &four, sizeof(four));
		found += (uint32_t)__builtin_popcount(mask);
	}
	for (; i < count; i++) {
		numbers[found] = (uint8_t)i;
		found += words[i] >> 31;
	}
	return found;
}

#endif
#endif
