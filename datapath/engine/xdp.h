/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The XDP programs around the chains of a policy. Generated BPF code includes this file, and names each chain's
 * function
 *
 *	uint32_t <chain>_frame(const struct env *env, const struct frame *frame, struct packet *packet);
 *
 * with WEIR_XDP_CHAIN(<chain>). One program serves both uses. The use does not change after loading, so the verifier
 * leaves out the code of the other one:
 *
 * - live: attached to an interface, it acts on its verdict (ports.h);
 * - replay: BPF_PROG_TEST_RUN runs it on frames from a capture. XDP metadata in front of the frame describes the
 *   captured packet: bytes captured, bytes on the wire, link layer. The return value is the verdict word. It never
 *   forwards a packet.
 *
 * If the ports' MTU allows packets of several buffers, programs are loaded to take them (BPF_F_XDP_HAS_FRAGS).
 * Otherwise the kernel gives them none, and drivers refuse an MTU that would need several buffers.
 */
#ifndef WEIR_XDP_H
#define WEIR_XDP_H

#include "env.h"
#include "kernel.h"
#include "losses.h"
#include "mode.h"
#include "packet.h"
#include "ports.h"

/* Metadata of a replayed frame: ReplayHeader in crates/abi/src/kernel.rs. */
struct replay_header {
	uint32_t cap; /* bytes of the frame, at most WEIR_WINDOW_BYTES */
	uint32_t len; /* bytes on the wire */
	uint32_t link;
	uint32_t padding;   /* bytes in front of the frame: the kernel runs no packet of less than REPLAY_BYTES_MIN */
	uint32_t now_ns[2]; /* low half first: metadata is aligned to four bytes */
};

_Static_assert(sizeof(struct replay_header) == 24, "ReplayHeader");

enum { REPLAY_BYTES_MIN = 14 };

/*
 * Memory for the packet's fields that rules match. It is a map's value. The verifier does not track its contents, so
 * all paths through the parser look the same to the rules. There is one slot per CPU, because an XDP program is not
 * interrupted by another, and the engine makes the section that long. A replay has one slot.
 */
struct packet_slot {
	struct packet packet;
	uint32_t sampled; /* whether rules in parts sample the packet (parts.h) */
	uint64_t halves;  /* of the tables that rules in parts look up */
	uint64_t counted; /* lookups at whose entries the packet was counted (entry_counter.h) */
	uint8_t copy[FRAME_COPY_BYTES] __attribute__((aligned(128))); /* a copied header, see frame_copy() */
};

_Static_assert(sizeof(struct packet_slot) == 256, "PacketSlot in crates/abi/src/kernel.rs");

struct packet_slot weir_packets[1] WEIR_SECTION(".bss.packets");

/*
 * Blocks of counters: for each CPU one block for packets from the lower side, then one for those from the upper. The
 * engine makes the section that long. A replay has one block for all CPUs. A sampled verdict depends on what its worker
 * has counted, and must not depend on where the thread is scheduled.
 */
struct weir_counter weir_counters[WEIR_COUNTERS] WEIR_SECTION(".bss.counters");

const uint32_t weir_abi_version WEIR_SECTION(".rodata.abi") = WEIR_ABI_VERSION;

/* Programs that trace the kernel (losses.h) need a license that the kernel accepts as compatible. */
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

/*
 * Drivers end a packet's first buffer at different places: behind the headers (header split), inside a header, or far
 * behind the window. The verifier lets a program read only the first buffer. A header in another buffer is copied when
 * the parser needs it. Packets with all headers in the first buffer, almost all packets, pay nothing.
 */
__attribute__((noinline)) const uint8_t *frame_copy(void *ctx, uint32_t offset, uint32_t bytes)
{
	uint8_t *copy = weir_packets[live_cpu()].copy;

	if (!weir_mode.jumbo || bytes > FRAME_COPY_BYTES || bpf_xdp_load_bytes(ctx, offset, copy, bytes))
		return NULL;
	return copy;
}

