/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread and one bounded queue: higher priority first, fair by bytes between tenants. When it is full, a newcomer
 * displaces worse work (base/fair.h) or gets 503. A finished job returns to its loop as a message; only that loop
 * touches its exchange. The body of a client that has left is not parsed; the job is freed when it returns.
 */
#include "gateway/api/body_reader.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>

#include "base/cond.h"
#include "base/alloc.h"
#include "base/fair.h"
#include "base/metrics.h"
#include "gateway/api/api_request.h"
#include "gateway/exchange/app_state.h"
#include "gateway/files/file_fetch.h"

enum { MOST_JOBS = 64 };

struct body_reader {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t filled;
	struct fair jobs; /* body_job.queued: not yet read */
	bool stops;
};

struct body_job {
	struct gw_message m; /* on its way back */
	struct fair_item queued;
	struct gw_thread *home;
	struct exchange *x; /* NULL: closed. The loop's */
	const struct body_parser *parser;
	body_done *done;
	struct sl_buf body;
	struct request_files files; /* owned: those that it names, once they have been fetched */
	struct request_limits limits;
	struct request_error e;
	int rc; /* SL_ELIMIT: displaced */
	atomic_bool unwanted;
	alignas(max_align_t) unsigned char out[];
};

COUNTER(aside, "sluice_bodies_read_aside_total", "Large request bodies parsed outside the event loop");
COUNTER(refused, "sluice_bodies_refused_total", "Large request bodies refused by the full queue, or displaced from it");

/* ---- the reader's thread ---- */

/* Waits for the next job. NULL: the reader stops. */
static struct body_job *take(struct body_reader *r)
{
	struct fair_item *it = NULL;
	pthread_mutex_lock(&r->lock);
	while (!r->stops && (it = fair_take(&r->jobs)) == NULL)
		cond_wait(&r->filled, &r->lock);
	pthread_mutex_unlock(&r->lock);
	return it != NULL ? list_entry(it, struct body_job, queued) : NULL;
}

static void *run_reader(void *arg)
{
	struct body_job *j;
	pthread_setname_np(pthread_self(), "bodies");
	while ((j = take(arg)) != NULL) {
		if (atomic_load(&j->unwanted))
			j->rc = SL_ECLOSED;
		else
			j->rc = j->parser->parse(j->body.len > 0 ? buf_data(&j->body) : (const uint8_t *)"",
						 j->body.len, &j->limits, j->out, &j->e);
		gw_post(j->home, &j->m);
	}
	return NULL;
}

int body_reader_create(struct body_reader **out)
{
	struct body_reader *r = sl_zalloc(sizeof *r);
	*out = NULL;
	if (r == NULL)
		return SL_ENOMEM;
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->filled, NULL);
	fair_init(&r->jobs);
	if (pthread_create(&r->thread, NULL, run_reader, r) != 0) {
		pthread_cond_destroy(&r->filled);
		pthread_mutex_destroy(&r->lock);
		sl_free(r);
		return SL_EIO;
	}
	*out = r;
	return 0;
}

void body_reader_destroy(struct body_reader *r)
{
	struct fair_item *it;
	if (r == NULL)
		return;
	pthread_mutex_lock(&r->lock);
	r->stops = true;
	pthread_cond_signal(&r->filled);
	pthread_mutex_unlock(&r->lock);
	pthread_join(r->thread, NULL);
	while ((it = fair_take(&r->jobs)) != NULL) {
		struct body_job *j = list_entry(it, struct body_job, queued);
		j->rc = SL_ECLOSED;
		gw_post(j->home, &j->m);
	}
	fair_dispose(&r->jobs);
	pthread_cond_destroy(&r->filled);
	pthread_mutex_destroy(&r->lock);
	sl_free(r);
}

/* ---- the loop's side ---- */

static void job_free(struct body_job *j)
{
	buf_dispose(&j->body);
	request_files_dispose(&j->files);
	sl_free(j);
}

static void on_close(struct exchange *x)
{
	struct body_job *j = x->state;
	struct body_reader *r = x->app->bodies;
	j->x = NULL;
	atomic_store(&j->unwanted, true);
	pthread_mutex_lock(&r->lock);
	fair_hurry(&r->jobs, &j->queued);
	pthread_mutex_unlock(&r->lock);
}

static void refuse(struct exchange *x)
{
	metric_add(&refused, 1);
	exchange_refuse(x, 503, "overloaded", NULL, "The server is busy with other large requests.");
}

/* A body while the files that it names are fetched: the exchange's state. */
struct body_wait {
	struct file_fetch fetch;
	const struct body_parser *parser;
	body_done *done;
	struct request_files files; /* owned */
};

static void read_body(struct exchange *x, const struct body_parser *parser, body_done *done,
		      struct request_files *files);

static void wait_free(struct body_wait *w)
{
	file_fetch_cancel(&w->fetch);
	request_files_dispose(&w->files);
	sl_free(w);
}

static void on_wait_close(struct exchange *x) { wait_free(x->state); }

