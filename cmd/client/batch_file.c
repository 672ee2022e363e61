/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/client/batch_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json/json_depth.h"

enum { DEPTH_MAX = 64, ID_SHOWN = 60 };

static const char *const endpoints[] = {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"};

static void digest_of(const char *id, uint64_t out[2])
{
	XXH128_hash_t h = XXH3_128bits(id, strlen(id));
	out[0] = h.high64;
	out[1] = h.low64;
}

static bool is_endpoint(const char *url)
{
	for (size_t i = 0; i < sizeof endpoints / sizeof *endpoints; i++)
		if (strcmp(url, endpoints[i]) == 0)
			return true;
	return false;
}

/* What is wrong with a request; NULL: nothing. */
static const char *parse_request(const char *text, size_t n, struct batch_request *r)
{
	const char *method;
	*r = (struct batch_request){0};
	if (json_deeper_than(text, n, DEPTH_MAX))
		return "nested too deep";
	r->all = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
	if (!json_is_object(r->all))
		return "not a JSON object";
	r->custom_id = json_string_value(json_object_get(r->all, "custom_id"));
	method = json_string_value(json_object_get(r->all, "method"));
	r->url = json_string_value(json_object_get(r->all, "url"));
	r->body = json_object_get(r->all, "body");
	if (r->custom_id == NULL || r->custom_id[0] == '\0' || strlen(r->custom_id) > BATCH_ID_MAX)
		return "custom_id: a string of 1 to 512 bytes is needed";
	if (method == NULL || strcmp(method, "POST") != 0)
		return "method: \"POST\" is needed";
	if (r->url == NULL || !is_endpoint(r->url))
		return "url: one of /v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings is needed";
	if (!json_is_object(r->body))
		return "body: an object is needed";
	if (json_is_true(json_object_get(r->body, "stream")))
		return "body.stream: a batch is not streamed";
	return NULL;
}

void batch_request_release(struct batch_request *r)
{
	json_decref(r->all);
	*r = (struct batch_request){0};
}

/* ---- lines ---- */

/* Calls line() for each line of fd that is not empty, with its offset; whole is false for a last line without its end.
 * Stops at the first result that is not 0. */
static int each_line(int fd, const char *path, int (*line)(void *ctx, const char *text, size_t n, off_t at, bool whole),
		     void *ctx, struct sl_err *err)
{
	char *text = NULL;
	size_t room = 0;
	ssize_t n;
	off_t at = 0;
	int rc = 0, copy = dup(fd);
	FILE *f = copy < 0 ? NULL : fdopen(copy, "r");
	if (f == NULL) {
		if (copy >= 0)
			close(copy);
		return sl_errf(err, SL_EIO, "%s: %s", path, strerror(errno));
	}
	rewind(f);
	while (rc == 0 && (n = getline(&text, &room, f)) > 0) {
		bool whole = text[n - 1] == '\n';
		size_t bytes = (size_t)n - whole;
		if (bytes > 0 && text[bytes - 1] == '\r')
			bytes--;
		if (bytes > BATCH_LINE_MAX)
			rc = sl_errf(err, SL_ELIMIT, "%s: a line of over %d bytes", path, BATCH_LINE_MAX);
		else if (bytes > 0)
			rc = line(ctx, text, bytes, at, whole);
		at += n;
	}
	if (rc == 0 && !feof(f)) /* also without memory for a line */
		rc = sl_errf(err, SL_EIO, "%s: %s", path, strerror(errno));
	free(text);
	fclose(f);
	return rc;
}

struct reading {
	struct batch_file *f;
	struct sl_err *err;
	size_t room, line;
	off_t cut; /* of the output: where an unfinished line begins; -1: nowhere */
	const struct batch_line **by_digest;
};

static int grow(struct reading *r)
{
	struct batch_file *f = r->f;
	if (f->n == BATCH_LINES_MAX)
		return sl_errf(r->err, SL_ELIMIT, "%s: over %d requests", f->in_path, BATCH_LINES_MAX);
	if (f->n < r->room)
		return 0;
	size_t room = r->room == 0 ? 256 : 2 * r->room;
	struct batch_line *lines = sl_realloc_n(f->lines, room, sizeof *lines);
	if (lines == NULL)
		return sl_errf(r->err, SL_ENOMEM, "%s: no memory", f->in_path);
	f->lines = lines;
	r->room = room;
	return 0;
}

static int take_request(void *ctx, const char *text, size_t n, off_t at, bool whole)
{
	struct reading *r = ctx;
	struct batch_request request;
	(void)whole;
	r->line++;
	int rc = grow(r);
	if (rc != 0)
		return rc;
	const char *bad = parse_request(text, n, &request);
	if (bad != NULL) {
		rc = sl_errf(r->err, SL_EINVAL, "%s: request %zu: %s", r->f->in_path, r->line, bad);
	} else {
		struct batch_line *l = &r->f->lines[r->f->n++];
		*l = (struct batch_line){.at = at, .n = (uint32_t)n};
		digest_of(request.custom_id, l->digest);
	}
	batch_request_release(&request);
	return rc;
}

static int by_digest(const void *a, const void *b)
{
	const struct batch_line *x = *(const struct batch_line *const *)a, *y = *(const struct batch_line *const *)b;
	return memcmp(x->digest, y->digest, sizeof x->digest);
}

/* Fills r->by_digest; an id that occurs twice is an error. */
static int index_lines(struct reading *r)
{
	struct batch_file *f = r->f;
	r->by_digest = sl_zalloc_n(f->n > 0 ? f->n : 1, sizeof *r->by_digest);
	if (r->by_digest == NULL)
		return sl_errf(r->err, SL_ENOMEM, "%s: no memory", f->in_path);
	for (size_t i = 0; i < f->n; i++)
		r->by_digest[i] = &f->lines[i];
	qsort(r->by_digest, f->n, sizeof *r->by_digest, by_digest);
	for (size_t i = 1; i < f->n; i++) {
		if (by_digest(&r->by_digest[i - 1], &r->by_digest[i]) != 0)
			continue;
		size_t a = (size_t)(r->by_digest[i - 1] - f->lines), b = (size_t)(r->by_digest[i] - f->lines);
		return sl_errf(r->err, SL_EINVAL, "%s: requests %zu and %zu have the same custom_id", f->in_path,
			       (a < b ? a : b) + 1, (a < b ? b : a) + 1);
	}
	return 0;
}

static int take_result(void *ctx, const char *text, size_t n, off_t at, bool whole)
{
	struct reading *r = ctx;
	struct batch_line key = {0};
	const struct batch_line *wanted = &key, **found;
	r->line++;
	if (!whole) {
		r->cut = at;
		return 0;
	}
	json_t *all = json_loadb(text, n, 0, NULL);
	const char *id = json_string_value(json_object_get(all, "custom_id"));
	if (id == NULL) {
		json_decref(all);
		return sl_errf(r->err, SL_EINVAL, "%s: line %zu is not a result of a batch", r->f->out_path, r->line);
	}
	digest_of(id, key.digest);
	found = bsearch(&wanted, r->by_digest, r->f->n, sizeof *r->by_digest, by_digest);
	int rc = 0;
	if (found == NULL) {
		rc = sl_errf(r->err, SL_EINVAL, "%s: line %zu: %s has no request with the custom_id \"%.*s\"",
			     r->f->out_path, r->line, r->f->in_path, ID_SHOWN, id);
	} else if (!(*found)->done) {
		r->f->lines[*found - r->f->lines].done = true;
		r->f->n_done++;
	}
	json_decref(all);
	return rc;
}

/* ---- opening ---- */

static int open_input(struct batch_file *f, struct sl_err *err)
{
	struct sl_err why;
	f->in = file_open(f->in_path, &why);
	return f->in >= 0 ? 0 : sl_errf(err, f->in, "%s: %s", f->in_path, why.text);
}

static int open_output(struct batch_file *f, struct sl_err *err)
{
	struct stat in, out;
	f->out = open(f->out_path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
	if (f->out < 0 || fstat(f->out, &out) != 0)
		return sl_errf(err, SL_EIO, "%s: %s", f->out_path, strerror(errno));
	if (!S_ISREG(out.st_mode))
		return sl_errf(err, SL_EINVAL, "%s: not a regular file", f->out_path);
	if (fstat(f->in, &in) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino)
		return sl_errf(err, SL_EINVAL, "%s is the input", f->out_path);
	if (flock(f->out, LOCK_EX | LOCK_NB) != 0)
		return sl_errf(err, SL_EIO, "%s: another `sluice batch` is writing it", f->out_path);
	return 0;
}

int batch_file_open(struct batch_file *f, const char *in_path, const char *out_path, struct sl_err *err)
{
	struct reading r = {.f = f, .err = err, .cut = -1};
	*f = (struct batch_file){.in_path = in_path, .out_path = out_path, .in = -1, .out = -1};
	int rc = open_input(f, err);
	if (rc == 0)
		rc = each_line(f->in, in_path, take_request, &r, err);
	if (rc == 0)
		rc = index_lines(&r);
	if (rc == 0)
		rc = open_output(f, err);
	r.line = 0;
	if (rc == 0)
		rc = each_line(f->out, out_path, take_result, &r, err);
	if (rc == 0 && r.cut >= 0 && ftruncate(f->out, r.cut) != 0)
		rc = sl_errf(err, SL_EIO, "%s: %s", out_path, strerror(errno));
	sl_free(r.by_digest);
	return rc;
}

void batch_file_dispose(struct batch_file *f)
{
	if (f->in >= 0)
		close(f->in);
	if (f->out >= 0)
		close(f->out);
	sl_free(f->lines);
	*f = (struct batch_file){.in = -1, .out = -1};
}

int batch_file_request(const struct batch_file *f, size_t i, struct batch_request *out, struct sl_err *err)
{
	const struct batch_line *l = &f->lines[i];
	uint64_t digest[2] = {0};
	*out = (struct batch_request){0};
	char *text = sl_alloc(l->n);
	if (text == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", f->in_path);
	const char *bad = pread(f->in, text, l->n, l->at) == (ssize_t)l->n ? parse_request(text, l->n, out) : "is gone";
	sl_free(text);
	if (bad == NULL)
		digest_of(out->custom_id, digest);
	if (bad == NULL && memcmp(digest, l->digest, sizeof digest) == 0)
		return 0;
	batch_request_release(out);
	return sl_errf(err, SL_EINVAL, "%s: request %zu was changed meanwhile", f->in_path, i + 1);
}

int batch_file_add(struct batch_file *f, size_t i, const json_t *result, struct sl_err *err)
{
	char *text = json_dumps(result, JSON_COMPACT | JSON_PRESERVE_ORDER);
	if (text == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", f->out_path);
	size_t n = strlen(text);
	text[n] = '\n'; /* instead of the terminating NUL */
	int rc = file_write(f->out, text, n + 1);
	if (rc != 0)
		rc = sl_errf(err, SL_EIO, "%s: %s", f->out_path, strerror(errno));
	sl_free(text); /* main gave jansson sl_alloc */
	if (rc == 0 && !f->lines[i].done) {
		f->lines[i].done = true;
		f->n_done++;
	}
	return rc;
}
