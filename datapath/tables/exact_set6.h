/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Exact set of IPv6 /64s and /128s. crates/tables/src/layout/exact_set6.rs has the bit diagrams.
 *
 * A bucket is compared as a whole, without a branch on the result. A writer may change the set meanwhile
 * (crates/tables/src/live): tables/exact_set.h explains the order of reads.
 */
#ifndef WEIR_TABLES_EXACT_SET6_H
#define WEIR_TABLES_EXACT_SET6_H

#include "tables/image.h"
#include "core/simd.h"

enum {
	EXACT6_NETS_FIELD = 0, /* header fields: byte offset, and bytes after it */
	EXACT6_HOSTS_FIELD = 2,
	EXACT6_OVERFLOW_FIELD = 4,
	EXACT6_SEED_FIELD = 6,
	EXACT6_LINE_WORDS = 8, /* 64-bit words of a bucket */
	EXACT6_GROUP_BYTES = 128,
	EXACT6_GROUP_ENTRIES = 4,
	EXACT6_ENTRY_WORDS = 4,
	EXACT6_NET = 1, /* kinds of entries in the overflow */
	EXACT6_HOST = 2,
};

#define EXACT6_FREE UINT64_MAX
#define EXACT6_OVERFLOWED (UINT64_MAX - 1) /* high half in the last place of a bucket */

WEIR_INLINE uint64_t exact6_seed(struct table table)
{
	return image_section(table, EXACT6_SEED_FIELD) | (uint64_t)image_section(table, EXACT6_SEED_FIELD + 1) << 32;
}

WEIR_INLINE uint64_t exact6_mix(uint64_t x)
{
	x = (x ^ x >> 32) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 29) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 32;
}

WEIR_INLINE uint64_t exact6_net_hash(uint64_t seed, uint64_t hi)
{
	return exact6_mix((hi ^ seed) * UINT64_C(0x9e3779b97f4a7c15));
}

WEIR_INLINE uint64_t exact6_host_hash(uint64_t seed, uint64_t hi, uint64_t lo)
{
	uint64_t x = (hi ^ seed) * UINT64_C(0x9e3779b97f4a7c15);

	return exact6_mix((x >> 32 | x << 32) + lo);
}

/* Reduces a hash to a number below `count`. */
WEIR_INLINE uint32_t exact6_reduce(uint32_t half, uint32_t count)
{
	return (uint32_t)((uint64_t)half * count >> 32);
}

/* 1 if the overflow has the key; a network's lo is 0. */
WEIR_INLINE uint32_t exact6_overflow_find(struct table table, uint64_t hash, uint64_t kind, uint64_t hi, uint64_t lo)
{
	uint32_t groups = image_section(table, EXACT6_OVERFLOW_FIELD + 1) / EXACT6_GROUP_BYTES;
	uint32_t group = exact6_reduce((uint32_t)hash, groups);
	uint32_t at = (image_section(table, EXACT6_OVERFLOW_FIELD) + group * EXACT6_GROUP_BYTES) >> 3;
	uint64_t misses = UINT64_MAX; /* bit 63: of all entries */

	for (uint32_t i = 0; i < EXACT6_GROUP_ENTRIES; i++) {
		uint64_t differs = image_u64(table, at) ^ kind;

		/* The writer stores the kind last. */
		read_fence();
		differs |= (image_u64(table, at + 1) ^ hi) | (image_u64(table, at + 2) ^ lo);
		misses &= differs | (0 - differs);
		at += EXACT6_ENTRY_WORDS;
	}
	return (uint32_t)(misses >> 63) ^ 1;
}

WEIR_INLINE uint32_t exact6_net_find(struct table table, uint64_t hi)
{
	uint32_t buckets = image_section(table, EXACT6_NETS_FIELD + 1) >> 6;
	uint64_t hash = exact6_net_hash(exact6_seed(table), hi);
	uint32_t first = (image_section(table, EXACT6_NETS_FIELD) >> 3) +
			 exact6_reduce((uint32_t)(hash >> 32), buckets) * EXACT6_LINE_WORDS;
	uint64_t misses = UINT64_MAX, word = 0;

	if (buckets == 0)
		return 0;
	for (uint32_t i = 0; i < EXACT6_LINE_WORDS; i++) {
		uint64_t differs;

		word = image_u64(table, first + i);
		differs = word ^ hi;
		misses &= differs | (0 - differs);
	}
	if (WEIR_LIKELY(word != EXACT6_OVERFLOWED && hi < EXACT6_OVERFLOWED))
		return (uint32_t)(misses >> 63) ^ 1;
	if (misses >> 63 == 0 && hi < EXACT6_OVERFLOWED)
		return 1;
	read_fence();
	return exact6_overflow_find(table, hash, EXACT6_NET, hi, 0);
}