/* The frame of a replay's context and its time; false if it has no header. */
WEIR_INLINE bool replay_frame(struct xdp_md *ctx, struct env *env, struct frame *frame)
{
	const uint8_t *data = context_data(ctx);
	const struct replay_header *header = (const struct replay_header *)(uintptr_t)ctx->data_meta;

	if ((const uint8_t *)(header + 1) > data || header->padding > REPLAY_BYTES_MIN)
		return false;
	*frame = (struct frame){
		.data = data + header->padding,
		.end = context_end(ctx),
		.ctx = ctx,
		.cap = header->cap,
		.len = header->len,
		.link = header->link,
		.padding = header->padding,
	};
	env->now_ns = (uint64_t)header->now_ns[1] << 32 | header->now_ns[0];
	return true;
}

/* The frame that was received. */
WEIR_INLINE struct frame live_frame(struct xdp_md *ctx)
{
	const uint8_t *data = context_data(ctx);
	const uint8_t *end = context_end(ctx);
	const uint32_t len = weir_mode.jumbo ? (uint32_t)bpf_xdp_get_buff_len(ctx) : (uint32_t)(end - data);

	return (struct frame){
		.data = data,
		.end = end,
		.ctx = ctx,
		.cap = len,
		.len = len,
		.link = LINK_ETHERNET,
	};
}

/* Prepares the environment and the memory for a packet; NULL if it comes from no port, or a replay has no header. */
WEIR_INLINE struct packet_slot *xdp_begin(struct xdp_md *ctx, struct arrival *arrival, struct env *env,
					  struct frame *frame)
{
	uint32_t block = 0;

	*arrival = (struct arrival){0, 0};
	*frame = (struct frame){.data = NULL};
	env->now_ns = 0;
	env->halves = weir_words.halves;
	if (weir_mode.live) {
		if (!port_arrival(ctx, arrival))
			return NULL;
		block = arrival->cpu * 2 + (weir_ports.port[arrival->port].side & 1);
		*frame = live_frame(ctx);
	} else if (!replay_frame(ctx, env, frame)) {
		return NULL;
	}
	env->counters = weir_counters + block * WEIR_COUNTERS;
	return &weir_packets[arrival->cpu];
}

/* The program's return value: for a replay the verdict word, for live use the action for the driver. */
WEIR_INLINE uint32_t xdp_end(struct xdp_md *ctx, struct arrival arrival, const struct frame *frame, uint32_t verdict)
{
	return weir_mode.live ? port_act(ctx, arrival, verdict, frame) : verdict;
}

/* The side of a chain: names of chains end in "upstream" (0, from the lower side) or "downstream" (1). */
#define CHAIN_SIDE(chain) (#chain[sizeof(#chain) - sizeof("nstream")] == 'n')

/* Drops a packet from an interface that is not a port. Counts it for the program's side, but at no port. */
WEIR_NOINLINE uint32_t xdp_refuse(struct xdp_md *ctx, uint32_t side)
{
	const struct env env = {.counters = weir_counters + (live_cpu() * 2 + (side & 1)) * WEIR_COUNTERS};

	if (!weir_mode.live)
		return VERDICT_NONE;
	count(&env, REASON_UNKNOWN_INTERFACE, live_frame(ctx).len);
	return XDP_DROP;
}

/* Defines xdp_<chain>, which handles a packet, and the program weir_<chain>. */
#define WEIR_XDP_CHAIN(chain)                                                                                          \
	WEIR_INLINE uint32_t xdp_##chain(struct xdp_md *ctx)                                                           \
	{                                                                                                              \
		struct arrival arrival;                                                                                \
		struct frame frame;                                                                                    \
		struct env env;                                                                                        \
		struct packet_slot *slot = xdp_begin(ctx, &arrival, &env, &frame);                                     \
                                                                                                                       \
		if (WEIR_UNLIKELY(!slot))                                                                              \
			return xdp_refuse(ctx, CHAIN_SIDE(chain));                                                     \
		return xdp_end(ctx, arrival, &frame, chain##_frame(&env, &frame, &slot->packet));                      \
	}                                                                                                              \
                                                                                                                       \
	WEIR_SECTION("xdp") uint32_t weir_##chain(struct xdp_md *ctx)                                                  \
	{                                                                                                              \
		return xdp_##chain(ctx);                                                                               \
	}

#endif
