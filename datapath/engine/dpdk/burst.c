/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Packets by the burst: received, sent, copied, freed. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_config.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_prefetch.h>

#include "dpdk/shim.h"

/* Packets whose first bytes are fetched ahead of the one that is looked at. */
enum { AHEAD = 4 };

/*
 * Takes up to WEIR_BURST_MAX packets. A frame is the first piece of its packet; where that ends before the window, it
 * is a copy of the window, at its place in `windows`.
 */
uint32_t dpdk_receive(uint16_t port, uint16_t queue, struct rte_mbuf **packets, struct weir_frame *frames,
		      uint8_t (*windows)[WEIR_WINDOW_BYTES])
{
	uint32_t count = rte_eth_rx_burst(port, queue, packets, WEIR_BURST_MAX);

	for (uint32_t i = 0; i < count && i < AHEAD; i++)
		rte_prefetch0(packets[i]);
	for (uint32_t i = 0; i < count; i++) {
		const struct rte_mbuf *packet = packets[i];
		uint32_t here = rte_pktmbuf_data_len(packet), all = rte_pktmbuf_pkt_len(packet);

		if (i + AHEAD < count)
			rte_prefetch0(packets[i + AHEAD]);
		frames[i].data = rte_pktmbuf_mtod(packet, const uint8_t *);
		rte_prefetch0(frames[i].data);
		frames[i].cap = here < all ? here : all;
		frames[i].len = all;
		if (here < all && here < WEIR_WINDOW_BYTES) {
			frames[i].cap = all < WEIR_WINDOW_BYTES ? all : WEIR_WINDOW_BYTES;
			frames[i].data = rte_pktmbuf_read(packet, 0, frames[i].cap, windows[i]);
		}
	}
	return count;
}

/* How many of them the port took; the others stay ours. */
uint32_t dpdk_send(uint16_t port, uint16_t queue, struct rte_mbuf **packets, uint32_t count)
{
	return rte_eth_tx_burst(port, queue, packets, (uint16_t)count);
}

void dpdk_free(struct rte_mbuf **packets, uint32_t count)
{
	rte_pktmbuf_free_bulk(packets, count);
}

/* A packet of its own with the same bytes, all of them; NULL if the pool is empty. */
struct rte_mbuf *dpdk_copy(struct rte_mbuf *packet, struct rte_mempool *pool)
{
	return rte_pktmbuf_copy(packet, pool, 0, UINT32_MAX);
}

/* Puts bytes into an empty packet, in as many pieces as they take; false if the pool has no more. */
static bool fill(struct rte_mempool *pool, struct rte_mbuf *packet, const uint8_t *from, uint32_t bytes)
{
	for (struct rte_mbuf *piece = packet; piece; piece = piece->next) {
		uint16_t room = rte_pktmbuf_tailroom(piece);
		uint16_t here = bytes < room ? (uint16_t)bytes : room;

		memcpy(rte_pktmbuf_mtod(piece, uint8_t *), from, here);
		piece->data_len = here;
		packet->pkt_len += here;
		from += here;
		bytes -= here;
		if (!bytes)
			return true;
		piece->next = rte_pktmbuf_alloc(pool);
		packet->nb_segs += piece->next != NULL;
	}
	return false;
}

/* Packets with the bytes of frames, as many as the pool has pieces for; how many. */
uint32_t dpdk_make(struct rte_mempool *pool, const struct weir_frame *frames, struct rte_mbuf **packets, uint32_t count)
{
	if (rte_pktmbuf_alloc_bulk(pool, packets, count))
		return 0;
	for (uint32_t i = 0; i < count; i++) {
		if (!fill(pool, packets[i], frames[i].data, frames[i].cap)) {
			rte_pktmbuf_free_bulk(packets + i, count - i);
			return i;
		}
	}
	return count;
}

/* As dpdk_send(), but the packets stay ours, to be sent again. */
uint32_t dpdk_send_again(uint16_t port, uint16_t queue, struct rte_mbuf **packets, uint32_t count)
{
	uint32_t sent;

	for (uint32_t i = 0; i < count; i++)
		rte_mbuf_refcnt_update(packets[i], 1);
	sent = rte_eth_tx_burst(port, queue, packets, (uint16_t)count);
	for (uint32_t i = sent; i < count; i++)
		rte_mbuf_refcnt_update(packets[i], -1);
	return sent;
}
