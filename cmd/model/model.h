/* SPDX-License-Identifier: Apache-2.0
 *
 * The room is `sluice model`: commands on model files that need no server. model.c selects the action; each action has
 * a file of its own and returns the exit status. Input is bounded. An error is one line on standard error.
 *
 * Thread: main, which calls cmd_model. `generate` alone starts an engine, whose threads deliver events.
 */
#ifndef CMD_MODEL_H
#define CMD_MODEL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "cmd/config/cmd.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/proto/proto.h"

enum { MODEL_MAX_INPUT = 64 << 20 };

struct sampling_options {
	struct proto_submit req; /* borrows from bias and from argv; must not be moved */
	struct proto_id_f32 bias[PROTO_MAX_LOGIT_BIAS];
};

/* The type of an option's value. REAL is a number in [lo, hi], ABOVE one in (lo, hi]; U64 has no bounds. COUNT sets a
 * flag and takes an optional number. BIAS, STOP and STOP_ID go to a struct sampling_options and may be repeated. */
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
	uint8_t *count; /* COUNT: its number */
};
/* Parses argv[from..argc): the n options, and at most n_files other arguments. 0, or the exit status after printing an
 * error. */
int model_options(const struct model_option *options, size_t n, int argc, char **argv, int from, const char **files,
		  int n_files);

struct generate_options {
	const char *path, *prompt, *system, *backend, *quantize, *kv_type, *adapter;
	uint32_t n_tokens;
	float temperature;
	uint64_t seed;
	int n_threads;
	bool raw, json, logprobs, batch;
	struct sampling_options sampling;
};

int model_generate(const struct generate_options *o);
/* Reads the file at path (NULL: standard input). SL_ENOTFOUND, SL_EIO, SL_ELIMIT (more than most bytes), SL_ENOMEM. The
 * caller disposes of out in every case. */
int model_read(const char *path, size_t most, struct sl_buf *out, struct sl_err *err);
bool model_ends_with(const char *path, const char *end);
/* Flushes standard output and reports a write error, such as a full disk or a closed pipe. The exit status. */
int model_finish_output(void);
/* Prints the value, which it gives up, as indented JSON. 0, or the exit status after printing an error. */
int model_print_json(json_t *value);

/* The actions. argv[0] is "model", argv[1] the action. */
int model_inspect_command(int argc, char **argv);
int model_random(int argc, char **argv);
int model_quantize(int argc, char **argv);
int model_generate_command(int argc, char **argv);
int model_tokenize(int argc, char **argv);
int model_render(int argc, char **argv);
int model_adapter(int argc, char **argv);
int model_compare(int argc, char **argv);

/* model_complain(status, format, …): cmd_complain as "sluice model". */
#define model_complain(...) cmd_complain("sluice model", __VA_ARGS__)

#endif
