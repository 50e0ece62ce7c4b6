/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Runs libFuzzer on the C packet parser, with AddressSanitizer and UndefinedBehaviorSanitizer.
 *
 * The input has the format of the target packet_reference: a link type, how much longer the packet was on the wire, and
 * the frame. The frame is copied to memory of its exact size, so that reads beyond its end are detected.
 */
#include "core/packet.h"
#include "core/raw.h"
#include "core/verdict.h"

#include <stdlib.h>
#include <string.h>

/* Reads raw bits in typical ways: 16 bits at every byte, odd widths, and the maximum width. */
static void read_raw(const struct frame *frame)
{
	struct wide raw;

	for (uint32_t offset = 0; offset < frame->cap + 2; offset++) {
		raw_bits(frame, offset, 0, 16, &raw);
		raw_bits(frame, offset, 3, 13, &raw);
		raw_bits(frame, offset, 7, 64, &raw);
		raw_bits(frame, offset, 1, 127, &raw);
		raw_bits(frame, offset, 7, 128, &raw);
	}
}

static void check(bool holds)
{
	if (!holds)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct weir_frame received;
	struct weir_burst burst = {.frames = &received, .count = 1};
	struct packet packet;
	struct frame frame;
	enum reason reason;
	uint8_t *bytes;

	if (size < 2)
		return 0;
	bytes = malloc(size - 2);
	check(size == 2 || bytes);
	memcpy(bytes, data + 2, size - 2);
	received = (struct weir_frame){.data = bytes, .cap = (uint32_t)size - 2, .len = (uint32_t)size - 2 + data[1]};
	burst.link = data[0] % 4;
	frame = burst_frame(&burst, 0);
	reason = parse_packet(&frame, &packet);
	check(reason < REASON_RULE);
	check(packet.l3_offset <= frame.cap);
	check(reason != REASON_NONE || (uint32_t)packet.l4_offset + packet.l4_length <= frame.len);
	read_raw(&frame);
	free(bytes);
	return 0;
}
