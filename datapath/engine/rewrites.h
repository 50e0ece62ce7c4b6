/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What leaves in place of packets that a program changes. */
#ifndef WEIR_REWRITES_H
#define WEIR_REWRITES_H

#include "kernel.h"
#include "mode.h"

/* One for each CPU. The engine makes the section that long. A replay has one, which it reads after each packet. */
struct weir_rewrite weir_rewrites[1] __attribute__((aligned(64))) WEIR_SECTION(".bss.rewrites");

#endif
