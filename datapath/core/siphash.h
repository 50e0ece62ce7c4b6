/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012) of messages of whole words:
 * crates/abi/src/siphash.rs.
 */
#ifndef WEIR_CORE_SIPHASH_H
#define WEIR_CORE_SIPHASH_H

#include "core/env.h"

struct siphash {
	uint64_t a, b, c, d;
};

WEIR_INLINE uint64_t rotate64(uint64_t word, uint32_t bits)
{
	return word << bits | word >> (64 - bits);
}

WEIR_INLINE void siphash_round(struct siphash *state)
{
	state->a += state->b;
	state->b = rotate64(state->b, 13) ^ state->a;
	state->a = rotate64(state->a, 32);
	state->c += state->d;
	state->d = rotate64(state->d, 16) ^ state->c;
	state->a += state->d;
	state->d = rotate64(state->d, 21) ^ state->a;
	state->c += state->b;
	state->b = rotate64(state->b, 17) ^ state->c;
	state->c = rotate64(state->c, 32);
}

WEIR_INLINE void siphash_word(struct siphash *state, uint64_t word)
{
	state->d ^= word;
	siphash_round(state);
	siphash_round(state);
	state->a ^= word;
}

/* The hash of a message of `count` words. */
WEIR_INLINE uint64_t siphash(const uint64_t *key, const uint64_t *words, uint32_t count)
{
	struct siphash state = {
		.a = key[0] ^ UINT64_C(0x736f6d6570736575),
		.b = key[1] ^ UINT64_C(0x646f72616e646f6d),
		.c = key[0] ^ UINT64_C(0x6c7967656e657261),
		.d = key[1] ^ UINT64_C(0x7465646279746573),
	};

	for (uint32_t i = 0; i < count; i++)
		siphash_word(&state, words[i]);
	/* The last word has the number of bytes modulo 256 on top. */
	siphash_word(&state, (uint64_t)count << 59);
	state.c ^= 0xff;
	for (uint32_t i = 0; i < 4; i++)
		siphash_round(&state);
	return state.a ^ state.b ^ state.c ^ state.d;
}

#endif
