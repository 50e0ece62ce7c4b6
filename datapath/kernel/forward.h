/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What verdicts do between interfaces: packets leave by a port of the other side, by the one at which they arrived, or
 * by the divert port. The engine fills the device maps before it attaches the programs.
 */
#ifndef WEIR_KERNEL_FORWARD_H
#define WEIR_KERNEL_FORWARD_H

#include "kernel/checksum.h"
#include "kernel/bpf.h"
#include "kernel/mode.h"
#include "kernel/ports.h"
#include "proxy/kernel_rewrite.h"
#include "core/verdict.h"

/* Devices by port number. */
struct {
	int (*type)[BPF_MAP_TYPE_DEVMAP];
	int (*max_entries)[PORTS_MAX];
	int (*key_size)[sizeof(uint32_t)];
	int (*value_size)[sizeof(uint32_t)];
} weir_devices WEIR_SECTION(".maps");

/* For each port, the pair of the port and the divert port: for packets whose copy is diverted. */
struct device_pair {
	int (*type)[BPF_MAP_TYPE_DEVMAP];
	int (*max_entries)[2];
	int (*key_size)[sizeof(uint32_t)];
	int (*value_size)[sizeof(uint32_t)];
};

struct {
	int (*type)[BPF_MAP_TYPE_ARRAY_OF_MAPS];
	int (*max_entries)[PORTS_MAX];
	int (*key_size)[sizeof(uint32_t)];
	struct device_pair *values[];
} weir_pairs WEIR_SECTION(".maps");

/* Sends a packet out of a port and counts it there. Returns the program's return value. */
WEIR_INLINE uint32_t port_send(uint32_t cpu, uint32_t port, uint32_t len)
{
	struct port_counters *counters = port_counters(cpu, port);
	const uint32_t action = (uint32_t)bpf_redirect_map(&weir_devices, port, XDP_DROP);

	if (action == XDP_REDIRECT) {
		counters->tx_packets++;
		counters->tx_bytes += len;
	} else {
		counters->tx_link_down++;
	}
	return action;
}

/* Like port_send(), with a copy out of the divert port. */
WEIR_INLINE uint32_t port_send_both(uint32_t cpu, uint32_t port, uint32_t divert, uint32_t len)
{
	struct port_counters *counters = port_counters(cpu, port);
	struct port_counters *copies = port_counters(cpu, divert);
	void *pair = bpf_map_lookup_elem(&weir_pairs, &port);

	/* The engine makes a pair for each port. Without one, the packet itself can still be sent. */
	if (!pair) {
		copies->tx_link_down++;
		return port_send(cpu, port, len);
	}
	counters->tx_packets++;
	counters->tx_bytes += len;
	copies->tx_packets++;
	copies->tx_bytes += len;
	return (uint32_t)bpf_redirect_map(pair, 0, BPF_F_BROADCAST);
}

/*
 * Completes the checksum of a packet that leaves, if its sender has left it to a card, and replaces the packet if the
 * chain has changed it. Returns the bytes that leave, or 0 if there is no room for them.
 */
WEIR_INLINE uint32_t port_prepare(struct xdp_md *ctx, bool may_finish, uint32_t verdict, uint32_t len)
{
	bool unfinished = may_finish && WEIR_UNLIKELY(may_be_unfinished(ctx));

	if (WEIR_UNLIKELY(is_rewritten(verdict))) {
		unfinished = unfinished && weir_is_unfinished(ctx);
		if (!weir_replace(ctx, unfinished))
			return 0;
		unfinished = unfinished && !is_built();
		len = rewritten_len();
	}
	if (unfinished)
		weir_finish_checksum(ctx);
	return len;
}

/*
 * The divert port, if there is one. The mask stays: the comparison that says so may be a condition that was computed
 * before, from which the verifier of Linux 6.1 learns nothing of the number.
 */
WEIR_INLINE uint32_t divert_port(uint32_t divert)
{
	return bounded(divert, PORTS_MAX - 1);
}

/*
 * Acts on a verdict. Returns the program's return value. The copy of a packet that the chain has changed is as the
 * packet leaves, because the kernel has only one.
 */
WEIR_INLINE uint32_t port_act(struct xdp_md *ctx, struct arrival arrival, uint32_t verdict, const struct frame *frame)
{
	const struct port *port = &weir_ports.port[arrival.port];
	const enum action action = (enum action)(verdict & 0xff);
	const uint32_t divert = weir_ports.divert;
	const bool copied = !weir_mode.samples && (verdict & VERDICT_SAMPLED) && divert < PORTS_MAX;
	const bool is_one_buffer = frame->len == (uint32_t)(frame->end - frame->data);
	const bool may_finish =
		weir_mode.finish && WEIR_UNLIKELY(port->unfinished) && (action != ACTION_DROP || copied);
	struct port_counters *counters = port_counters(arrival.cpu, arrival.port);
	uint32_t len, out = arrival.port;

	counters->rx_packets++;
	counters->rx_bytes += frame->len;
	if (action == ACTION_ACCEPT)
		out = port->out[ctx->rx_queue_index & (PORT_QUEUES - 1)];
	len = port_prepare(ctx, may_finish, verdict, frame->len);
	if (WEIR_UNLIKELY(!len)) {
		port_counters(arrival.cpu, out)->tx_too_long++;
		return XDP_DROP;
	}
	if (copied && action != ACTION_DIVERT)
		counters->sampled++;
	if (action == ACTION_ACCEPT || action == ACTION_REPLY) {
		if (copied && is_one_buffer)
			return port_send_both(arrival.cpu, out, divert_port(divert), len);
		/* The kernel cannot copy packets in several buffers. */
		if (copied)
			port_counters(arrival.cpu, divert_port(divert))->tx_too_long++;
		return port_send(arrival.cpu, out, len);
	}
	if (action == ACTION_DIVERT && divert >= PORTS_MAX)
		counters->no_divert++;
	if (divert < PORTS_MAX && (action == ACTION_DIVERT || copied))
		return port_send(arrival.cpu, divert_port(divert), len);
	return XDP_DROP;
}

#endif
