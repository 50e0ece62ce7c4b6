/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Exact set of IPv6 /64s and /128s. crates/tables/src/layout/exact_set6/mod.rs has the bit diagrams.
 *
 * A bucket is compared as a whole, without a branch on the result. A writer may change the set meanwhile
 * (crates/tables/src/live/exact6.rs). So a lookup reads the second bucket after the filter bit of the first one, and
 * the overflow after the filter bit of the second one.
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
	EXACT6_LINE_BYTES = 64,
	EXACT6_GROUP_BYTES = 128,
	EXACT6_GROUP_ENTRIES = 4,
	EXACT6_ENTRY_WORDS = 4,
	EXACT6_STATE_SHIFT = 4, /* in a word of a bucket; the bits below are the filter's */
	EXACT6_MEMBERS_SHIFT = 6,
	EXACT6_MEMBERS_MAX = 4,
};

/* Number in an entry of the overflow, and words of a slot. */
enum exact6_kind {
	EXACT6_NET = 1,
	EXACT6_HOST = 2,
};

/* How many sets an image has. It decides how words are divided. */
enum exact6_sets {
	EXACT6_ONE_SET,
	EXACT6_FUSED, /* each word has a bit for each member that has the key (exact_sets6.h) */
};

/* State of a slot: which bucket of the key it is in. */
enum exact6_state {
	EXACT6_FIRST = 1,
	EXACT6_SECOND = 2,
};

#define EXACT6_FILTER UINT64_C(15)
#define EXACT6_MEMBERS UINT64_C(15)
#define EXACT6_NO_HOST UINT64_MAX /* high half of a free pair */

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

/* Reduces a half of a hash to a number below `count`. */
WEIR_INLINE uint32_t exact6_reduce(uint32_t half, uint32_t count)
{
	return (uint32_t)((uint64_t)half * count >> 32);
}

WEIR_INLINE uint32_t exact6_first(uint64_t hash, uint32_t buckets)
{
	return exact6_reduce((uint32_t)(hash >> 32), buckets);
}

WEIR_INLINE uint32_t exact6_second(uint64_t hash, uint32_t buckets)
{
	uint32_t second = exact6_first(hash, buckets) + 1 + exact6_reduce((uint32_t)hash, buckets - 1);

	return second >= buckets ? second - buckets : second;
}

/* The word of a key, without filter and members. */
WEIR_INLINE uint64_t exact6_word(enum exact6_sets sets, uint64_t hash, enum exact6_state state)
{
	uint32_t shift = EXACT6_MEMBERS_SHIFT + (sets == EXACT6_FUSED ? EXACT6_MEMBERS_MAX : 0);

	return hash << shift | (uint64_t)state << EXACT6_STATE_SHIFT;
}

/* The bits of a word by which a key is found. */
WEIR_INLINE uint64_t exact6_compared(enum exact6_sets sets)
{
	return ~(EXACT6_FILTER | (sets == EXACT6_FUSED ? EXACT6_MEMBERS << EXACT6_MEMBERS_SHIFT : 0));
}

/* The members (a bit each) of a word of fused sets. */
WEIR_INLINE uint32_t exact6_members(uint64_t word)
{
	return (uint32_t)(word >> EXACT6_MEMBERS_SHIFT) & (uint32_t)EXACT6_MEMBERS;
}

/* The slot whose word has the filter bit of the hash. */
WEIR_INLINE uint32_t exact6_filter_slot(uint64_t hash, enum exact6_kind kind)
{
	return (uint32_t)hash & (kind == EXACT6_NET ? 7 : 3);
}

/* 1 if the word of that slot says that keys went on from the bucket, 0 if not. */
WEIR_INLINE uint32_t exact6_filter_bit(uint64_t word, uint64_t hash, enum exact6_kind kind)
{
	return (uint32_t)(word >> ((kind == EXACT6_NET ? hash >> 3 : hash >> 2) & 3)) & 1;
}

