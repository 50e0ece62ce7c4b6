/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The options of a TCP segment (RFC 9293, section 3.2) as the tracker reads them: crates/policy/src/ir/eval/tracking,
 * segment.rs.
 */
#ifndef WEIR_TRACK_TCP_OPTIONS_H
#define WEIR_TRACK_TCP_OPTIONS_H

#include "track/flow.h"

enum {
	TCP_HEADER_BYTES = 20,
	TCP_OPTIONS_MAX = 40,
	TIMESTAMPS_BYTES = 12, /* NOP, NOP, timestamps */
	/* A power of two. Behind it are bytes that a read of the last ones may touch. */
	OPTIONS_ROOM = 64,
	OPTIONS_BEYOND = 8,
	SACK_BLOCKS_MAX = 4,
};

enum option {
	OPTION_END = 0,
	OPTION_NOP = 1,
	OPTION_MSS = 2,
	OPTION_SCALE = 3,
	OPTION_SACK_PERMITTED = 4,
	OPTION_SACK = 5,
	OPTION_TIMESTAMPS = 8,
};

/* NOP, NOP, timestamps: how almost every segment begins, if it has options (RFC 7323, appendix A). */
#define OPTIONS_TIMESTAMPS UINT32_C(0x0101080a)

/* What the options say. */
struct tcp_options {
	uint32_t scale;	  /* of a SYN, or SCALE_NONE */
	uint32_t highest; /* highest edge of the acknowledgement and of selective ones */
	bool sack;	  /* whether selective acknowledgements are permitted */
#ifdef WEIR_REWRITES
	bool has_mss;
	bool has_stamp;
	uint16_t mss; /* 0 without the option */
	uint32_t stamp;
	uint32_t echo;
#endif
};

/* `a` comes after `b` (RFC 9293, section 3.4). */
WEIR_INLINE bool seq_after(uint32_t a, uint32_t b)
{
	return (int32_t)(b - a) < 0;
}

/* A byte of the options, which are in OPTIONS_ROOM bytes. */
WEIR_INLINE const uint8_t *option_at(const uint8_t *options, uint32_t at)
{
	return options + (at & (OPTIONS_ROOM - 1));
}

/* Reads the option at `at`, which has `bytes` bytes. */
WEIR_INLINE void read_option(const uint8_t *options, uint32_t at, uint32_t bytes, struct tcp_options *found)
{
	switch (*option_at(options, at)) {
	case OPTION_SCALE:
		if (bytes == 3) {
			const uint32_t scale = *option_at(options, at + 2);

			found->scale = scale > SCALE_MAX ? SCALE_MAX : scale;
		}
		break;
	case OPTION_SACK_PERMITTED:
		found->sack |= bytes == 2;
		break;
	case OPTION_SACK:
		for (uint32_t block = 0; bytes % 8 == 2 && block < SACK_BLOCKS_MAX; block++) {
			const uint32_t edge = be32(option_at(options, at + 2 + 8 * block + 4));

			if (2 + 8 * block + 8 <= bytes && seq_after(edge, found->highest))
				found->highest = edge;
		}
		break;
#ifdef WEIR_REWRITES
	case OPTION_MSS:
		if (bytes == 4 && !found->has_mss) {
			found->has_mss = true;
			found->mss = be16(option_at(options, at + 2));
		}
		break;
	case OPTION_TIMESTAMPS:
		if (bytes == 10 && !found->has_stamp) {
			found->has_stamp = true;
			found->stamp = be32(option_at(options, at + 2));
			found->echo = be32(option_at(options, at + 6));
		}
		break;
#endif
	default:
		break;
	}
}

/* Reads `bytes` of options up to the first that is cut off. `found` has the values without options. */
WEIR_INLINE void read_options(const uint8_t *options, uint32_t bytes, struct tcp_options *found)
{
	uint32_t at = 0;

	for (uint32_t step = 0; step < TCP_OPTIONS_MAX && at < bytes; step++) {
		const uint8_t kind = *option_at(options, at);
		uint32_t length = 1;

		if (kind == OPTION_END)
			return;
		if (kind != OPTION_NOP) {
			length = at + 1 < bytes ? *option_at(options, at + 1) : 0;
			if (length < 2 || length > bytes - at)
				return;
			read_option(options, at, length, found);
			found->scale = forget(found->scale);
			found->highest = forget(found->highest);
		}
		at = forget(at + length);
	}
}

#endif
