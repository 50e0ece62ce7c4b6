/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What verdicts do on the host that Weir protects (docs/guide/host.md). Each interface is two ports: the lower one is
 * the wire, the upper one opposite is the host. XDP programs decide what the wire brings, and pass it up to the kernel.
 * The programs of kernel/egress.h decide what the host sends.
 */
#ifndef WEIR_KERNEL_HOST_H
#define WEIR_KERNEL_HOST_H

#include "kernel/ports.h"
#include "core/verdict.h"

/* The port opposite. */
WEIR_INLINE uint32_t host_opposite(uint32_t port)
{
	return weir_ports.port[port & (PORTS_MAX - 1)].out[0] & (PORTS_MAX - 1);
}

/* Counts a packet between two ports. Returns whether the verdict lets it pass. */
WEIR_INLINE bool host_pass(struct arrival arrival, uint32_t verdict, uint32_t len)
{
	const uint32_t packets = wire_packets(), bytes = wire_bytes(len);
	struct port_counters *from = port_counters(arrival.cpu, arrival.port);
	struct port_counters *to = port_counters(arrival.cpu, host_opposite(arrival.port));

	from->rx_packets += packets;
	from->rx_bytes += bytes;
	if ((verdict & 0xff) == ACTION_DIVERT)
		from->no_divert += packets;
	if ((verdict & 0xff) != ACTION_ACCEPT)
		return false;
	to->tx_packets += packets;
	to->tx_bytes += bytes;
	return true;
}

#endif
