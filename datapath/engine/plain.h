/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What an object of XDP programs that are no policy must have: crates/engine/src/xdp/plain.rs.
 */
#ifndef WEIR_PLAIN_H
#define WEIR_PLAIN_H

#include "kernel.h"

const uint32_t weir_abi_version WEIR_SECTION(".rodata.abi") = WEIR_ABI_VERSION;

/* No helper reserved to GPL programs is called. */
const char weir_license[] WEIR_SECTION("license") = "MIT OR Apache-2.0";

#endif
