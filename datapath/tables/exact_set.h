/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Exact set of IPv4 addresses. crates/tables/src/layout/exact_set.rs has the bit diagrams.
 *
 * A bucket is compared as a whole, without a branch on the result. The one remaining branch, on a bucket that has
 * overflowed, is almost never taken. A writer may change the set meanwhile (crates/tables/src/live). So the mark that
 * sends a key to the overflow is read with the places or after them, and the overflow after the mark.
 */
#ifndef WEIR_TABLES_EXACT_SET_H
#define WEIR_TABLES_EXACT_SET_H

#include "tables/image.h"
#include "core/simd.h"

enum {
	EXACT_BUCKETS = 64,	  /* byte offset of the buckets */
	EXACT_BYTES_FIELD = 1,	  /* header field: bytes of the buckets */
	EXACT_OVERFLOW_FIELD = 2, /* header field: byte offset of the overflow */
	EXACT_SHIFT_FIELD = 4,	  /* header field: 32 - log2(buckets) */
	EXACT_ORDER_FIELD = 5,	  /* header field: log2 of the bucket's 64-bit words */
	EXACT_OVERFLOW_SHIFT_FIELD = 6,
	EXACT_MULTIPLIER_FIELD = 7, /* header field: multiplier of the hash of the overflow */
	EXACT_GROUP = 8,	    /* words of 64 bits in a group of the overflow */
	EXACT_WORDS_MAX = 8,
	EXACT_OVERFLOWED = 0xfffe, /* value of the last place: the bucket has overflowed */
	EXACT_REMAINDERS = 0xfffe, /* this remainder and higher ones are in no bucket */
};

#define EXACT_MULTIPLIER 0x9e3779b1u
#define EXACT_LANES UINT64_C(0x0001000100010001)

/* The members (a bit each) whose overflow entry is addr. */
WEIR_INLINE uint32_t exact_overflow_find(struct table table, uint32_t addr)
{
	uint32_t hash = addr * image_section(table, EXACT_MULTIPLIER_FIELD);
	uint32_t group = hash >> (image_section(table, EXACT_OVERFLOW_SHIFT_FIELD) & 31);
	uint32_t first = (image_section(table, EXACT_OVERFLOW_FIELD) >> 3) + group * EXACT_GROUP;
	uint32_t members = 0;

	for (uint32_t i = 0; i < EXACT_GROUP; i++) {
		uint64_t word = image_u64(table, first + i);
		uint32_t differs = (uint32_t)word ^ addr;

		/* All ones if the addresses are equal. */
		members |= (uint32_t)(word >> 32) & (opaque((differs | (0 - differs)) >> 31) - 1);
	}
	return members;
}

/* What a lookup needs to know of a bucket. */
enum exact_question {
	EXACT_ANY,   /* whether it has the remainder */
	EXACT_WORDS, /* which of its words have the remainder */
};

/* The result for a bucket. */
struct exact_found {
	uint64_t hits;	/* EXACT_ANY: 0 if no place has the remainder; EXACT_WORDS: bit i for word i, bits above 15
			   undefined */
	bool overflows; /* the overflow must be searched too */
};

/*
 * Compares the four places of a word with `lanes`. The high bit of a place is clear if the place is equal, else set.
 * Above an equal place, another place of the word may wrongly appear equal.
 */
WEIR_INLINE uint64_t exact_misses(uint64_t word, uint64_t lanes)
{
	uint64_t differs = word ^ lanes;

	return differs | (EXACT_LANES - 1 - differs);
}

/* Compares a bucket of `words` (a constant) 64-bit words with the remainder of the address. */
WEIR_INLINE struct exact_found exact_bucket(struct table table, uint32_t bucket, uint32_t words, uint32_t remainder,
					    enum exact_question question)
{
	const uint8_t *places = table_block(table, EXACT_BUCKETS + bucket * words * 8, words * 8);
	const uint64_t lanes = remainder * EXACT_LANES, high = EXACT_LANES << 15;
	const uint64_t all = EXACT_LANES * ((1u << words) - 1);
	uint64_t word = 0, misses = high, missing = 0;
	struct exact_found found;

	for (uint32_t i = 0; i < words; i++) {
		word = block_u64(places, i);
		if (question == EXACT_ANY)
			misses &= exact_misses(word, lanes);
		else
			missing |= (exact_misses(word, lanes) & high) >> (15 - i);
	}
	missing ^= all;
	missing |= missing >> 32;
	found.hits = question == EXACT_ANY ? misses ^ high : missing | missing >> 16;
	found.overflows = word >> 48 == EXACT_OVERFLOWED;
	return found;
}

