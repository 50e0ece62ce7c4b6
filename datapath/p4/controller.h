/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The way between a pipeline and its controller, another thread. An errand carries a packet there, and the answer back.
 * One errand is away at a time.
 *
 *	pipeline	send()			sent = returned + 1
 *	controller	serves the errand	returned = sent
 *	pipeline	!controller_is_busy()	reads the answer
 *
 * The errand belongs to the controller while it is busy. dpdk/controller.c is the thread.
 */
#ifndef WEIR_P4_CONTROLLER_H
#define WEIR_P4_CONTROLLER_H

#include "core/env.h"

/* What the controller is asked. */
enum p4_request {
	REQUEST_TRACK,	/* track this packet */
	REQUEST_ACCEPT, /* the last packet was accepted: enter the flow that it opens */
};

struct p4_errand {
	enum p4_request request;
	/* The packet. */
	uint32_t captured;
	uint32_t length;
	uint32_t link; /* enum link */
	uint32_t now;  /* ticks */
	uint32_t from; /* enum from_side */
	uint8_t bytes[WEIR_WINDOW_BYTES];
	/* The answer, as in struct track. */
	uint8_t state;
	uint8_t refused;
	uint8_t opens;
};

struct p4_controller {
	/* Sends the errand, with the captured bytes of a packet. The controller is not busy. */
	void (*send)(struct p4_controller *controller, const uint8_t *bytes);
	uint64_t sent;	       /* errands; only the pipeline writes it */
	uint64_t returned;     /* only the controller writes it */
	uint64_t tracked_here; /* packets that the pipeline tracked itself */
	uint64_t tracked_away; /* packets that it sent */
	struct p4_errand errand;
};

WEIR_INLINE bool controller_is_busy(const struct p4_controller *controller)
{
	return controller->sent != __atomic_load_n(&controller->returned, __ATOMIC_ACQUIRE);
}

#endif
