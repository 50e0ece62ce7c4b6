/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The bytes of a packet that leaves in place of a received one. The reference is crates/policy/src/ir/eval/rewrite.
 *
 * The headers of the received packet are copied and changed there, so rules, samples and captures see what was
 * received. Checksums of new segments are computed, checksums of translated segments are updated (RFC 1624).
 */
#ifndef WEIR_PROXY_REWRITE_H
#define WEIR_PROXY_REWRITE_H

#include "core/packet.h"
#include "track/subject.h"

/* Where the fields of a TCP header are (RFC 9293, section 3.1), and of an ICMP header (RFC 792). */
enum {
	SEGMENT_SEQ = 4,
	SEGMENT_ACK_NUMBER = 8,
	SEGMENT_DATA_OFFSET = 12,
	SEGMENT_WINDOW = 14,
	SEGMENT_CHECKSUM = 16,
	ICMP_CHECKSUM = 2,
};

enum {
	IPV4_HEADER_BYTES = 20,
	IPV6_HEADER_BYTES = 40,
	REPLY_HOPS = 64,
	ETHERNET_ENDS_BYTES = 12,
};

/* The bytes from `at` on: at least REWRITE_BYTES - WEIR_WINDOW_BYTES. */
WEIR_INLINE uint8_t *rewrite_at(struct weir_rewrite *rewrite, uint32_t at)
{
	return rewrite->bytes + bounded(at, WEIR_WINDOW_BYTES - 1);
}

WEIR_INLINE void put16(uint8_t *at, uint32_t value)
{
	const uint16_t word = __builtin_bswap16((uint16_t)value);

	__builtin_memcpy(at, &word, sizeof(word));
}

WEIR_INLINE void put32(uint8_t *at, uint32_t value)
{
	const uint32_t word = __builtin_bswap32(value);

	__builtin_memcpy(at, &word, sizeof(word));
}

WEIR_INLINE void put64(uint8_t *at, uint64_t value)
{
	put32(at, (uint32_t)(value >> 32));
	put32(at + 4, (uint32_t)value);
}

