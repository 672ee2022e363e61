/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice model`: its actions and what they share. Each action is a function in a file of its own; model.c
 * dispatches. All of it runs on the main thread; only `generate` starts an engine, whose threads report events.
 * Input is bounded; errors go to standard error as one line, and an exit status is returned.
 */
#ifndef CMD_MODEL_H
#define CMD_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/proto/proto.h"

enum { MODEL_MAX_INPUT = 64 << 20 };

struct sampling_options {
	struct proto_submit req; /* borrows from here and from arguments: must not be moved */
	struct proto_id_f32 bias[PROTO_MAX_LOGIT_BIAS];
};

/* One option of an action, by what it sets. REAL is a number from lo to hi, ABOVE one above lo; U64 has no bounds.
 * COUNT sets a flag and may be followed by a number. BIAS, STOP and STOP_ID belong to a struct sampling_options and may
 * be repeated. */
enum model_option_kind {
	OPTION_FLAG,
	OPTION_TEXT,
	OPTION_REAL,
	OPTION_ABOVE,
	OPTION_U8,
	OPTION_U32,
	OPTION_U64,
	OPTION_COUNT,
	OPTION_BIAS,
	OPTION_STOP,
	OPTION_STOP_ID,
};
struct model_option {
	const char *name;
	enum model_option_kind kind;
	void *to;
	double lo, hi;
	uint8_t *count; /* of COUNT */
};
/* Reads argv[from..argc): the n options, and at most n_files other arguments. 0, or the exit status (reported). */
int model_options(const struct model_option *options, size_t n, int argc, char **argv, int from, const char **files,
		  int n_files);

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
/* Reads path, or standard input where it is NULL. SL_ENOTFOUND, SL_EIO, SL_ELIMIT (over most bytes), SL_ENOMEM. out
 * must be disposed of in any case. */
int model_read(const char *path, size_t most, struct sl_buf *out, struct sl_err *err);
bool model_ends_with(const char *path, const char *end);
/* Flushes standard output: a full disk or a closed pipe is a failure. The exit status. */
int model_finish_output(void);

/* One function per action, with main's arguments from "model" on. The exit status. */
int model_inspect_command(int argc, char **argv);
int model_random(int argc, char **argv);
int model_quantize(int argc, char **argv);
int model_generate_command(int argc, char **argv);
int model_tokenize(int argc, char **argv);
int model_render(int argc, char **argv);

/* Prints `sluice model: …` on standard error and returns status. */
int model_complain(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
