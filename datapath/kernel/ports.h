/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The interfaces of live programs and their counters. An interface is identified by its port number. The engine fills
 * `weir_ports` before it attaches the programs, and reads the counters while programs count:
 * crates/engine/src/live/xdp.
 */
#ifndef WEIR_KERNEL_PORTS_H
#define WEIR_KERNEL_PORTS_H

#include "kernel/bpf.h"

enum {
	PORTS_MAX = 64,	     /* all these are the same in crates/abi/src/kernel.rs */
	PORT_INDICES = 4096, /* interfaces are distinguished by their indices modulo this */
	PORT_QUEUES = 64,    /* higher queues count modulo this */
};

/* An interface: its side, and the opposite port for the packets of each receive queue. */
struct port {
	uint8_t side;	    /* 0 lower, 1 upper */
	uint8_t unfinished; /* whether senders may leave checksums to a card that does not exist (kernel/checksum.h) */
	uint8_t zero[2];
	uint32_t receives; /* its index if Weir handles packets received there, else 0 */
	uint8_t zeros[56];
	uint8_t out[PORT_QUEUES];
};

struct ports {
	uint8_t number[PORT_INDICES]; /* port number, by the low bits of the interface's index */
	uint32_t index[PORTS_MAX];    /* index of the port's interface */
	struct port port[PORTS_MAX];
	uint32_t divert;    /* the port for diverted packets, and for samples without a ring; PORTS_MAX for none */
	uint32_t namespace; /* inode of the ports' network namespace */
};

struct ports weir_ports __attribute__((aligned(64))) WEIR_SECTION(".bss.ports");

/*
 * The counters of one CPU for a port: struct PortCounters in crates/abi/src/kernel.rs. Packets that the kernel
 * could not send are counted in tx, and also in the counters of kernel/losses.h.
 */
struct port_counters {
	uint64_t rx_packets;
	uint64_t rx_bytes;
	uint64_t tx_packets;
	uint64_t tx_bytes;
	uint64_t tx_full;	 /* the transmit queue was full */
	uint64_t tx_link_down;	 /* the interface was down or removed */
	uint64_t tx_too_long;	 /* the packet was too long for the interface */
	uint64_t no_divert;	 /* packets to be diverted without a divert port */
	uint64_t sampled;	 /* packets that were sampled, except diverted ones whose copy would be the same */
	uint64_t tx_unsupported; /* the interface accepts no packets from programs */
	uint64_t zero[6];
};

_Static_assert(sizeof(struct port) == 128, "Port");
_Static_assert(sizeof(struct port_counters) == 128, "PortCounters");

/* PORTS_MAX counters for each CPU. The engine makes the section that long. */
struct port_counters weir_port_counters[PORTS_MAX] __attribute__((aligned(64))) WEIR_SECTION(".bss.traffic");

/* The CPU that handles a packet, and where the packet came in. */
struct arrival {
	uint32_t cpu; /* below the number of CPUs that have counters */
	uint32_t port;
};

/* The port number for the index of an interface. */
WEIR_INLINE uint32_t port_number(uint32_t index)
{
	return weir_ports.number[index & (PORT_INDICES - 1)] & (PORTS_MAX - 1);
}

/* The counters of a port. `cpu` is below the number of CPUs that have counters. */
WEIR_INLINE struct port_counters *port_counters(uint32_t cpu, uint32_t port)
{
	return &weir_port_counters[plus(cpu * PORTS_MAX, port & (PORTS_MAX - 1))];
}

#endif
