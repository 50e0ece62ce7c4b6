/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The wire-side card (docs/guide/card.md): a stand-in for a SmartNIC on the far end of the wire, between two interfaces
 * of a network namespace of its own. crates/engine/src/live/card loads it.
 *
 *	wire --- outer: weir_card_outer --> weir_card_drop --> inner --- Weir
 *	wire <-- outer <-------- weir_card_inner -------------- inner --- Weir
 *
 * weir_card_outer and weir_card_inner pass every packet to the other interface. No process holds them, as no process
 * holds the firmware of a card. weir_card_drop is in an array of programs that the kernel empties when Weir ends, so
 * everything passes then.
 *
 * weir_card_drop drops packets by their source, at two places. The *table* is the card's hardware: few entries. The
 * *CPU* of the card matches many entries, and takes CARD_CPU_NS longer for each packet that the table has not dropped.
 *
 * The source that includes this header may define
 *
 *	CARD_TABLE	entries of the table, 0 for a card without one
 *	CARD_CPU	entries of the CPU's set, 0 if the CPU drops nothing
 *	CARD_CPU_NS	how much slower the CPU is, for each packet
 *	CARD_CPUS	CPUs that count, a power of two
 *	CARD_STRIDE	counters of each of them, a power of two: those of the table come first
 */
#ifndef WEIR_CARD_KERNEL_WIRE_CARD_H
#define WEIR_CARD_KERNEL_WIRE_CARD_H

#include "core/packet.h"
#include "kernel/plain.h"

#ifndef CARD_TABLE
#define CARD_TABLE 512
#define CARD_CPU 0
#define CARD_CPU_NS 0
#define CARD_CPUS 1
#define CARD_STRIDE 512
#endif

enum {
	CARD_IPV4 = 4, /* all these are the same in crates/abi/src/wire_card.rs */
	CARD_IPV6 = 6,
	CARD_TO_INNER = 0, /* keys of weir_card_ways */
	CARD_TO_OUTER = 1,
	CARD_SPINS_MAX = 4096, /* the longest delay of the CPU has so many looks at the clock */
};

_Static_assert(CARD_TABLE + CARD_CPU <= CARD_STRIDE, "each entry has a counter");
_Static_assert((CARD_STRIDE & (CARD_STRIDE - 1)) == 0 && (CARD_CPUS & (CARD_CPUS - 1)) == 0, "powers of two");

/* A source: CardKey in crates/abi/src/wire_card.rs. */
struct card_key {
	uint32_t family;     /* CARD_IPV4 or CARD_IPV6 */
	uint8_t address[16]; /* as in the packet; zeros after those of IPv4 */
};

/* What an entry has dropped on one CPU: CardCount in crates/abi/src/wire_card.rs. */
struct card_count {
	uint64_t packets;
	uint64_t bytes;
	uint64_t last_ns; /* CLOCK_MONOTONIC, up to a jiffy old */
	uint64_t zero;
};

_Static_assert(sizeof(struct card_key) == 20 && sizeof(struct card_count) == 32, "crates/abi/src/wire_card.rs");

/* From a source to its counter. Entries are deleted only by Weir, which waits for programs before it uses one anew. */
struct {
	int (*type)[BPF_MAP_TYPE_HASH];
	int (*max_entries)[CARD_TABLE ? CARD_TABLE : 1];
	struct card_key *key;
	uint32_t *value;
} weir_card_table WEIR_SECTION(".maps");

struct {
	int (*type)[BPF_MAP_TYPE_HASH];
	int (*max_entries)[CARD_CPU ? CARD_CPU : 1];
	struct card_key *key;
	uint32_t *value;
} weir_card_cpu WEIR_SECTION(".maps");

/* The devices of both interfaces. */
struct {
	int (*type)[BPF_MAP_TYPE_DEVMAP];
	int (*max_entries)[2];
	int (*key_size)[sizeof(uint32_t)];
	int (*value_size)[sizeof(uint32_t)];
} weir_card_ways WEIR_SECTION(".maps");

/* weir_card_drop, as long as Weir runs. */
struct {
	int (*type)[BPF_MAP_TYPE_PROG_ARRAY];
	int (*max_entries)[1];
	int (*key_size)[sizeof(uint32_t)];
	int (*value_size)[sizeof(uint32_t)];
} weir_card_held WEIR_SECTION(".maps");

