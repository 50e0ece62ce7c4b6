/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A flow: its key, its hash, and the words in which a table keeps it. crates/abi/src/flow.rs explains the layout;
 * docs/decisions/0033-tcp-tracking.md why it is so.
 */
#ifndef WEIR_TRACK_FLOW_H
#define WEIR_TRACK_FLOW_H

#include "core/env.h"

enum {
	FLOW_KEY_WORDS = 5,
	FLOW_STATE_WORDS = 3,
	FLOW_ENTRIES = 32,   /* of a bucket */
	FLOW_PREFERRED = 24, /* used entries below which the first bucket of a key takes a new flow */
	FLOW_TICK_SHIFT = 24,
};

#define FLOW_TICKS (UINT32_C(1) << 27) /* times are modulo this */
#define FLOW_TICKS_EARLY (1 << 12)     /* a flow may be this much newer than a packet */

/* The state of a flow: FlowState. */
enum flow_state {
	FLOW_SYN_SENT = 1,
	FLOW_SYN_SENT2 = 2,
	FLOW_SYN_RECEIVED = 3,
	FLOW_SYN_RECEIVED2 = 4,
	FLOW_ESTABLISHED = 5,
	FLOW_RESETTING = 6,
	FLOW_FIN_WAIT = 7,
	FLOW_CLOSE_WAIT = 8,
	FLOW_LAST_ACK = 9,
	FLOW_TIME_WAIT = 10,
	FLOW_CLOSED = 11,
	FLOW_UNREPLIED = 12,
	FLOW_REPLIED = 13,
	FLOW_RESTORED = 14,
	FLOW_ASSURED = 15,
	FLOW_STATES = 16,
};

/* What a flow has proven, in the upper bits of its tag: FlowClass in crates/abi/src/flow/class.rs. */
enum flow_class {
	FLOW_PROVEN = 0,    /* never evicted */
	FLOW_EMBRYONIC = 1, /* a connection that is not open yet */
	FLOW_UNPROVEN = 2,  /* its sender cannot prove its address */
	FLOW_CLOSING = 3,
};

/* The fields of the status word, the last one of an entry. */
enum {
	STATUS_PROXIED = 27,
	STATUS_WINDOW = 28, /* of side 0; side 1 follows, here and below */
	STATUS_SCALE = 44,
	STATUS_STATE = 52,
	STATUS_OPENER = 56,
	STATUS_IPV6 = 57,
	STATUS_LIBERAL = 58,
	STATUS_REPLIED = 59,
	STATUS_SACK = 60,
	STATUS_SYN = 62,
	STATUS_LOCK = 63,
};

enum {
	SCALE_NONE = 15, /* Side::NO_SCALE */
	SCALE_MAX = 14,
	WINDOW_NONE = 0,
	WINDOW_MAX = 1 << 30,
};

/* What is known of one side: Side in crates/abi/src/flow.rs. */
struct flow_side {
	uint32_t una;
	uint32_t next;
	uint32_t window; /* in eight bits, see window_of() */
	uint32_t scale;
	uint32_t sack; /* 0 or 1 */
};

/* A flow as the sender of a packet sees it. */
struct flow {
	struct flow_side mine; /* the sender's side */
	struct flow_side theirs;
	uint32_t time; /* ticks */
	uint32_t state;
	bool from_opener; /* whether the sender opened the flow */
	bool liberal;
	bool replied;
	bool syn;
	bool proxied;
	uint8_t padding[3]; /* is written too: verifiers before 6.3 refuse arguments with unwritten bytes */
};

/* The smallest window that is not less than a number of bytes, in eight bits: Window::of(). */
WEIR_INLINE uint32_t window_of(uint32_t bytes)
{
	uint32_t shift, rounded;

	bytes = bytes > WINDOW_MAX ? WINDOW_MAX : bytes;
	if (bytes < 8)
		return bytes;
	shift = 28 - (uint32_t)__builtin_clz(bytes);
	rounded = (bytes + (UINT32_C(1) << shift) - 1) >> shift;
	return ((shift + 1) << 3) + rounded - 8;
}

/* Its size in bytes. */
WEIR_INLINE uint32_t window_bytes(uint32_t window)
{
	const uint32_t exponent = window >> 3;

	return exponent ? (8 + (window & 7)) << ((exponent - 1) & 31) : window;
}

/* The ticks from `then` to `now`; 0 if another CPU has written a later time. Without a branch, as BPF has no others. */
WEIR_INLINE uint32_t flow_age(uint32_t now, uint32_t then)
{
	const int32_t age = (int32_t)((now - then + FLOW_TICKS_EARLY) & (FLOW_TICKS - 1)) - FLOW_TICKS_EARLY;

	return (uint32_t)(age & ~(age >> 31));
}

WEIR_INLINE uint32_t status_state(uint64_t status)
{
	return status >> STATUS_STATE & (FLOW_STATES - 1);
}

WEIR_INLINE uint32_t status_time(uint64_t status)
{
	return (uint32_t)status & (FLOW_TICKS - 1);
}

WEIR_INLINE bool status_bit(uint64_t status, uint32_t bit)
{
	return status >> bit & 1;
}

/* A value of two or four bits for each state. */
#define OF_STATE2(state, value) ((uint32_t)(value) << 2 * (state))
#define OF_STATE4(state, value) ((uint64_t)(value) << 4 * (state))