WEIR_INLINE uint32_t exact6_host_find(struct table table, uint64_t hi, uint64_t lo)
{
	uint32_t buckets = image_section(table, EXACT6_HOSTS_FIELD + 1) >> 6;
	uint64_t hash = exact6_host_hash(exact6_seed(table), hi, lo);
	uint32_t first = (image_section(table, EXACT6_HOSTS_FIELD) >> 3) +
			 exact6_reduce((uint32_t)(hash >> 32), buckets) * EXACT6_LINE_WORDS;
	uint64_t misses = UINT64_MAX, word = 0;
	bool marked = hi >= EXACT6_OVERFLOWED || lo == EXACT6_FREE;

	if (buckets == 0)
		return 0;
	for (uint32_t i = 0; i < EXACT6_LINE_WORDS; i += 2) {
		uint64_t differs;

		word = image_u64(table, first + i);
		differs = (word ^ hi) | (image_u64(table, first + i + 1) ^ lo);
		misses &= differs | (0 - differs);
	}
	if (WEIR_LIKELY(word != EXACT6_OVERFLOWED && !marked))
		return (uint32_t)(misses >> 63) ^ 1;
	if (misses >> 63 == 0 && !marked)
		return 1;
	read_fence();
	return exact6_overflow_find(table, hash, EXACT6_HOST, hi, lo);
}

/* 1 if the address of the given 64-bit halves (host byte order) is in the set, 0 if not. */
WEIR_INLINE uint32_t exact_set6_find(struct table table, uint64_t hi, uint64_t lo)
{
	return exact6_net_find(table, hi) | exact6_host_find(table, hi, lo);
}

#ifdef WEIR_BURSTS

#ifdef __clang__

typedef uint64_t exact6_line __attribute__((vector_size(64), may_alias));
typedef _Bool exact6_bits __attribute__((ext_vector_type(8)));

/* Bit i: word i of the bucket is `even` or, for odd i, `odd`. */
WEIR_INLINE uint32_t exact6_words_equal(const uint8_t *bucket, uint64_t even, uint64_t odd)
{
	exact6_line keys = {even, odd, even, odd, even, odd, even, odd};
	exact6_bits bits = __builtin_convertvector(*(const exact6_line *)(const void *)bucket == keys, exact6_bits);
	uint8_t mask;

	__builtin_memcpy(&mask, &bits, sizeof(mask));
	return mask;
}

#else

WEIR_INLINE uint32_t exact6_words_equal(const uint8_t *bucket, uint64_t even, uint64_t odd)
{
	const uint64_t *words = __builtin_assume_aligned(bucket, 64);
	uint32_t mask = 0;

	for (uint32_t i = 0; i < EXACT6_LINE_WORDS; i++)
		mask |= (uint32_t)(words[i] == (i & 1 ? odd : even)) << i;
	return mask;
}

#endif

/* Buckets of a burst's keys. */
struct exact6_burst {
	uint64_t hashes[WEIR_BURST_MAX];
	uint32_t offsets[WEIR_BURST_MAX]; /* bytes from the image */
};

/* The high half of the last place, read after the places: its mark replaces a key that went to the overflow. */
WEIR_INLINE uint64_t exact6_mark(const uint8_t *bucket, uint32_t word, uint32_t *mask)
{
	uint64_t mark;

	__asm__("" : "+r"(bucket), "+r"(*mask));
	__builtin_memcpy(&mark, __builtin_assume_aligned(bucket + word * 8, 8), sizeof(mark));
	return mark;
}

