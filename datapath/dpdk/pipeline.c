/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A pipeline of DPDK's SWX for one worker, with a port of our own on each side.
 *
 * SWX has 16 threads of its own, which take packets in turn. A thread gives way when it has received a packet, and then
 * decides it to its end, because programs have no SWX tables. So packets are decided in their order. When the input has
 * no more packets, all threads wait for one, and the burst is over.
 *
 * With a controller, a thread also gives way while its packet waits (p4/split.h). The others go on, and reach their
 * tracking point in the order of packets. A program that depends on the order of flows gets one packet at a time.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_swx_pipeline.h>
#include <rte_swx_port.h>

#include "dpdk/controller.h"
#include "dpdk/parsed_bytes.h"
#include "dpdk/pipeline.h"

enum {
	THREADS = 16,		       /* of SWX, each with at most one packet */
	ROOMS = THREADS,	       /* packets in memory */
	HEADROOM = 64,		       /* in front of the arrival header */
	FIELD_BYTES_MAX = 8,	       /* SWX reads and writes 8 bytes at each field */
	FIELDS_MAX = 256,	       /* of a struct, as SWX has it in mailboxes and metadata */
	STEPS = 64,		       /* instructions between two looks whether the burst is over */
	TESTED_LINES = 3,	       /* a line between rx and tx */
	NO_VERDICT = 0xffffffff,       /* no reason is so large */
	WORDS_MAX = RTE_SWX_NAME_SIZE, /* of a name */
};

/* The memory of a packet. */
struct room {
	uint8_t bytes[HEADROOM + P4_ARRIVAL_BYTES + WEIR_WINDOW_BYTES + FIELD_BYTES_MAX];
};

/* Both ports of a pipeline. */
struct port {
	const struct weir_burst *burst;
	uint32_t chain;
	bool emits; /* p4_program.emits */
	uint32_t received;
	uint32_t sent;
	uint32_t idle;	 /* calls without a packet since the last one */
	bool one_by_one; /* whether a packet is received only when no other one is in the pipeline */
	uint32_t free;	 /* rooms without a packet, as a mask */
	struct room *rooms;
};

struct p4_pipeline {
	struct p4_worker worker;
	struct port port;
	struct rte_swx_pipeline *swx;
	uint64_t steps_max; /* of a packet */
	struct room rooms[ROOMS];
};

/* SWX makes ports and extern objects by itself. These are the ones of the pipeline that this thread builds. */
static _Thread_local struct p4_pipeline *building;

static void *port_make(void *arguments)
{
	(void)arguments;
	return &building->port;
}

static void port_free(void *port)
{
	(void)port;
}

static int port_receive(void *object, struct rte_swx_pkt *packet)
{
	struct port *port = object;
	const struct weir_burst *burst = port->burst;
	const uint32_t i = port->received;
	struct p4_arrival arrival;
	struct frame frame;
	uint32_t room;
	uint32_t bytes;
	uint8_t *to;

	if (i == burst->count) {
		port->idle++;
		return 0;
	}
	if (port->one_by_one && i != port->sent)
		return 0;
	port->received++;
	room = (uint32_t)__builtin_ctz(port->free);
	port->free &= port->free - 1;
	frame = burst_frame(burst, i);
	arrival = (struct p4_arrival){
		.captured = rte_cpu_to_be_32(frame.cap),
		.length = rte_cpu_to_be_32(frame.len),
		.time = rte_cpu_to_be_64(burst_time(burst, i)),
		.packet = rte_cpu_to_be_32(i),
		.chain = rte_cpu_to_be_16((uint16_t)port->chain),
		.link = (uint8_t)frame.link,
	};
	to = port->rooms[room].bytes + HEADROOM;
	memcpy(to, &arrival, sizeof(arrival));
	bytes = parsed_bytes(&frame);
	if (bytes)
		memcpy(to + sizeof(arrival), frame.data, bytes);
	prefetch_frame(burst, i + THREADS);
	*packet = (struct rte_swx_pkt){
		.pkt = port->rooms[room].bytes,
		.offset = HEADROOM,
		.length = (uint32_t)sizeof(arrival) + bytes,
	};
	return 1;
}