/* The members (a bit each) whose overflow has the key; a network's lo is 0. The one set is member 0. */
WEIR_INLINE uint32_t exact6_overflow_find(struct table table, enum exact6_sets sets, uint64_t hash, uint64_t kind,
					  uint64_t hi, uint64_t lo)
{
	uint32_t groups = image_section(table, EXACT6_OVERFLOW_FIELD + 1) / EXACT6_GROUP_BYTES;
	uint32_t group = exact6_reduce((uint32_t)hash, groups);
	uint32_t at = (image_section(table, EXACT6_OVERFLOW_FIELD) + group * EXACT6_GROUP_BYTES) >> 3;
	uint64_t misses = UINT64_MAX; /* bit 63: of all entries */
	uint64_t members = 0;

	for (uint32_t i = 0; i < EXACT6_GROUP_ENTRIES; i++) {
		uint64_t differs = image_u64(table, at) ^ kind;

		/* The writer stores the kind last. */
		read_fence();
		differs |= (image_u64(table, at + 1) ^ hi) | (image_u64(table, at + 2) ^ lo);
		differs |= 0 - differs;
		misses &= differs;
		if (sets == EXACT6_FUSED)
			members |= image_u64(table, at + 3) & ((uint64_t)opaque((uint32_t)(differs >> 63)) - 1);
		at += EXACT6_ENTRY_WORDS;
	}
	return sets == EXACT6_FUSED ? (uint32_t)members & (uint32_t)EXACT6_MEMBERS : (uint32_t)(misses >> 63) ^ 1;
}

/* All ones if a host's slot has the word and beside it its hi, else 0. `differs` is for the word. */
WEIR_INLINE uint64_t exact6_host_equals(uint64_t differs, uint64_t stored_hi, uint64_t hi)
{
	differs |= stored_hi ^ hi;
	return ~(uint64_t)((int64_t)(differs | opaque64(0 - differs)) >> 63);
}

/* All ones if a network's slot has the word, else 0. The filter is no part of `differs`. */
WEIR_INLINE uint64_t exact6_net_equals(uint64_t differs)
{
	return (uint64_t)((int64_t)opaque64((differs >> EXACT6_STATE_SHIFT) - 1) >> 63);
}

/* The members (a bit each) that have the word in the bucket, and beside it a host's hi. */
WEIR_INLINE uint32_t exact6_has(const uint8_t *bucket, enum exact6_sets sets, enum exact6_kind kind, uint64_t word,
				uint64_t hi)
{
	uint64_t found = 0;

	for (uint32_t i = 0; i < EXACT6_LINE_WORDS; i += kind) {
		uint64_t stored = opaque64(block_u64(bucket, i)); /* read once, because a writer may change it */
		uint64_t differs = (stored ^ word) & exact6_compared(sets);

		found |= stored & (kind == EXACT6_NET ? exact6_net_equals(differs)
						      : exact6_host_equals(differs, block_u64(bucket, i + 1), hi));
	}
	/* The state of a word is not 0. */
	return sets == EXACT6_FUSED ? exact6_members(found) : found != 0;
}

/* 1 if keys with the filter bit of the hash went on from the bucket, 0 if not. */
WEIR_INLINE uint32_t exact6_went_on(const uint8_t *bucket, enum exact6_kind kind, uint64_t hash)
{
	return exact6_filter_bit(block_u64(bucket, exact6_filter_slot(hash, kind) * kind), hash, kind);
}

/* The bucket with this number of the kind with this header field. */
WEIR_INLINE const uint8_t *exact6_bucket(struct table table, uint32_t field, uint32_t number)
{
	return table_block(table, image_section(table, field) + number * EXACT6_LINE_BYTES, EXACT6_LINE_BYTES);
}

/* The members (a bit each) that have the key. `field` is the kind's header field; a network's lo is 0. */
WEIR_INLINE uint32_t exact6_find(struct table table, enum exact6_sets sets, uint32_t field, enum exact6_kind kind,
				 uint64_t hash, uint64_t hi, uint64_t lo)
{
	uint32_t buckets = image_section(table, field + 1) >> 6;
	const uint8_t *bucket = exact6_bucket(table, field, exact6_first(hash, buckets));
	bool is_only_in_overflow = kind == EXACT6_HOST && hi == EXACT6_NO_HOST;

	if (buckets == 0)
		return 0;
	if (WEIR_LIKELY(!is_only_in_overflow)) {
		uint32_t has = exact6_has(bucket, sets, kind, exact6_word(sets, hash, EXACT6_FIRST), hi);

		if (WEIR_LIKELY((has | (exact6_went_on(bucket, kind, hash) ^ 1)) != 0))
			return has;
		read_fence();
		bucket = exact6_bucket(table, field, exact6_second(hash, buckets));
		has = exact6_has(bucket, sets, kind, exact6_word(sets, hash, EXACT6_SECOND), hi);
		if (WEIR_LIKELY((has | (exact6_went_on(bucket, kind, hash) ^ 1)) != 0))
			return has;
	}
	read_fence();
	return exact6_overflow_find(table, sets, hash, kind, hi, lo);
}

