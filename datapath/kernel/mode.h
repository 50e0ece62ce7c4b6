/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * How a program is used. The engine sets this before it loads the program, and the verifier leaves out code that never
 * runs.
 */
#ifndef WEIR_KERNEL_MODE_H
#define WEIR_KERNEL_MODE_H

#include "kernel/bpf.h"

/* Whether programs are attached to interfaces: the same in crates/abi/src/kernel.rs. */
enum mode_live {
	LIVE_REPLAY = 0,  /* they are not */
	LIVE_BETWEEN = 1, /* accepted packets leave through an interface of the other side (kernel/ports.h) */
	LIVE_HOST = 2,	  /* the other side is the host itself (kernel/host.h) */
};

/* Mode in crates/abi/src/kernel.rs */
struct mode {
	uint32_t live;	   /* enum mode_live */
	uint32_t cpu_mask; /* number of CPUs with counters, a power of two, - 1 */
	uint32_t jumbo;	   /* packets may be longer than their first buffer */
	uint32_t finish;   /* senders at some port leave checksums to a card that does not exist */
	uint32_t samples;  /* samples go to a ring (observe/kernel_samples.h), else to the divert port */
	uint32_t taps;	   /* taps may be opened (observe/kernel_tap.h) */
};

static const volatile struct mode weir_mode WEIR_SECTION(".rodata.mode");

/* The number of this CPU among the CPUs with counters. */
WEIR_INLINE uint32_t live_cpu(void)
{
	return bpf_get_smp_processor_id() & weir_mode.cpu_mask;
}

#endif
