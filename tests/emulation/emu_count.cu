/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/emulation/emu_count.h"
#include "kernels/cuda/device/device.h"
#include "tests/emulation/emu_blocks.h"

enum { KERNELS = 64, NOTES = 4096, BANKS = 32 };

struct note {
	const void *site;
	uintptr_t at;
	int bytes; /* of a lane; 0: an atomic */
};

bool emu_counting;

static struct {
	const char *name;
	struct emu_counts counts;
} kernels[KERNELS];
static struct emu_counts *now; /* of the kernel that runs */
static struct note notes[KN_WARP][NOTES];
static int n_notes[KN_WARP];

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int sluice_emulation_count(int on)
{
	emu_counting = on != 0;
	if (on != 0)
		memset(kernels, 0, sizeof kernels);
	memset(n_notes, 0, sizeof n_notes);
	now = NULL;
#ifdef KN_EMU_THREADS
	emu_counting = false;
#endif
	return emu_counting == (on != 0);
}

EXPORTED void sluice_emulation_counted(const char *kernel, struct emu_counts *out)
{
	memset(out, 0, sizeof *out);
	for (int i = 0; i < KERNELS && kernels[i].name != NULL; i++) {
		if (strstr(kernels[i].name, kernel) == NULL)
			continue;
		const uint64_t *from = (const uint64_t *)(const void *)&kernels[i].counts;
		uint64_t *to = (uint64_t *)(void *)out;
		for (size_t k = 0; k < sizeof *out / sizeof *to; k++)
			to[k] += from[k];
	}
}

void emu_count_launch(const char *kernel, uint64_t blocks)
{
	int i = 0;
	while (i < KERNELS - 1 && kernels[i].name != NULL && strcmp(kernels[i].name, kernel) != 0)
		i++;
	kernels[i].name = kernel;
	now = &kernels[i].counts;
	now->launches++;
	now->blocks += blocks;
}

void emu_count_load(enum emu_load kind, uint64_t n)
{
	if (now == NULL)
		return;
	uint64_t *to[] = {&now->once_bytes, &now->again_bytes, &now->async_bytes, &now->hints};
	*to[kind] += n;
}

void emu_count_access(const void *site, const volatile void *at, int bytes)
{
	int lane = (int)(emu_thread_idx().x % KN_WARP);
	if (now == NULL)
		return;
	if (n_notes[lane] == NOTES) {
		now->unmatched++;
		return;
	}
	notes[lane][n_notes[lane]++] = {site, (uintptr_t)at, bytes};
}

/* Never inlined: the place that it is called from is the access. */
__attribute__((noinline)) void emu_count_shared(const volatile void *at, int bytes)
{
	emu_count_access(__builtin_return_address(0), at, bytes);
}

/* The turns that the banks take for n lanes of `bytes` each: lanes that ask for the same word get it together. */
static int turns_of(const uintptr_t *at, int n, int bytes)
{
	uintptr_t words[BANKS];
	int turns[BANKS] = {}, n_words = 0, most = 0;
	for (int i = 0; i < n; i++)
		for (int b = 0; b < bytes; b += 4) {
			uintptr_t word = at[i] / 4 + (uintptr_t)b / 4;
			int k = 0;
			while (k < n_words && words[k] != word)
				k++;
			if (k < n_words)
				continue;
			words[n_words++] = word;
			int bank = ++turns[word % BANKS];
			most = bank > most ? bank : most;
		}
	return most;
}

/* at[lane]: 0 for lanes that take no part. */
static void count_access(const uintptr_t *at, int bytes)
{
	int together = BANKS * 4 / bytes;
	for (int first = 0; first < KN_WARP; first += together) {
		uintptr_t those[KN_WARP];
		int n = 0;
		for (int i = first; i < first + together; i++)
			if (at[i] != 0)
				those[n++] = at[i];
		now->shared_groups += n > 0;
		now->shared_turns += (uint64_t)turns_of(those, n, bytes);
	}
}

static void count_atomic(const uintptr_t *at)
{
	int most = 0;
	for (int i = 0; i < KN_WARP; i++) {
		int same = 0;
		for (int j = 0; j < KN_WARP; j++)
			same += at[i] != 0 && at[j] == at[i];
		most = same > most ? same : most;
	}
	now->atomics++;
	now->atomic_turns += (uint64_t)most;
}

void emu_count_matrices(const void *const *rows)
{
	uintptr_t at[KN_WARP];
	for (int i = 0; i < KN_WARP; i++)
		at[i] = (uintptr_t)rows[i];
	if (now != NULL)
		count_access(at, 16);
}

void emu_count_warp(void)
{
	int next[KN_WARP] = {};
	for (;;) {
		const struct note *first = NULL;
		uintptr_t at[KN_WARP] = {};
		for (int i = 0; i < KN_WARP; i++) {
			const struct note *n = next[i] < n_notes[i] ? &notes[i][next[i]] : NULL;
			if (first == NULL)
				first = n;
			if (n == NULL || n->site != first->site || n->bytes != first->bytes)
				continue;
			at[i] = n->at;
			next[i]++;
		}
		if (first == NULL)
			break;
		if (first->bytes == 0)
			count_atomic(at);
		else
			count_access(at, first->bytes);
	}
	memset(n_notes, 0, sizeof n_notes);
}
