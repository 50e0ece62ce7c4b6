/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Exact set of IPv4 addresses. The bit diagrams stand in crates/tables/src/layout/exact_set.rs.
 *
 * A bucket is compared as a whole, four slots in a 64-bit word at a time, without a branch on what is found: compilers
 * make one to four vector comparisons of it.
 */
#ifndef WEIR_EXACT_SET_H
#define WEIR_EXACT_SET_H

#include "image.h"

enum {
	EXACT_BUCKETS = 64,	  /* byte offset of the buckets */
	EXACT_OVERFLOW_FIELD = 2, /* header fields: byte offset and bytes of the overflow */
	EXACT_OVERFLOW_BYTES_FIELD = 3,
	EXACT_SHIFT_FIELD = 4,	      /* header field: 32 - log2(buckets) */
	EXACT_ORDER_FIELD = 5,	      /* header field: log2 of the bucket's 64-bit words */
	EXACT_FREE = 0xffff,	      /* remainder of no address in a bucket */
	EXACT_OVERFLOW_STEPS_MAX = 31 /* an image has less than 2^32 bytes */
};

#define EXACT_LANES UINT64_C(0x0001000100010001)

/* What comparing a bucket tells. */
struct exact_bucket {
	uint64_t hits; /* not 0 if the remainder is in a slot */
	uint32_t last; /* the last slot: EXACT_FREE unless the bucket is full */
};

/* Compares a bucket of `words` (a constant) 64-bit words with the remainder in all lanes. */
WEIR_INLINE struct exact_bucket exact_bucket(struct table table, uint32_t bucket, uint32_t words, uint64_t lanes)
{
	const uint8_t *slots = __builtin_assume_aligned(table_at(table, EXACT_BUCKETS + bucket * words * 8), 8);
	struct exact_bucket result = {0, 0};
	uint64_t word = 0;

	for (uint32_t i = 0; i < words; i++) {
		uint64_t differs;

		__builtin_memcpy(&word, slots + 8 * i, sizeof(word));
		differs = word ^ lanes;
		/* The high bit of the lowest lane that is zero, and nothing if none is. */
		result.hits |= (differs - EXACT_LANES) & ~differs & EXACT_LANES << 15;
	}
	result.last = (uint32_t)(word >> 48);
	return result;
}

/* 1 if addr is one of the few that did not fit a bucket. */
WEIR_INLINE uint32_t exact_overflow_find(struct table table, uint32_t addr)
{
	uint32_t at = image_section(table, EXACT_OVERFLOW_FIELD) >> 2;
	uint32_t count = image_section(table, EXACT_OVERFLOW_BYTES_FIELD) >> 2;

	if (count == 0)
		return 0;
	for (int step = 0; step < EXACT_OVERFLOW_STEPS_MAX && count > 1; step++) {
		uint32_t half = count >> 1;

		at += image_u32(table, at + half) <= addr ? half : 0;
		count -= half;
	}
	return image_u32(table, at) == addr;
}

/* 1 if addr (host byte order) is in the set, 0 if not. */
WEIR_INLINE uint32_t exact_set_find(struct table table, uint32_t addr)
{
	uint32_t remainder = addr >> 16;
	uint32_t bucket = (addr & 0xffff) ^ (remainder * 0x9e3779b1u) >> (image_section(table, EXACT_SHIFT_FIELD) & 31);
	uint64_t lanes = remainder * EXACT_LANES;
	struct exact_bucket found;

	switch (image_section(table, EXACT_ORDER_FIELD)) {
	case 0:
		found = exact_bucket(table, bucket, 1, lanes);
		break;
	case 1:
		found = exact_bucket(table, bucket, 2, lanes);
		break;
	case 2:
		found = exact_bucket(table, bucket, 4, lanes);
		break;
	default:
		found = exact_bucket(table, bucket, 8, lanes);
		break;
	}
	if (WEIR_LIKELY(found.last == EXACT_FREE && remainder != EXACT_FREE))
		return found.hits != 0;
	if (found.hits != 0 && remainder != EXACT_FREE)
		return 1;
	return exact_overflow_find(table, addr);
}

#endif