WEIR_INLINE uint32_t exact_bucket_of(uint32_t addr, uint32_t shift)
{
	return (addr & 0xffff) ^ ((addr >> 16) * EXACT_MULTIPLIER) >> (shift & 31);
}

/* The result for the address's bucket. Remainders that are in no bucket give no hit. */
WEIR_INLINE struct exact_found exact_find_in_bucket(struct table table, uint32_t addr, enum exact_question question)
{
	uint32_t bucket = exact_bucket_of(addr, image_section(table, EXACT_SHIFT_FIELD));
	uint32_t remainder = addr >> 16;

	if (WEIR_UNLIKELY(remainder >= EXACT_REMAINDERS))
		return (struct exact_found){0, true};
	switch (image_section(table, EXACT_ORDER_FIELD)) {
	case 0:
		return exact_bucket(table, bucket, 1, remainder, question);
	case 1:
		return exact_bucket(table, bucket, 2, remainder, question);
	case 2:
		return exact_bucket(table, bucket, 4, remainder, question);
	default:
		return exact_bucket(table, bucket, 8, remainder, question);
	}
}

/* 1 if addr (host byte order) is in the set, 0 if not. */
WEIR_INLINE uint32_t exact_set_find(struct table table, uint32_t addr)
{
	struct exact_found found = exact_find_in_bucket(table, addr, EXACT_ANY);

	if (WEIR_LIKELY(!found.overflows))
		return found.hits != 0;
	read_fence();
	return found.hits != 0 ? 1 : exact_overflow_find(table, addr);
}

#ifdef WEIR_BURSTS

enum { EXACT_PREFETCH_BYTES = 3 << 19 }; /* smaller tables stay in the second-level cache */

#ifdef __clang__

/* Vectors in an image. */
typedef uint16_t exact_places4 __attribute__((vector_size(8), may_alias));
typedef uint16_t exact_places8 __attribute__((vector_size(16), may_alias));
typedef uint16_t exact_places16 __attribute__((vector_size(32), may_alias));
typedef uint16_t exact_places32 __attribute__((vector_size(64), may_alias));
typedef uint32_t exact_pairs2 __attribute__((vector_size(8)));
typedef uint32_t exact_pairs4 __attribute__((vector_size(16)));
typedef uint32_t exact_pairs8 __attribute__((vector_size(32)));
typedef uint32_t exact_pairs16 __attribute__((vector_size(64)));
typedef _Bool exact_bits4 __attribute__((ext_vector_type(4)));
typedef _Bool exact_bits8 __attribute__((ext_vector_type(8)));
typedef _Bool exact_bits16 __attribute__((ext_vector_type(16)));
typedef _Bool exact_bits32 __attribute__((ext_vector_type(32)));

/*
 * Bit i: place i of the bucket has the remainder. `pair` is the remainder twice. Uses one comparison, or the closest to
 * it.
 */
WEIR_INLINE uint32_t exact_places_equal(const uint8_t *bucket, uint32_t words, uint32_t pair)
{
	uint32_t mask = 0;
	uint8_t low = 0;
	uint16_t half = 0;

	if (words == 1) {
		exact_places4 remainders = (exact_places4)((exact_pairs2){0} + pair);
		exact_bits4 bits = __builtin_convertvector(*(const exact_places4 *)bucket == remainders, exact_bits4);

		__builtin_memcpy(&low, &bits, sizeof(low));
		mask = low & 15;
	} else if (words == 2) {
		exact_places8 remainders = (exact_places8)((exact_pairs4){0} + pair);
		exact_bits8 bits = __builtin_convertvector(*(const exact_places8 *)bucket == remainders, exact_bits8);

		__builtin_memcpy(&low, &bits, sizeof(low));
		mask = low;
	} else if (words == 4) {
		exact_places16 remainders = (exact_places16)((exact_pairs8){0} + pair);
		exact_bits16 bits =
			__builtin_convertvector(*(const exact_places16 *)bucket == remainders, exact_bits16);

		__builtin_memcpy(&half, &bits, sizeof(half));
		mask = half;
	} else {
		exact_places32 remainders = (exact_places32)((exact_pairs16){0} + pair);
		exact_bits32 bits =
			__builtin_convertvector(*(const exact_places32 *)bucket == remainders, exact_bits32);

		__builtin_memcpy(&mask, &bits, sizeof(mask));
	}
	return mask;
}

#else

