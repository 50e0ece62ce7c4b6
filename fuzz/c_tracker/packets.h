/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Packets from the bytes of a fuzzer: of few flows, with plausible numbers, all flags, options of all kinds, ICMP
 * errors with quotes, fragments, VLAN tags and IPv6; or raw bytes.
 */
#ifndef C_TRACKER_PACKETS_H
#define C_TRACKER_PACKETS_H

#include "core/packet.h"
#include "track/tcp_options.h"

#include <string.h>

enum { FUZZ_FRAME_MAX = 320 };

/* The bytes that are left. Behind them are zeros. */
struct input {
	const uint8_t *at;
	const uint8_t *end;
};

static uint8_t input_byte(struct input *input)
{
	return input->at < input->end ? *input->at++ : 0;
}

static uint32_t input_word(struct input *input, uint32_t bytes)
{
	uint32_t word = 0;

	for (uint32_t i = 0; i < bytes; i++)
		word = word << 8 | input_byte(input);
	return word;
}

/* A frame that is being written. */
struct draft {
	uint8_t bytes[FUZZ_FRAME_MAX];
	uint32_t length;
};

static void put(struct draft *draft, uint64_t value, uint32_t bytes)
{
	for (uint32_t i = bytes; i-- && draft->length < FUZZ_FRAME_MAX;)
		draft->bytes[draft->length++] = (uint8_t)(value >> 8 * i);
}

static void put_input(struct draft *draft, struct input *input, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		put(draft, input_byte(input), 1);
}

/* What a packet is of. */
struct flow_of {
	bool is_ipv6;
	bool is_reply;
	uint32_t client; /* number in its address */
	uint32_t server;
	uint32_t client_port;
	uint32_t server_port;
	uint32_t protocol;
};

static struct flow_of reversed(struct flow_of flow)
{
	flow.is_reply = !flow.is_reply;
	return flow;
}

static const uint8_t protocols[16] = {6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 17, 1, 58, 132, 47, 136};

/* Three bytes: a flow of few, or one of many clients of one server. */
static struct flow_of input_flow(struct input *input)
{
	static const uint16_t ports[4] = {80, 53, 23, 1024};
	const uint8_t kind = input_byte(input), ends = input_byte(input), port = input_byte(input);

	return (struct flow_of){
		.is_ipv6 = kind >> 4 & 1,
		.is_reply = kind >> 5 & 1,
		.client = ends & 7,
		.server = 8 + (ends >> 3 & 3),
		.client_port = 1024 + port,
		.server_port = ports[ends >> 6],
		.protocol = protocols[kind & 15],
	};
}

/* A number near one of a few, forwards or backwards. Two bytes. */
static uint32_t input_number(struct input *input)
{
	static const uint32_t bases[4] = {0, 1000, UINT32_MAX - 500, UINT32_C(1) << 31};
	static const uint32_t steps[4] = {1, 9, 1460, 70000};
	const uint8_t base = input_byte(input);

	return bases[base & 3] + steps[base >> 2 & 3] * (uint32_t)(int8_t)input_byte(input);
}

static void put_address(struct draft *draft, const struct flow_of *flow, uint32_t number)
{
	if (flow->is_ipv6) {
		put(draft, UINT64_C(0x20010db800000000), 8);
		put(draft, number, 8);
	} else {
		put(draft, 0xc0000200 + number, 4);
	}
}

static void put_addresses(struct draft *draft, const struct flow_of *flow)
{
	put_address(draft, flow, flow->is_reply ? flow->server : flow->client);
	put_address(draft, flow, flow->is_reply ? flow->client : flow->server);
}

static void put_ports(struct draft *draft, const struct flow_of *flow)
{
	put(draft, flow->is_reply ? flow->server_port : flow->client_port, 2);
	put(draft, flow->is_reply ? flow->client_port : flow->server_port, 2);
}

/* The options of a segment, a multiple of four bytes. */
static void put_options(struct draft *draft, struct input *input, uint32_t kind)
{
	const uint32_t start = draft->length;

	switch (kind) {
	case 1:
		put(draft, 0x01030300 | input_byte(input), 4);
		break;
	case 2:
		put(draft, UINT64_C(0x0402010303000000) | (uint64_t)input_byte(input) << 16, 8);
		break;
	case 3: /* timestamps alone */
		put(draft, OPTIONS_TIMESTAMPS, 4);
		put(draft, 1, 8);
		break;
	case 4: /* selective acknowledgement of a block or two */
		put(draft, 0x0101050a, 4);
		put(draft, input_number(input), 4);
		put(draft, input_number(input), 4);
		break;
	case 5:
		put(draft, 0x01010512, 4);
		for (uint32_t i = 0; i < 4; i++)
			put(draft, input_number(input), 4);
		break;
	case 6:
		put_input(draft, input, input_byte(input) % 41);
		break;
	default:
		break;
	}
	while ((draft->length - start) % 4)
		put(draft, 0, 1);
}

/* A segment: flags, kind of options and payload, window, numbers, options. */
static void put_tcp(struct draft *draft, struct input *input, const struct flow_of *flow)
{
	const uint32_t flags = input_byte(input), kind = input_byte(input), window = input_byte(input);
	const uint32_t start = draft->length, payload = (kind >> 3 & 7) * 9;

	put_ports(draft, flow);
	put(draft, input_number(input), 4);
	put(draft, input_number(input), 4);
	put(draft, 0x50, 1);
	put(draft, flags, 1);
	put(draft, window << (kind >> 6 & 3) * 3, 2);
	put(draft, 0, 4);
	put_options(draft, input, kind & 7);
	if (start + 20 <= FUZZ_FRAME_MAX)
		draft->bytes[start + 12] = (uint8_t)((draft->length - start) / 4 << 4);
	for (uint32_t i = 0; i < payload; i++)
		put(draft, 0, 1);
}

