/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Rules that add addresses to tables, in the kernel. Each CPU has a ring: programs append, the engine takes the records
 * and applies them at the end of the tick (crates/state/src/tables/addition_ring.rs). A full ring counts what it loses.
 */
#ifndef WEIR_TABLES_KERNEL_ADDITION_H
#define WEIR_TABLES_KERNEL_ADDITION_H

#include "core/env.h"
#include "kernel/mode.h"

enum {
	ADDITIONS_MAX = 8192,	 /* most records of a ring, a power of two */
	ADDITIONS_ALL = 1 << 18, /* most records of all rings */
	ADDITIONS_CPUS_MAX = 1 << 13,
	RECENT_ADDITIONS = 256, /* a power of two */
};

/* RecentAddition in crates/abi/src/kernel.rs */
struct recent_addition {
	uint64_t high;
	uint64_t low;
	uint64_t adder;
	uint64_t epoch; /* of the ring, plus 1; 0: empty */
};

/* AdditionRing in crates/abi/src/kernel.rs. Records from tail to head are waiting. With many CPUs there are fewer. */
struct addition_ring {
	uint64_t head; /* the program's half */
	uint64_t lost;
	uint64_t zero[6];
	uint64_t tail; /* the engine's half */
	uint64_t epoch;
	uint64_t zeros[6];
	struct recent_addition recent[RECENT_ADDITIONS];
	struct weir_addition records[ADDITIONS_MAX];
};

/* One for each CPU. The engine makes the section that long. */
struct addition_ring weir_additions[1] __attribute__((aligned(64))) WEIR_SECTION(".bss.additions");

/*
 * The records of a ring, a power of two: with more than 32 CPUs, their part of ADDITIONS_ALL. The verifier knows the
 * mode, and what is computed by comparisons and shifts, so it knows this number. It would not follow a division.
 */
WEIR_INLINE uint32_t ring_records(void)
{
	uint32_t records = ADDITIONS_MAX;

#pragma unroll
	for (uint32_t cpus = 2 * ADDITIONS_ALL / ADDITIONS_MAX; cpus <= ADDITIONS_CPUS_MAX; cpus *= 2)
		if (weir_mode.cpu_mask >= cpus - 1)
			records /= 2;
	return records;
}

/* The ring of this CPU. */
WEIR_INLINE volatile struct addition_ring *own_ring(uint32_t records)
{
	const uint32_t bytes = offsetof(struct addition_ring, records) + records * sizeof(struct weir_addition);

	return (volatile struct addition_ring *)((volatile uint8_t *)weir_additions + live_cpu() * bytes);
}

WEIR_INLINE uint32_t recent_place(uint64_t high, uint64_t low, uint32_t adder)
{
	const uint64_t mixed = ((high + adder) ^ (low << 32 | low >> 32) ^ low) * UINT64_C(0x9e3779b97f4a7c15);

	return (uint32_t)(mixed >> 32) & (RECENT_ADDITIONS - 1);
}

/*
 * Appends the prefix of an address, unless that was done since the engine took records last. The verifier follows the
 * function once for each program. It returns a number because it is global.
 */
WEIR_GLOBAL uint32_t weir_add(uint32_t adder, uint64_t high, uint64_t low)
{
	const uint32_t records = ring_records();
	volatile struct addition_ring *ring = own_ring(records);
	volatile struct recent_addition *recent = &ring->recent[recent_place(high, low, adder)];
	const uint64_t epoch = ring->epoch + 1;
	const uint64_t head = ring->head;
	volatile struct weir_addition *record;

	if (recent->epoch == epoch && recent->low == low && recent->high == high && recent->adder == adder)
		return 0;
	if (head - ring->tail >= records) {
		ring->lost++;
		return 0;
	}
	record = &ring->records[head & (records - 1)];
	record->high = high;
	record->low = low;
	record->adder = adder;
	record->packet = 0;
	/* The compiler keeps the order of volatile stores, and x86 keeps it for other processors. */
	ring->head = head + 1;
	recent->high = high;
	recent->low = low;
	recent->adder = adder;
	recent->epoch = epoch;
	return 1;
}

WEIR_INLINE void add_address(uint32_t adder, uint64_t high, uint64_t low)
{
	weir_add(adder, high, low);
}

#endif
