/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Counts packets that a live program sent and the kernel could not. The kernel reports these only through tracepoints.
 * Two programs attach to them and count by port and reason. They are loaded once, separately from the chains, and have
 * port counters of their own. A kernel without BTF of its own does not load them. Then such packets count as sent.
 */
#ifndef WEIR_KERNEL_LOSSES_H
#define WEIR_KERNEL_LOSSES_H

#include "kernel/bpf.h"
#include "kernel/mode.h"
#include "kernel/ports.h"

/* The fields of kernel structures that the programs read. The loader finds their offsets (CO-RE). */
#define KERNEL_STRUCT __attribute__((preserve_access_index))

struct ns_common {
	uint32_t inum;
} KERNEL_STRUCT;

struct net {
	struct ns_common ns;
} KERNEL_STRUCT;

typedef struct {
	struct net *net;
} KERNEL_STRUCT possible_net_t;

struct net_device {
	int32_t ifindex;
	possible_net_t nd_net;
} KERNEL_STRUCT;

enum {
	KERNEL_ENXIO = 6, /* from a veth whose other end is down */
	KERNEL_EMSGSIZE = 90,
	KERNEL_EOPNOTSUPP = 95, /* from a veth whose other end does not poll, and from drivers without XDP */
	KERNEL_ENETDOWN = 100,
};

/* The port's number; PORTS_MAX if the device is not a port. */
WEIR_INLINE_RELOCATED uint32_t loss_port(const struct net_device *device)
{
	const uint32_t index = (uint32_t)device->ifindex;
	const uint32_t number = port_number(index);

	if (weir_ports.index[number] != index || device->nd_net.net->ns.inum != weir_ports.namespace)
		return PORTS_MAX;
	return number;
}

/*
 * Runs on the CPU that sent the packets, between other work of that CPU: nothing else adds to its counters meanwhile.
 */
WEIR_INLINE void lose(uint32_t port, int32_t error, uint64_t packets)
{
	struct port_counters *counters = port_counters(live_cpu(), port);

	if (port >= PORTS_MAX)
		return;
	if (error == -KERNEL_ENETDOWN || error == -KERNEL_ENXIO)
		counters->tx_link_down += packets;
	else if (error == -KERNEL_EMSGSIZE)
		counters->tx_too_long += packets;
	else if (error == -KERNEL_EOPNOTSUPP)
		counters->tx_unsupported += packets;
	else
		counters->tx_full += packets;
}

/* A batch was given to a driver: from, to, packets sent, packets dropped, error. */
WEIR_SECTION("tp_btf/xdp_devmap_xmit") int weir_lost_by_driver(const uint64_t *ctx)
{
	if ((int32_t)ctx[3] > 0)
		lose(loss_port((const struct net_device *)ctx[1]), (int32_t)ctx[4], (uint32_t)ctx[3]);
	return 0;
}

/* A packet could not be queued for a driver: from, program, target, error, map type, map, key. */
WEIR_SECTION("tp_btf/xdp_redirect_err") int weir_lost_before_driver(const uint64_t *ctx)
{
	if (loss_port((const struct net_device *)ctx[0]) < PORTS_MAX)
		lose((uint32_t)ctx[6], (int32_t)ctx[3], 1);
	return 0;
}

#endif
