/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Bits of a frame by position, and 128-bit comparisons, for raw payload matches and IPv6 addresses. */
#ifndef WEIR_CORE_RAW_H
#define WEIR_CORE_RAW_H

#include "core/env.h"
#include "core/packet.h"

/*
 * Reads `bits` bits of the frame in network order, right-aligned, into `*raw`. The first one is bit `first` (0 is the
 * highest) of byte `offset`. Returns false, without reading, if the frame ends before the last of them. All arguments
 * but `offset` are constants, so compilers remove the loop.
 */
WEIR_INLINE bool raw_bits(const struct frame *frame, uint32_t offset, uint32_t first, uint32_t bits, struct wide *raw)
{
	uint32_t bytes = (first + bits + 7) / 8;
	uint32_t tail = bytes * 8 - first - bits; /* unused bits of the last byte */
	const uint8_t *at = frame_at_again(frame, offset, bytes);

	if (!at)
		return false;
	*raw = (struct wide){0, 0};
	for (uint32_t i = 0; i + 1 < bytes; i++) {
		raw->hi = raw->hi << 8 | raw->lo >> 56;
		raw->lo = raw->lo << 8 | at[i];
	}
	/* The last byte adds 8 - tail bits: 17 bytes would not fit otherwise. */
	raw->hi = raw->hi << (8 - tail) | raw->lo >> (56 + tail);
	raw->lo = raw->lo << (8 - tail) | at[bytes - 1] >> tail;
	if (bits <= 64) {
		raw->hi = 0;
		raw->lo &= UINT64_MAX >> (64 - bits);
	} else {
		raw->hi &= UINT64_MAX >> (128 - bits);
	}
	return true;
}

WEIR_INLINE struct wide wide_and(struct wide value, uint64_t hi, uint64_t lo)
{
	return (struct wide){value.hi & hi, value.lo & lo};
}

WEIR_INLINE bool wide_is(struct wide value, uint64_t hi, uint64_t lo)
{
	return value.hi == hi && value.lo == lo;
}

WEIR_INLINE bool wide_between(struct wide value, uint64_t start_hi, uint64_t start_lo, uint64_t end_hi, uint64_t end_lo)
{
	bool from = value.hi > start_hi || (value.hi == start_hi && value.lo >= start_lo);
	bool to = value.hi < end_hi || (value.hi == end_hi && value.lo <= end_lo);

	return from && to;
}

#endif
