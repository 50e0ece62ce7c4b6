/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Common declarations of XDP programs without a policy: crates/engine/src/xdp/plain.rs. */
#ifndef WEIR_KERNEL_PLAIN_H
#define WEIR_KERNEL_PLAIN_H

#include "kernel/bpf.h"

const uint32_t weir_abi_version WEIR_SECTION(".rodata.abi") = WEIR_ABI_VERSION;

/* The programs call no helper that is reserved to GPL programs. */
const char weir_license[] WEIR_SECTION("license") = "MIT OR Apache-2.0";

#endif
