/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice model …`: what its files share.
 */
#ifndef CMD_MODEL_H
#define CMD_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/proto/proto.h"

enum { MODEL_MAX_INPUT = 64 << 20 };

/* How tokens are chosen (cmd/model/model_sampling.c). */
struct sampling_options {
	struct proto_submit req; /* every request begins as this; borrows from here and from arguments */
	struct proto_id_f32 bias[PROTO_MAX_LOGIT_BIAS];
};

enum sampling_taken { SAMPLING_OTHER, SAMPLING_TAKEN, SAMPLING_BAD };

/* Must not be copied or moved afterwards. */
void model_sampling_init(struct sampling_options *s);
/* Takes an option and its value, if it is one of these. */
enum sampling_taken model_sampling_option(struct sampling_options *s, const char *name, const char *value);
/* After the last option: what does not go together, or NULL. */
const char *model_sampling_finish(struct sampling_options *s, uint32_t n_tokens);
/* Numbers within bounds and nothing after them. */
bool model_number(const char *text, double lo, double hi, double *out);
bool model_whole(const char *text, uint64_t lo, uint64_t hi, uint64_t *out);

struct generate_options {
	const char *path, *prompt, *system, *backend, *quantize, *kv_type;
	uint32_t n_tokens;
	float temperature;
	uint64_t seed;
	int n_threads;
	bool raw, json, logprobs, batch;
	struct sampling_options sampling;
};

/* The exit status. */
int model_generate(const struct generate_options *o);
/* argv: FILE and what follows it. */
int model_render(int argc, char **argv);

/* All of standard input; 0 or the exit status. in must be disposed of either way. */
int model_read_input(struct sl_buf *in);
/* Every output ends here: a full disk or a closed pipe is a failure. The exit status. */
int model_finish_output(void);

/* inspect; random; quantize, with main's arguments from "model" on. The exit status. */
int model_inspect_command(int argc, char **argv);
int model_random(int argc, char **argv);
int model_quantize(int argc, char **argv);

int model_tokenize(int argc, char **argv);
/* Prints `sluice model: …` on standard error and returns status. */
int model_complain(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
