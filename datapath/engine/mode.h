/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a program is used for. The engine says so before it loads it, and the verifier leaves out what is never run.
 */
#ifndef WEIR_MODE_H
#define WEIR_MODE_H

#include "kernel.h"

/* Mode in crates/abi/src/kernel.rs */
struct mode {
	uint32_t live;	   /* on interfaces, or a replay */
	uint32_t cpu_mask; /* CPUs that there are counters for, a power of two, - 1 */
	uint32_t jumbo;	   /* packets may be longer than their first buffer */
	uint32_t finish;   /* some port's senders leave checksums to a card that is not there */
};

static const volatile struct mode weir_mode WEIR_SECTION(".rodata.mode");

/* Which of the CPUs that there are counters for this is. */
WEIR_INLINE uint32_t live_cpu(void)
{
	return bpf_get_smp_processor_id() & weir_mode.cpu_mask;
}

#endif
