/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Packets by the burst: received, changed, sent, copied, freed. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_config.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_prefetch.h>

#include "dpdk/shim.h"

/* Packets whose first bytes are prefetched ahead of the current one. */
enum { AHEAD = 4 };

/*
 * Receives up to WEIR_BURST_MAX packets. A frame is the first segment of its packet. If that ends before the window,
 * the frame is a copy of the window, in `windows`.
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

/* Returns how many packets the port took. The caller keeps the others. */
uint32_t dpdk_send(uint16_t port, uint16_t queue, struct rte_mbuf **packets, uint32_t count)
{
	return rte_eth_tx_burst(port, queue, packets, (uint16_t)count);
}

void dpdk_free(struct rte_mbuf **packets, uint32_t count)
{
	rte_pktmbuf_free_bulk(packets, count);
}

/* Frees the packets that wait in a receive queue, until there were `most`. Returns how many there were. */
uint32_t dpdk_discard(uint16_t port, uint16_t queue, uint32_t most)
{
	struct rte_mbuf *packets[WEIR_BURST_MAX];
	uint32_t sum = 0, count;

	do {
		count = rte_eth_rx_burst(port, queue, packets, WEIR_BURST_MAX);
		rte_pktmbuf_free_bulk(packets, count);
		sum += count;
	} while (count && sum < most);
	return sum;
}

/* A new packet with all bytes of this one; NULL if the pool is empty. */
struct rte_mbuf *dpdk_copy(struct rte_mbuf *packet, struct rte_mempool *pool)
{
	return rte_pktmbuf_copy(packet, pool, 0, UINT32_MAX);
}

/* Shortens a packet. Segments without bytes are freed. */
static void trim(struct rte_mbuf *packet, uint32_t length)
{
	struct rte_mbuf *last = packet;

	packet->pkt_len = length;
	for (packet->nb_segs = 1; length > last->data_len; packet->nb_segs++) {
		length -= last->data_len;
		last = last->next;
	}
	last->data_len = (uint16_t)length;
	rte_pktmbuf_free(last->next);
	last->next = NULL;
}

/* Shortens packets to the lengths of their frames. */
void dpdk_cut(struct rte_mbuf **packets, const struct weir_frame *frames, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if (frames[i].len < rte_pktmbuf_pkt_len(packets[i]))
			trim(packets[i], frames[i].len);
	}
}

/*
 * Gives a packet another length, and writes bytes of it. They may span segments. Returns false if the last segment has
 * no room for a longer packet, which then stays as it is.
 */
bool dpdk_rewrite(struct rte_mbuf *packet, uint32_t length, uint32_t at, const uint8_t *from, uint32_t bytes)
{
	uint32_t all = rte_pktmbuf_pkt_len(packet);

	if (length < all)
		trim(packet, length);
	else if (length > all && (length - all > UINT16_MAX || !rte_pktmbuf_append(packet, (uint16_t)(length - all))))
		return false;
	for (struct rte_mbuf *piece = packet; piece && bytes; piece = piece->next) {
		uint32_t end = rte_pktmbuf_data_len(piece), here;

		if (at >= end) {
			at -= end;
			continue;
		}
		here = bytes < end - at ? bytes : end - at;
		memcpy(rte_pktmbuf_mtod_offset(piece, uint8_t *, at), from, here);
		from += here;
		bytes -= here;
		at = 0;
	}
	return true;
}

/* Copies bytes into an empty packet of as many segments as needed; false if the pool is empty. */
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

/* Makes packets with the bytes of frames. Returns how many the pool's segments sufficed for. */
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

/* Like dpdk_send(), but the caller keeps all packets, to send them again. */
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
