/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What every program has at its hook: memory for its packet, counters, and clocks. */
#ifndef WEIR_KERNEL_CPU_PACKET_H
#define WEIR_KERNEL_CPU_PACKET_H

#include "core/env.h"
#include "kernel/bpf.h"
#include "kernel/mode.h"
#include "core/packet.h"

/*
 * Memory for the packet's fields that rules match. It is a map's value. The verifier does not track its contents, so
 * all paths through the parser look the same to the rules. There is one per CPU, because programs on a CPU do not
 * interrupt one another, and the engine makes the section that long. A replay has one.
 */
struct cpu_packet {
	struct packet packet;
	uint32_t sampled; /* whether rules in parts sample the packet (kernel/parts.h) */
	uint64_t halves;  /* of the tables that rules in parts look up */
	uint64_t counted; /* lookups at whose entries the packet was counted (tables/entry_counter.h) */
	uint32_t packets; /* that a card splits a packet of the host into: at least 1 */
	uint32_t added;	  /* bytes of the headers that it repeats */
	uint8_t copy[FRAME_COPY_BYTES] __attribute__((aligned(128))); /* a copied header, see frame_copy() */
};

_Static_assert(sizeof(struct cpu_packet) == 256, "CpuPacket in crates/abi/src/kernel.rs");

struct cpu_packet weir_packets[1] WEIR_SECTION(".bss.packets");

#ifdef WEIR_SENT
WEIR_INLINE uint32_t wire_packets(void)
{
	return *(volatile uint32_t *)&weir_packets[live_cpu()].packets;
}

WEIR_INLINE uint32_t wire_bytes(uint32_t len)
{
	return len + *(volatile uint32_t *)&weir_packets[live_cpu()].added;
}
#endif

/*
 * Blocks of counters: for each CPU one block for packets from the lower side, then one for packets from the upper. The
 * engine makes the section that long. A replay has one block for all CPUs. A sampled verdict depends on what its worker
 * has counted, and must not depend on where the thread is scheduled.
 */
struct weir_counter weir_counters[WEIR_COUNTERS] WEIR_SECTION(".bss.counters");

const uint32_t weir_abi_version WEIR_SECTION(".rodata.abi") = WEIR_ABI_VERSION;

/* Programs that trace the kernel (kernel/losses.h) need a license that the kernel accepts as compatible. */
const char weir_license[] WEIR_SECTION("license") = "Dual MIT/GPL";

/* The clock of limits. */
WEIR_INLINE uint64_t env_now(const struct env *env)
{
	return weir_mode.live ? bpf_ktime_get_ns() : env->now_ns;
}

/* The clock of flows and table entries. It is cheaper, and a few milliseconds behind. */
WEIR_INLINE uint64_t env_coarse_now(const struct env *env)
{
	return weir_mode.live ? bpf_ktime_get_coarse_ns() : env->now_ns;
}

#endif