/* The members (a bit each) that have the network or the host. */
WEIR_INLINE uint32_t exact6_find_both(struct table table, enum exact6_sets sets, uint64_t hi, uint64_t lo)
{
	uint64_t seed = exact6_seed(table);
	uint64_t net = exact6_net_hash(seed, hi), host = exact6_host_hash(seed, hi, lo);

	return exact6_find(table, sets, EXACT6_NETS_FIELD, EXACT6_NET, net, hi, 0) |
	       exact6_find(table, sets, EXACT6_HOSTS_FIELD, EXACT6_HOST, host, hi, lo);
}

/* 1 if the address of the given 64-bit halves (host byte order) is in the set, 0 if not. */
WEIR_INLINE uint32_t exact_set6_find(struct table table, uint64_t hi, uint64_t lo)
{
	return exact6_find_both(table, EXACT6_ONE_SET, hi, lo);
}

#ifdef WEIR_BURSTS

#ifdef __clang__

typedef uint64_t exact6_line __attribute__((vector_size(64), may_alias));
typedef uint64_t exact6_half __attribute__((vector_size(32), may_alias));
typedef _Bool exact6_bits __attribute__((ext_vector_type(8)));

/* 1 if the bucket has the word, and beside it a host's hi. */
WEIR_INLINE uint32_t exact6_is_in(const uint8_t *bucket, enum exact6_kind kind, uint64_t word, uint64_t hi)
{
	const exact6_line nets = (exact6_line){0} + word, hosts = {word, hi, word, hi, word, hi, word, hi};
	const uint64_t known = ~EXACT6_FILTER, all = kind == EXACT6_NET ? known : UINT64_MAX;
	const exact6_line compared = {known, all, known, all, known, all, known, all};
	exact6_line differs = (*(const exact6_line *)(const void *)bucket ^ (kind == EXACT6_NET ? nets : hosts));
	exact6_bits bits = __builtin_convertvector((differs & compared) == 0, exact6_bits);
	uint8_t mask;

	__builtin_memcpy(&mask, &bits, sizeof(mask));
	return (kind == EXACT6_NET ? mask : mask & mask >> 1 & 0x55) != 0;
}

/* Adds the words of half a bucket that are the word, and beside them a host's hi, to the words at the same place. */
WEIR_INLINE void exact6_add_equal(const uint8_t *half, enum exact6_kind kind, uint64_t word, uint64_t hi,
				  exact6_half *found)
{
	const uint64_t known = exact6_compared(EXACT6_FUSED), all = kind == EXACT6_NET ? known : UINT64_MAX;
	const exact6_half key = {word, kind == EXACT6_NET ? word : hi, word, kind == EXACT6_NET ? word : hi};
	const exact6_half compared = {known, all, known, all};
	/* Volatile, because a writer may change a word meanwhile, so it is read once. */
	exact6_half stored = *(const volatile exact6_half *)(const void *)half;
	exact6_half equal = (exact6_half)(((stored ^ key) & compared) == 0);

	if (kind == EXACT6_HOST)
		equal &= __builtin_shufflevector(equal, equal, 1, 0, 3, 2);
	*found |= equal & stored;
}

/* The members (a bit each) that have the word in the bucket, and beside it a host's hi. */
WEIR_INLINE uint32_t exact6_members_in(const uint8_t *bucket, enum exact6_kind kind, uint64_t word, uint64_t hi)
{
	exact6_half found = {0};

	exact6_add_equal(bucket, kind, word, hi, &found);
	exact6_add_equal(bucket + 32, kind, word, hi, &found);
	return exact6_members(kind == EXACT6_NET ? found[0] | found[1] | found[2] | found[3] : found[0] | found[2]);
}

#else

/* The words of the bucket that are the word, and beside them a host's hi, as one. */
WEIR_INLINE uint64_t exact6_equal(const uint8_t *bucket, enum exact6_sets sets, enum exact6_kind kind, uint64_t word,
				  uint64_t hi)
{
	const uint64_t *words = __builtin_assume_aligned(bucket, 64);
	uint64_t found = 0;

	for (uint32_t i = 0; i < EXACT6_LINE_WORDS; i += kind) {
		uint64_t stored = words[i], is_equal;

		/* A writer may change a word meanwhile, so it is read once. */
		__asm__("" : "+r"(stored));
		is_equal = ((stored ^ word) & exact6_compared(sets)) == 0 && (kind == EXACT6_NET || words[i + 1] == hi);
		found |= stored & (0 - is_equal);
	}
	return found;
}

