/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Decides a burst rule by rule. Native code uses these functions; BPF decides packet by packet.
 *
 * A *column* holds one field that rules match, with the value of packet i at [i]. A *mask* is a set of packets, with
 * packet i as bit i. A test compares a whole column at once and gives a mask. So no branch depends on a single packet,
 * and a counter is written once per burst. A column's values are unspecified for packets without the field, and behind
 * the last packet of the burst. So a rule's mask is always cut to packets that exist and are open.
 *
 *	column  dport   53 443  53  80  53   ?   ?  ...
 *	u16_is(dport, 53)  1 0 1 0 1 ? ? ...
 *	& open             1 1 0 1 1 0 0 ...   (packet 2 was dropped by an earlier rule, the burst has 5)
 *	hits               1 0 0 0 1 0 0 ...
 */
#ifndef WEIR_CORE_BURST_H
#define WEIR_CORE_BURST_H

#include "core/env.h"
#include "core/raw.h"
#include "core/verdict.h"

_Static_assert(WEIR_BURST_MAX == 64, "a mask has 64 bits");

/* Columns are loaded whole, 64 bytes at a time if the machine can. */
#define WEIR_COLUMNS __attribute__((aligned(64)))

/*
 * Work on whole columns is a call: inlined, a policy of 1000 rules would not stay in the instruction cache. Compilers
 * prefer vectors of 256 bits where there are wider ones, which need half the instructions here.
 */
#ifdef __clang__
#define WEIR_COLUMN_WORK __attribute__((min_vector_width(512))) WEIR_NOINLINE
#else
#define WEIR_COLUMN_WORK WEIR_NOINLINE
#endif

/* The decisions about the packets. */
struct verdicts {
	uint64_t open;	  /* packets that are not decided yet */
	uint64_t sampled; /* packets that are copied to the divert interface */
	uint32_t words[WEIR_BURST_MAX] WEIR_COLUMNS;
	uint32_t lens[WEIR_BURST_MAX]; /* bytes on the wire, for counters */
};

/* The lengths of all packets. */
WEIR_INLINE void read_lens(const struct weir_burst *burst, struct verdicts *verdicts)
{
	for (uint32_t i = 0; i < burst->count; i++)
		verdicts->lens[i] = burst->frames[i].len;
}

/* A column of 128-bit values. */
struct wide_column {
	uint64_t hi[WEIR_BURST_MAX];
	uint64_t lo[WEIR_BURST_MAX];
};

/* The result of comparing a column: all ones where it holds, else 0. */
typedef int8_t column_hits __attribute__((vector_size(WEIR_BURST_MAX)));

WEIR_INLINE uint64_t mask_of(const column_hits *hits)
{
#ifdef __clang__
	typedef bool bits __attribute__((ext_vector_type(WEIR_BURST_MAX)));
	const bits set = __builtin_convertvector(*hits, bits);
	uint64_t mask;

	__builtin_memcpy(&mask, &set, sizeof(mask));
#else
	uint64_t mask = 0;

	for (uint32_t i = 0; i < WEIR_BURST_MAX; i++)
		mask |= (uint64_t)((*hits)[i] & 1) << i;
#endif
	return mask;
}

/* Vectors pass only between functions that are inlined, so the ABI of a call does not matter. */
#pragma GCC diagnostic ignored "-Wpsabi"

/* The inverse of mask_of(). */
WEIR_INLINE column_hits hits_of(uint64_t mask)
{
	column_hits hits;

#ifdef __clang__
	typedef bool bits __attribute__((ext_vector_type(WEIR_BURST_MAX)));
	bits set;

	__builtin_memcpy(&set, &mask, sizeof(set));
	hits = -__builtin_convertvector(set, column_hits);
#else
	for (uint32_t i = 0; i < WEIR_BURST_MAX; i++)
		hits[i] = (int8_t)(0 - (mask >> i & 1));
#endif
	return hits;
}

/*
 * Defines u<bits>_is(); u<bits>_between() with both ends included; u<bits>_masked(), which compares some bits; and
 * u<bits>_in() for `count` ranges.
 */
