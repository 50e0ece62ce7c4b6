/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Ports: finds them by name, opens them with one queue pair for each worker, closes them. */
#include <errno.h>
#include <string.h>

#include <rte_config.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include "dpdk/shim.h"

enum {
	/* An idle worker sleeps for less time than a 10 Gbps port needs to fill these with the shortest packets. */
	RX_PACKETS = 2048,
	TX_PACKETS = 1024,
	/* Packets that a pool caches for a thread. */
	POOL_CACHE = 256,
	RSS_KEY_BYTES_MAX = 64,
};

#define RSS_FLOWS (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_SCTP)

/* The port's number. */
int dpdk_find(const char *name)
{
	uint16_t port;
	int failed = rte_eth_dev_get_port_by_name(name, &port);

	return failed ? failed : port;
}

/* Writes the names of all ports, separated by blanks. Returns the length. */
size_t dpdk_names(char *to, size_t size)
{
	char name[RTE_ETH_NAME_MAX_LEN];
	size_t length = 0;
	uint16_t port;

	RTE_ETH_FOREACH_DEV(port)
	{
		size_t more;

		if (rte_eth_dev_get_name_by_port(port, name))
			continue;
		more = strlen(name);
		if (length + more + 1 > size)
			break;
		if (length)
			to[length++] = ' ';
		memcpy(to + length, name, more);
		length += more;
	}
	return length;
}

int dpdk_facts(uint16_t port, struct dpdk_facts *facts)
{
	struct rte_eth_dev_info info;
	int failed = rte_eth_dev_info_get(port, &info);

	if (failed)
		return failed;
	memset(facts, 0, sizeof(*facts));
	facts->rx_queues = info.max_rx_queues;
	facts->tx_queues = info.max_tx_queues;
	facts->rx_packets = RX_PACKETS;
	facts->tx_packets = TX_PACKETS;
	facts->node = rte_eth_dev_socket_id(port);
	facts->interface = info.if_index;
	if (rte_eth_dev_get_mtu(port, &facts->mtu))
		facts->mtu = 0;
	if (info.driver_name)
		strncpy(facts->driver, info.driver_name, DPDK_DRIVER_BYTES - 1);
	return rte_eth_dev_adjust_nb_rx_tx_desc(port, &facts->rx_packets, &facts->tx_packets);
}

/* A pool for packets of `room` bytes. Longer packets take several segments. */
struct rte_mempool *dpdk_pool(const char *name, uint32_t packets, uint16_t room, int32_t node, int *error)
{
	uint16_t bytes = room + RTE_PKTMBUF_HEADROOM;
	struct rte_mempool *pool = rte_pktmbuf_pool_create(name, packets, POOL_CACHE, 0, bytes, node);

	*error = pool ? 0 : -rte_errno;
	return pool;
}

void dpdk_free_pool(struct rte_mempool *pool)
{
	rte_mempool_free(pool);
}

/*
 * Spreads flows over queues by a hash that is the same for both directions. Its key repeats one pair of bytes, so that
 * it cannot tell source from destination (Woo and Park, "Scalable TCP Session Monitoring with Symmetric Receive-side
 * Scaling").
 */
static void spread_flows(struct rte_eth_conf *conf, const struct rte_eth_dev_info *info, uint8_t *key)
{
	uint8_t bytes = info->hash_key_size ? info->hash_key_size : 40;

	if (!(info->flow_type_rss_offloads & RSS_FLOWS) || bytes > RSS_KEY_BYTES_MAX)
		return;
	for (uint8_t i = 0; i < bytes; i++)
		key[i] = i % 2 ? 0x5a : 0x6d;
	conf->rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
	conf->rx_adv_conf.rss_conf.rss_key = key;
	conf->rx_adv_conf.rss_conf.rss_key_len = bytes;
	conf->rx_adv_conf.rss_conf.rss_hf = info->flow_type_rss_offloads & RSS_FLOWS;
}

/*
 * The port removes nothing from a packet (VLAN tags) and leaves nothing unfinished (checksums). So a packet that passes
 * goes out as it came in. Packets of several segments are received and sent if the driver supports it.
 */
static int configure(uint16_t port, uint16_t queues, const struct rte_eth_dev_info *info)
{
	uint8_t key[RSS_KEY_BYTES_MAX];
	struct rte_eth_conf conf = {0};
	uint16_t mtu;

	if (rte_eth_dev_get_mtu(port, &mtu) == 0)
		conf.rxmode.mtu = mtu;
	conf.rxmode.offloads = info->rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER;
	conf.txmode.offloads = info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	if (queues > 1)
		spread_flows(&conf, info, key);
	return rte_eth_dev_configure(port, queues, queues, &conf);
}

/* Receives packets for all addresses. Virtual ports without addresses have no such mode. */
static int receive_all(uint16_t port)
{
	int failed = rte_eth_promiscuous_enable(port);

	if (failed && failed != -ENOTSUP)
		return failed;
	failed = rte_eth_allmulticast_enable(port);
	return failed == -ENOTSUP ? 0 : failed;
}

/*
 * Gives a port `queues` queue pairs. Packets of receive queue q come from pools[q]. May be repeated until the port is
 * opened.
 */
enum dpdk_opening dpdk_prepare(uint16_t port, uint16_t queues, struct rte_mempool *const *pools, int *error)
{
	uint16_t rx_packets = RX_PACKETS, tx_packets = TX_PACKETS;
	struct rte_eth_dev_info info;
	int node = rte_eth_dev_socket_id(port);

	if ((*error = rte_eth_dev_info_get(port, &info)) || (*error = configure(port, queues, &info)) ||
	    (*error = rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx_packets, &tx_packets)))
		return DPDK_NOT_CONFIGURED;
	for (uint16_t queue = 0; queue < queues; queue++) {
		*error = rte_eth_rx_queue_setup(port, queue, rx_packets, node, NULL, pools[queue]);
		if (*error)
			return DPDK_NO_RX_QUEUE;
		*error = rte_eth_tx_queue_setup(port, queue, tx_packets, node, NULL);
		if (*error)
			return DPDK_NO_TX_QUEUE;
	}
	return DPDK_DONE;
}

/* Starts the port: packets flow from here on. */
enum dpdk_opening dpdk_open(uint16_t port, int *error)
{
	if ((*error = rte_eth_dev_start(port)))
		return DPDK_NOT_STARTED;
	if ((*error = receive_all(port))) {
		rte_eth_dev_stop(port);
		return DPDK_NOT_PROMISCUOUS;
	}
	rte_eth_stats_reset(port);
	return DPDK_DONE;
}

void dpdk_close(uint16_t port)
{
	rte_eth_dev_stop(port);
	rte_eth_dev_close(port);
}

/* Whether the link is up. */
int dpdk_is_up(uint16_t port)
{
	struct rte_eth_link link;

	return rte_eth_link_get_nowait(port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

/* Packets lost since the port was opened. */
void dpdk_lost(uint16_t port, struct dpdk_lost *lost)
{
	struct rte_eth_stats stats;

	*lost = (struct dpdk_lost){0};
	if (rte_eth_stats_get(port, &stats))
		return;
	lost->missed = stats.imissed + stats.rx_nombuf;
	lost->unsent = stats.oerrors;
}
