/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread, one queue in the order of arrival, bounded: one more is refused with 503. A job travels from
 * its loop to the reader and back as one message; the exchange it belongs to is touched by its own loop
 * only. Whose client has left is not read any more, and goes when it is back.
 */
#include "gateway/body_reader.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/mailbox.h"
#include "base/metrics.h"
#include "gateway/api_request.h"
#include "gateway/app_state.h"

enum { MOST_JOBS = 64 };

struct body_reader {
	pthread_t thread;
	struct mailbox jobs;
	atomic_bool stops;
	atomic_int n; /* jobs not yet read */
};

struct body_job {
	struct gw_message m; /* there and back */
	struct gw_thread *home;
	struct exchange *x; /* NULL: it has gone. The loop's */
	const struct body_parser *parser;
	body_done *done;
	struct sl_buf body;
	struct request_limits limits;
	struct request_error e;
	int rc;
	atomic_bool unwanted;
	alignas(max_align_t) unsigned char out[];
};

static struct metric aside = {.kind = METRIC_COUNTER, .name = "sluice_bodies_read_aside_total",
			      .help = "Large request bodies that were read beside the loop"};
static struct metric refused = {.kind = METRIC_COUNTER, .name = "sluice_bodies_refused_total",
				.help = "Large request bodies that found the queue for them full"};

static void register_all(void)
{
	metric_register(&aside);
	metric_register(&refused);
}

/* ---- the reader's thread ---- */

static void *run_reader(void *arg)
{
	struct body_reader *r = arg;
	pthread_setname_np(pthread_self(), "bodies");
	while (!atomic_load(&r->stops)) {
		struct mail *next, *first = mailbox_wait(&r->jobs, UINT64_MAX);
		for (struct mail *it = first; it != NULL; it = next) {
			struct body_job *j = list_entry(it, struct body_job, m.mail);
			next = it->next;
			if (atomic_load(&r->stops) || atomic_load(&j->unwanted))
				j->rc = SL_ECLOSED;
			else
				j->rc = j->parser->parse(j->body.len > 0 ? buf_data(&j->body) : (const uint8_t *)"", j->body.len,
							 &j->limits, j->out, &j->e);
			atomic_fetch_sub(&r->n, 1);
			gw_post(j->home, &j->m);
		}
	}
	return NULL;
}

int body_reader_create(struct body_reader **out)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, register_all);
	struct body_reader *r = sl_zalloc(sizeof *r);
	*out = NULL;
	if (r == NULL)
		return SL_ENOMEM;
	if (mailbox_init(&r->jobs) != 0) {
		sl_free(r);
		return SL_EIO;
	}
	if (pthread_create(&r->thread, NULL, run_reader, r) != 0) {
		mailbox_dispose(&r->jobs);
		sl_free(r);
		return SL_EIO;
	}
	*out = r;
	return 0;
}

void body_reader_destroy(struct body_reader *r)
{
	struct mail *next;
	if (r == NULL)
		return;
	atomic_store(&r->stops, true);
	mailbox_nudge(&r->jobs);
	pthread_join(r->thread, NULL);
	for (struct mail *it = mailbox_take_all(&r->jobs); it != NULL; it = next) {
		struct body_job *j = list_entry(it, struct body_job, m.mail);
		next = it->next;
		j->rc = SL_ECLOSED;
		gw_post(j->home, &j->m);
	}
	mailbox_dispose(&r->jobs);
	sl_free(r);
}

/* ---- the loop's side ---- */

static void job_free(struct body_job *j)
{
	buf_dispose(&j->body);
	sl_free(j);
}

static void on_close(struct exchange *x)
{
	struct body_job *j = x->state;
	j->x = NULL;
	atomic_store(&j->unwanted, true);
	x->state = NULL;
}

static void on_back(struct gw_thread *t, struct gw_message *m)
{
	struct body_job *j = list_entry(m, struct body_job, m);
	struct exchange *x = j->x;
	(void)t;
	if (x != NULL) {
		x->state = NULL;
		x->on_close = NULL;
		if (api_parsed(x, j->rc, &j->e))
			j->done(x, j->out);
	}
	if (j->rc == 0)
		j->parser->dispose(j->out);
	job_free(j);
}

static void read_at_once(struct exchange *x, const struct body_parser *parser, body_done *done)
{
	struct request_limits limits = api_limits(x);
	struct request_error e;
	void *out = sl_zalloc(parser->size);
	int rc = out == NULL ? SL_ENOMEM : parser->parse(api_body(x), x->body.len, &limits, out, &e);
	if (api_parsed(x, rc, &e))
		done(x, out);
	if (rc == 0)
		parser->dispose(out);
	sl_free(out);
}

void body_read(struct exchange *x, const struct body_parser *parser, body_done *done)
{
	struct body_reader *r = x->app->bodies;
	if (x->body.len <= BODY_AT_ONCE) {
		read_at_once(x, parser, done);
		return;
	}
	struct body_job *j = sl_zalloc(sizeof *j + parser->size);
	if (j == NULL) {
		api_reply_no_memory(x);
		return;
	}
	if (atomic_fetch_add(&r->n, 1) >= MOST_JOBS) {
		atomic_fetch_sub(&r->n, 1);
		metric_add(&refused, 1);
		sl_free(j);
		exchange_error(x, &(struct api_error){503, "server_error", "overloaded", NULL, 1},
			       "The server is busy with other large requests.");
		return;
	}
	metric_add(&aside, 1);
	j->m.run = on_back;
	j->home = x->app->t;
	j->x = x;
	j->parser = parser;
	j->done = done;
	j->limits = api_limits(x);
	j->body = x->body;
	buf_init(&x->body, x->app->t->cfg->limits.body_bytes);
	x->state = j;
	x->on_close = on_close;
	mailbox_send(&r->jobs, &j->m.mail);
}