#define WEIR_COLUMN_TESTS(bits)                                                                                        \
	typedef uint##bits##_t u##bits##_column __attribute__((vector_size(WEIR_BURST_MAX * (bits) / 8)));             \
	typedef int##bits##_t i##bits##_column __attribute__((vector_size(WEIR_BURST_MAX * (bits) / 8)));              \
                                                                                                                       \
	WEIR_COLUMN_WORK uint64_t u##bits##_is(const uint##bits##_t *column, uint##bits##_t value)                     \
	{                                                                                                              \
		u##bits##_column values;                                                                               \
		column_hits hits;                                                                                      \
                                                                                                                       \
		__builtin_memcpy(&values, column, sizeof(values));                                                     \
		hits = __builtin_convertvector(values == value, column_hits);                                          \
		return mask_of(&hits);                                                                                 \
	}                                                                                                              \
                                                                                                                       \
	WEIR_COLUMN_WORK uint64_t u##bits##_between(const uint##bits##_t *column, uint##bits##_t low,                  \
						    uint##bits##_t high)                                               \
	{                                                                                                              \
		u##bits##_column values;                                                                               \
		column_hits hits;                                                                                      \
                                                                                                                       \
		__builtin_memcpy(&values, column, sizeof(values));                                                     \
		hits = __builtin_convertvector(values - low <= (uint##bits##_t)(high - low), column_hits);             \
		return mask_of(&hits);                                                                                 \
	}                                                                                                              \
                                                                                                                       \
	WEIR_COLUMN_WORK uint64_t u##bits##_masked(const uint##bits##_t *column, uint##bits##_t mask,                  \
						   uint##bits##_t low, uint##bits##_t high)                            \
	{                                                                                                              \
		u##bits##_column values;                                                                               \
		column_hits hits;                                                                                      \
                                                                                                                       \
		__builtin_memcpy(&values, column, sizeof(values));                                                     \
		values &= mask;                                                                                        \
		hits = __builtin_convertvector(values - low <= (uint##bits##_t)(high - low), column_hits);             \
		return mask_of(&hits);                                                                                 \
	}                                                                                                              \
                                                                                                                       \
	/* The smaller one of each two numbers. */                                                                     \
	WEIR_INLINE u##bits##_column u##bits##_min(u##bits##_column a, u##bits##_column b)                             \
	{                                                                                                              \
		const u##bits##_column less = (u##bits##_column)(a < b);                                               \
                                                                                                                       \
		return (a & less) | (b & ~less);                                                                       \
	}                                                                                                              \
                                                                                                                       \
	/*                                                                                                             \
	 * How far a value is above the end of a range, unsigned, is 0 inside of it. The least of all ranges is        \
	 * compared once, because each comparison would narrow its result.                                             \
	 */                                                                                                            \
	WEIR_COLUMN_WORK uint64_t u##bits##_in(const uint##bits##_t *column, const uint##bits##_t(*ranges)[2],         \
					       uint32_t count)                                                         \
	{                                                                                                              \
		u##bits##_column values, above, least = (u##bits##_column){0} - 1;                                     \
		column_hits hits;                                                                                      \
                                                                                                                       \
		__builtin_memcpy(&values, column, sizeof(values));                                                     \
		for (uint32_t i = 0; i < count; i++) {                                                                 \
			above = values - ranges[i][0];                                                                 \
			above -= u##bits##_min(above,                                                                  \
					       (u##bits##_column){0} + (uint##bits##_t)(ranges[i][1] - ranges[i][0])); \
			least = u##bits##_min(least, above);                                                           \
		}                                                                                                      \
		hits = __builtin_convertvector(least == 0, column_hits);                                               \
		return mask_of(&hits);                                                                                 \
	}

WEIR_COLUMN_TESTS(8)
WEIR_COLUMN_TESTS(16)
WEIR_COLUMN_TESTS(32)

/* Compares 128-bit values, given in halves. */
WEIR_COLUMN_WORK uint64_t wide_column_is(const struct wide_column *column, uint64_t hi, uint64_t lo)
{
	uint64_t mask = 0;

	for (uint32_t i = 0; i < WEIR_BURST_MAX; i++)
		mask |= (uint64_t)((column->hi[i] == hi) & (column->lo[i] == lo)) << i;
	return mask;
}

WEIR_COLUMN_WORK uint64_t wide_column_masked(const struct wide_column *column, uint64_t mask_hi, uint64_t mask_lo,
					     uint64_t low_hi, uint64_t low_lo, uint64_t high_hi, uint64_t high_lo)
{
	uint64_t mask = 0;

	for (uint32_t i = 0; i < WEIR_BURST_MAX; i++) {
		const struct wide value = wide_and((struct wide){column->hi[i], column->lo[i]}, mask_hi, mask_lo);

		mask |= (uint64_t)wide_between(value, low_hi, low_lo, high_hi, high_lo) << i;
	}
	return mask;
}

WEIR_INLINE uint64_t wide_column_between(const struct wide_column *column, uint64_t low_hi, uint64_t low_lo,
					 uint64_t high_hi, uint64_t high_lo)
{
	return wide_column_masked(column, UINT64_MAX, UINT64_MAX, low_hi, low_lo, high_hi, high_lo);
}

/* Values of `then` for the hits, and of `otherwise` for all others. */
WEIR_INLINE u32_column u32_select(column_hits hits, u32_column then, u32_column otherwise)
{
	const u32_column selected = (u32_column) __builtin_convertvector(hits, i32_column);

	return (then & selected) | (otherwise & ~selected);
}

/* The first packet of a non-empty mask. */
WEIR_INLINE uint32_t first_of(uint64_t mask)
{
	return (uint32_t)__builtin_ctzll(mask);
}

/* The mask of the first `count` packets. */
WEIR_INLINE uint64_t first_bits(uint32_t count)
{
	return count < WEIR_BURST_MAX ? (UINT64_C(1) << count) - 1 : UINT64_MAX;
}

/* The bytes of the hits. */
WEIR_INLINE uint64_t bytes_of(uint64_t hits, const struct verdicts *verdicts)
{
	typedef uint64_t pairs __attribute__((vector_size(sizeof(u32_column))));
	u32_column lens;
	pairs sums;

	__builtin_memcpy(&lens, verdicts->lens, sizeof(lens));
	sums = (pairs)(lens & (u32_column) __builtin_convertvector(hits_of(hits), i32_column));
	sums = (sums & UINT32_MAX) + (sums >> 32);
#ifdef __clang__
	return __builtin_reduce_add(sums);
#else
	for (uint32_t i = 1; i < WEIR_BURST_MAX / 2; i++)
		sums[0] += sums[i];
	return sums[0];
#endif
}

WEIR_COLUMN_WORK void count_hits(const struct env *env, uint32_t reason, uint64_t hits, const struct verdicts *verdicts)
{
	struct weir_counter *counter = counter_at(env, reason);

	counter->packets += (uint64_t)__builtin_popcountll(hits);
	counter->bytes += bytes_of(hits, verdicts);
}

/* Gives the hits their verdict. Returns false if no packet stays open. */
WEIR_COLUMN_WORK bool settle(struct verdicts *verdicts, uint64_t hits, uint32_t word)
{
	u32_column words;

	__builtin_memcpy(&words, verdicts->words, sizeof(words));
	words = u32_select(hits_of(hits), word - (u32_column){0}, words);
	__builtin_memcpy(verdicts->words, &words, sizeof(words));
	verdicts->open &= ~hits;
	return verdicts->open;
}

/* Ends the evaluation of packets without room. `beside` counts packets that the rule's limits ended. */
WEIR_NOINLINE void end_exceeding(const struct env *env, struct verdicts *verdicts, uint64_t exceeding,
				 enum action action, uint32_t beside)
{
	if (!exceeding)
		return;
	count_hits(env, REASON_LIMIT, exceeding, verdicts);
	count_hits(env, beside, exceeding, verdicts);
	settle(verdicts, exceeding, (uint32_t)action | (uint32_t)REASON_LIMIT << 16);
}

/*
 * sample() for each of the hits. `matched` are the packets that the rule matched and has counted, `hits` those that its
 * limits left. Packets are taken in their order, as the rule counts them.
 */
WEIR_INLINE void sample_hits(const struct env *env, struct verdicts *verdicts, uint32_t rule, uint64_t matched,
			     uint64_t hits, uint64_t below)
{
	uint32_t nth = (uint32_t)counter_at(env, REASON_RULE + rule)->packets - (uint32_t)__builtin_popcountll(matched);

	for (uint64_t left = matched; left; left &= left - 1) {
		const uint64_t packet = left & -left;

		if (is_sampled(nth++, below))
			verdicts->sampled |= packet & hits;
	}
}

/* Gives the packets that no rule decided the verdict of the chain. */
WEIR_INLINE void decide_open(const struct env *env, struct verdicts *verdicts, enum action action, enum reason reason)
{
	const uint64_t open = verdicts->open;

	if (!open)
		return;
	count_hits(env, reason, open, verdicts);
	settle(verdicts, open, (uint32_t)action | (uint32_t)reason << 16);
}

WEIR_INLINE void give_verdicts(const struct weir_burst *burst, struct verdicts *verdicts)
{
	const uint32_t count = burst->count;
	uint32_t *out = burst->verdicts;

	for (uint64_t left = verdicts->sampled; left; left &= left - 1)
		verdicts->words[first_of(left)] |= VERDICT_SAMPLED;
	if (WEIR_LIKELY(count == WEIR_BURST_MAX))
		__builtin_memcpy(out, verdicts->words, sizeof(verdicts->words));
	else
		for (uint32_t i = 0; i < count; i++)
			out[i] = verdicts->words[i];
}

#endif
