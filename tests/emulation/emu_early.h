/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that let the next one start while they run (device.h, kn_let_next). Here they are as late as a device may
 * have them: such a kernel runs when the next one waits for it, so what that one reads or writes too early shows. Which
 * kernels do so is learned when they first run.
 *
 * Private to the emulation. Thread: the device's.
 */
#ifndef KERNELS_CUDA_EMU_EARLY_H
#define KERNELS_CUDA_EMU_EARLY_H

#include "tests/emulation/emu_blocks.h"

struct emu_early {
	struct kn_command *held;   /* malloc's; NULL: none */
	struct emu_blocks *second; /* what runs it, as the next kernel is running; NULL: not yet made */
	const char *wrong;         /* with it */
};

/* Runs a kernel, or keeps it for the next one's kn_begin. NULL, or what a device would not have done (static). */
const char *emu_early_run(struct emu_early *e, struct emu_blocks *r, const struct kn_plugin_host *host,
			  const struct kn_command *c);
/* What is kept runs now: no kernel comes next. */
const char *emu_early_end(struct emu_early *e, struct emu_blocks *r);
void emu_early_free(struct emu_early *e);

#endif
