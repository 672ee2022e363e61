/* SPDX-License-Identifier: Apache-2.0
 *
 * The file is opened when a configuration is loaded, so a reload opens it again, and again whenever its name comes to
 * mean another file. Two configurations may write it for a while: lines do not mix (base/line_file.h).
 */
#include "gateway/observe/record.h"

#include <errno.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/line_file.h"
#include "base/log.h"
#include "base/metrics.h"
#include "gateway/loop/random.h"
#include "gateway/observe/aside.h"

enum { KEY_BYTES = 32, MAX_WAITING = 1 << 20, MAX_LINE = 4096 };

#define LOST(var, why)                                                                      \
	METRIC(var, METRIC_COUNTER, "sluice_request_records_lost_total", "why=\"" why "\"", \
	       "Requests' records that were not written: the queue was full, or the write failed")
LOST(lost_queue, "queue");
LOST(lost_write, "write");
COUNTER(written, "sluice_request_records_total", "Requests' records that were written");

struct records {
	struct aside *aside;
	double sample;
	uint8_t key[KEY_BYTES];
};

/* The writer's. */
struct record_writer {
	struct line_file *file; /* NULL: standard error */
	bool failing;
	char to[];
};

/* A line at a time: at most PIPE_BUF bytes, so that the log's lines do not come between in a pipe. */
static bool write_stderr(const char *lines, size_t n)
{
	_Static_assert(MAX_LINE <= PIPE_BUF, "a line is written as a whole");
	for (const char *end; n > 0; n -= (size_t)(end - lines), lines = end) {
		const char *newline = memchr(lines, '\n', n);
		end = newline != NULL ? newline + 1 : lines + n;
		if (file_write(STDERR_FILENO, lines, (size_t)(end - lines)) != 0)
			return false;
	}
	return true;
}

static bool take(void *ctx, const char *lines, size_t n)
{
	struct record_writer *w = ctx;
	errno = 0;
	bool good = w->file != NULL ? line_file_write(w->file, lines, n) : write_stderr(lines, n);
	if (!good && !w->failing)
		log_error("log.requests.to: %.300s: %s; requests' records are lost until it can be written again",
			  w->to, strerror(errno));
	else if (good && w->failing)
		log_info("log.requests.to: %.300s: requests' records are written again", w->to);
	w->failing = !good;
	return good;
}

static void dispose(void *ctx)
{
	struct record_writer *w = ctx;
	line_file_close(w->file);
	sl_free(w);
}

/* The installation's key, made when it is missing. */
static int read_key(const char *state_dir, uint8_t key[KEY_BYTES], struct sl_err *err)
{
	char path[4096];
	struct sl_err why = {.text = "the path is too long"};
	if ((size_t)snprintf(path, sizeof path, "%s/records.key", state_dir) >= sizeof path)
		return sl_errf(err, SL_EINVAL, "log.requests.to: %.200s: %s", state_dir, why.text);
	int fd = file_open_private(path, &why);
	if (fd == SL_ENOTFOUND) {
		if (RAND_bytes(key, KEY_BYTES) != 1 || file_make_private(path, key, KEY_BYTES) != 0)
			return sl_errf(err, SL_EIO, "log.requests.to: cannot make %.200s: %s", path, strerror(errno));
		fd = file_open_private(path, &why);
	}
	if (fd < 0)
		return sl_errf(err, fd, "log.requests.to: %.200s: %s", path, why.text);
	ssize_t n = read(fd, key, KEY_BYTES);
	close(fd);
	return n == KEY_BYTES ? 0 : sl_errf(err, SL_EINVAL, "log.requests.to: %.200s is not a key", path);
}

static int create_writer(const char *to, struct record_writer **out, struct sl_err *err)
{
	size_t n = strlen(to) + 1;
	struct record_writer *w = sl_zalloc(sizeof *w + n);
	if (w == NULL)
		return sl_errf(err, SL_ENOMEM, "log.requests.to: no memory");
	memcpy(w->to, to, n);
	int rc = strcmp(to, "stderr") != 0 ? line_file_open("log.requests.to", to, 0, &w->file, err) : 0;
	if (rc != 0) {
		sl_free(w);
		return rc;
	}
	*out = w;
	return 0;
}

int records_create(const char *to, double sample, const char *state_dir, struct records **out, struct sl_err *err)
{
	static const struct aside_ops ops = {.thread = "records",
					     .key = "log.requests.to",
					     .max_bytes = MAX_WAITING,
					     .taken = &written,
					     .full = &lost_queue,
					     .failed = &lost_write,
					     .take = take,
					     .dispose = dispose};
	struct record_writer *w = NULL;
	struct records *r = sl_zalloc(sizeof *r);
	*out = NULL;
	if (r == NULL)
		return sl_errf(err, SL_ENOMEM, "log.requests.to: no memory");
	r->sample = sample;
	int rc = read_key(state_dir, r->key, err);
	if (rc == 0)
		rc = create_writer(to, &w, err);
	if (rc == 0 && (rc = aside_create(&ops, w, &r->aside, err)) != 0)
		dispose(w);
	if (rc != 0) {
		sl_free(r);
		return rc;
	}
	*out = r;
	return 0;
}

void records_destroy(struct records *r)
{
	if (r == NULL)
		return;
	aside_destroy(r->aside);
	OPENSSL_cleanse(r->key, sizeof r->key);
	sl_free(r);
}

static uint64_t digest_of(const struct records *r, uint64_t tenant)
{
	uint8_t mac[EVP_MAX_MD_SIZE];
	unsigned n = 0;
	uint64_t digest = 0;
	if (HMAC(EVP_sha256(), r->key, KEY_BYTES, (const uint8_t *)&tenant, sizeof tenant, mac, &n) == NULL)
		return 0;
	for (int i = 0; i < 8; i++)
		digest = digest << 8 | mac[i];
	return digest;
}

static uint64_t unix_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void records_put(struct records *r, const struct observed *o, enum observed_verdict v)
{
	struct sl_buf line;
	if (!random_share(r->sample))
		return;
	buf_init(&line, MAX_LINE);
	int rc = record_print(&line, o, v, digest_of(r, o->tenant), unix_ms());
	aside_put(r->aside, rc, &line);
	buf_dispose(&line);
}