/* Adds the carries of a sum of 16-bit words. */
WEIR_INLINE uint32_t sum_folded(uint32_t sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

WEIR_INLINE uint32_t sum32(uint32_t word)
{
	return (word >> 16) + (word & 0xffff);
}

WEIR_INLINE uint32_t sum64(uint64_t word)
{
	return sum32((uint32_t)(word >> 32)) + sum32((uint32_t)word);
}

/*
 * Replaces a number of 16 or 32 bits. `*sum` becomes the sum of what its words add to the checksum: ~m + m'. An
 * unchanged number adds nothing, because ~m + m is a second representation of 0.
 */
WEIR_INLINE void patch16(struct weir_rewrite *rewrite, uint32_t at, uint32_t value, uint32_t *sum)
{
	uint8_t *field = rewrite_at(rewrite, at);
	const uint32_t old = be16(field);

	if (old == value)
		return;
	put16(field, value);
	*sum = forget(*sum + 0xffff - old + value);
}

WEIR_INLINE void patch32(struct weir_rewrite *rewrite, uint32_t at, uint32_t value, uint32_t *sum)
{
	/* The words that the number is in: three if it begins inside of one. */
	uint8_t *words = rewrite_at(rewrite, at & ~1u);
	const bool odd = at & 1;
	uint8_t *field = words + odd;

	if (be32(field) == value)
		return;
	*sum += 3 * 0xffff - sum32(be32(words)) - (odd ? be16(words + 4) : 0xffff);
	put32(field, value);
	*sum = forget(*sum + sum32(be32(words)) + (odd ? be16(words + 4) : 0));
}

/* Adds to a number of 32 bits. */
WEIR_INLINE void patch_add(struct weir_rewrite *rewrite, uint32_t at, uint32_t difference, uint32_t *sum)
{
	patch32(rewrite, at, be32(rewrite_at(rewrite, at)) + difference, sum);
}

/* The checksum after a change. A wrong one stays wrong. */
WEIR_INLINE void patch_checksum(struct weir_rewrite *rewrite, uint32_t at, uint32_t sum)
{
	uint8_t *field = rewrite_at(rewrite, at);

	if (sum)
		put16(field, ~sum_folded(0xffff - be16(field) + sum));
}

/* Copies the first bytes of a packet. Returns false if they were not captured. */
#ifdef WEIR_BURSTS
WEIR_INLINE bool rewrite_from(const struct frame *frame, uint32_t bytes, struct weir_rewrite *rewrite)
{
	uint32_t at = 0;

	if (!frame_has(frame, bytes))
		return false;
	for (; at + 8 <= bytes; at += 8)
		__builtin_memcpy(rewrite->bytes + at, frame->data + at, 8);
	for (; at < bytes; at++)
		rewrite->bytes[at] = frame->data[at];
	return true;
}
#else
WEIR_IN_KERNEL bool rewrite_from(const struct frame *frame, uint32_t bytes, struct weir_rewrite *rewrite);
#endif

/* An option of a translated segment. */
struct option_place {
	uint32_t kind;
	uint32_t at; /* of its data */
	uint32_t bytes;
};

WEIR_INLINE void translate_option(struct weir_rewrite *rewrite, struct edit *edit, const struct option_place *option)
{
	const bool to_server = edit->kind == EDIT_FROM_CLIENT;

	if (option->kind == OPTION_SACK && to_server && option->bytes % 8 == 0) {
		for (uint32_t edge = 0; edge < 2 * SACK_BLOCKS_MAX; edge++)
			if (4 * edge < option->bytes)
				patch_add(rewrite, option->at + 4 * edge, 0 - edit->proxied.delta, &edit->sum);
	}
	if (option->kind == OPTION_TIMESTAMPS && option->bytes == 8 &&
	    proxied_has(&edit->proxied, PROXIED_TIMESTAMPS)) {
		if (to_server)
			patch_add(rewrite, option->at + 4, 0 - edit->proxied.stamp, &edit->sum);
		else if (!edit->stamps)
			patch_add(rewrite, option->at, edit->proxied.stamp, &edit->sum);
		edit->stamps++;
	}
}

/* In the kernel a function that the verifier follows once. */
#ifdef WEIR_BURSTS

WEIR_INLINE void rewrite_option(struct weir_rewrite *rewrite, struct edit *edit, const struct option_place *option)
{
	translate_option(rewrite, edit, option);
}

#else

WEIR_IN_KERNEL void rewrite_option(struct weir_rewrite *rewrite, struct edit *edit, const struct option_place *option);

#endif

/* Translates the options of a segment: `bytes` of them at `start`. */
WEIR_INLINE void translate_options(struct weir_rewrite *rewrite, struct edit *edit, uint32_t start, uint32_t bytes)
{
	uint32_t at = 0;

	for (uint32_t step = 0; step < TCP_OPTIONS_MAX && at < bytes; step++) {
		const uint8_t *option = rewrite_at(rewrite, start + at);
		uint32_t length = 1;

		if (option[0] == OPTION_END)
			return;
		if (option[0] != OPTION_NOP) {
			const struct option_place place = {option[0], start + at + 2, option[1] - 2u};

			length = at + 1 < bytes ? option[1] : 0;
			if (length < 2 || length > bytes - at)
				return;
			rewrite_option(rewrite, edit, &place);
		}
		at = forget(at + length);
	}
}

/* A segment of a proxied flow for the other side. Its length stays. */
WEIR_INLINE void translate_segment(const struct frame *frame, packet_view *packet, struct edit *edit,
				   struct weir_rewrite *rewrite)
{
	const uint32_t l4 = packet->l4_offset, header = (uint32_t)packet->doff * 4, flags = packet->tcp_flags;
	const struct flow_proxied *proxied = &edit->proxied;
	const bool to_server = edit->kind == EDIT_FROM_CLIENT;
	uint32_t options = header - TCP_HEADER_BYTES;

	edit->sum = 0;
	edit->stamps = 0;
	/* Options that were not captured whole are not read. */
	if (!rewrite_from(frame, l4 + header, rewrite)) {
		options = 0;
		rewrite_from(frame, l4 + TCP_HEADER_BYTES, rewrite);
	}
	rewrite->head = l4 + TCP_HEADER_BYTES + options;
	rewrite->len = frame->len;
	rewrite->checksum_at = l4 + SEGMENT_CHECKSUM;
	rewrite->checksum[0] = rewrite_at(rewrite, l4)[SEGMENT_CHECKSUM];
	rewrite->checksum[1] = rewrite_at(rewrite, l4)[SEGMENT_CHECKSUM + 1];
	if (!to_server)
		patch_add(rewrite, l4 + SEGMENT_SEQ, proxied->delta, &edit->sum);
	else if ((flags & TCP_ACK) && (!(flags & TCP_RST) || packet->ack))
		patch_add(rewrite, l4 + SEGMENT_ACK_NUMBER, 0 - proxied->delta, &edit->sum);
	if (!to_server || flags & TCP_ACK)
		translate_options(rewrite, edit, l4 + TCP_HEADER_BYTES, options);
	if (!(flags & TCP_SYN)) {
		const uint32_t window = to_server ? window_for_server(proxied, packet->window, edit->scale)
						  : window_for_client(proxied, packet->window, edit->scale);

		patch16(rewrite, l4 + SEGMENT_WINDOW, window, &edit->sum);
	}
	patch_checksum(rewrite, l4 + SEGMENT_CHECKSUM, edit->sum);
}

/* An ICMP error for the server about a segment whose number is `at` bytes behind the beginning of the frame. */
WEIR_INLINE void translate_quote(const struct frame *frame, packet_view *packet, const struct edit *edit, uint32_t at,
				 struct weir_rewrite *rewrite)
{
	uint32_t sum = 0;

	rewrite_from(frame, at + 4, rewrite);
	rewrite->head = at + 4;
	rewrite->len = frame->len;
	rewrite->checksum_at = 0;
	patch_add(rewrite, at, 0 - edit->proxied.delta, &sum);
	patch_checksum(rewrite, packet->l4_offset + ICMP_CHECKSUM, sum);
}

/* The sum of the addresses. */
WEIR_INLINE uint32_t sum_of_addresses(packet_view *packet)
{
	if (packet->l3 == L3_IPV4)
		return sum32(packet->saddr) + sum32(packet->daddr);
	return sum64(packet->saddr6.hi) + sum64(packet->saddr6.lo) + sum64(packet->daddr6.hi) +
	       sum64(packet->daddr6.lo);
}

/* The IP header of a packet that goes back, in front of `bytes` bytes. */
WEIR_INLINE void build_ipv4(uint8_t *at, packet_view *packet, uint32_t bytes)
{
	const uint32_t first = 0x4500u << 16 | (IPV4_HEADER_BYTES + bytes);
	/* Never fragmented, so it needs no identification (RFC 6864). */
	const uint32_t second = 0x4000;
	const uint32_t third = (uint32_t)(REPLY_HOPS << 8 | PROTO_TCP) << 16;
	const uint32_t sum = sum32(first) + sum32(second) + sum32(third) + sum_of_addresses(packet);

	put32(at, first);
	put32(at + 4, second);
	put32(at + 8, third | (~sum_folded(sum) & 0xffff));
	put32(at + 12, packet->daddr);
	put32(at + 16, packet->saddr);
}

WEIR_INLINE void build_ipv6(uint8_t *at, packet_view *packet, uint32_t bytes)
{
	put32(at, 0x60000000);
	put32(at + 4, bytes << 16 | PROTO_TCP << 8 | REPLY_HOPS);
	put64(at + 8, packet->daddr6.hi);
	put64(at + 16, packet->daddr6.lo);
	put64(at + 24, packet->saddr6.hi);
	put64(at + 32, packet->saddr6.lo);
}

/* Gives the received IP header the length of another segment. */
WEIR_INLINE void adjust_ip(struct weir_rewrite *rewrite, packet_view *packet, uint32_t bytes)
{
	const uint32_t l3 = packet->l3_offset, headers = packet->l4_offset - l3;
	uint32_t sum = 0;

	if (packet->l3 == L3_IPV6) {
		put16(rewrite_at(rewrite, l3) + 4, headers - IPV6_HEADER_BYTES + bytes);
		return;
	}
	patch16(rewrite, l3 + 2, headers + bytes, &sum);
	patch_checksum(rewrite, l3 + 10, sum);
}

WEIR_INLINE void swap_ethernet_ends(uint8_t *frame)
{
	for (uint32_t i = 0; i < ETHERNET_ENDS_BYTES / 2; i++) {
		const uint8_t byte = frame[i];

		frame[i] = frame[ETHERNET_ENDS_BYTES / 2 + i];
		frame[ETHERNET_ENDS_BYTES / 2 + i] = byte;
	}
}

/* Writes the words of an option behind those before it, and adds them to the sum. */
WEIR_INLINE void build_word(uint8_t *header, uint32_t *words, uint32_t word, uint32_t *sum)
{
	put32(header + 4 * bounded(*words, 15), word);
	*sum += sum32(word);
	*words += 1;
}

/* The TCP header of a new segment between two ports. `sum` is the sum of the pseudo header without the length. */
WEIR_INLINE uint32_t build_segment(uint8_t *header, const struct new_segment *segment, uint32_t ports, uint32_t sum)
{
	uint32_t words = 0, at_words = 3, bytes, fourth;

	build_word(header, &words, ports, &sum);
	build_word(header, &words, segment->seq, &sum);
	build_word(header, &words, segment->ack, &sum);
	words = 5;
	put32(header + 16, 0);
	if (segment->flags & TCP_SYN)
		build_word(header, &words, 2u << 24 | 4u << 16 | segment->mss, &sum);
	if (segment->has_stamp) {
		const uint32_t first = segment->sack ? OPTION_SACK_PERMITTED << 8 | 2 : OPTION_NOP << 8 | OPTION_NOP;

		build_word(header, &words, first << 16 | OPTION_TIMESTAMPS << 8 | 10, &sum);
		build_word(header, &words, segment->stamp, &sum);
		build_word(header, &words, segment->echo, &sum);
		if (segment->scale != SCALE_NONE)
			build_word(header, &words,
				   (uint32_t)OPTION_NOP << 24 | OPTION_SCALE << 16 | 3 << 8 | segment->scale, &sum);
	}
	fourth = words << 28 | (uint32_t)segment->flags << 16 | segment->window;
	build_word(header, &at_words, fourth, &sum);
	bytes = 4 * words;
	if (segment->octets)
		header[bounded(bytes, 63)] = 0;
	bytes += segment->octets;
	put16(header + SEGMENT_CHECKSUM, ~sum_folded(sum + bytes));
	return bytes;
}

/* The bytes of the header of a new segment, and its data. */
WEIR_INLINE uint32_t segment_bytes(const struct new_segment *segment)
{
	const uint32_t mss = segment->flags & TCP_SYN ? 4 : 0, stamps = segment->has_stamp ? TIMESTAMPS_BYTES : 0;
	const uint32_t scale = segment->has_stamp && segment->scale != SCALE_NONE ? 4 : 0;

	return TCP_HEADER_BYTES + mss + stamps + scale + segment->octets;
}

/*
 * A new segment between the ends of the packet. VLAN tags and, if it goes on, the IP header with its options are taken
 * from the packet. What the packet carried is left out.
 */
WEIR_INLINE void build_packet(const struct frame *frame, packet_view *packet, const struct edit *edit,
			      struct weir_rewrite *rewrite)
{
	const struct new_segment *segment = &edit->segment;
	const bool goes_back = edit->kind == EDIT_BACK, is_ipv6 = packet->l3 == L3_IPV6;
	const uint32_t bytes = segment_bytes(segment), l3 = packet->l3_offset;
	const uint32_t own_ip = is_ipv6 ? IPV6_HEADER_BYTES : IPV4_HEADER_BYTES;
	const uint32_t l4 = goes_back ? l3 + own_ip : packet->l4_offset;
	const uint32_t ports = goes_back ? (uint32_t)packet->dport << 16 | packet->sport
					 : (uint32_t)packet->sport << 16 | packet->dport;

	rewrite_from(frame, packet->l4_offset, rewrite);
	if (!goes_back) {
		adjust_ip(rewrite, packet, bytes);
	} else {
		if (frame->link == LINK_ETHERNET)
			swap_ethernet_ends(rewrite->bytes);
		if (is_ipv6)
			build_ipv6(rewrite_at(rewrite, l3), packet, bytes);
		else
			build_ipv4(rewrite_at(rewrite, l3), packet, bytes);
	}
	build_segment(rewrite_at(rewrite, l4), segment, ports, sum_of_addresses(packet) + PROTO_TCP);
	rewrite->head = l4 + bytes;
	rewrite->len = rewrite->head;
	rewrite->checksum_at = 0;
}

/* Makes what leaves in place of a packet. `quoted_seq` is the offset of the number that an ICMP error quotes. */
WEIR_INLINE void rewrite_packet(const struct frame *frame, packet_view *packet, struct edit *edit, uint32_t quoted_seq,
				struct weir_rewrite *rewrite)
{
	switch (edit->kind) {
	case EDIT_FROM_CLIENT:
	case EDIT_FROM_SERVER:
		translate_segment(frame, packet, edit, rewrite);
		break;
	case EDIT_QUOTE:
		translate_quote(frame, packet, edit, quoted_seq, rewrite);
		break;
	default:
		build_packet(frame, packet, edit, rewrite);
		break;
	}
}

#endif
