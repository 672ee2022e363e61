/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/answer/stream_out.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "gateway/exchange/app_state.h"

struct stream_out {
	struct exchange *x;
	struct replay_log *log; /* a reference: the reader's */
	struct replay_reader *reader;
	struct gw_timer timer;
	uint64_t moved_ns;
};

static void stream_out_free(struct stream_out *so)
{
	if (so->reader != NULL)
		replay_close(so->reader);
	gw_timer_stop(&so->x->app->t->timers, &so->timer);
	sl_free(so);
}

static void on_close(struct exchange *x)
{
	struct stream_out *so = x->state;
	struct replay_usage usage;
	if (replay_ended(so->log, &usage)) {
		x->n_prompt = usage.n_prompt;
		x->n_completion = usage.n_completion;
	}
	x->state = NULL;
	stream_out_free(so);
}

static void on_ready(void *ctx)
{
	struct stream_out *so = ctx;
	http_body_ready(so->x->stream);
}

static ssize_t pull(void *ctx, uint8_t *dst, size_t room, bool *end)
{
	struct stream_out *so = ctx;
	ssize_t n = replay_pull(so->reader, dst, room, end);
	if (n > 0)
		so->moved_ns = gw_now(so->x->app->t);
	return n;
}

static void restart(struct stream_out *so, uint64_t ns) { gw_timer_start(&so->x->app->t->timers, &so->timer, ns); }

static void on_timer(struct gw_timer *timer)
{
	struct stream_out *so = list_entry(timer, struct stream_out, timer);
	uint64_t interval = so->x->app->t->cfg->heartbeat_ms * NS_PER_MS, silent = clock_now_ns() - so->moved_ns;
	if (silent >= interval && replay_ping(so->reader))
		http_body_ready(so->x->stream);
	restart(so, silent >= interval ? interval : interval - silent);
}

int stream_out_start(struct exchange *x, struct replay_log *log, uint64_t from, bool ids)
{
	struct http_field fields[STREAM_FIELDS + 1] = {stream_fields[0], stream_fields[1]};
	struct stream_out *so = sl_zalloc(sizeof *so);
	if (so == NULL)
		return SL_ENOMEM;
	*so = (struct stream_out){.x = x, .log = log, .moved_ns = clock_now_ns()};
	gw_timer_init(&so->timer, on_timer);
	int rc = replay_read(log, x->app->t, from, ids, on_ready, so, &so->reader);
	if (rc != 0) {
		stream_out_free(so);
		return rc;
	}
	fields[STREAM_FIELDS] = (struct http_field){"x-sluice-stream-id", replay_id(log)};
	x->state = so;
	x->on_close = on_close;
	restart(so, x->app->t->cfg->heartbeat_ms * NS_PER_MS);
	exchange_reply_stream(x, fields, STREAM_FIELDS + ids, (struct http_source){.pull = pull, .ctx = so});
	http_body_ready(x->stream);
	return 0;
}