WEIR_INLINE void exact6_nets(struct table table, const uint64_t *hi, uint32_t *labels, uint32_t count)
{
	uint32_t buckets = image_section(table, EXACT6_NETS_FIELD + 1) >> 6;
	uint32_t first = image_section(table, EXACT6_NETS_FIELD);
	uint64_t seed = exact6_seed(table);
	struct exact6_burst burst;

	for (uint32_t i = 0; i < count; i++) {
		burst.hashes[i] = exact6_net_hash(seed, hi[i]);
		burst.offsets[i] = first + exact6_reduce((uint32_t)(burst.hashes[i] >> 32), buckets) * 64;
		__builtin_prefetch(table_at(table, burst.offsets[i]));
	}
	for (uint32_t i = 0; i < count; i++) {
		const uint8_t *bucket = table_at(table, burst.offsets[i]);
		uint32_t mask = exact6_words_equal(bucket, hi[i], hi[i]);
		uint64_t mark = exact6_mark(bucket, EXACT6_LINE_WORDS - 1, &mask);

		labels[i] = mask != 0;
		if (WEIR_UNLIKELY(mark == EXACT6_OVERFLOWED || hi[i] >= EXACT6_OVERFLOWED)) {
			read_fence();
			if (mask == 0 || hi[i] >= EXACT6_OVERFLOWED)
				labels[i] = exact6_overflow_find(table, burst.hashes[i], EXACT6_NET, hi[i], 0);
		}
	}
}

WEIR_INLINE void exact6_hosts(struct table table, const uint64_t *hi, const uint64_t *lo, uint32_t *labels,
			      uint32_t count)
{
	uint32_t buckets = image_section(table, EXACT6_HOSTS_FIELD + 1) >> 6;
	uint32_t first = image_section(table, EXACT6_HOSTS_FIELD);
	uint64_t seed = exact6_seed(table);
	struct exact6_burst burst;

	for (uint32_t i = 0; i < count; i++) {
		burst.hashes[i] = exact6_host_hash(seed, hi[i], lo[i]);
		burst.offsets[i] = first + exact6_reduce((uint32_t)(burst.hashes[i] >> 32), buckets) * 64;
		__builtin_prefetch(table_at(table, burst.offsets[i]));
	}
	for (uint32_t i = 0; i < count; i++) {
		const uint8_t *bucket = table_at(table, burst.offsets[i]);
		uint32_t words = exact6_words_equal(bucket, hi[i], lo[i]);
		uint32_t mask = words & words >> 1 & 0x55;
		uint64_t mark = exact6_mark(bucket, EXACT6_LINE_WORDS - 2, &mask);
		bool marked = hi[i] >= EXACT6_OVERFLOWED || lo[i] == EXACT6_FREE;

		if (WEIR_UNLIKELY(mark == EXACT6_OVERFLOWED || marked)) {
			read_fence();
			if (mask == 0 || marked)
				mask = exact6_overflow_find(table, burst.hashes[i], EXACT6_HOST, hi[i], lo[i]);
		}
		labels[i] |= mask != 0;
	}
}

WEIR_INLINE void exact_set6_kernel(struct table table, const uint64_t *hi, const uint64_t *lo, uint32_t *labels,
				   uint32_t count)
{
	if (image_section(table, EXACT6_NETS_FIELD + 1) > 0) {
		exact6_nets(table, hi, labels, count);
	} else {
		for (uint32_t i = 0; i < count; i++)
			labels[i] = 0;
	}
	if (image_section(table, EXACT6_HOSTS_FIELD + 1) > 0)
		exact6_hosts(table, hi, lo, labels, count);
}

SIMD_AVX512 __attribute__((unused)) WEIR_NOINLINE void
exact_set6_kernel_avx512(struct table table, const uint64_t *hi, const uint64_t *lo, uint32_t *labels, uint32_t count)
{
	exact_set6_kernel(table, hi, lo, labels, count);
}

/* labels[i] = exact_set6_find(table, hi[i], lo[i]) for a burst of at most WEIR_BURST_MAX. */
WEIR_INLINE void exact_set6_find_burst(struct table table, const uint64_t *hi, const uint64_t *lo, uint32_t *labels,
				       uint32_t count)
{
	if (simd_avx512(SIMD_PLAIN))
		exact_set6_kernel_avx512(table, hi, lo, labels, count);
	else
		exact_set6_kernel(table, hi, lo, labels, count);
}

#endif
#endif