/* Whether a program has emitted the packet that it received. */
static bool is_unchanged(const struct rte_swx_pkt *packet, const struct frame *frame)
{
	const uint32_t bytes = parsed_bytes(frame);

	return packet->length == P4_ARRIVAL_BYTES + bytes &&
	       (!bytes || memcmp(packet->pkt + packet->offset + P4_ARRIVAL_BYTES, frame->data, bytes) == 0);
}

static void port_send(void *object, struct rte_swx_pkt *packet)
{
	struct port *port = object;
	struct p4_arrival arrival;
	struct frame frame;
	uint32_t i;

	memcpy(&arrival, packet->pkt + (port->emits ? packet->offset : HEADROOM), sizeof(arrival));
	port->free |= UINT32_C(1) << ((struct room *)packet->pkt - port->rooms);
	i = rte_be_to_cpu_32(arrival.packet);
	if (i >= port->burst->count || port->burst->verdicts[i] != NO_VERDICT)
		return;
	frame = burst_frame(port->burst, i);
	if (port->emits && !is_unchanged(packet, &frame))
		return;
	port->burst->verdicts[i] =
		arrival.action | rte_be_to_cpu_16(arrival.flags) | (uint32_t)rte_be_to_cpu_16(arrival.reason) << 16;
	port->sent++;
}

/* Copies of packets, which no program makes. */
static void port_clone(void *object, struct rte_swx_pkt *packet)
{
	(void)object;
	(void)packet;
}

static void port_clone_cut(void *object, struct rte_swx_pkt *packet, uint32_t length)
{
	(void)object;
	(void)packet;
	(void)length;
}

static void port_in_stats(void *object, struct rte_swx_port_in_stats *stats)
{
	(void)object;
	*stats = (struct rte_swx_port_in_stats){0};
}

static void port_out_stats(void *object, struct rte_swx_port_out_stats *stats)
{
	(void)object;
	*stats = (struct rte_swx_port_out_stats){0};
}

static struct rte_swx_port_in_ops port_in = {port_make, port_free, port_receive, port_in_stats};
static struct rte_swx_port_out_ops port_out = {
	.create = port_make,
	.free = port_free,
	.pkt_tx = port_send,
	.pkt_fast_clone_tx = port_clone,
	.pkt_clone_tx = port_clone_cut,
	.stats_read = port_out_stats,
};

static void *object_make(const char *arguments)
{
	(void)arguments;
	return &building->worker;
}

static void object_free(void *object)
{
	(void)object;
}

/* Where a configuration failed. */
struct refusal {
	char *words;
	size_t size;
};

static int refuse(const struct refusal *to, const char *what, const char *name, int error)
{
	if (error)
		snprintf(to->words, to->size, "%s `%s`: %s", what, name, strerror(error < 0 ? -error : error));
	return error;
}

/* Whether a struct is used in memory of SWX, not in a packet. */
static bool is_in_memory(const struct p4_program *program, const char *name)
{
	if (strcmp(program->metadata, name) == 0)
		return true;
	for (uint32_t i = 0; i < program->extern_count; i++)
		if (strcmp(program->externs[i].mailbox, name) == 0)
			return true;
	return false;
}

/* Registers a struct. One in SWX's memory gets a field behind it, because SWX reads and writes 8 bytes at each field.
 */
static int add_struct(struct rte_swx_pipeline *swx, const struct p4_program *program, const struct p4_struct *type)
{
	struct rte_swx_field_params fields[FIELDS_MAX];
	uint32_t count = type->count;

	if (count >= FIELDS_MAX)
		return -ENOSPC;
	for (uint32_t i = 0; i < count; i++)
		fields[i] = (struct rte_swx_field_params){type->fields[i].name, type->fields[i].bits};
	if (is_in_memory(program, type->name))
		fields[count++] = (struct rte_swx_field_params){"behind", FIELD_BYTES_MAX * 8};
	return rte_swx_pipeline_struct_type_register(swx, type->name, fields, count, type->last_varies);
}

static int add_extern(struct rte_swx_pipeline *swx, const struct p4_extern *object)
{
	int error = rte_swx_pipeline_extern_type_register(swx, object->name, object->mailbox, object_make, object_free);

	if (!error)
		error = rte_swx_pipeline_extern_type_member_func_register(swx, object->name, "run", object->run);
	return error ? error : rte_swx_pipeline_extern_object_config(swx, object->name, object->name, NULL);
}

