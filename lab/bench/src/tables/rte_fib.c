/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * DPDK's rte_fib as a contender: DIR-24-8 with next hops of 4 bytes, and one table in each of three slots. It is
 * compiled at run time if libdpdk is installed. lab/instruments/src/lookup.rs calls these functions and gives their
 * types. Functions that prepare tables return 0 or a negative errno.
 */
#include <errno.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_fib.h>
#include <rte_malloc.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/env.h"

enum {
	SLOTS = 3,
	HUGE_PAGE = 2 << 20,
};

static struct rte_fib *fibs[SLOTS];
static enum rte_fib_lookup_type selected[SLOTS];
static int heap; /* its number among sockets */

int64_t bench_fib_start(const uint32_t *words, uint32_t count);
int64_t bench_fib_create(const uint32_t *words, uint32_t count);
int64_t bench_fib_add(const uint32_t *words, uint32_t count);
int64_t bench_fib_select(const uint32_t *words, uint32_t count);

/*
 * Adds a DPDK heap in memory with transparent huge pages, like the memory of Weir's tables. DPDK's own heap needs
 * reserved huge pages. With pages of 4 KB its tables would be slower for that reason alone.
 */
static int64_t add_heap(size_t megabytes)
{
	size_t bytes = megabytes << 20;
	uint8_t *memory = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return -errno;
	memory = (uint8_t *)(((uintptr_t)memory + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
	(void)madvise(memory, bytes, MADV_HUGEPAGE);
	if (rte_malloc_heap_create("weir") != 0 ||
	    rte_malloc_heap_memory_add("weir", memory, bytes, NULL, (unsigned int)(bytes / HUGE_PAGE), HUGE_PAGE) != 0)
		return -rte_errno;
	heap = rte_malloc_heap_get_socket("weir");
	return 0;
}

/* words: the core of the lookups, and the maximum size of all tables in MB. */
int64_t bench_fib_start(const uint32_t *words, uint32_t count)
{
	char lcores[32];
	char *arguments[] = {"weir",
			     "--no-huge",
			     "-m",
			     "64",
			     "--no-shconf",
			     "--no-pci",
			     "--no-telemetry",
			     "--iova-mode=va",
			     "--force-max-simd-bitwidth=512",
			     "--log-level=*:error",
			     "--lcores",
			     lcores};
	int out, started;

	if (count != 2)
		return -EINVAL;
	snprintf(lcores, sizeof(lcores), "0@%u", words[0]);
	/* DPDK prints to standard output, which is for results. */
	fflush(stdout);
	out = dup(STDOUT_FILENO);
	dup2(STDERR_FILENO, STDOUT_FILENO);
	started = rte_eal_init(sizeof(arguments) / sizeof(arguments[0]), arguments);
	fflush(stdout);
	dup2(out, STDOUT_FILENO);
	close(out);
	return started < 0 ? -rte_errno : add_heap(words[1]);
}

/* words: slot, number of routes, number of second-level blocks. Frees the slot's previous table. */
int64_t bench_fib_create(const uint32_t *words, uint32_t count)
{
	struct rte_fib_conf conf = {.type = RTE_FIB_DIR24_8};
	char name[32];

	if (count != 3 || words[0] >= SLOTS)
		return -EINVAL;
	snprintf(name, sizeof(name), "weir%u", words[0]);
	rte_fib_free(fibs[words[0]]);
	conf.max_routes = (int)words[1];
	conf.dir24_8.nh_sz = RTE_FIB_DIR24_8_4B;
	conf.dir24_8.num_tbl8 = words[2];
	selected[words[0]] = RTE_FIB_LOOKUP_DEFAULT;
	fibs[words[0]] = rte_fib_create(name, heap, &conf);
	return fibs[words[0]] ? 0 : -rte_errno;
}

/* words: slot, then address, length and label of each prefix. */
int64_t bench_fib_add(const uint32_t *words, uint32_t count)
{
	if (count == 0 || words[0] >= SLOTS)
		return -EINVAL;
	for (uint32_t i = 1; i + 3 <= count; i += 3) {
		int added = rte_fib_add(fibs[words[0]], words[i], (uint8_t)words[i + 1], words[i + 2]);

		if (added < 0)
			return added;
	}
	return 0;
}

/* words: slot, and whether its lookups use AVX-512. */
int64_t bench_fib_select(const uint32_t *words, uint32_t count)
{
	if (count != 2 || words[0] >= SLOTS)
		return -EINVAL;
	selected[words[0]] = words[1] ? RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512 : RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO;
	return rte_fib_select_lookup(fibs[words[0]], selected[words[0]]);
}

WEIR_INLINE void fib_find(uint32_t slot, enum rte_fib_lookup_type type, const uint32_t *keys, uint64_t *hops,
			  uint32_t count)
{
	if (WEIR_UNLIKELY(selected[slot] != type)) {
		selected[slot] = type;
		rte_fib_select_lookup(fibs[slot], type);
	}
	/* The function only reads the keys, although its parameter is not const. */
	rte_fib_lookup_bulk(fibs[slot], (uint32_t *)(uintptr_t)keys, hops, (int)count);
}

/*
 * The timed lookup leaves next hops in their 64-bit words. The checked lookup converts them to labels, which would add
 * time that is not rte_fib's.
 */
#define FIB_LOOKUPS(slot, name, type)                                                                                  \
	void bench_fib_##name##_##slot(struct table table, const uint32_t *keys, uint32_t *labels, uint32_t count);    \
	void bench_fib_##name##_##slot(struct table table, const uint32_t *keys, uint32_t *labels, uint32_t count)     \
	{                                                                                                              \
		static uint64_t hops[WEIR_BURST_MAX];                                                                  \
                                                                                                                       \
		(void)table;                                                                                           \
		(void)labels;                                                                                          \
		fib_find(slot, type, keys, hops, count);                                                               \
	}                                                                                                              \
	void bench_fib_##name##_labels_##slot(struct table table, const uint32_t *keys, uint32_t *labels,              \
					      uint32_t count);                                                         \
	void bench_fib_##name##_labels_##slot(struct table table, const uint32_t *keys, uint32_t *labels,              \
					      uint32_t count)                                                          \
	{                                                                                                              \
		uint64_t hops[WEIR_BURST_MAX];                                                                         \
                                                                                                                       \
		(void)table;                                                                                           \
		fib_find(slot, type, keys, hops, count);                                                               \
		for (uint32_t i = 0; i < count; i++)                                                                   \
			labels[i] = (uint32_t)hops[i];                                                                 \
	}

FIB_LOOKUPS(0, scalar, RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO)
FIB_LOOKUPS(1, scalar, RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO)
FIB_LOOKUPS(2, scalar, RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO)
FIB_LOOKUPS(0, avx512, RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512)
FIB_LOOKUPS(1, avx512, RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512)
FIB_LOOKUPS(2, avx512, RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512)
