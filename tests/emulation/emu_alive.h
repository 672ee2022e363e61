/* SPDX-License-Identifier: Apache-2.0
 *
 * What there is just now of the devices that the emulation, or the stand-in for CUDA's runtime, pretends to have. For
 * tests in C, too, which find sluice_emulation_alive by dlsym.
 */
#ifndef TESTS_EMULATION_EMU_ALIVE_H
#define TESTS_EMULATION_EMU_ALIVE_H

#include <stdint.h>

/* What sluice_emulation_alive(struct emu_alive *out) fills. */
struct emu_alive {
	uint64_t bytes;
	int devices, graphs;
};

#endif