/* Adds everything but the instructions. */
static int add_declarations(struct rte_swx_pipeline *swx, const struct p4_program *program, const struct refusal *to)
{
	if (refuse(to, "port", "in", rte_swx_pipeline_port_in_type_register(swx, "weir", &port_in)) ||
	    refuse(to, "port", "in", rte_swx_pipeline_port_in_config(swx, 0, "weir", NULL)) ||
	    refuse(to, "port", "out", rte_swx_pipeline_port_out_type_register(swx, "weir", &port_out)) ||
	    refuse(to, "port", "out", rte_swx_pipeline_port_out_config(swx, 0, "weir", NULL)))
		return -1;
	for (uint32_t i = 0; i < program->struct_count; i++) {
		const struct p4_struct *type = &program->structs[i];

		if (refuse(to, "struct", type->name, add_struct(swx, program, type)))
			return -1;
	}
	for (uint32_t i = 0; i < program->header_count; i++) {
		const struct p4_header *header = &program->headers[i];

		if (refuse(to, "header", header->name,
			   rte_swx_pipeline_packet_header_register(swx, header->name, header->type)))
			return -1;
	}
	if (refuse(to, "metadata", program->metadata,
		   rte_swx_pipeline_packet_metadata_register(swx, program->metadata)))
		return -1;
	for (uint32_t i = 0; i < program->extern_count; i++) {
		const struct p4_extern *object = &program->externs[i];

		if (refuse(to, "extern", object->name, add_extern(swx, object)))
			return -1;
	}
	return 0;
}

/* SWX's own signature lacks a const. */
static int add_instructions(struct rte_swx_pipeline *swx, const char *const *lines, uint32_t count)
{
	return rte_swx_pipeline_instructions_config(swx, (const char **)(uintptr_t)lines, count);
}

/* A new pipeline with everything but the instructions. */
static struct rte_swx_pipeline *declared(const struct p4_program *program, const struct refusal *to)
{
	struct rte_swx_pipeline *swx = NULL;

	/* A pipeline with a name would need DPDK's environment. */
	if (refuse(to, "pipeline", "", rte_swx_pipeline_config(&swx, NULL, 0)))
		return NULL;
	if (!add_declarations(swx, program, to))
		return swx;
	rte_swx_pipeline_free(swx);
	return NULL;
}

/*
 * Whether SWX accepts a line between a `receive` and a `send`. SWX does not say which line of a program it refuses. The
 * target of a jump becomes the last line.
 */
static bool accepts(const struct p4_program *program, const char *line, const char *receive, const char *send)
{
	const struct refusal nobody = {NULL, 0};
	struct rte_swx_pipeline *swx = declared(program, &nobody);
	const char *colon = strstr(line, " : ");
	const char *alone = colon ? colon + 3 : line;
	char target[WORDS_MAX] = "", last[RTE_SWX_INSTRUCTION_SIZE];
	const char *lines[TESTED_LINES] = {receive, alone, last};
	bool accepted;

	if (strncmp(alone, "jmp", 3) != 0 || sscanf(alone, "%*s %63s", target) != 1)
		snprintf(last, sizeof(last), "%s", send);
	else
		snprintf(last, sizeof(last), "%.63s : %.180s", target, send);
	accepted = swx && add_instructions(swx, lines, TESTED_LINES) == 0;
	rte_swx_pipeline_free(swx);
	return accepted;
}

/* The first line that starts with a word, without its label. */
static const char *line_of(const struct p4_program *program, const char *word)
{
	for (uint32_t i = 0; i < program->instruction_count; i++) {
		const char *colon = strstr(program->instructions[i], " : ");
		const char *line = colon ? colon + 3 : program->instructions[i];

		if (strncmp(line, word, strlen(word)) == 0)
			return line;
	}
	return word;
}

/* Says which instruction SWX refuses. */
static void name_refused(const struct p4_program *program, int error, const struct refusal *to)
{
	const char *receive = line_of(program, "rx "), *send = line_of(program, "tx ");

	for (uint32_t i = 0; i < program->instruction_count; i++) {
		char what[32];

		if (accepts(program, program->instructions[i], receive, send))
			continue;
		snprintf(what, sizeof(what), "instruction %u", i + 1);
		refuse(to, what, program->instructions[i], error);
		return;
	}
	refuse(to, "labels, first or last of the instructions", program->instructions[0], error);
}