static void put_ip(struct draft *draft, const struct flow_of *flow, uint32_t length, uint32_t fragment)
{
	if (flow->is_ipv6) {
		put(draft, UINT32_C(6) << 28, 4);
		put(draft, length + (fragment ? 8 : 0), 2);
		put(draft, fragment ? PROTO_FRAG : flow->protocol, 1);
		put(draft, 64, 1);
		put_addresses(draft, flow);
		if (fragment)
			put(draft,
			    (uint64_t)flow->protocol << 56 | (uint64_t)(fragment & 0x1fff) << 35 |
				    (uint64_t)(fragment >> 13 & 1) << 32 | 7,
			    8);
	} else {
		put(draft, 0x4500, 2);
		put(draft, length + 20, 2);
		put(draft, 7, 2);
		put(draft, fragment, 2);
		put(draft, 64, 1);
		put(draft, flow->protocol, 1);
		put(draft, 0, 2);
		put_addresses(draft, flow);
	}
}

/* A packet as an error quotes it. */
static void put_quote(struct draft *draft, struct input *input, struct flow_of flow)
{
	const uint8_t kind = input_byte(input);

	flow.protocol = protocols[kind & 15];
	flow.is_ipv6 ^= kind >> 7 & 1;
	put_ip(draft, &flow, 20, kind >> 4 & 1 ? 0x2000 : 0);
	if (flow.protocol == PROTO_ICMP || flow.protocol == PROTO_ICMP6) {
		put(draft, flow.is_ipv6 ? 0x80 : 8, 1);
		put(draft, 0, 3);
		put(draft, flow.client_port, 2);
		put(draft, 1, 2);
	} else {
		put_ports(draft, &flow);
		put(draft, input_number(input), 4);
	}
}

static void put_icmp(struct draft *draft, struct input *input, const struct flow_of *flow)
{
	static const uint8_t types[16] = {8, 0, 13, 14, 3, 11, 5, 9, 128, 129, 1, 2, 3, 4, 130, 143};
	const uint8_t kind = input_byte(input);

	put(draft, kind >> 4 & 1 ? kind : types[kind & 15], 1);
	put(draft, 0, 3);
	put(draft, flow->client_port, 2);
	put(draft, 1, 2);
	if (kind >> 5 & 1)
		put_quote(draft, input, reversed(*flow));
}

static void put_transport(struct draft *draft, struct input *input, const struct flow_of *flow)
{
	switch (flow->protocol) {
	case PROTO_TCP:
		put_tcp(draft, input, flow);
		break;
	case PROTO_ICMP:
	case PROTO_ICMP6:
		put_icmp(draft, input, flow);
		break;
	default:
		put_ports(draft, flow);
		put(draft, 8, 2);
		put(draft, 0, 2);
		break;
	}
}

/* The link header. Two bits say how many VLAN tags, the others which. */
static void put_link(struct draft *draft, uint32_t link, uint32_t ether_type, uint32_t tags)
{
	static const uint32_t paddings[4] = {12, 0, 14, 0};

	if (link == LINK_RAW_IP)
		return;
	for (uint32_t i = 0; i < paddings[link]; i++)
		put(draft, 2, 1);
	for (uint32_t tag = 0; link != LINK_COOKED2 && tag < (tags & 3); tag++) {
		put(draft, tag ? ETHER_VLAN : ETHER_QINQ, 2);
		put(draft, tags >> 2 & 3, 2);
	}
	put(draft, ether_type, 2);
	for (uint32_t i = 0; link == LINK_COOKED2 && i < 18; i++)
		put(draft, 0, 1);
}

/* A packet of some flow: flow, tags and fragment, transport header. */
static void put_packet(struct draft *draft, struct input *input, uint32_t link)
{
	static const uint16_t fragments[4] = {0x2000, 0x4000, 0x0001, 0x2001};
	const struct flow_of flow = input_flow(input);
	const uint8_t form = input_byte(input);
	struct draft transport = {.length = 0};

	put_transport(&transport, input, &flow);
	put_link(draft, link, flow.is_ipv6 ? ETHER_IPV6 : ETHER_IPV4, form & 15);
	put_ip(draft, &flow, transport.length, form >> 4 == 15 ? fragments[input_byte(input) & 3] : 0);
	for (uint32_t i = 0; i < transport.length; i++)
		put(draft, transport.bytes[i], 1);
}

/* The SYN of one of many clients. */
static void put_syn(struct draft *draft, uint32_t link, uint32_t number)
{
	const struct flow_of flow = {.client = 16 + number % 200,
				     .server = 8,
				     .client_port = 1024 + number,
				     .server_port = 80,
				     .protocol = PROTO_TCP};

	put_link(draft, link, ETHER_IPV4, 0);
	put_ip(draft, &flow, 20, 0);
	put_ports(draft, &flow);
	put(draft, 1000, 4);
	put(draft, 0, 4);
	put(draft, 0x50024000, 4);
	put(draft, 0, 4);
}

#endif
