/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What translates the packets of a proxied flow: crates/abi/src/flow/proxied.rs explains the layout. It lies beside the
 * table of flows, one for each entry.
 */
#ifndef WEIR_PROXY_PROXIED_H
#define WEIR_PROXY_PROXIED_H

#include "track/flow.h"

/* The bits of a proxied flow. */
enum {
	PROXIED_CLIENT_SCALE = 0, /* four bits */
	PROXIED_TOLD_SCALE = 4,	  /* four bits */
	PROXIED_TIMESTAMPS = 8,
	PROXIED_SACK = 9,
};

struct flow_proxied {
	uint32_t delta;
	uint32_t stamp;
	uint32_t isn;
	uint16_t mss;
	uint16_t bits;
};

WEIR_INLINE uint32_t proxied_scale(const struct flow_proxied *proxied, uint32_t at)
{
	return proxied->bits >> at & 0xf;
}

WEIR_INLINE bool proxied_has(const struct flow_proxied *proxied, uint32_t bit)
{
	return proxied->bits >> bit & 1;
}

/* A window with another shift, as large as the field allows. */
WEIR_INLINE uint32_t window_shifted(uint32_t window, uint32_t from, uint32_t to)
{
	const uint32_t shifted = window << from >> to;

	return shifted > 0xffff ? 0xffff : shifted;
}

/* The window field for the server of a client's segment without SYN, if the server shifts it by `scale`. */
WEIR_INLINE uint32_t window_for_server(const struct flow_proxied *proxied, uint32_t window, uint32_t scale)
{
	const uint32_t shift = proxied_scale(proxied, PROXIED_CLIENT_SCALE);

	return shift == SCALE_NONE ? window : window_shifted(window, shift, scale);
}

/* The window field for the client of a server's segment, which the server has shifted by `scale`. */
WEIR_INLINE uint32_t window_for_client(const struct flow_proxied *proxied, uint32_t window, uint32_t scale)
{
	return window_shifted(window, scale, proxied_scale(proxied, PROXIED_TOLD_SCALE));
}

/* Enters the server's initial number, and its timestamp if it has one. */
WEIR_INLINE void proxied_answer(struct flow_proxied *proxied, uint32_t isn, bool has_stamp, uint32_t stamp)
{
	proxied->isn = isn;
	proxied->delta -= isn;
	proxied->stamp -= has_stamp ? stamp : proxied->stamp;
	if (!has_stamp)
		proxied->bits &= (uint16_t)~(1u << PROXIED_TIMESTAMPS);
}

#endif