static int configure(struct p4_pipeline *pipeline, const struct p4_program *program, const struct refusal *to)
{
	int error;

	pipeline->swx = declared(program, to);
	if (!pipeline->swx)
		return -1;
	error = add_instructions(pipeline->swx, program->instructions, program->instruction_count);
	if (error) {
		name_refused(program, error, to);
		return error;
	}
	return refuse(to, "pipeline", program->metadata, rte_swx_pipeline_build(pipeline->swx));
}

/* Starts the controller, if the program tracks. */
static int add_controller(struct p4_pipeline *pipeline, const struct p4_program *program, uint64_t takes_ns,
			  const struct refusal *to)
{
	if (!program->serve)
		return 0;
	pipeline->worker.controller = controller_start(program, takes_ns);
	pipeline->port.one_by_one = program->is_ordered;
	return refuse(to, "controller of", program->metadata, pipeline->worker.controller ? 0 : EAGAIN);
}

struct p4_pipeline *p4_build(const struct p4_program *program, const uint64_t *controller_ns, char *words, size_t size)
{
	const struct refusal to = {words, size};
	struct p4_pipeline *pipeline = calloc(1, sizeof(*pipeline));

	if (!pipeline) {
		refuse(&to, "pipeline", program->metadata, ENOMEM);
		return NULL;
	}
	pipeline->port.rooms = pipeline->rooms;
	pipeline->port.emits = program->emits;
	/* A packet passes each instruction once, because jumps go forward. Meanwhile each thread asks for one in vain.
	 */
	pipeline->steps_max = program->instruction_count + THREADS;
	building = pipeline;
	if (configure(pipeline, program, &to) ||
	    (controller_ns && add_controller(pipeline, program, *controller_ns, &to))) {
		p4_free(pipeline);
		pipeline = NULL;
	}
	building = NULL;
	return pipeline;
}

/* Prepares the externs for a burst. The controller shares the flows. */
static void begin(struct p4_worker *worker, const struct weir_burst *burst)
{
	worker->burst = burst;
	worker->env = (struct env){
		.counters = burst->counters,
		.tables = burst->tables,
		.limits = burst->limits,
		.flows = burst->flows,
	};
	if (!worker->controller)
		return;
	worker->env.flows.shared = true;
	controller_use(worker->controller, &worker->env);
}

/*
 * Runs the pipeline until the burst is decided, or the program has had more steps than it needs. Steps in which a
 * packet waits do not count.
 */
static void run(struct p4_pipeline *pipeline, uint32_t count)
{
	struct port *port = &pipeline->port;
	uint64_t left = (count + THREADS) * pipeline->steps_max, waits = pipeline->worker.waits;

	/* When each thread has asked for a packet in vain, no packet is left in the pipeline. */
	while (port->sent < count && port->idle < THREADS && left) {
		const uint64_t steps = left < STEPS ? left : STEPS;

		rte_swx_pipeline_run(pipeline->swx, (uint32_t)steps);
		if (pipeline->worker.waits == waits) {
			left -= steps;
			continue;
		}
		waits = pipeline->worker.waits;
		port->idle = 0;
		sched_yield();
	}
}

uint32_t p4_decide(struct p4_pipeline *pipeline, const struct weir_burst *burst, uint32_t chain)
{
	struct port *port = &pipeline->port;

	begin(&pipeline->worker, burst);
	for (uint32_t i = 0; i < burst->count; i++)
		burst->verdicts[i] = NO_VERDICT;
	port->burst = burst;
	port->chain = chain;
	port->received = port->sent = port->idle = 0;
	port->free = (UINT32_C(1) << ROOMS) - 1;
	run(pipeline, burst->count);
	if (pipeline->worker.controller)
		controller_wait(pipeline->worker.controller);
	return burst->count - port->sent;
}

void p4_tracked_by(const struct p4_pipeline *pipeline, uint64_t *here, uint64_t *away)
{
	const struct p4_controller *controller = pipeline->worker.controller;

	*here = controller ? controller->tracked_here : 0;
	*away = controller ? controller->tracked_away : 0;
}

void p4_free(struct p4_pipeline *pipeline)
{
	controller_stop(pipeline->worker.controller);
	rte_swx_pipeline_free(pipeline->swx);
	free(pipeline);
}
