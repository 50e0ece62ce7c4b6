/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * How a packet changes before it leaves. The tracker decides it; proxy/rewrite.h carries it out once the packet is
 * accepted or answered. docs/decisions/0037-synproxy.md.
 */
#ifndef WEIR_PROXY_EDIT_H
#define WEIR_PROXY_EDIT_H

#include "proxy/proxied.h"

enum edit_kind {
	EDIT_NONE,
	EDIT_FROM_CLIENT, /* a client's segment, with the numbers that the server knows */
	EDIT_FROM_SERVER, /* a server's segment, with the numbers that the client knows */
	EDIT_QUOTE,	  /* an ICMP error about a segment of the server */
	EDIT_ON,	  /* a new segment goes on in place of the packet */
	EDIT_BACK,	  /* a new segment goes back to its sender */
};

/* A new segment: Built in crates/policy/src/ir/eval/rewrite/build.rs. */
struct new_segment {
	uint32_t seq;
	uint32_t ack;
	uint32_t stamp; /* its timestamps, if it has them */
	uint32_t echo;
	uint16_t window;
	uint16_t mss;  /* of a SYN */
	uint8_t scale; /* of a SYN, or SCALE_NONE */
	uint8_t flags;
	uint8_t octets; /* bytes of data, all 0: at most one */
	bool has_stamp;
	bool sack;
};

struct edit {
	uint32_t kind;
	uint32_t scale; /* the shift that the sender, or the server for a client's segment, uses */
	struct flow_proxied proxied;
	struct new_segment segment;
	uint32_t sum;	 /* while a segment is translated: what its changes add to the checksum */
	uint32_t stamps; /* and the timestamps that were found */
};

#endif
