/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A P4 program for DPDK's SWX pipeline, as data: `struct p4_program weir_p4_program` of an object that the compiler
 * made. dpdk/pipeline.c configures a pipeline from it. An object needs no headers of DPDK.
 *
 * The words are those of SWX's specification (.spec): structs, headers, extern objects, and lines of instructions. The
 * metadata is m.<field>, a header h.<name>.<field>, the mailbox of an extern e.<name>.<field>.
 *
 * In front of each frame is a header `arrival`, as hardware has intrinsic metadata:
 *
 *	 0               4               8                              16
 *	+---------------+---------------+-------------------------------+
 *	| captured      | length        | time                          |
 *	+---------------+-------+---+---+-------+-------+---------------+
 *	| packet        | chain | l | a | reason| flags | 0             |
 *	+---------------+-------+---+---+-------+-------+---------------+
 *	| 0                             |	l link, a action
 *	+-------------------------------+
 *	32                             40
 *
 * All fields are in network byte order. The program writes action, reason and flags, emits this header first and then
 * all headers that it extracted, and sends each packet to port 0. A program that emits nothing leaves this header in
 * front of the frame.
 */
#ifndef WEIR_P4_PROGRAM_H
#define WEIR_P4_PROGRAM_H

#include "core/env.h"

enum { P4_ARRIVAL_BYTES = 40 };

struct p4_arrival {
	uint32_t captured; /* bytes of the frame that follow */
	uint32_t length;   /* bytes on the wire */
	uint64_t time;	   /* ns, when it was received */
	uint32_t packet;   /* index in the burst */
	uint16_t chain;
	uint8_t link;	/* enum link */
	uint8_t action; /* enum action */
	uint16_t reason;
	uint16_t flags; /* VERDICT_SAMPLED, VERDICT_REWRITTEN */
	uint32_t zero;
	uint64_t zeros;
} __attribute__((packed));

_Static_assert(sizeof(struct p4_arrival) == P4_ARRIVAL_BYTES, "arrival");

struct p4_field {
	const char *name;
	uint32_t bits; /* a multiple of 8 */
};

struct p4_struct {
	const char *name;
	const struct p4_field *fields;
	uint32_t count;
	bool last_varies; /* the last field has at most its bits */
};

struct p4_header {
	const char *name;
	const char *type; /* name of its struct */
};

/*
 * An extern object, the only one of its type, with one member function `run`. `worker` is a struct p4_worker. The
 * function has no state of its own. It returns 1 when it is done. If it returns 0, other packets are decided, and it is
 * called again.
 */
struct p4_extern {
	const char *name;
	const char *mailbox; /* name of its struct, which no header has */
	int (*run)(void *worker, void *mailbox);
};

struct p4_worker;
struct p4_controller;
struct p4_errand;

struct p4_program {
	const struct p4_struct *structs;
	const struct p4_header *headers;
	const struct p4_extern *externs;
	const char *const *instructions; /* jumps go forward */
	const char *metadata;		 /* name of its struct */
	uint32_t struct_count;
	uint32_t header_count;
	uint32_t extern_count;
	uint32_t instruction_count;
	bool emits; /* whether it emits the headers in front of what it sends; else the frame has to be sent as it came
		     */
	bool is_ordered; /* verdicts depend on the order of packets of different flows: by limits, additions, samples */
	/* What a controller does with a packet (p4/split.h). NULL if the program does not track. */
	void (*serve)(struct p4_worker *controller, struct p4_errand *errand);
};

enum { P4_SCRATCH_WORDS = 128 };

/*
 * What the externs of one worker use: the burst that is decided, and what they keep of each packet. It begins as zeros.
 */
struct p4_worker {
	struct env env;
	const struct weir_burst *burst;
	struct p4_controller *controller; /* NULL without one */
	uint64_t waiting; /* packets of the burst that wait for the controller, or behind one that does */
	uint64_t waits;	  /* calls of externs that returned 0 */
	uint64_t scratch[WEIR_BURST_MAX][P4_SCRATCH_WORDS];
};

#endif
