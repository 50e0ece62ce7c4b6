/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The environment that DPDK runs in: started once a process, with a log that is shown only if something goes wrong. */
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

/* What DPDK and its drivers said last. */
static struct {
	pthread_mutex_t lock;
	size_t length;
	char text[LOG_BYTES];
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Complaints. The older half makes room: a driver that complains of every packet costs memory once. */
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

/* The end of what was kept, and how long it is. */
size_t dpdk_kept_log(char *to, size_t size)
{
	size_t length;

	pthread_mutex_lock(&kept.lock);
	length = kept.length < size ? kept.length : size;
	memcpy(to, kept.text + kept.length - length, length);
	pthread_mutex_unlock(&kept.lock);
	return length;
}

/* Starts DPDK. It keeps argv. It ties the calling thread to a core, which is not its to choose: that is undone. */
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
 * As dpdk_start(), but what DPDK says from now on is kept, not shown. The page of options that it prints when it is
 * given a wrong one is neither.
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

/* Makes the calling thread one that DPDK knows: pools keep packets at hand for those. */
int dpdk_enter(void)
{
	return rte_thread_register() < 0 ? -rte_errno : 0;
}

void dpdk_leave(void)
{
	rte_thread_unregister();
}

/* What an error number, negative or not, means. */
const char *dpdk_error(int error)
{
	return rte_strerror(error < 0 ? -error : error);
}
