/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that test the emulation itself: what its matrix operations and trees do with the lanes' numbers, and what it
 * sees of blocks that access each other's memory (emu_watch.h). Without a device around them.
 */
#include "tests/emulation/emu_blocks.h"
#include "tests/emulation/emu_memory.h"

#include <stdlib.h>

enum { BLOCKS = 5 };

static void *zalloc(size_t n) { return calloc(1, n > 0 ? n : 1); }

/* Runs body in every thread of n blocks of one warp. NULL, or what a device would not have done (static). */
static const char *run(void (*body)(const struct kn_command *c, void **), unsigned n, size_t shared)
{
	struct kn_plugin_host host = {};
	struct emu_blocks *blocks;
	struct kn_command c = {};
	host.zalloc = zalloc;
	host.free = free;
	if (emu_blocks_make(&host, &blocks) != 0)
		return "no memory";
	c.bytes = sizeof c;
	c.thunk = body;
	c.name = "probe";
	c.grid[0] = n;
	c.block[0] = KN_WARP;
	c.grid[1] = c.grid[2] = c.block[1] = c.block[2] = 1;
	c.shared = (uint32_t)shared;
	const char *wrong = emu_blocks_run(blocks, &c);
	emu_blocks_free(blocks);
	return wrong;
}

/* ---- fragments ---- */

static struct {
	bool bf16, turned;
	uint32_t (*a)[4], (*b)[2];
	const uint16_t *rows;
	float (*d)[4];
	uint32_t (*pairs)[4];
} given;

static void multiply(const struct kn_command *, void **)
{
	int lane = (int)threadIdx.x;
	if (given.bf16)
		kn_mma_bf16_16816(given.d[lane], given.a[lane], given.b[lane]);
	else
		kn_mma_f16_16816(given.d[lane], given.a[lane], given.b[lane]);
}

extern "C" __attribute__((visibility("default"))) const char *sluice_emulation_mma(int bf16, uint32_t (*a)[4],
										   uint32_t (*b)[2], float (*d)[4])
{
	given.bf16 = bf16 != 0;
	given.a = a;
	given.b = b;
	given.d = d;
	return run(multiply, 1, 0);
}

static void read_matrices(const struct kn_command *, void **)
{
	int lane = (int)threadIdx.x;
	uint16_t *shared = (uint16_t *)kn_shared() + lane * 8;
	memcpy(shared, given.rows + lane * 8, 16);
	kn_barrier();
	if (given.turned)
		kn_ldmatrix_x4_trans(given.pairs[lane], shared);
	else
		kn_ldmatrix_x4(given.pairs[lane], shared);
}

/* rows: four matrices of 8 × 8. */
extern "C" __attribute__((visibility("default"))) const char *
sluice_emulation_ldmatrix(int turned, const uint16_t *rows, uint32_t (*pairs)[4])
{
	given.turned = turned != 0;
	given.rows = rows;
	given.pairs = pairs;
	return run(read_matrices, 1, 512);
}

/* ---- trees ---- */

static struct {
	const float *v;
	float (*out)[4];
} reduced;

static void reduce(const struct kn_command *, void **)
{
	float v = reduced.v[threadIdx.x], sum = v, most = v, *out = reduced.out[threadIdx.x];
	for (int step = KN_WARP / 2; step > 0; step /= 2) {
		sum += kn_shuffle_xor(sum, step);
		most = fmaxf(most, kn_shuffle_xor(most, step));
	}
	out[0] = kn_warp_sum(v);
	out[1] = sum;
	out[2] = kn_warp_max(v);
	out[3] = most;
}

/* Each lane's sum and maximum of v [KN_WARP], by the tree and by shuffles. */
extern "C" __attribute__((visibility("default"))) const char *sluice_emulation_trees(const float *v, float (*out)[4])
{
	reduced.v = v;
	reduced.out = out;
	return run(reduce, 1, 0);
}

static void two_trees(const struct kn_command *, void **)
{
	if (threadIdx.x % 2 == 0)
		kn_warp_sum(1);
	else
		kn_warp_max(1);
}

/* ---- blocks that access what others do ---- */

static uint8_t *memory;
static volatile uint32_t sink;

static uint32_t *word(unsigned i) { return (uint32_t *)(void *)memory + i; }

static bool first_lane(void) { return threadIdx.x == 0; }

static void own_words(const struct kn_command *, void **)
{
	*word(blockIdx.x * KN_WARP + threadIdx.x) += 1;
	kn_barrier();
	sink = *word(blockIdx.x * KN_WARP + (threadIdx.x ^ 1)) + *word(1000);
}

static void own_bytes(const struct kn_command *, void **)
{
	if (first_lane())
		memory[blockIdx.x] = (uint8_t)(memory[blockIdx.x] + 1);
}

static void read_other(const struct kn_command *, void **)
{
	if (first_lane())
		*word(blockIdx.x) = 7;
	if (first_lane() && blockIdx.x > 0)
		sink = *word(blockIdx.x - 1);
}

static void write_same(const struct kn_command *, void **)
{
	if (first_lane())
		*word(0) = 7;
}

static void write_read(const struct kn_command *, void **)
{
	if (first_lane())
		sink = *word(0) + *word(1) + *word(2);
	if (first_lane() && blockIdx.x == 3)
		*word(1) = 7;
}

static void copy_other(const struct kn_command *, void **)
{
	if (!first_lane())
		return;
	kn_cp_async16(kn_shared(), memory);
	kn_cp_async_commit();
	kn_cp_async_wait<0>();
	if (blockIdx.x == 2)
		*word(3) = 7;
}

static void add_atomically(const struct kn_command *, void **) { kn_add_shared(word(0), 1u); }

static void communicate(const struct kn_command *, void **)
{
	kn_fence();
	if (first_lane())
		*word(0) = *word(blockIdx.x) + 7;
}

static void load_aligned(const struct kn_command *, void **)
{
	sink = kn_shared_load16(kn_shared()).x + kn_load_again(memory + 16).x + kn_load_once(memory + 32).x;
}

static void load_shared_unaligned(const struct kn_command *, void **)
{
	sink = kn_shared_load16((const uint8_t *)kn_shared() + 8).x;
}

static void load_unaligned(const struct kn_command *, void **) { sink = kn_load_again(memory + 8).x; }

static const struct {
	const char *name;
	void (*body)(const struct kn_command *c, void **);
} probes[] = {{"own words", own_words},
	      {"own bytes", own_bytes},
	      {"add atomically", add_atomically},
	      {"communicate", communicate},
	      {"read other", read_other},
	      {"write same", write_same},
	      {"write read", write_read},
	      {"copy other", copy_other},
	      {"two trees", two_trees},
	      {"load aligned", load_aligned},
	      {"load shared unaligned", load_shared_unaligned},
	      {"load unaligned", load_unaligned}};

/* What the emulation says of a kernel: "" if nothing. NULL: there is none of that name. */
extern "C" __attribute__((visibility("default"))) const char *sluice_emulation_blocks(const char *name)
{
	for (size_t i = 0; i < sizeof probes / sizeof probes[0]; i++) {
		if (strcmp(probes[i].name, name) != 0)
			continue;
		memory = (uint8_t *)emu_memory_alloc(8192);
		const char *wrong = memory != NULL ? run(probes[i].body, BLOCKS, 64) : "no memory";
		emu_memory_free(memory);
		return wrong != NULL ? wrong : "";
	}
	return NULL;
}