static void on_fetched(struct file_fetch *f)
{
	struct body_wait *w = list_entry(f, struct body_wait, fetch);
	struct exchange *x = f->x;
	exchange_disown(x);
	read_body(x, w->parser, w->done, &w->files);
	wait_free(w);
}

/* Takes files and leaves zeros. x has its body. */
static void fetch(struct exchange *x, const struct body_parser *parser, body_done *done, struct request_files *files)
{
	struct body_wait *w = exchange_own(x, sizeof *w, on_wait_close);
	if (w == NULL)
		return;
	w->parser = parser;
	w->done = done;
	w->files = *files;
	*files = (struct request_files){0};
	w->fetch = (struct file_fetch){.x = x, .files = &w->files, .done = on_fetched};
	file_fetch_start(&w->fetch);
}

static void on_back(struct gw_thread *t, struct gw_message *m)
{
	struct body_job *j = list_entry(m, struct body_job, m);
	struct exchange *x = j->x;
	(void)t;
	if (x != NULL) {
		exchange_disown(x);
		if (j->rc == SL_ELIMIT) {
			refuse(x);
		} else if (j->rc == SL_EAGAIN) {
			buf_dispose(&x->body);
			x->body = j->body;
			buf_init(&j->body, 0);
			fetch(x, j->parser, j->done, &j->files);
		} else if (api_parsed(x, j->rc, &j->e)) {
			j->done(x, j->out);
		}
	}
	if (j->rc == 0)
		j->parser->dispose(j->out);
	job_free(j);
}

static void read_at_once(struct exchange *x, const struct body_parser *parser, body_done *done,
			 struct request_files *files)
{
	struct request_limits limits = api_limits(x);
	struct request_error e;
	limits.files = files;
	void *out = sl_zalloc(parser->size);
	int rc = out == NULL ? SL_ENOMEM : parser->parse(exchange_body(x), x->body.len, &limits, out, &e);
	if (rc == SL_EAGAIN) {
		fetch(x, parser, done, files);
	} else if (api_parsed(x, rc, &e)) {
		done(x, out);
	}
	if (rc == 0)
		parser->dispose(out);
	sl_free(out);
}

/* Under the lock. False: the queue is full of better work. */
static bool make_room(struct body_reader *r, const struct auth_key *key, int64_t priority, uint32_t bytes)
{
	if (r->jobs.n < MOST_JOBS)
		return true;
	struct fair_item *it = fair_worse(&r->jobs, priority);
	if (it == NULL)
		it = fair_richer(&r->jobs, key->tenant, priority, bytes);
	if (it == NULL)
		return false;
	struct body_job *victim = list_entry(it, struct body_job, queued);
	fair_leave(&r->jobs, it);
	victim->rc = SL_ELIMIT;
	gw_post(victim->home, &victim->m);
	return true;
}

static int put(struct body_reader *r, struct body_job *j, const struct auth_key *key)
{
	int64_t priority = key->tier != NULL ? key->tier->priority : 0;
	size_t all = j->body.len + request_files_bytes(&j->files);
	uint32_t bytes = all > 0 ? (uint32_t)all : 1;
	pthread_mutex_lock(&r->lock);
	int rc = make_room(r, key, priority, bytes) ? fair_enter(&r->jobs, &j->queued, key->tenant, priority, bytes)
						    : SL_ELIMIT;
	pthread_cond_signal(&r->filled);
	pthread_mutex_unlock(&r->lock);
	return rc;
}

/* Takes files and leaves zeros, unless there is no memory. */
static void read_aside(struct exchange *x, const struct body_parser *parser, body_done *done,
		       struct request_files *files)
{
	struct body_reader *r = x->app->bodies;
	struct body_job *j = sl_zalloc(sizeof *j + parser->size);
	if (j == NULL) {
		exchange_reply_no_memory(x);
		return;
	}
	j->m.run = on_back;
	j->home = x->app->t;
	j->x = x;
	j->parser = parser;
	j->done = done;
	j->limits = api_limits(x);
	j->files = *files;
	*files = (struct request_files){0};
	j->limits.files = &j->files;
	j->body = x->body;
	buf_init(&x->body, x->app->t->cfg->limits.body_bytes);
	x->state = j;
	x->on_close = on_close;
	if (put(r, j, x->key) == 0) {
		metric_add(&aside, 1);
		return;
	}
	exchange_disown(x);
	job_free(j);
	refuse(x);
}

/* May take what files has; it leaves zeros then. */
static void read_body(struct exchange *x, const struct body_parser *parser, body_done *done,
		      struct request_files *files)
{
	if (x->body.len + request_files_bytes(files) <= BODY_AT_ONCE)
		read_at_once(x, parser, done, files);
	else
		read_aside(x, parser, done, files);
}

void body_read(struct exchange *x, const struct body_parser *parser, body_done *done)
{
	struct request_files files = {0};
	read_body(x, parser, done, &files);
	request_files_dispose(&files);
}
