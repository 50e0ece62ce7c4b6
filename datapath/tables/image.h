/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The header of a table image, and how its words are read. crates/abi (image.rs) has the same numbers.
 *
 * Sections are counted in words of their own size, not in bytes. The low bits of a shifted word index are known to be
 * zero. So the BPF verifier sees that a masked read of a whole word stays inside the value.
 */
#ifndef WEIR_TABLES_IMAGE_H
#define WEIR_TABLES_IMAGE_H

#include "core/env.h"

enum layout {
	LAYOUT_DXR16X4 = 1,
	LAYOUT_EXACT_SET = 2,
	LAYOUT_RANGE6 = 3,
	LAYOUT_EXACT_SETS = 4,
	LAYOUT_RANK_LEAF = 5,
	LAYOUT_RANK_LEAF6 = 6,
	LAYOUT_EXACT_SET6 = 7,
	LAYOUT_COUNTED_LEAF = 8,
	LAYOUT_EXACT_LEAF = 9,
	LAYOUT_EXACT_LEAF6 = 10,
	LAYOUT_EXACT_SETS6 = 11,
};

enum { IMAGE_MAGIC = 0x52494557 }; /* "WEIR" in memory */

struct image_header {
	uint32_t magic;
	uint32_t layout; /* enum layout */
	uint32_t entries;
	uint32_t labels; /* highest label in use */
	uint64_t bytes;	 /* of the whole image */
	uint32_t section[10];
};

_Static_assert(sizeof(struct image_header) == 64, "abi: ImageHeader");
_Static_assert(offsetof(struct image_header, labels) == 12, "abi: ImageHeader.labels");
_Static_assert(offsetof(struct image_header, bytes) == 16, "abi: ImageHeader.bytes");
_Static_assert(offsetof(struct image_header, section) == 24, "abi: ImageHeader.section");

WEIR_INLINE uint32_t image_u16(struct table table, uint32_t index)
{
	uint16_t word;

	__builtin_memcpy(&word, __builtin_assume_aligned(table_at(table, index << 1), 2), sizeof(word));
	return word;
}

WEIR_INLINE uint32_t image_u32(struct table table, uint32_t index)
{
	uint32_t word;

	__builtin_memcpy(&word, __builtin_assume_aligned(table_at(table, index << 2), 4), sizeof(word));
	return word;
}

WEIR_INLINE uint64_t image_u64(struct table table, uint32_t index)
{
	uint64_t word;

	__builtin_memcpy(&word, __builtin_assume_aligned(table_at(table, index << 3), 8), sizeof(word));
	return word;
}

/* Word `index` of a block. */
WEIR_INLINE uint64_t block_u64(const uint8_t *block, uint32_t index)
{
	uint64_t word;

	__builtin_memcpy(&word, __builtin_assume_aligned(block + (index << 3), 8), sizeof(word));
	return word;
}

/* Word `index` of the header's section fields. */
WEIR_INLINE uint32_t image_section(struct table table, uint32_t index)
{
	return image_u32(table, (uint32_t)offsetof(struct image_header, section) / 4 + index);
}

#endif