/* What an open connection has proven: nothing before it is answered, nor while one of its sides is unseen. */
WEIR_INLINE uint32_t open_class(uint64_t status)
{
	const uint32_t windows = (uint32_t)(status >> STATUS_WINDOW);

	if (!status_bit(status, STATUS_REPLIED))
		return FLOW_EMBRYONIC;
	return (windows & 0xff) && (windows >> 8 & 0xff) ? FLOW_PROVEN : FLOW_UNPROVEN;
}

/* What a flow has proven: Flow::class(). */
WEIR_INLINE uint32_t status_class(uint64_t status)
{
	const uint32_t classes = OF_STATE2(FLOW_SYN_SENT, FLOW_EMBRYONIC) | OF_STATE2(FLOW_SYN_SENT2, FLOW_EMBRYONIC) |
				 OF_STATE2(FLOW_SYN_RECEIVED, FLOW_EMBRYONIC) |
				 OF_STATE2(FLOW_SYN_RECEIVED2, FLOW_EMBRYONIC) |
				 OF_STATE2(FLOW_FIN_WAIT, FLOW_CLOSING) | OF_STATE2(FLOW_CLOSE_WAIT, FLOW_CLOSING) |
				 OF_STATE2(FLOW_LAST_ACK, FLOW_CLOSING) | OF_STATE2(FLOW_TIME_WAIT, FLOW_CLOSING) |
				 OF_STATE2(FLOW_CLOSED, FLOW_CLOSING) | OF_STATE2(FLOW_UNREPLIED, FLOW_UNPROVEN) |
				 OF_STATE2(FLOW_REPLIED, FLOW_UNPROVEN) | OF_STATE2(FLOW_ASSURED, FLOW_UNPROVEN);
	const uint32_t state = status_state(status);

	if (state == FLOW_ESTABLISHED || state == FLOW_RESETTING)
		return open_class(status);
	return classes >> 2 * state & 3;
}

/* How old a flow counts as when one of its class has to go: Flow::weighted_age(). */
WEIR_INLINE uint32_t status_weighted_age(uint64_t status, uint32_t now)
{
	const uint64_t haste = OF_STATE4(FLOW_TIME_WAIT, 4) | OF_STATE4(FLOW_CLOSED, 4) | OF_STATE4(FLOW_UNREPLIED, 4) |
			       OF_STATE4(FLOW_LAST_ACK, 2) | OF_STATE4(FLOW_REPLIED, 2);

	return flow_age(now, status_time(status)) << (haste >> 4 * status_state(status) & 15);
}

/* The half of a word that belongs to a side. Side 0 has the upper one. */
WEIR_INLINE uint32_t half_of(uint64_t word, uint32_t side)
{
	return (uint32_t)(word >> (32 - 32 * side));
}

WEIR_INLINE uint64_t halves(uint32_t mine, uint32_t theirs, uint32_t side)
{
	return (uint64_t)mine << (32 - 32 * side) | (uint64_t)theirs << (32 * side);
}

WEIR_INLINE struct flow_side side_load(const uint64_t *words, uint32_t side)
{
	const uint64_t status = words[2];

	return (struct flow_side){
		.una = half_of(words[0], side),
		.next = half_of(words[1], side),
		.window = status >> (STATUS_WINDOW + 8 * side) & 0xff,
		.scale = status >> (STATUS_SCALE + 4 * side) & 0xf,
		.sack = status_bit(status, STATUS_SACK + side),
	};
}

/* The flow of the three state words, as a packet of `sender` sees it. */
WEIR_INLINE struct flow flow_load(const uint64_t *words, uint32_t sender)
{
	const uint64_t status = words[2];

	return (struct flow){
		.mine = side_load(words, sender),
		.theirs = side_load(words, 1 - sender),
		.time = status_time(status),
		.state = status_state(status),
		.from_opener = status_bit(status, STATUS_OPENER) == sender,
		.liberal = status_bit(status, STATUS_LIBERAL),
		.replied = status_bit(status, STATUS_REPLIED),
		.syn = status_bit(status, STATUS_SYN),
		.proxied = status_bit(status, STATUS_PROXIED),
	};
}

WEIR_INLINE uint64_t side_status(const struct flow_side *side, uint32_t number)
{
	return (uint64_t)side->window << (STATUS_WINDOW + 8 * number) |
	       (uint64_t)side->scale << (STATUS_SCALE + 4 * number) | (uint64_t)side->sack << (STATUS_SACK + number);
}

WEIR_INLINE void flow_store(uint64_t *words, const struct flow *flow, uint32_t sender, uint32_t is_ipv6)
{
	const uint32_t opener = flow->from_opener ? sender : 1 - sender;

	words[0] = halves(flow->mine.una, flow->theirs.una, sender);
	words[1] = halves(flow->mine.next, flow->theirs.next, sender);
	words[2] = flow->time | side_status(&flow->mine, sender) | side_status(&flow->theirs, 1 - sender) |
		   (uint64_t)flow->state << STATUS_STATE | (uint64_t)opener << STATUS_OPENER |
		   (uint64_t)is_ipv6 << STATUS_IPV6 | (uint64_t)flow->liberal << STATUS_LIBERAL |
		   (uint64_t)flow->replied << STATUS_REPLIED | (uint64_t)flow->syn << STATUS_SYN |
		   (uint64_t)flow->proxied << STATUS_PROXIED;
}

#endif
