/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Counters of table entries in the kernel, where each CPU has its own. For bursts: tables/entry_counter.h.
 *
 * The counter of an entry is rarely in a cache if many sources attack, and the kernel does not let a packet go before
 * its counter is written. So the last hit of a CPU waits, and is counted when the next packet begins: its counter is
 * fetched while that packet is parsed and looked up. It waits in the counter of number 0, which belongs to no entry:
 *
 *	       63               32 31                 0        63                24 23          0
 *	      +-------------------+--------------------+      +--------------------+-------------+
 *	head  |      packets      | number, 0 for none | size |       bytes        |    time     |
 *	      +-------------------+--------------------+      +--------------------+-------------+
 *
 * Readers add it (crates/state/src/tables/entry_counters.rs). It is counted before it is removed, so that no reader
 * misses it.
 */
#ifndef WEIR_TABLES_KERNEL_ENTRY_COUNTER_H
#define WEIR_TABLES_KERNEL_ENTRY_COUNTER_H

#include "tables/entry_counter.h"
#include "kernel/bpf.h"
#include "kernel/mode.h"
#include "kernel/hook.h"

/*
 * The counters of all CPUs, one CPU after the other, and the labels of a map. The engine replaces both sections by the
 * maps of the table's image. They must be exactly as large: docs/decisions/0034-counters-of-entries.md says why. The
 * engine passes the number of counters per CPU and the number of CPUs, both powers of two; for a bundle when it is
 * loaded.
 */
#ifndef WEIR_SIZES_AT_LOAD
#define WEIR_ENTRY_STORAGE(index)                                                                                      \
	struct entry_counter weir_entries_##index[WEIR_ENTRIES_##index * WEIR_ENTRY_CPUS] WEIR_SECTION(                \
		".bss.entries" #index)
#define WEIR_LABEL_STORAGE(index) uint32_t weir_labels_##index[WEIR_ENTRIES_##index] WEIR_SECTION(".bss.labels" #index)
#define WEIR_ENTRY_COUNT(index) WEIR_ENTRIES_##index
#define WEIR_ENTRY_COUNTERS(index) weir_entries_##index
#define WEIR_ENTRY_LABELS(index) weir_labels_##index
#else
#define WEIR_ENTRY_STORAGE(index) struct entry_counter weir_entries_##index[1] WEIR_SECTION(".bss.entries" #index)
#define WEIR_LABEL_STORAGE(index) uint32_t weir_labels_##index[1] WEIR_SECTION(".bss.labels" #index)
#define WEIR_ENTRY_COUNT(index) weir_sizes.tables[index].entries
#define WEIR_ENTRY_COUNTERS(index) ((struct entry_counter *)sized_at_load(weir_entries_##index))
#define WEIR_ENTRY_LABELS(index) ((uint32_t *)sized_at_load(weir_labels_##index))
#endif

/* A number, bounded for the verifier. The compiler must not conclude from the table that the mask has no effect. */
WEIR_INLINE uint32_t entry_number(uint32_t number, uint32_t capacity)
{
	__asm__ volatile("" : "+r"(number));
	return number & (capacity - 1);
}

enum { WAITING_TIME_BITS = 24, WAITING_PACKETS_SHIFT = 32 }; /* the same in crates/abi/src/entry.rs */

/* Counts the hit that waits on this CPU. `counters` has the counters of all CPUs. */
WEIR_INLINE void entry_settle(struct entry_counter *counters, uint32_t capacity)
{
	const uint32_t first = live_cpu() * capacity;
	volatile struct entry_counter *waiting = &counters[first];
	const uint64_t head = waiting->head;
	const uint64_t size = waiting->size;
	const uint32_t number = (uint32_t)head;

	if (!number)
		return;
	entry_add(&counters[plus(first, entry_number(number, capacity))], head >> WAITING_PACKETS_SHIFT,
		  size >> WAITING_TIME_BITS, size & ((1u << WAITING_TIME_BITS) - 1));
	__asm__ volatile("" ::: "memory");
	waiting->head = 0;
}

/* Lets a hit wait. If another one of the same packet waits, that is counted. */
WEIR_INLINE void entry_hit(struct entry_counter *counters, uint32_t capacity, uint32_t number, uint32_t len,
			   uint64_t time)
{
	volatile struct entry_counter *waiting = &counters[live_cpu() * capacity];

	entry_settle(counters, capacity);
	waiting->size = (uint64_t)wire_bytes(len) << WAITING_TIME_BITS | (time & ((1u << WAITING_TIME_BITS) - 1));
	waiting->head = (uint64_t)wire_packets() << WAITING_PACKETS_SHIFT | number;
}

WEIR_INLINE uint64_t entry_time(const struct env *env)
{
	return env_coarse_now(env) >> ENTRY_TIME_SHIFT;
}

#define WEIR_ENTRY_LABEL(index, number) WEIR_ENTRY_LABELS(index)[entry_number(number, WEIR_ENTRY_COUNT(index))]
#define WEIR_ENTRY_HIT(env, index, number, len)                                                                        \
	entry_hit(WEIR_ENTRY_COUNTERS(index), WEIR_ENTRY_COUNT(index), number, len, entry_time(env))
#define WEIR_ENTRY_SETTLE(index) entry_settle(WEIR_ENTRY_COUNTERS(index), WEIR_ENTRY_COUNT(index))

/* Several rules may match a packet by one entry. It is counted by the first of them; `bit` belongs to the lookup. */
WEIR_INLINE bool first_hit(packet_view *packet, uint32_t bit)
{
	volatile uint64_t *counted = &((volatile struct cpu_packet *)packet)->counted;
	const uint64_t before = *counted;

	*counted = before | UINT64_C(1) << bit;
	return !(before >> bit & 1);
}

WEIR_INLINE void forget_hits(packet_view *packet)
{
	((volatile struct cpu_packet *)packet)->counted = 0;
}

#endif