WEIR_INLINE uint32_t exact6_is_in(const uint8_t *bucket, enum exact6_kind kind, uint64_t word, uint64_t hi)
{
	/* The state of a word is not 0. */
	return exact6_equal(bucket, EXACT6_ONE_SET, kind, word, hi) != 0;
}

WEIR_INLINE uint32_t exact6_members_in(const uint8_t *bucket, enum exact6_kind kind, uint64_t word, uint64_t hi)
{
	return exact6_members(exact6_equal(bucket, EXACT6_FUSED, kind, word, hi));
}

#endif

/* The members (a bit each) that have the word in the bucket, and beside it a host's hi. The one set is member 0. */
WEIR_INLINE uint32_t exact6_search(const uint8_t *bucket, enum exact6_sets sets, enum exact6_kind kind, uint64_t word,
				   uint64_t hi)
{
	return sets == EXACT6_ONE_SET ? exact6_is_in(bucket, kind, word, hi)
				      : exact6_members_in(bucket, kind, word, hi);
}

/* The keys of a burst of one kind. */
struct exact6_burst {
	const uint64_t *hi, *lo; /* lo is not read for networks */
	uint64_t hashes[WEIR_BURST_MAX];
	uint32_t offsets[WEIR_BURST_MAX]; /* of their buckets, bytes from the image */
};

/* 1 if keys with the filter bit of the hash went on from the bucket, 0 if not. */
WEIR_INLINE uint32_t exact6_leads_on(const uint8_t *bucket, uint64_t hash, enum exact6_kind kind)
{
	uint64_t word;

	bucket += exact6_filter_slot(hash, kind) * kind * 8;
	__builtin_memcpy(&word, __builtin_assume_aligned(bucket, 8), sizeof(word));
	return exact6_filter_bit(word, hash, kind);
}

/* Searches the second buckets of the keys in `further` (a bit each), and then the overflow. Adds to the labels. */
WEIR_INLINE void exact6_find_further(struct table table, enum exact6_sets sets, enum exact6_kind kind,
				     struct exact6_burst *burst, uint64_t further, uint32_t *labels)
{
	uint32_t field = kind == EXACT6_NET ? EXACT6_NETS_FIELD : EXACT6_HOSTS_FIELD;
	uint32_t buckets = image_section(table, field + 1) >> 6;

	read_fence();
	for (uint64_t left = further; left != 0; left &= left - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(left);

		burst->offsets[i] = image_section(table, field) + exact6_second(burst->hashes[i], buckets) * 64;
		__builtin_prefetch(table_at(table, burst->offsets[i]));
	}
	for (; further != 0; further &= further - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(further);
		uint64_t hash = burst->hashes[i], hi = burst->hi[i];
		const uint8_t *bucket = table_at(table, burst->offsets[i]);
		bool is_only_in_overflow = kind == EXACT6_HOST && hi == EXACT6_NO_HOST;
		uint32_t found = exact6_search(bucket, sets, kind, exact6_word(sets, hash, EXACT6_SECOND), hi);

		if (WEIR_UNLIKELY(is_only_in_overflow || (found == 0 && exact6_leads_on(bucket, hash, kind)))) {
			read_fence();
			found = exact6_overflow_find(table, sets, hash, kind, hi,
						     kind == EXACT6_HOST ? burst->lo[i] : 0);
		}
		labels[i] |= found;
	}
}

/* Locates the first buckets of a burst, whose hashes are known. */
WEIR_INLINE void exact6_locate(struct table table, enum exact6_kind kind, struct exact6_burst *burst, uint32_t count)
{
	uint32_t field = kind == EXACT6_NET ? EXACT6_NETS_FIELD : EXACT6_HOSTS_FIELD;
	uint32_t buckets = image_section(table, field + 1) >> 6;
	uint32_t begin = image_section(table, field);

	for (uint32_t i = 0; i < count; i++)
		burst->offsets[i] = begin + exact6_first(burst->hashes[i], buckets) * 64;
}

WEIR_INLINE void exact6_prefetch(struct table table, const struct exact6_burst *burst, uint32_t i)
{
	__builtin_prefetch(table_at(table, burst->offsets[i]));
}

