/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Flows of a port (rte_flow): each drops the packets of one source in the card, and counts them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_config.h>
#include <rte_errno.h>
#include <rte_flow.h>

#include "dpdk/shim.h"

static const struct rte_flow_attr RECEIVED = {.ingress = 1};

static const struct rte_flow_action DROP_AND_COUNT[] = {
	{.type = RTE_FLOW_ACTION_TYPE_COUNT, .conf = &(const struct rte_flow_action_count){.id = 0}},
	{.type = RTE_FLOW_ACTION_TYPE_DROP},
	{.type = RTE_FLOW_ACTION_TYPE_END},
};

/* A pattern, and what it points to. */
struct pattern {
	struct rte_flow_item items[3];
	union {
		struct rte_flow_item_ipv4 four;
		struct rte_flow_item_ipv6 six;
	} source, mask;
};

/* Packets of a source: 4 bytes of IPv4 or 16 bytes of IPv6, without a VLAN tag. */
static void fill(struct pattern *pattern, const uint8_t *address, size_t bytes)
{
	bool is_six = bytes == 16;

	memset(pattern, 0, sizeof(*pattern));
	if (is_six) {
		memcpy(&pattern->source.six.hdr.src_addr, address, bytes);
		memset(&pattern->mask.six.hdr.src_addr, 0xff, bytes);
	} else {
		memcpy(&pattern->source.four.hdr.src_addr, address, bytes);
		memset(&pattern->mask.four.hdr.src_addr, 0xff, bytes);
	}
	pattern->items[0].type = RTE_FLOW_ITEM_TYPE_ETH;
	pattern->items[1].type = is_six ? RTE_FLOW_ITEM_TYPE_IPV6 : RTE_FLOW_ITEM_TYPE_IPV4;
	pattern->items[1].spec = &pattern->source;
	pattern->items[1].mask = &pattern->mask;
	pattern->items[2].type = RTE_FLOW_ITEM_TYPE_END;
}

/* Writes the driver's words. Returns the error number, also of drivers that only set rte_errno. */
static int refused(int failed, const struct rte_flow_error *error, char *words, size_t size)
{
	snprintf(words, size, "%s", error->message ? error->message : "");
	if (failed >= 0)
		failed = rte_errno ? -rte_errno : -EIO;
	return failed;
}

/* Whether the driver would take such a flow. */
int dpdk_flow_check(uint16_t port, const uint8_t *address, size_t bytes, char *words, size_t size)
{
	struct rte_flow_error error = {0};
	struct pattern pattern;
	int failed;

	fill(&pattern, address, bytes);
	failed = rte_flow_validate(port, &RECEIVED, pattern.items, DROP_AND_COUNT, &error);
	return failed ? refused(failed, &error, words, size) : 0;
}

/* Adds a flow. Returns NULL if the driver refuses. */
struct rte_flow *dpdk_flow_add(uint16_t port, const uint8_t *address, size_t bytes, int *number, char *words,
			       size_t size)
{
	struct rte_flow_error error = {0};
	struct pattern pattern;
	struct rte_flow *flow;

	fill(&pattern, address, bytes);
	rte_errno = 0;
	flow = rte_flow_create(port, &RECEIVED, pattern.items, DROP_AND_COUNT, &error);
	*number = flow ? 0 : refused(0, &error, words, size);
	return flow;
}

int dpdk_flow_delete(uint16_t port, struct rte_flow *flow, char *words, size_t size)
{
	struct rte_flow_error error = {0};
	int failed = rte_flow_destroy(port, flow, &error);

	return failed ? refused(failed, &error, words, size) : 0;
}

/* What a flow has dropped since it was added. */
int dpdk_flow_read(uint16_t port, struct rte_flow *flow, struct dpdk_flow_hits *hits, char *words, size_t size)
{
	struct rte_flow_query_count count = {.reset = 0};
	struct rte_flow_error error = {0};
	int failed = rte_flow_query(port, flow, DROP_AND_COUNT, &count, &error);

	if (failed)
		return refused(failed, &error, words, size);
	hits->packets = count.hits_set ? count.hits : 0;
	hits->bytes = count.bytes_set ? count.bytes : 0;
	return 0;
}
