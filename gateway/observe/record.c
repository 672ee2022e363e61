/* SPDX-License-Identifier: Apache-2.0
 *
 * The file is opened when a configuration is loaded, so a reload opens it again, and again whenever its name comes to
 * mean another file. Two configurations may write it for a while: lines do not mix (base/line_file.h).
 */
#include "gateway/observe/record.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <stdatomic.h>
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
	atomic_bool full_said;
};

/* The writer's. */
struct record_writer {
	struct line_file *file; /* NULL: standard error */
	bool failing;
	char to[];
};

static int64_t count_lines(const char *lines, size_t n)
{
	int64_t count = 0;
	for (const char *p = lines; p < lines + n; p++)
		count += *p == '\n';
	return count;
}

/* A pipe takes what it has room for. */
static bool write_stderr(const char *lines, size_t n) { return file_write(STDERR_FILENO, lines, n) == 0; }

static void take(void *ctx, const char *lines, size_t n)
{
	struct record_writer *w = ctx;
	errno = 0;
	bool good = w->file != NULL ? line_file_write(w->file, lines, n) : write_stderr(lines, n);
	metric_add(good ? &written : &lost_write, count_lines(lines, n));
	if (!good && !w->failing)
		log_error("log.requests.to: %.300s: %s; requests' records are lost until it can be written again",
			  w->to, strerror(errno));
	else if (good && w->failing)
		log_info("log.requests.to: %.300s: requests' records are written again", w->to);
	w->failing = !good;
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
	static const struct aside_ops ops = {
	    .thread = "records", .max_bytes = MAX_WAITING, .take = take, .dispose = dispose};
	struct record_writer *w = NULL;
	struct records *r = sl_zalloc(sizeof *r);
	*out = NULL;
	if (r == NULL)
		return sl_errf(err, SL_ENOMEM, "log.requests.to: no memory");
	r->sample = sample;
	int rc = read_key(state_dir, r->key, err);
	if (rc == 0)
		rc = create_writer(to, &w, err);
	if (rc == 0 && (rc = aside_create(&ops, w, &r->aside)) != 0) {
		dispose(w);
		sl_errf(err, rc, "log.requests.to: no thread");
	}
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

static bool is_sampled(const struct records *r)
{
	uint64_t draw;
	if (r->sample >= 1)
		return true;
	return random_u64(&draw) && (double)(draw >> 11) * 0x1p-53 < r->sample;
}

void records_put(struct records *r, const struct observed *o, enum observed_verdict v)
{
	struct sl_buf line;
	if (!is_sampled(r))
		return;
	buf_init(&line, MAX_LINE);
	bool put = record_print(&line, o, v, digest_of(r, o->tenant), unix_ms()) == 0 &&
		   aside_put(r->aside, buf_data(&line), line.len);
	buf_dispose(&line);
	if (put) {
		atomic_store_explicit(&r->full_said, false, memory_order_relaxed);
		return;
	}
	metric_add(&lost_queue, 1);
	if (!atomic_exchange(&r->full_said, true))
		log_warn("log.requests.to: the writer is too slow; requests' records are dropped meanwhile");
}
