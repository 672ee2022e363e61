/* SPDX-License-Identifier: Apache-2.0
 *
 * The execution of a kernel's blocks on the host (emu.cu), for the devices that the emulation pretends to have
 * (emu_device.cu). Private to the emulation.
 */
#ifndef KERNELS_CUDA_EMU_BLOCKS_H
#define KERNELS_CUDA_EMU_BLOCKS_H

#include "kernels/cuda/device/device.h"

struct emu_blocks; /* what runs the blocks of one device: its threads, and their stacks */

/* SL_ENOMEM. host outlives it. */
int emu_blocks_make(const struct kn_plugin_host *host, struct emu_blocks **out);
void emu_blocks_free(struct emu_blocks *r);
/* ---- counting (emu_count.h), while emu_counting; nothing else may be called then ---- */

/* The kernel that the following calls count for. */
void emu_count_launch(const char *kernel, uint64_t blocks);
/* All lanes of the warp have stopped: what they noted belongs together. */
void emu_count_warp(void);
/* The addresses of an ldmatrix of all lanes. */
void emu_count_matrices(const void *const *rows);

/* Runs a KN_CALL over its grid. NULL, or what a device would not have done (static). */
const char *emu_blocks_run(struct emu_blocks *r, const struct kn_command *c);

#endif
