/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Counters of table entries (crates/abi/src/entry.rs has the bits). In a table with `counters`, a lookup returns the
 * number of the entry, 0 for none. A packet that matches a rule by the entry is counted there, once. A worker or CPU
 * has counters of its own.
 */
#ifndef WEIR_TABLES_ENTRY_COUNTER_H
#define WEIR_TABLES_ENTRY_COUNTER_H

#include "core/env.h"

enum {
	ENTRY_TIME_SHIFT = 30, /* a unit of time is 2^30 ns */
	ENTRY_HIGH_BITS = 16,  /* of the time, in the first word */
	ENTRY_LOW_BITS = 8,    /* in the second word */
};

#define ENTRY_HIGH_MASK ((UINT64_C(1) << ENTRY_HIGH_BITS) - 1)
#define ENTRY_LOW_MASK ((UINT64_C(1) << ENTRY_LOW_BITS) - 1)

/* Counts packets and their bytes at `time`, in units of time. */
WEIR_INLINE void entry_add(struct entry_counter *counter, uint64_t packets, uint64_t bytes, uint64_t time)
{
	const uint64_t high = time >> ENTRY_LOW_BITS & ENTRY_HIGH_MASK;
	const uint64_t low = time & ENTRY_LOW_MASK;

	counter->head = ((counter->head + (packets << ENTRY_HIGH_BITS)) & ~ENTRY_HIGH_MASK) | high;
	counter->size = ((counter->size + (bytes << ENTRY_LOW_BITS)) & ~ENTRY_LOW_MASK) | low;
}

#ifdef WEIR_BURSTS

/* Fetches the counters of the entries that a burst found. Few packets have none: the counter of number 0. */
WEIR_INLINE void prefetch_entries(const struct weir_burst *burst, uint32_t index, const uint32_t *numbers)
{
	const struct entry_counter *counters = burst->entries.tables[index].counters;

	for (uint32_t i = 0; i < burst->count; i++)
		__builtin_prefetch(&counters[numbers[i]], 1);
}

/* The labels of the entries that a burst found. Number 0 has label 0. */
WEIR_INLINE void entry_labels(const struct weir_burst *burst, uint32_t index, const uint32_t *numbers, uint32_t *labels)
{
	const uint32_t *of = burst->entries.tables[index].labels;

	for (uint32_t i = 0; i < burst->count; i++)
		labels[i] = of[numbers[i]];
}

/* Counts the hits at the entries that they found. */
WEIR_NOINLINE void count_entries(const struct weir_burst *burst, uint32_t index, const uint32_t *numbers, uint64_t hits)
{
	struct entry_counter *counters = burst->entries.tables[index].counters;
	const uint64_t *times = burst->times.each_ns;
	uint64_t now_ns = burst->times.now_ns;

	for (uint64_t left = hits; left; left &= left - 1) {
		const uint32_t i = (uint32_t)__builtin_ctzll(left);

		if (times)
			now_ns = times[i];
		entry_add(&counters[numbers[i]], 1, burst->frames[i].len, now_ns >> ENTRY_TIME_SHIFT);
	}
}

#endif
#endif
