/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A driver with flows, for tests: a library that is loaded in front of DPDK (LD_PRELOAD) and has its functions for
 * flows, because no virtual driver has any that count. A flow drops the packets of one source, in a callback in front
 * of the engine. It takes what crates/engine/src/live/dpdk/flow.rs asks for, and nothing else. It has FLOWS_MAX flows.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <rte_config.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_mbuf.h>

enum { FLOWS_MAX = 8, ETHERNET = 14, QUEUES_MAX = 16 };

struct rte_flow {
	bool is_used;
	uint16_t protocol; /* as in the packet */
	uint8_t address[16];
	size_t bytes;
	uint64_t packets, octets;
};

static struct rte_flow flows[FLOWS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int refuse(struct rte_flow_error *error, int number, const char *words)
{
	rte_flow_error_set(error, number, RTE_FLOW_ERROR_TYPE_UNSPECIFIED, NULL, words);
	return -number;
}

static bool is_full(const uint8_t *mask, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (mask[i] != 0xff)
			return false;
	return true;
}

/* Reads a flow. Returns whether it is one that this driver takes. */
static bool read_flow(const struct rte_flow_attr *attr, const struct rte_flow_item *items,
		      const struct rte_flow_action *actions, struct rte_flow *flow)
{
	const uint8_t *spec = items[1].spec, *mask = items[1].mask;
	bool is_six = items[1].type == RTE_FLOW_ITEM_TYPE_IPV6;
	size_t at = is_six ? 8 : 12; /* of the source in the header */

	if (!attr->ingress || attr->egress || attr->group || items[0].type != RTE_FLOW_ITEM_TYPE_ETH || items[0].spec ||
	    (!is_six && items[1].type != RTE_FLOW_ITEM_TYPE_IPV4) || items[1].last || !spec || !mask ||
	    items[2].type != RTE_FLOW_ITEM_TYPE_END || actions[0].type != RTE_FLOW_ACTION_TYPE_COUNT ||
	    actions[1].type != RTE_FLOW_ACTION_TYPE_DROP || actions[2].type != RTE_FLOW_ACTION_TYPE_END)
		return false;
	memset(flow, 0, sizeof(*flow));
	flow->bytes = is_six ? 16 : 4;
	flow->protocol = rte_cpu_to_be_16(is_six ? 0x86dd : 0x0800);
	memcpy(flow->address, spec + at, flow->bytes);
	return is_full(mask + at, flow->bytes);
}

static struct rte_flow *find(const uint8_t *frame, uint32_t length)
{
	uint16_t protocol;

	if (length < ETHERNET + 40)
		return NULL;
	memcpy(&protocol, frame + 12, sizeof(protocol));
	for (struct rte_flow *flow = flows; flow < flows + FLOWS_MAX; flow++)
		if (flow->is_used && flow->protocol == protocol &&
		    !memcmp(frame + ETHERNET + (flow->bytes == 16 ? 8 : 12), flow->address, flow->bytes))
			return flow;
	return NULL;
}

/* Drops packets of flows from a burst. */
static uint16_t filter(uint16_t port, uint16_t queue, struct rte_mbuf *packets[], uint16_t count, uint16_t room,
		       void *own)
{
	uint16_t kept = 0;

	(void)port, (void)queue, (void)room, (void)own;
	pthread_mutex_lock(&lock);
	for (uint16_t i = 0; i < count; i++) {
		struct rte_flow *flow = find(rte_pktmbuf_mtod(packets[i], uint8_t *), packets[i]->data_len);

		if (!flow) {
			packets[kept++] = packets[i];
			continue;
		}
		flow->packets++;
		flow->octets += packets[i]->pkt_len;
		rte_pktmbuf_free(packets[i]);
	}
	pthread_mutex_unlock(&lock);
	return kept;
}

int rte_flow_validate(uint16_t port, const struct rte_flow_attr *attr, const struct rte_flow_item items[],
		      const struct rte_flow_action actions[], struct rte_flow_error *error)
{
	struct rte_flow flow;

	(void)port;
	return read_flow(attr, items, actions, &flow) ? 0 : refuse(error, ENOTSUP, "only sources");
}

struct rte_flow *rte_flow_create(uint16_t port, const struct rte_flow_attr *attr, const struct rte_flow_item items[],
				 const struct rte_flow_action actions[], struct rte_flow_error *error)
{
	static bool is_ready;
	struct rte_flow flow, *free = NULL;
	struct rte_eth_dev_info info;

	if (!read_flow(attr, items, actions, &flow)) {
		refuse(error, ENOTSUP, "only sources");
		return NULL;
	}
	if (!is_ready && !rte_eth_dev_info_get(port, &info))
		for (uint16_t queue = 0; queue < info.nb_rx_queues && queue < QUEUES_MAX; queue++)
			rte_eth_add_rx_callback(port, queue, filter, NULL);
	is_ready = true;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < FLOWS_MAX && !free; i++)
		free = flows[i].is_used ? NULL : &flows[i];
	if (free) {
		*free = flow;
		free->is_used = true;
	}
	pthread_mutex_unlock(&lock);
	if (!free)
		refuse(error, ENOSPC, "no room for a flow");
	return free;
}

int rte_flow_destroy(uint16_t port, struct rte_flow *flow, struct rte_flow_error *error)
{
	(void)port;
	if (!flow || flow < flows || flow >= flows + FLOWS_MAX || !flow->is_used)
		return refuse(error, ENOENT, "no such flow");
	pthread_mutex_lock(&lock);
	flow->is_used = false;
	pthread_mutex_unlock(&lock);
	return 0;
}

int rte_flow_query(uint16_t port, struct rte_flow *flow, const struct rte_flow_action *action, void *data,
		   struct rte_flow_error *error)
{
	struct rte_flow_query_count *count = data;

	(void)port;
	if (!flow->is_used || action->type != RTE_FLOW_ACTION_TYPE_COUNT)
		return refuse(error, EINVAL, "no counter");
	pthread_mutex_lock(&lock);
	count->hits_set = count->bytes_set = 1;
	count->hits = flow->packets;
	count->bytes = flow->octets;
	pthread_mutex_unlock(&lock);
	return 0;
}