struct card_count weir_card_counts[CARD_CPUS * CARD_STRIDE] __attribute__((aligned(64))) WEIR_SECTION(".bss.card");

/* Whether a context has `bytes` at an address. The compiler must not compare one copy of it and read another. */
WEIR_INLINE bool card_has(const uint8_t *at, const uint8_t *end, uint32_t bytes)
{
	return at + bytes <= end;
}

/*
 * The source of an IP packet, behind up to two VLAN tags. Returns false for other packets, and if the first buffer does
 * not have all of the header: the software decides those.
 */
WEIR_INLINE bool card_source(const struct xdp_md *ctx, struct card_key *key)
{
	const uint8_t *at = context_data(ctx);
	const uint8_t *end = context_end(ctx);
	uint32_t ether_type;

	if (!card_has(at, end, ETHERNET_BYTES))
		return false;
	ether_type = be16(at + 12);
	at += ETHERNET_BYTES;
	for (uint32_t tag = 0; tag < VLAN_TAGS_MAX && is_vlan(ether_type); tag++) {
		if (!card_has(at, end, 4))
			return false;
		ether_type = be16(at + 2);
		at += 4;
	}
	*key = (struct card_key){.family = CARD_IPV4};
	if (ether_type == ETHER_IPV4 && card_has(at, end, 20) && at[0] >> 4 == 4) {
		__builtin_memcpy(key->address, at + 12, 4);
		return true;
	}
	if (ether_type == ETHER_IPV6 && card_has(at, end, 40) && at[0] >> 4 == 6) {
		key->family = CARD_IPV6;
		__builtin_memcpy(key->address, at + 8, 16);
		return true;
	}
	return false;
}

/* Counts a packet at an entry. */
WEIR_INLINE void card_count(const struct xdp_md *ctx, uint32_t number)
{
	const uint32_t cpu = bpf_get_smp_processor_id() & (CARD_CPUS - 1);
	struct card_count *count;

	__asm__ volatile("" : "+r"(number));
	count = &weir_card_counts[plus(cpu * CARD_STRIDE, number & (CARD_STRIDE - 1))];
	count->packets++;
	count->bytes += bpf_xdp_get_buff_len(ctx);
	count->last_ns = bpf_ktime_get_coarse_ns();
}

/* Takes the time that a slower CPU would take. */
WEIR_INLINE void card_take_time(void)
{
	const uint64_t until = bpf_ktime_get_ns() + CARD_CPU_NS;

	for (uint32_t i = 0; i < CARD_SPINS_MAX && bpf_ktime_get_ns() < until; i++)
		;
}

/* Whether the card drops a packet, at one of its places. Counts it if so. */
WEIR_INLINE bool card_drops(const struct xdp_md *ctx)
{
	struct card_key key;
	const bool has_source = card_source(ctx, &key);
	const uint32_t *number = NULL;

	if (CARD_TABLE > 0 && has_source)
		number = bpf_map_lookup_elem(&weir_card_table, &key);
	if (CARD_CPU > 0 && !number) {
		if (CARD_CPU_NS > 0)
			card_take_time();
		if (has_source)
			number = bpf_map_lookup_elem(&weir_card_cpu, &key);
	}
	if (number)
		card_count(ctx, *number);
	return number;
}

WEIR_SECTION("xdp") uint32_t weir_card_drop(struct xdp_md *ctx)
{
	if (card_drops(ctx))
		return XDP_DROP;
	return (uint32_t)bpf_redirect_map(&weir_card_ways, CARD_TO_INNER, XDP_DROP);
}

WEIR_SECTION("xdp") uint32_t weir_card_outer(struct xdp_md *ctx)
{
	/* Does not return if there is a program. */
	bpf_tail_call(ctx, &weir_card_held, 0);
	return (uint32_t)bpf_redirect_map(&weir_card_ways, CARD_TO_INNER, XDP_DROP);
}

WEIR_SECTION("xdp") uint32_t weir_card_inner(struct xdp_md *ctx)
{
	(void)ctx;
	return (uint32_t)bpf_redirect_map(&weir_card_ways, CARD_TO_OUTER, XDP_DROP);
}

#endif
