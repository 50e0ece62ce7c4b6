/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * SYN cookies, and the timestamps that keep the options of a SYN: crates/abi/src/cookie.rs explains the layout,
 * docs/decisions/0037-synproxy.md why it is so.
 */
#ifndef WEIR_PROXY_COOKIE_H
#define WEIR_PROXY_COOKIE_H

#include "track/flow_table.h"
#include "core/siphash.h"

enum {
	COOKIE_EPOCH_SHIFT = 36,
	COOKIE_MSS_BITS = 3,
	COOKIE_HASH_SHIFT = 4,
	COOKIE_SIZES = 8,
	STAMP_SHIFT = 20,
	STAMP_OPTIONS = 511,
	STAMP_SACK = 16,
	STAMP_TOLD = 5,
};

/* What a cookie is for. */
struct cookie_request {
	struct flow_key key;
	uint32_t client; /* the side of the client */
	uint32_t isn;	 /* the number of its SYN */
};

WEIR_INLINE uint32_t cookie_epoch(uint64_t time_ns)
{
	return (uint32_t)(time_ns >> COOKIE_EPOCH_SHIFT);
}

/* The MSS that a cookie keeps as this index. */
WEIR_INLINE uint32_t cookie_mss(uint32_t index)
{
	static const uint16_t sizes[COOKIE_SIZES] = {536, 1220, 1300, 1360, 1400, 1440, 1452, 1460};

	return sizes[index & (COOKIE_SIZES - 1)];
}

/* The index of the largest MSS that is not above the client's; 0 if all are. */
WEIR_INLINE uint32_t cookie_mss_index(uint32_t mss)
{
	uint32_t index = 0;

	for (uint32_t i = 1; i < COOKIE_SIZES; i++)
		index += cookie_mss(i) <= mss;
	return index;
}

/* The cookie of a request in an epoch. */
WEIR_INLINE uint32_t cookie_make(const uint64_t *secret, const struct cookie_request *request, uint32_t epoch,
				 uint32_t mss_index)
{
	uint64_t message[FLOW_KEY_WORDS + 2];

	for (uint32_t i = 0; i < FLOW_KEY_WORDS; i++)
		message[i] = request->key.words[i];
	message[FLOW_KEY_WORDS] = (uint64_t)request->isn << 32 | epoch;
	message[FLOW_KEY_WORDS + 1] = (uint64_t)mss_index << 8 | (uint64_t)request->key.is_ipv6 << 1 | request->client;
	return (uint32_t)siphash(secret, message, FLOW_KEY_WORDS + 2) << COOKIE_HASH_SHIFT |
	       (epoch & 1) << COOKIE_MSS_BITS | mss_index;
}

/* The MSS in a cookie, if it was made for this request in the epoch `now` or the one before; else 0. */
WEIR_INLINE uint32_t cookie_check(const uint64_t *secret, const struct cookie_request *request, uint32_t now,
				  uint32_t cookie)
{
	const uint32_t epoch = now - ((cookie >> COOKIE_MSS_BITS ^ now) & 1);
	const uint32_t index = cookie & (COOKIE_SIZES - 1);

	return cookie_make(secret, request, epoch, index) == cookie ? cookie_mss(index) : 0;
}

/*
 * The timestamp of a SYN-ACK at a time. It keeps the client's shift (SCALE_NONE: none), the one that the client is
 * told, and whether blocks may be sent.
 */
WEIR_INLINE uint32_t cookie_stamp(uint64_t time_ns, uint32_t scale, uint32_t told, bool sack)
{
	return ((uint32_t)(time_ns >> STAMP_SHIFT) & ~(uint32_t)STAMP_OPTIONS) | told << STAMP_TOLD |
	       (sack ? STAMP_SACK : 0) | scale;
}

#endif
