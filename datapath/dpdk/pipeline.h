/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Pipelines of DPDK's SWX that decide bursts: the functions that Rust calls (crates/engine/src/native/pipeline.rs).
 * They are compiled and linked only with the Cargo feature `dpdk`. A pipeline uses plain memory, so DPDK's environment
 * need not be started.
 */
#ifndef WEIR_DPDK_PIPELINE_H
#define WEIR_DPDK_PIPELINE_H

#include "p4/program.h"

struct p4_pipeline;

/*
 * A pipeline, for one thread at a time. NULL if DPDK refuses the program; `words` say why, as a string. With
 * `controller_ns`, a controller tracks the packets that change a state, and takes this time longer for each. Without,
 * it is NULL.
 */
struct p4_pipeline *p4_build(const struct p4_program *program, const uint64_t *controller_ns, char *words, size_t size);

/* Decides a burst by a chain. Returns the number of packets that the program lost: 0 unless the compiler has a bug. */
uint32_t p4_decide(struct p4_pipeline *pipeline, const struct weir_burst *burst, uint32_t chain);

/* The packets that the pipeline and its controller have tracked. Both are 0 without a controller. */
void p4_tracked_by(const struct p4_pipeline *pipeline, uint64_t *here, uint64_t *away);

void p4_free(struct p4_pipeline *pipeline);

#endif
