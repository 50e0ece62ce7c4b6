/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The XDP programs around the chains of a policy. Included by generated BPF code, which names each chain's function
 *
 *	uint32_t <chain>_frame(const struct env *env, const struct frame *frame, struct packet *packet);
 *
 * with WEIR_XDP_CHAIN(<chain>).
 *
 * A replay program is run by BPF_PROG_TEST_RUN on frames from a capture. What the capture knows and a received frame
 *does not need (bytes captured, bytes on the wire, link layer) comes as XDP metadata in front of the frame; the verdict
 *word is the return value. It never forwards anything.
 */
#ifndef WEIR_XDP_H
#define WEIR_XDP_H

#include "env.h"
#include "packet.h"

/* The kernel's context of an XDP program: linux/bpf.h, without needing that header. */
struct xdp_md {
	uint32_t data;
	uint32_t data_end;
	uint32_t data_meta;
	uint32_t ingress_ifindex;
	uint32_t rx_queue_index;
	uint32_t egress_ifindex;
};

/* Metadata of a replayed frame: struct ReplayHeader in crates/engine/src/xdp/replay.rs. */
struct replay_header {
	uint32_t cap; /* bytes of the frame, at most WEIR_WINDOW_BYTES */
	uint32_t len; /* bytes on the wire */
	uint32_t link;
	uint32_t padding; /* bytes in front of the frame: the kernel runs no packet of less than REPLAY_BYTES_MIN */
};

_Static_assert(sizeof(struct replay_header) == 16, "ReplayHeader");

enum { REPLAY_BYTES_MIN = 14 };

/*
 * Where the packet is parsed to: a map's value, of which the verifier tracks no contents, so that all ways through the
 * parser look the same to the rules behind it. One a CPU: an XDP program is not interrupted by another.
 */
struct {
	int (*type)[6]; /* BPF_MAP_TYPE_PERCPU_ARRAY */
	int (*max_entries)[1];
	uint32_t *key;
	struct packet *value;
} weir_packet WEIR_SECTION(".maps");

static void *(*const bpf_map_lookup_elem)(const void *map, const void *key) = (void *)1;

/*
 * One block of counters. A replay is one worker, whatever CPU the kernel runs it on: a sampled verdict depends on what
 * its worker has counted, and must not depend on where the thread is scheduled.
 */
struct weir_counter weir_counters[WEIR_COUNTERS] WEIR_SECTION(".bss.counters");

const uint32_t weir_abi_version WEIR_SECTION(".rodata.abi") = WEIR_ABI_VERSION;

/* No helper reserved to GPL programs is called. */
const char weir_license[] WEIR_SECTION("license") = "MIT OR Apache-2.0";

/* The frame that the context stands for, or false if it has no header. */
WEIR_INLINE bool replay_frame(const struct xdp_md *ctx, struct frame *frame)
{
	const uint8_t *data = (const uint8_t *)(uintptr_t)ctx->data;
	const struct replay_header *header = (const struct replay_header *)(uintptr_t)ctx->data_meta;

	if ((const uint8_t *)(header + 1) > data || header->padding > REPLAY_BYTES_MIN)
		return false;
	*frame = (struct frame){
		.data = data + header->padding,
		.end = (const uint8_t *)(uintptr_t)ctx->data_end,
		.cap = header->cap,
		.len = header->len,
		.link = header->link,
	};
	return true;
}

/* Defines xdp_<chain>, what is done with a frame, and weir_<chain>_replay. */
#define WEIR_XDP_CHAIN(chain)                                                                                          \
	WEIR_INLINE uint32_t xdp_##chain(const struct xdp_md *ctx)                                                     \
	{                                                                                                              \
		const struct env env = {.counters = weir_counters};                                                    \
		const uint32_t zero = 0;                                                                               \
		struct packet *packet = bpf_map_lookup_elem(&weir_packet, &zero);                                      \
		struct frame frame;                                                                                    \
                                                                                                                       \
		return packet && replay_frame(ctx, &frame) ? chain##_frame(&env, &frame, packet) : VERDICT_NONE;       \
	}                                                                                                              \
                                                                                                                       \
	WEIR_SECTION("xdp") uint32_t weir_##chain##_replay(struct xdp_md *ctx)                                         \
	{                                                                                                              \
		return xdp_##chain(ctx);                                                                               \
	}

#endif
