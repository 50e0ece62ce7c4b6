/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a card has answered about a packet: the body of its trailer, which the seal was removed from. Generated code
 * knows where each answer is (docs/reference/card-layout.md), and reads bytes of the body with these functions.
 */
#ifndef WEIR_CARD_ANSWERS_H
#define WEIR_CARD_ANSWERS_H

#include "tables/dxr.h"

enum {
	ANSWER_LOOKUP_BYTES = 6,
	ANSWER_KEY = 4,		 /* offset of the low bits of the key in a lookup */
	ANSWER_KEY_VALID = 0x80, /* in the last byte of a lookup: the packet has the address */
};

WEIR_INLINE uint32_t answer_u16(const WEIR_FRESH uint8_t *at)
{
	return at[0] | (uint32_t)at[1] << 8;
}

WEIR_INLINE uint32_t answer_u32(const WEIR_FRESH uint8_t *at)
{
	return answer_u16(at) | answer_u16(at + 2) << 16;
}

/* The label of a lookup that the card has begun: the R stage. 0 if the packet lacks the address. */
WEIR_INLINE uint32_t answer_label(struct table table, const WEIR_FRESH uint8_t *at)
{
	return dxr16x4_finish(table, answer_u32(at), answer_u16(at + ANSWER_KEY));
}

/* Whether the packet has the address of a lookup. */
WEIR_INLINE bool answer_has_key(const WEIR_FRESH uint8_t *at)
{
	return at[ANSWER_LOOKUP_BYTES - 1] & ANSWER_KEY_VALID;
}

#endif
