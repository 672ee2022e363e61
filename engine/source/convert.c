/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads are started for each piece of a few MiB: starting them takes about 50 µs, a piece about 10 ms.
 */
#include "engine/source/convert.h"

#include <pthread.h>
#include <unistd.h>

#include "base/alloc.h"
#include "kernels/quantize.h"

enum { MAX_THREADS = 64, PIECE_FLOATS = 4 << 20, LEAST_FLOATS = 1 << 16 };

struct slice {
	pthread_t thread;
	const struct convert *c;
	uint64_t first, n;
	uint8_t *out;
	int rc;
};

static void *convert_slice(void *arg)
{
	struct slice *s = arg;
	const struct convert *c = s->c;
	size_t row_bytes = kn_row_bytes(c->type, c->width);
	float *row = sl_alloc(c->width * sizeof *row);
	s->rc = row == NULL ? SL_ENOMEM : 0;
	for (uint64_t i = 0; i < s->n && s->rc == 0; i++) {
		if (c->raw_row != NULL) {
			c->raw_row(c->ctx, s->first + i, s->out + i * row_bytes);
			continue;
		}
		c->row(c->ctx, s->first + i, row);
		s->rc = c->inputs != NULL
			    ? kn_quantize_row_for(c->type, row, c->inputs, c->width, s->out + i * row_bytes)
			    : kn_quantize_row(c->type, row, c->width, s->out + i * row_bytes);
	}
	sl_free(row);
	return NULL;
}

int convert_rows(const struct convert *c, uint64_t first, uint64_t n, void *out)
{
	struct slice slices[MAX_THREADS];
	long cores = c->n_threads > 0 ? c->n_threads : sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t n_threads = cores < 1 ? 1 : cores > MAX_THREADS ? MAX_THREADS : (uint64_t)cores;
	if (n * c->width < LEAST_FLOATS)
		n_threads = 1;
	n_threads = n_threads > n ? n : n_threads;
	int rc = 0;
	uint64_t from = 0, running = 0;
	for (uint64_t t = 0; t < n_threads; t++) {
		uint64_t to = n * (t + 1) / n_threads;
		slices[t] = (struct slice){.c = c,
					   .first = first + from,
					   .n = to - from,
					   .out = (uint8_t *)out + from * kn_row_bytes(c->type, c->width)};
		from = to;
		/* This thread converts the last slice and all slices for which no thread could be started. */
		if (running != t || t + 1 == n_threads ||
		    pthread_create(&slices[t].thread, NULL, convert_slice, &slices[t]) != 0)
			convert_slice(&slices[t]);
		else
			running++;
	}
	for (uint64_t t = 0; t < n_threads; t++) {
		if (t < running)
			pthread_join(slices[t].thread, NULL);
		rc = rc != 0 ? rc : slices[t].rc;
	}
	return rc;
}

void convert_advance(struct convert_progress *p, uint64_t bytes)
{
	if (p == NULL)
		return;
	p->done += bytes;
	if (p->report != NULL)
		p->report(p->ctx, p->done, p->total);
}

int convert_write(const struct convert *c, const char *name, uint64_t n_rows, struct gguf_writer *w,
		  struct convert_progress *p, struct sl_err *err)
{
	uint64_t piece = PIECE_FLOATS / c->width > 0 ? PIECE_FLOATS / c->width : 1;
	piece = piece < n_rows ? piece : n_rows;
	size_t row_bytes = kn_row_bytes(c->type, c->width);
	uint8_t *out = sl_alloc((size_t)piece * row_bytes);
	int rc = out == NULL ? SL_ENOMEM : 0;
	for (uint64_t at = 0; at < n_rows && rc == 0; at += piece) {
		uint64_t n = n_rows - at < piece ? n_rows - at : piece;
		rc = convert_rows(c, at, n, out);
		if (rc == 0) {
			gguf_write_data(w, out, (size_t)n * row_bytes);
			rc = gguf_writer_status(w);
			convert_advance(p, n * row_bytes);
		}
	}
	sl_free(out);
	if (rc == SL_EINVAL)
		return sl_errf(err, rc, "tensor %s has a value that %s can't hold (not finite, or too large)", name,
			       kn_type_name(c->type));
	return rc == SL_ENOMEM ? sl_errf(err, rc, "no memory for tensor %s", name) : rc;
}
