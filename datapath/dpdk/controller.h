/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The controller of a pipeline: a thread that tracks the packets that the pipeline sends (p4/split.h). It sleeps while
 * it has nothing to do. A time for each packet may be given, in which it sleeps before it serves the packet: a
 * controller behind a slow interface.
 */
#ifndef WEIR_DPDK_CONTROLLER_H
#define WEIR_DPDK_CONTROLLER_H

#include "p4/controller.h"
#include "p4/program.h"

/* Starts the controller of a program that tracks. NULL if there is no memory or no thread. */
struct p4_controller *controller_start(const struct p4_program *program, uint64_t takes_ns);

/* The flows that it uses from now on. It is not busy. */
void controller_use(struct p4_controller *controller, const struct env *env);

/* Waits until it is not busy. */
void controller_wait(const struct p4_controller *controller);

/* Ends the thread. NULL is no controller. */
void controller_stop(struct p4_controller *controller);

#endif
