/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#define _GNU_SOURCE /* pthread_setname_np() */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dpdk/controller.h"

#define NS_PER_S UINT64_C(1000000000)

struct thread {
	struct p4_controller controller; /* the first member, which pipelines know */
	struct p4_worker worker;	 /* its own, as code of the datapath needs one */
	void (*serve)(struct p4_worker *worker, struct p4_errand *errand);
	struct timespec takes; /* for each packet, besides the work */
	sem_t sent;	       /* errands, or the end */
	bool ends;
	pthread_t id;
};

static void send(struct p4_controller *controller, const uint8_t *bytes)
{
	if (controller->errand.captured)
		memcpy(controller->errand.bytes, bytes, controller->errand.captured);
	__atomic_store_n(&controller->sent, controller->sent + 1, __ATOMIC_RELEASE);
	sem_post(&((struct thread *)controller)->sent);
}

static void *serve(void *of)
{
	struct thread *thread = of;
	struct p4_controller *controller = &thread->controller;

	for (;;) {
		while (sem_wait(&thread->sent) == -1 && errno == EINTR)
			continue;
		if (thread->ends)
			return NULL;
		if (controller->errand.request == REQUEST_TRACK && (thread->takes.tv_sec || thread->takes.tv_nsec))
			clock_nanosleep(CLOCK_MONOTONIC, 0, &thread->takes, NULL);
		thread->serve(&thread->worker, &controller->errand);
		__atomic_store_n(&controller->returned, controller->returned + 1, __ATOMIC_RELEASE);
	}
}

/* Starts the thread. Signals go to other threads. */
static bool start(struct thread *thread)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	if (pthread_sigmask(SIG_SETMASK, &all, &before))
		return false;
	error = pthread_create(&thread->id, NULL, serve, thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!error)
		pthread_setname_np(thread->id, "p4-controller");
	return !error;
}

struct p4_controller *controller_start(const struct p4_program *program, uint64_t takes_ns)
{
	struct thread *thread = calloc(1, sizeof(*thread));

	if (!thread)
		return NULL;
	thread->controller.send = send;
	thread->serve = program->serve;
	thread->takes = (struct timespec){(time_t)(takes_ns / NS_PER_S), (long)(takes_ns % NS_PER_S)};
	sem_init(&thread->sent, 0, 0);
	if (start(thread))
		return &thread->controller;
	sem_destroy(&thread->sent);
	free(thread);
	return NULL;
}

void controller_use(struct p4_controller *controller, const struct env *env)
{
	((struct thread *)controller)->worker.env = *env;
}

void controller_wait(const struct p4_controller *controller)
{
	while (controller_is_busy(controller))
		sched_yield();
}

void controller_stop(struct p4_controller *controller)
{
	struct thread *thread = (struct thread *)controller;

	if (!thread)
		return;
	thread->ends = true;
	sem_post(&thread->sent);
	pthread_join(thread->id, NULL);
	sem_destroy(&thread->sent);
	free(thread);
}
