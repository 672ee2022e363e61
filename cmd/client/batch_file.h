/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of `sluice batch`, in the form of OpenAI's Batch API: the input has a request per line, {"custom_id",
 * "method", "url", "body"}; the output has a result per line, {"id", "custom_id", "response", "error"}, in the order in
 * which they were ready. The output is also the journal: what it holds is done.
 */
#ifndef CMD_BATCH_FILE_H
#define CMD_BATCH_FILE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum {
	BATCH_LINES_MAX = 1000000,
	BATCH_LINE_MAX = 8 << 20,
	BATCH_ID_MAX = 512,
};

struct batch_line {
	off_t at;
	uint32_t n;         /* bytes without the line's end */
	bool done;          /* the output has its result */
	uint64_t digest[2]; /* of its custom_id */
};

struct batch_file {
	const char *in_path, *out_path; /* borrowed */
	int in, out;                    /* -1: not open */
	struct batch_line *lines;       /* in the input's order, without empty ones */
	size_t n, n_done;
};

/* One request of the input. */
struct batch_request {
	json_t *all; /* owned; the rest borrows from it */
	const char *custom_id, *url;
	json_t *body;
};

/* Reads and checks all lines of the input, then the output: its results are counted as done, an unfinished last line is
 * cut off, and no other process may write it meanwhile. After an error, dispose too. */
int batch_file_open(struct batch_file *f, const char *in_path, const char *out_path, struct sl_err *err);
void batch_file_dispose(struct batch_file *f);
/* Reads line i again. 0, or an error: the file has changed. The caller releases it. */
int batch_file_request(const struct batch_file *f, size_t i, struct batch_request *out, struct sl_err *err);
void batch_request_release(struct batch_request *r);
/* Appends the result of line i and counts it. result is borrowed. */
int batch_file_add(struct batch_file *f, size_t i, const json_t *result, struct sl_err *err);

#endif