/*
 * Searches the buckets of a burst. Adds to the labels. Meanwhile the buckets of `next`, unless that is null, come
 * closer.
 */
WEIR_INLINE void exact6_find_all(struct table table, enum exact6_sets sets, enum exact6_kind kind,
				 struct exact6_burst *burst, const struct exact6_burst *next, uint32_t *labels,
				 uint32_t count)
{
	uint64_t further = 0;

	for (uint32_t i = 0; i < count; i++) {
		const uint8_t *bucket = table_at(table, burst->offsets[i]);
		uint64_t hash = burst->hashes[i], hi = burst->hi[i];
		uint32_t is_only_in_overflow = kind == EXACT6_HOST && hi == EXACT6_NO_HOST;
		uint32_t found = exact6_search(bucket, sets, kind, exact6_word(sets, hash, EXACT6_FIRST), hi) &
				 (is_only_in_overflow - 1);
		uint32_t goes_on = exact6_leads_on(bucket, hash, kind) | is_only_in_overflow;

		if (next != NULL)
			exact6_prefetch(table, next, i);
		labels[i] |= found;
		/* One set needs no second hit. Of fused sets, a branch on what was found would be mispredicted. */
		further |= (uint64_t)(goes_on & (sets == EXACT6_FUSED ? (opaque(found) - 1) >> 31 : labels[i] ^ 1))
			   << i;
	}
	if (further != 0)
		exact6_find_further(table, sets, kind, burst, further, labels);
}

/* labels[i] = exact6_find_both(table, sets, hi[i], lo[i]) for a burst of at most WEIR_BURST_MAX. */
WEIR_INLINE void exact6_find_burst(struct table table, enum exact6_sets sets, const uint64_t *hi, const uint64_t *lo,
				   uint32_t *labels, uint32_t count)
{
	/* Initialisers would clear the columns. */
	struct exact6_burst nets, hosts;
	bool has_nets = image_section(table, EXACT6_NETS_FIELD + 1) > 0;
	bool has_hosts = image_section(table, EXACT6_HOSTS_FIELD + 1) > 0;
	uint64_t seed = exact6_seed(table);

	nets.hi = hosts.hi = hi;
	nets.lo = hosts.lo = lo;
	for (uint32_t i = 0; i < count; i++)
		labels[i] = 0;
	if (has_nets) {
		for (uint32_t i = 0; i < count; i++)
			nets.hashes[i] = exact6_net_hash(seed, hi[i]);
		exact6_locate(table, EXACT6_NET, &nets, count);
		for (uint32_t i = 0; i < count; i++)
			exact6_prefetch(table, &nets, i);
	}
	if (has_hosts) {
		for (uint32_t i = 0; i < count; i++)
			hosts.hashes[i] = exact6_host_hash(seed, hi[i], lo[i]);
		exact6_locate(table, EXACT6_HOST, &hosts, count);
		for (uint32_t i = 0; !has_nets && i < count; i++)
			exact6_prefetch(table, &hosts, i);
	}
	if (has_nets)
		exact6_find_all(table, sets, EXACT6_NET, &nets, has_hosts ? &hosts : NULL, labels, count);
	if (has_hosts)
		exact6_find_all(table, sets, EXACT6_HOST, &hosts, NULL, labels, count);
}

WEIR_INLINE void exact_set6_kernel(struct table table, const uint64_t *hi, const uint64_t *lo, uint32_t *labels,
				   uint32_t count)
{
	exact6_find_burst(table, EXACT6_ONE_SET, hi, lo, labels, count);
}

SIMD_AVX512 WEIR_NOINLINE void exact_set6_kernel_avx512(struct table table, const uint64_t *hi, const uint64_t *lo,
							uint32_t *labels, uint32_t count)
{
	exact_set6_kernel(table, hi, lo, labels, count);
}

/* labels[i] = exact_set6_find(table, hi[i], lo[i]) for a burst of at most WEIR_BURST_MAX. */
WEIR_NOINLINE void exact_set6_find_burst(struct table table, const uint64_t *hi, const uint64_t *lo, uint32_t *labels,
					 uint32_t count)
{
	if (simd_avx512(SIMD_SETS6))
		exact_set6_kernel_avx512(table, hi, lo, labels, count);
	else
		exact_set6_kernel(table, hi, lo, labels, count);
}

#endif
#endif
