/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The hook of XDP programs (kernel/hook.h). One program serves all uses. The use does not change after loading, so the
 * verifier leaves out the code of the others:
 *
 * - live: attached to an interface, it acts on its verdict (kernel/forward.h, or kernel/host.h on the host that Weir
 *   protects);
 * - replay: BPF_PROG_TEST_RUN runs it on frames from a capture. XDP metadata in front of the frame describes the
 *   captured packet: bytes captured, bytes on the wire, link layer. The return value is the verdict word. It never
 *   forwards a packet.
 *
 * If the ports' MTU allows packets of several buffers, programs are loaded to take them (BPF_F_XDP_HAS_FRAGS).
 * Otherwise the kernel gives them none, and drivers refuse an MTU that would need several buffers.
 */
#ifndef WEIR_KERNEL_XDP_H
#define WEIR_KERNEL_XDP_H

#include "card/kernel_answers.h"
#include "core/env.h"
#include "kernel/forward.h"
#include "kernel/host.h"
#include "kernel/bpf.h"
#include "kernel/losses.h"
#include "kernel/mode.h"
#include "kernel/cpu_packet.h"
#include "observe/kernel_samples.h"
#include "observe/kernel_tap.h"

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

typedef struct xdp_md hook_context;

#define HOOK_SECTION "xdp"
/* The kernel drops them and reports an XDP exception. */
#define HOOK_LOST (weir_mode.live ? (uint32_t)XDP_ABORTED : VERDICT_NONE)

/*
 * Drivers end a packet's first buffer at different places: behind the headers (header split), inside a header, or far
 * behind the window. The verifier lets a program read only the first buffer. A header in another buffer is copied when
 * the parser needs it. Packets with all headers in the first buffer, almost all packets, pay nothing.
 */
WEIR_INLINE const uint8_t *frame_copy(void *ctx, uint32_t offset, uint32_t bytes)
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

/* The frame that a program received or replays; the time of a replayed one. */
WEIR_INLINE bool hook_frame(hook_context *ctx, struct env *env, struct frame *frame)
{
	if (!weir_mode.live)
		return replay_frame(ctx, env, frame);
	*frame = live_frame(ctx);
	return true;
}

WEIR_INLINE long frame_load(const struct frame *frame, uint32_t offset, uint8_t *to, uint32_t bytes)
{
	return bpf_xdp_load_bytes(frame->ctx, offset + frame->padding, to, bytes);
}

/*
 * The port at which a packet was received; false if it is not a port. A program also receives packets of other
 * interfaces: a program on a bond receives the packets of the bond's members, under their indices.
 */
WEIR_INLINE bool port_arrival(hook_context *ctx, struct arrival *arrival)
{
	arrival->port = port_number(ctx->ingress_ifindex);
	if (WEIR_UNLIKELY(weir_ports.port[arrival->port].receives != ctx->ingress_ifindex))
		return false;
	arrival->cpu = live_cpu();
	return true;
}

/* Prepares the environment and the memory for a packet; NULL if it comes from no port, or a replay has no header. */
WEIR_INLINE struct cpu_packet *hook_begin(hook_context *ctx, struct arrival *arrival, struct env *env,
					  struct frame *frame)
{
	uint64_t block = 0;

	*arrival = (struct arrival){0, 0};
	*frame = (struct frame){.data = NULL};
	env->now_ns = 0;
	env->halves = weir_words.halves;
	if (weir_mode.live) {
		if (!port_arrival(ctx, arrival))
			return NULL;
		block = plus(arrival->cpu * 2, weir_ports.port[arrival->port].side & 1);
		*frame = live_frame(ctx);
	} else if (!replay_frame(ctx, env, frame)) {
		return NULL;
	}
	env->counters = weir_counters + block * WEIR_COUNTERS;
	answers_begin(env, arrival->cpu);
	return &weir_packets[arrival->cpu];
}

/* Copies the beginning of a sampled packet to the ring, as it was received. */
WEIR_INLINE void put_sample(hook_context *ctx, struct arrival arrival, uint32_t verdict, uint32_t len)
{
	struct sample_record *record = sample_begin(arrival, verdict, len);
	uint64_t bytes;

	if (!record)
		return;
	bytes = one_less(record->cap);
	if (bytes < SAMPLE_BYTES && !bpf_xdp_load_bytes(ctx, 0, record->bytes, one_more(bytes)))
		bpf_ringbuf_submit(record, 0);
	else
		bpf_ringbuf_discard(record, 0);
}

WEIR_INLINE bool hook_copy(hook_context *ctx, uint8_t *to, uint32_t bytes)
{
	const uint64_t before = one_less(bytes);

	return before < TAP_BYTES_MAX && !bpf_xdp_load_bytes(ctx, 0, to, one_more(before));
}

/* The program's return value: for a replay the verdict word, for live use the action for the driver. */
WEIR_INLINE uint32_t hook_end(hook_context *ctx, struct arrival arrival, const struct frame *frame, uint32_t verdict)
{
	switch (weir_mode.live) {
	case LIVE_REPLAY:
		return verdict;
	case LIVE_HOST:
		put_sample(ctx, arrival, verdict, frame->len);
		put_taps(ctx, arrival, verdict, frame->len);
		return host_pass(arrival, verdict, frame->len) ? XDP_PASS : XDP_DROP;
	default:
		put_sample(ctx, arrival, verdict, frame->len);
		put_taps(ctx, arrival, verdict, frame->len);
		return port_act(ctx, arrival, verdict, frame);
	}
}

/* Drops a packet from an interface that is not a port. Counts it for the program's side, but at no port. */
WEIR_NOINLINE uint32_t hook_refuse(hook_context *ctx, uint32_t side)
{
	const struct env env = {.counters = weir_counters + plus(live_cpu() * 2, side & 1) * WEIR_COUNTERS};

	if (!weir_mode.live)
		return VERDICT_NONE;
	count(&env, REASON_UNKNOWN_INTERFACE, live_frame(ctx).len);
	return XDP_DROP;
}

#include "card/kernel_front.h"

#endif
