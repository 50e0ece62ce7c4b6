/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* DPDK's environment: started once a process, with a log that is shown only after an error. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <rte_config.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>

#include "dpdk/shim.h"

enum { LOG_BYTES = 16384 };

/* The last messages of DPDK and its drivers. */
static struct {
	pthread_mutex_t lock;
	size_t length;
	char text[LOG_BYTES];
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Keeps a message. The older half makes room, so a driver that complains of every packet uses bounded memory. */
static ssize_t keep(void *cookie, const char *text, size_t size)
{
	size_t rest = size < LOG_BYTES / 2 ? size : LOG_BYTES / 2;

	(void)cookie;
	if (rte_log_cur_msg_loglevel() > (int)RTE_LOG_NOTICE)
		return (ssize_t)size;
	pthread_mutex_lock(&kept.lock);
	if (kept.length + rest > LOG_BYTES) {
		kept.length -= LOG_BYTES / 2;
		memmove(kept.text, kept.text + LOG_BYTES / 2, kept.length);
	}
	memcpy(kept.text + kept.length, text + size - rest, rest);
	kept.length += rest;
	pthread_mutex_unlock(&kept.lock);
	return (ssize_t)size;
}

/* Copies the end of the kept log. Returns its length. */
size_t dpdk_kept_log(char *to, size_t size)
{
	size_t length;

	pthread_mutex_lock(&kept.lock);
	length = kept.length < size ? kept.length : size;
	memcpy(to, kept.text + kept.length - length, length);
	pthread_mutex_unlock(&kept.lock);
	return length;
}

/* Starts DPDK, which keeps argv. It ties the calling thread to a core; this restores the former cores. */
int dpdk_start(int argc, char **argv)
{
	cpu_set_t cores;
	int known = pthread_getaffinity_np(pthread_self(), sizeof(cores), &cores) == 0;
	int taken = rte_eal_init(argc, argv);

	if (known)
		pthread_setaffinity_np(pthread_self(), sizeof(cores), &cores);
	return taken < 0 ? -rte_errno : 0;
}

/*
 * Like dpdk_start(), but from now on DPDK's log is kept and not shown. The page of options that DPDK prints after a
 * wrong one is dropped.
 */
int dpdk_start_quietly(int argc, char **argv)
{
	FILE *log = fopencookie(NULL, "w", (cookie_io_functions_t){.write = keep}), *out = stdout;
	FILE *nowhere = fopen("/dev/null", "w");
	int failed;

	if (log) {
		setvbuf(log, NULL, _IOLBF, BUFSIZ);
		rte_openlog_stream(log);
	}
	if (nowhere)
		stdout = nowhere;
	failed = dpdk_start(argc, argv);
	stdout = out;
	if (nowhere)
		fclose(nowhere);
	return failed;
}

/* Registers the calling thread with DPDK: pools cache packets for registered threads. */
int dpdk_enter(void)
{
	return rte_thread_register() < 0 ? -rte_errno : 0;
}

void dpdk_leave(void)
{
	rte_thread_unregister();
}

/* The meaning of an error number, negative or not. */
const char *dpdk_error(int error)
{
	return rte_strerror(error < 0 ? -error : error);
}