WEIR_INLINE uint32_t exact_places_equal(const uint8_t *bucket, uint32_t words, uint32_t pair)
{
	const uint16_t *places = __builtin_assume_aligned(bucket, 8);
	uint32_t mask = 0;

	for (uint32_t i = 0; i < 4 * words; i++)
		mask |= (uint32_t)(places[i] == (uint16_t)pair) << i;
	return mask;
}

#endif

/*
 * Compares the buckets of the keys, of `words` (a constant) 64-bit words each. Bit j of masks[i] says that place j of
 * its bucket has the remainder of keys[i]. Returns the keys (a bit each) whose overflow must be searched.
 */
WEIR_INLINE uint64_t exact_compare(struct table table, const uint32_t *keys, uint32_t *masks, uint32_t count,
				   uint32_t words)
{
	const uint32_t shift = image_section(table, EXACT_SHIFT_FIELD) & 31;
	const uint32_t bytes = words * 8;
	const uint8_t *buckets = table_at(table, EXACT_BUCKETS);
	uint32_t offsets[WEIR_BURST_MAX], pairs[WEIR_BURST_MAX];
	uint32_t highest = 0;
	uint64_t overflowed = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t key = keys[i];

		offsets[i] = exact_bucket_of(key, shift) * bytes;
		pairs[i] = key >> 16 | (key & 0xffff0000);
		highest = key > highest ? key : highest;
	}
	if (image_section(table, EXACT_BYTES_FIELD) >= EXACT_PREFETCH_BYTES)
		for (uint32_t i = 0; i < count; i++)
			__builtin_prefetch(buckets + offsets[i]);
	for (uint32_t i = 0; i < count; i++) {
		uint64_t offset = offsets[i];
		uint32_t mask = exact_places_equal(__builtin_assume_aligned(buckets + offset, 8), words, pairs[i]);
		uint16_t last;

		/* Read the mark after the places: it replaces an address that went to the overflow. */
		__asm__("" : "+r"(offset), "+r"(mask));
		__builtin_memcpy(&last, __builtin_assume_aligned(buckets + offset + bytes - 2, 2), sizeof(last));
		masks[i] = mask;
		if (WEIR_UNLIKELY(last == EXACT_OVERFLOWED))
			overflowed |= UINT64_C(1) << i;
	}
	if (WEIR_UNLIKELY(highest >> 16 >= EXACT_REMAINDERS)) {
		for (uint32_t i = 0; i < count; i++) {
			if (keys[i] >> 16 >= EXACT_REMAINDERS) {
				masks[i] = 0;
				overflowed |= UINT64_C(1) << i;
			}
		}
	}
	return overflowed;
}

WEIR_INLINE uint64_t exact_compare_of(struct table table, const uint32_t *keys, uint32_t *masks, uint32_t count)
{
	switch (image_section(table, EXACT_ORDER_FIELD)) {
	case 0:
		return exact_compare(table, keys, masks, count, 1);
	case 1:
		return exact_compare(table, keys, masks, count, 2);
	case 2:
		return exact_compare(table, keys, masks, count, 4);
	default:
		return exact_compare(table, keys, masks, count, 8);
	}
}

/* Adds the overflow results of the keys in `overflowed`. */
WEIR_INLINE void exact_add_overflow(struct table table, const uint32_t *keys, uint32_t *labels, uint64_t overflowed)
{
	if (WEIR_LIKELY(overflowed == 0))
		return;
	read_fence();
	for (; overflowed != 0; overflowed &= overflowed - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(overflowed);

		labels[i] |= exact_overflow_find(table, keys[i]);
	}
}

WEIR_INLINE void exact_set_kernel(struct table table, const uint32_t *keys, uint32_t *labels, uint32_t count)
{
	uint64_t overflowed = exact_compare_of(table, keys, labels, count);

	for (uint32_t i = 0; i < count; i++)
		labels[i] = labels[i] != 0;
	exact_add_overflow(table, keys, labels, overflowed);
}

SIMD_AVX512 WEIR_NOINLINE void exact_set_kernel_avx512(struct table table, const uint32_t *keys, uint32_t *labels,
						       uint32_t count)
{
	exact_set_kernel(table, keys, labels, count);
}

/* labels[i] = exact_set_find(table, keys[i]) for a burst of at most WEIR_BURST_MAX. */
WEIR_NOINLINE void exact_set_find_burst(struct table table, const uint32_t *keys, uint32_t *labels, uint32_t count)
{
	if (simd_avx512(SIMD_PLAIN))
		exact_set_kernel_avx512(table, keys, labels, count);
	else
		exact_set_kernel(table, keys, labels, count);
}

#endif
#endif
