/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Samples for mitigation: a ring of the beginnings of packets, which the engine reads
 * (crates/engine/src/live/samples/ring.rs). Only these programs can write to it, while every local user may send
 * packets out of an interface. A full ring loses samples. The loss is known, because the port counts the samples that
 * were made.
 */
#ifndef WEIR_OBSERVE_KERNEL_SAMPLES_H
#define WEIR_OBSERVE_KERNEL_SAMPLES_H

#include "kernel/bpf.h"
#include "kernel/mode.h"
#include "kernel/ports.h"
#include "core/verdict.h"

enum {
	SAMPLE_BYTES = 256,	  /* all headers, and the beginning of the payload */
	SAMPLE_RING_BYTES = 4096, /* if it has no reader; the engine makes a larger one */
};

/* SampleRecord in crates/abi/src/kernel.rs */
struct sample_record {
	uint32_t len;  /* of the packet */
	uint16_t cap;  /* bytes of it that follow */
	uint16_t side; /* of the port at which it arrived */
	uint8_t bytes[SAMPLE_BYTES];
};

_Static_assert(sizeof(struct sample_record) == 264, "SampleRecord");

struct {
	int (*type)[BPF_MAP_TYPE_RINGBUF];
	int (*max_entries)[SAMPLE_RING_BYTES];
} weir_samples WEIR_SECTION(".maps");

/* A record for a packet; NULL if it is not sampled, samples have no reader, or the ring is full. */
WEIR_INLINE struct sample_record *sample_begin(struct arrival arrival, uint32_t verdict, uint32_t len)
{
	struct sample_record *record;

	if (!weir_mode.samples || !(verdict & VERDICT_SAMPLED))
		return NULL;
	port_counters(arrival.cpu, arrival.port)->sampled++;
	record = bpf_ringbuf_reserve(&weir_samples, sizeof(*record), 0);
	if (!record)
		return NULL;
	record->len = len;
	record->cap = (uint16_t)(len < SAMPLE_BYTES ? len : SAMPLE_BYTES);
	record->side = weir_ports.port[arrival.port & (PORTS_MAX - 1)].side;
	return record;
}

#endif
