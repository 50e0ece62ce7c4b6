/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * DPDK for the `dpdk` engine: the functions that Rust calls. They decide nothing. They are compiled and linked only
 * with the Cargo feature `dpdk`. crates/engine/src/live/dpdk/shim.rs has the same declarations, crates/abi/src/dpdk.rs
 * the same structures.
 *
 * DPDK's functions for packets are inline, and its structures change with its version. So Rust knows a port by its
 * number, and a packet and a pool by their addresses. These functions do everything else. One call moves a burst.
 * Functions that can fail return a negative error number.
 */
#ifndef WEIR_DPDK_SHIM_H
#define WEIR_DPDK_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/env.h"

struct rte_flow;
struct rte_mbuf;
struct rte_mempool;

enum { DPDK_DRIVER_BYTES = 32 };

/* A port's properties: Facts in crates/abi/src/dpdk.rs. */
struct dpdk_facts {
	char driver[DPDK_DRIVER_BYTES]; /* null-terminated */
	uint16_t rx_queues;		/* maximum */
	uint16_t tx_queues;
	uint16_t rx_packets; /* descriptors of a receive queue of ours */
	uint16_t tx_packets;
	int32_t node;	    /* NUMA node of its memory, -1 if any */
	uint32_t interface; /* index of the kernel interface, 0 if none */
	uint16_t mtu;	    /* 0 if the driver does not know it */
	uint16_t reserved;  /* 0 */
};

_Static_assert(sizeof(struct dpdk_facts) == 52, "Facts");

/* Packets that a port lost: Lost in crates/abi/src/dpdk.rs. */
struct dpdk_lost {
	uint64_t missed; /* received without room */
	uint64_t unsent; /* taken by the driver, but not sent */
};

/* What a flow has dropped: FlowHits in crates/abi/src/dpdk.rs. */
struct dpdk_flow_hits {
	uint64_t packets;
	uint64_t bytes;
};

/* The step at which opening a port ended. */
enum dpdk_opening {
	DPDK_DONE,
	DPDK_NOT_CONFIGURED,
	DPDK_NO_RX_QUEUE, /* often because the pool's buffers are too short */
	DPDK_NO_TX_QUEUE,
	DPDK_NOT_STARTED,
	DPDK_NOT_PROMISCUOUS,
};

/* eal.c */
int dpdk_start(int argc, char **argv);
int dpdk_start_quietly(int argc, char **argv);
size_t dpdk_kept_log(char *to, size_t size);
int dpdk_enter(void);
void dpdk_leave(void);
const char *dpdk_error(int error);

/* port.c */
int dpdk_find(const char *name);
size_t dpdk_names(char *to, size_t size);
int dpdk_facts(uint16_t port, struct dpdk_facts *facts);
struct rte_mempool *dpdk_pool(const char *name, uint32_t packets, uint16_t room, int32_t node, int *error);
void dpdk_free_pool(struct rte_mempool *pool);
enum dpdk_opening dpdk_prepare(uint16_t port, uint16_t queues, struct rte_mempool *const *pools, int *error);
enum dpdk_opening dpdk_open(uint16_t port, int *error);
void dpdk_close(uint16_t port);
int dpdk_is_up(uint16_t port);
void dpdk_lost(uint16_t port, struct dpdk_lost *lost);

/*
 * flow.c: flows that drop the packets of a source, of 4 or 16 bytes. The driver's words about an error are a string of
 * at most `size` bytes.
 */
int dpdk_flow_check(uint16_t port, const uint8_t *address, size_t bytes, char *words, size_t size);
struct rte_flow *dpdk_flow_add(uint16_t port, const uint8_t *address, size_t bytes, int *number, char *words,
			       size_t size);
int dpdk_flow_delete(uint16_t port, struct rte_flow *flow, char *words, size_t size);
int dpdk_flow_read(uint16_t port, struct rte_flow *flow, struct dpdk_flow_hits *hits, char *words, size_t size);

/* burst.c */
uint32_t dpdk_receive(uint16_t port, uint16_t queue, struct rte_mbuf **packets, struct weir_frame *frames,
		      uint8_t (*windows)[WEIR_WINDOW_BYTES]);
uint32_t dpdk_send(uint16_t port, uint16_t queue, struct rte_mbuf **packets, uint32_t count);
uint32_t dpdk_send_again(uint16_t port, uint16_t queue, struct rte_mbuf **packets, uint32_t count);
uint32_t dpdk_discard(uint16_t port, uint16_t queue, uint32_t most);
void dpdk_free(struct rte_mbuf **packets, uint32_t count);
struct rte_mbuf *dpdk_copy(struct rte_mbuf *packet, struct rte_mempool *pool);
void dpdk_cut(struct rte_mbuf **packets, const struct weir_frame *frames, uint32_t count);
bool dpdk_rewrite(struct rte_mbuf *packet, uint32_t length, uint32_t at, const uint8_t *from, uint32_t bytes);
uint32_t dpdk_make(struct rte_mempool *pool, const struct weir_frame *frames, struct rte_mbuf **packets,
		   uint32_t count);

#endif
