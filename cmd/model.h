/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice model …`: what its files share.
 */
#ifndef CMD_MODEL_H
#define CMD_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

enum { MODEL_MAX_INPUT = 64 << 20 };

struct generate_options {
	const char *path, *prompt, *system, *backend;
	uint32_t n_tokens;
	float temperature;
	uint64_t seed;
	int n_threads;
	bool raw, ids, logprobs, batch;
};

/* The exit status. */
int model_generate(const struct generate_options *o);
/* argv: FILE and what follows it. */
int model_render(int argc, char **argv);

/* All of standard input; 0 or the exit status. in must be disposed of either way. */
int model_read_input(struct sl_buf *in);
/* Every output ends here: a full disk or a closed pipe is a failure. The exit status. */
int model_finish_output(void);

/* Prints `sluice model: …` on standard error and returns status. */
int model_complain(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
