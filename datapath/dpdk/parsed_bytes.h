/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* How much of a frame a P4 pipeline gets: what its parser may read. */
#ifndef WEIR_DPDK_PARSED_BYTES_H
#define WEIR_DPDK_PARSED_BYTES_H

#include <netinet/in.h>

#include <rte_ether.h>

#include "core/env.h"
#include "core/fields.h"

enum { NEAR_BYTES = 128 }; /* of a frame, in which headers end without extension headers */

/* The offset of the IP header behind a link and up to two tags, and the network protocol there. */
static inline uint32_t network_offset(const struct frame *frame, uint32_t *ether_type)
{
	uint32_t at = 12;

	if (frame->link == LINK_RAW_IP) {
		*ether_type = frame->data[0] >> 4 == 4 ? RTE_ETHER_TYPE_IPV4 : RTE_ETHER_TYPE_IPV6;
		return 0;
	}
	for (;; at += 4) {
		*ether_type = (uint32_t)frame->data[at] << 8 | frame->data[at + 1];
		if (at == 20 || (*ether_type != 0x8100 && *ether_type != 0x88a8 && *ether_type != 0x9100))
			return at + 2;
	}
}

/*
 * The first bytes of a frame, beyond which the parser reads nothing: two tags, an IPv4 header with options and a TCP
 * header have 102, and SWX reads 8 bytes at each field. Only extension headers lead further.
 */
static inline uint32_t parsed_bytes(const struct frame *frame)
{
	uint32_t ether_type, at;

	if (frame->cap <= NEAR_BYTES || (frame->link != LINK_ETHERNET && frame->link != LINK_RAW_IP))
		return frame->cap;
	at = network_offset(frame, &ether_type);
	if (ether_type == RTE_ETHER_TYPE_IPV4)
		return NEAR_BYTES;
	if (ether_type != RTE_ETHER_TYPE_IPV6)
		return frame->cap;
	switch (frame->data[at + 6]) { /* the next header */
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_ICMPV6:
		return NEAR_BYTES;
	default:
		return frame->cap;
	}
}

#endif
