/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice bench gpu`: declarations that its files share.
 */
#ifndef CMD_BENCH_GPU_H
#define CMD_BENCH_GPU_H

#include "cmd/bench/bench.h"
#include "kernels/kernels.h"

struct gpu_bench {
	const char *backend;
	bool tiny, fp8, loose, adapters;
	uint64_t random;
	double open_s; /* what opening the backend took */
	const struct kn_ops *ops;
	struct kn_backend *b; /* NULL: not open */
};

/* Prints one figure. */
void bench_gpu_tell(const char *name, double seconds, double bytes, double operations);
/* 0, or the exit status after printing an error. */
int bench_gpu_open(struct gpu_bench *x, int max_rows, int max_width, bool fp8);
/* Whether --backend names a device: then `bench ops` and `bench model` run the parts of this one. */
bool bench_gpu_asked(int argc, char **argv);
int bench_gpu_ops(int argc, char **argv);
int bench_gpu_model_of(int argc, char **argv);
/* bench_gpu_model.c: steps of the model at path. The figures' names contain kind. The exit status. */
int bench_gpu_model(struct gpu_bench *x, const char *path, const char *kind);
/* A few decodes of that many sequences, or prompts of that many tokens, and nothing else: for a profiler. */
int bench_gpu_steps(struct gpu_bench *x, const char *path, const char *kind, int batch, int prompt);

#endif
