/* SPDX-License-Identifier: Apache-2.0
 *
 * A slot is free, in flight, or thinking (between two turns). Slots think equally long, so `thinking` is in the order
 * of their next turns.
 */
#include "cmd/load/load_run.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/json/json_out.h"
#include "base/http/sse_read.h"
#include "cmd/load/chat_chunk.h"

enum { REPLY_MAX = 16 << 20, WARMUP_TOKENS = 8 };

static const uint64_t pause_ns = 100 * NS_PER_MS; /* before a slot whose connection broke connects again */
static const uint64_t progress_ns = 500 * NS_PER_MS;

struct slot {
	struct load_call call;
	struct load_run *r;
	struct list node; /* in load_run.thinking */
	struct sse_read sse;
	struct sl_buf body, reply;      /* reply: a response that is not streamed */
	struct sl_buf history, content; /* of a conversation: its messages so far; its answer, as JSON text */
	int conn, key, status, turn;
	struct serve_outcome o;
	bool busy, ended, failed; /* ended: got [DONE] or a finish_reason */
	char code[64];
	uint64_t not_before_ns;
	uint64_t now_ns; /* arrival time of the bytes being read */
};

struct load_run {
	const struct load_plan *plan;
	struct load_client *client;
	struct slot *slots; /* [n_slots] */
	struct slot **free; /* [n_slots], the first n_free */
	struct list thinking;
	int n_slots, n_free, n_conns;
	struct serve_stats *all, *by_key; /* by_key: [n_keys], or NULL */
	struct arrivals arrivals;
	struct load_random random;
	size_t n_traced; /* requests of the trace that were due */
	uint64_t n_started, n_ended, most;
	uint64_t begin_ns, end_ns, next_due_ns;
	uint64_t last_due_ns; /* nothing is due after it */
	bool warming;
};

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
	(void)sig;
	interrupted = 1;
}

void load_run_catch_signals(void)
{
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
}

bool load_run_interrupted(void) { return interrupted != 0; }

static void on_event(void *ctx, const char *data, size_t n);

static struct serve_stats *stats_of(const struct slot *p)
{
	return p->r->by_key != NULL ? &p->r->by_key[p->key] : NULL;
}

/* ---- a request ---- */

static int write_messages(struct slot *p, const struct work *w)
{
	int rc = buf_append_str(&p->history, p->turn > 0 ? ",{\"role\":\"user\",\"content\":\""
							 : "{\"role\":\"user\",\"content\":\"");
	if (rc == 0)
		rc = work_write(w, &p->r->random, &p->history);
	return rc == 0 ? buf_append_str(&p->history, "\"}") : rc;
}

static int write_request(struct slot *p, const struct work *w)
{
	const struct load_plan *plan = p->r->plan;
	unsigned most = p->r->warming && w->n_answer > WARMUP_TOKENS ? WARMUP_TOKENS : w->n_answer;
	buf_clear(&p->body, SIZE_MAX);
	int rc = write_messages(p, w);
	if (rc == 0)
		rc = buf_append_str(&p->body, "{\"model\":");
	if (rc == 0)
		rc = json_out_string(&p->body, plan->model, strlen(plan->model));
	if (rc == 0)
		rc = buf_printf(&p->body, ",\"max_tokens\":%u,\"temperature\":%g,%s\"messages\":[", most,
				plan->temperature,
				plan->whole ? "" : "\"stream\":true,\"stream_options\":{\"include_usage\":true},");
	if (rc == 0)
		rc = buf_append(&p->body, buf_data(&p->history), p->history.len);
	return rc == 0 ? buf_append_str(&p->body, "]}") : rc;
}

static int choose_key(struct load_run *r)
{
	const struct load_plan *plan = r->plan;
	double sum = 0;
	for (int i = 0; i < plan->n_keys; i++)
		sum += plan->keys[i].weight;
	double at = load_uniform(&r->random) * sum;
	for (int i = 0; i < plan->n_keys; i++)
		if ((at -= plan->keys[i].weight) <= 0)
			return i;
	return plan->n_keys - 1;
}

static void report_error(struct slot *p, const char *what)
{
	if (p->r->warming)
		return;
	serve_stats_error(p->r->all, what);
	if (stats_of(p) != NULL)
		serve_stats_error(stats_of(p), what);
}

static void free_slot(struct slot *p)
{
	p->busy = false;
	p->r->free[p->r->n_free++] = p;
}

static const char *code_name(int rc)
{
	return rc == SL_ECLOSED  ? "connection: the server accepts no more requests on it"
	       : rc == SL_ENOMEM ? "out of memory"
	       : rc == SL_ELIMIT ? "the conversation is too long for this program"
				 : "connection: could not be opened";
}

/* Sends one turn. */
static void send_turn(struct slot *p, const struct work *w, uint64_t due_ns)
{
	struct load_run *r = p->r;
	const char *key = r->plan->keys[p->key].text;
	p->o = (struct serve_outcome){.started_ns = due_ns};
	p->status = 0;
	p->ended = p->failed = false;
	p->code[0] = '\0';
	p->busy = true;
	buf_clear(&p->reply, 0);
	buf_clear(&p->content, 0);
	sse_read_dispose(&p->sse);
	sse_read_init(&p->sse, SSE_READ_MAX, on_event, p);
	int rc = write_request(p, w);
	if (rc == 0)
		rc = load_client_start(r->client, p->conn, &p->call, "/v1/chat/completions", key,
				       (const char *)buf_data(&p->body), p->body.len);
	r->n_started++;
	if (rc == 0)
		return;
	r->n_ended++;
	report_error(p, code_name(rc));
	p->not_before_ns = clock_now_ns() + pause_ns;
	free_slot(p);
}

static void begin(struct slot *p, const struct work *w, uint64_t due_ns)
{
	p->key = choose_key(p->r);
	p->turn = 0;
	buf_clear(&p->history, 0);
	send_turn(p, w, due_ns);
}

static void on_head(struct load_call *call, int status, uint64_t now)
{
	(void)now;
	list_entry(call, struct slot, call)->status = status;
}

static void count_event(struct slot *p, uint64_t now)
{
	struct serve_stats *of[2] = {p->r->all, stats_of(p)};
	for (int i = 0; i < 2 && !p->r->warming; i++) {
		if (of[i] == NULL)
			continue;
		of[i]->n_events++;
		if (p->o.first_ns == 0)
			histogram_add(&of[i]->ttft, now - p->o.started_ns);
		else
			histogram_add(&of[i]->itl, now - p->o.last_ns);
	}
	p->o.n_events++;
	p->o.first_ns = p->o.first_ns == 0 ? now : p->o.first_ns;
	p->o.last_ns = now;
}

static void take_chunk(struct slot *p, const struct chat_chunk *k, uint64_t now)
{
	p->ended |= k->done || k->finished;
	if (k->is_error) {
		p->failed = true;
		snprintf(p->code, sizeof p->code, "%s", k->code);
	}
	if (k->has_usage) {
		p->o.has_usage = true;
		p->o.n_prompt = k->n_prompt;
		p->o.n_cached = k->n_cached;
		p->o.n_completion = k->n_completion;
	}
	if (p->r->plan->turns > 1 && k->content.n > 0 && buf_append(&p->content, k->content.at, k->content.n) != 0) {
		p->failed = true;
		snprintf(p->code, sizeof p->code, "the response is too large");
	}
	if (k->has_text)
		count_event(p, now);
}

static void on_event(void *ctx, const char *data, size_t n)
{
	struct slot *p = ctx;
	struct chat_chunk k;
	if (chat_chunk_read(data, n, &k)) {
		take_chunk(p, &k, p->now_ns);
	} else {
		p->failed = true;
		snprintf(p->code, sizeof p->code, "an event is not JSON");
	}
}

static void on_data(struct load_call *call, const uint8_t *bytes, size_t n, uint64_t now)
{
	struct slot *p = list_entry(call, struct slot, call);
	bool streams = p->status == 200 && !p->r->plan->whole;
	p->now_ns = now;
	if ((streams ? sse_read_feed(&p->sse, bytes, n) : buf_append(&p->reply, bytes, n)) != 0) {
		p->failed = true;
		snprintf(p->code, sizeof p->code, "the response is too large");
	}
}

/* Why the response is no answer; "": it is one. */
static void fault_of(const struct slot *p, enum load_end how, char what[STATS_NAME_BYTES])
{
	what[0] = '\0';
	if (p->status != 0 && p->status != 200)
		snprintf(what, STATS_NAME_BYTES, "%d %.60s", p->status, p->code);
	else if (p->failed)
		snprintf(what, STATS_NAME_BYTES, "in the response: %.60s", p->code);
	else if (how == LOAD_LOST)
		snprintf(what, STATS_NAME_BYTES, "connection: %.60s", load_client_why(p->r->client));
	else if (how == LOAD_RESET)
		snprintf(what, STATS_NAME_BYTES, "the server reset the stream");
	else if (!p->ended)
		snprintf(what, STATS_NAME_BYTES, "the response has no end");
}

/* Adds the answer to the conversation, whose next turn is due after a pause. False: it was the last. */
static bool think(struct slot *p, uint64_t now)
{
	struct load_run *r = p->r;
	if (r->warming || ++p->turn >= r->plan->turns)
		return false;
	if (buf_append_str(&p->history, ",{\"role\":\"assistant\",\"content\":\"") != 0 ||
	    buf_append(&p->history, buf_data(&p->content), p->content.len) != 0 ||
	    buf_append_str(&p->history, "\"}") != 0)
		return false;
	p->busy = false;
	p->not_before_ns = now + (uint64_t)(r->plan->think_s * 1e9);
	list_push_back(&r->thinking, &p->node);
	return true;
}

static void on_end(struct load_call *call, enum load_end how, uint64_t now)
{
	struct slot *p = list_entry(call, struct slot, call);
	struct load_run *r = p->r;
	struct chat_chunk k;
	char what[STATS_NAME_BYTES];
	p->o.ended_ns = now;
	if (p->reply.len > 0 && chat_chunk_read((const char *)buf_data(&p->reply), p->reply.len, &k))
		take_chunk(p, &k, now);
	fault_of(p, how, what);
	r->n_ended++;
	if (what[0] != '\0') {
		report_error(p, what);
		p->not_before_ns = now + pause_ns;
		free_slot(p);
		return;
	}
	if (!r->warming) {
		serve_stats_done(r->all, &p->o, &r->plan->slo);
		if (stats_of(p) != NULL)
			serve_stats_done(stats_of(p), &p->o, &r->plan->slo);
	}
	if (!think(p, now))
		free_slot(p);
}

static const struct load_ops ops = {on_head, on_data, on_end};

/* ---- the loop ---- */

static struct slot *next_free(struct load_run *r, uint64_t now, uint64_t *wake_ns)
{
	for (int i = r->n_free - 1; i >= 0; i--) {
		struct slot *p = r->free[i];
		if (p->not_before_ns <= now) {
			r->free[i] = r->free[--r->n_free];
			return p;
		}
		*wake_ns = p->not_before_ns < *wake_ns ? p->not_before_ns : *wake_ns;
	}
	return NULL;
}

static bool is_open(const struct load_run *r)
{
	return !r->warming && (r->plan->trace != NULL || r->plan->arrivals.rate > 0);
}

static bool trace_is_over(const struct load_run *r)
{
	return !r->warming && r->plan->trace != NULL && r->n_traced == r->plan->trace->n;
}

/* After the one due at next_due_ns. */
static void set_next_due(struct load_run *r)
{
	const struct load_trace *t = r->plan->trace;
	if (t == NULL) {
		r->next_due_ns += (uint64_t)(arrivals_gap(&r->arrivals, &r->random) * 1e9);
		return;
	}
	r->n_traced++;
	if (r->n_traced < t->n)
		r->next_due_ns = r->begin_ns + (uint64_t)(t->items[r->n_traced].at / r->plan->speed * 1e9);
}

static struct work next_work(struct load_run *r)
{
	return r->plan->trace != NULL && !r->warming ? r->plan->trace->items[r->n_traced].work
						     : workload_draw(&r->plan->work, &r->random);
}

/* Next turns that are due. Returns when the next one is, or `wake`. */
static uint64_t continue_due(struct load_run *r, uint64_t now, uint64_t wake)
{
	while (!list_empty(&r->thinking) && now <= r->last_due_ns) {
		struct slot *p = list_entry(r->thinking.next, struct slot, node);
		if (p->not_before_ns > now)
			return p->not_before_ns < wake ? p->not_before_ns : wake;
		list_remove(&p->node);
		struct work w = workload_draw(&r->plan->work, &r->random);
		w.n_shared = 0;
		send_turn(p, &w, p->not_before_ns);
	}
	return wake;
}

/* Starts due requests. Returns when the next one is due. */
static uint64_t start_due(struct load_run *r, uint64_t now)
{
	uint64_t wake = continue_due(r, now, now + progress_ns);
	while (r->n_started < r->most && !trace_is_over(r)) {
		if (is_open(r) && r->next_due_ns > r->last_due_ns)
			break;
		if (is_open(r) && r->next_due_ns > now)
			return r->next_due_ns < wake ? r->next_due_ns : wake;
		struct slot *p = next_free(r, now, &wake);
		if (p == NULL)
			break;
		struct work w = next_work(r);
		uint64_t due = is_open(r) ? r->next_due_ns : now;
		if (is_open(r))
			set_next_due(r);
		begin(p, &w, due);
	}
	return wake;
}

static void progress(const struct load_run *r, uint64_t now)
{
	fprintf(
	    stderr, "\r%6.1f s  %llu of %s%llu answered  %llu failed  %.0f events/s\033[K",
	    (double)(now - r->begin_ns) / 1e9, (unsigned long long)r->n_ended, r->most == UINT64_MAX ? "at least " : "",
	    (unsigned long long)(r->most == UINT64_MAX ? r->n_started : r->most), (unsigned long long)r->all->n_failed,
	    (double)r->all->n_events / ((double)(now - r->begin_ns) / 1e9 + 1e-9));
}

static bool is_over(const struct load_run *r, uint64_t now)
{
	bool idle = r->n_ended == r->n_started;
	return now >= r->end_ns || r->n_ended >= r->most || (trace_is_over(r) && idle) ||
	       (is_open(r) && now > r->last_due_ns && r->next_due_ns > r->last_due_ns && idle);
}

static void count_cut(struct load_run *r, uint64_t now)
{
	for (int i = 0; i < r->n_slots; i++) {
		struct slot *p = &r->slots[i];
		struct serve_stats *of[2] = {r->all, stats_of(p)};
		for (int k = 0; k < 2 && p->busy; k++) {
			if (of[k] == NULL)
				continue;
			of[k]->n_cut++;
			of[k]->n_late += serve_is_late(&p->o, now, &r->plan->slo);
		}
	}
	/* Due, but all slots were busy. */
	uint64_t last = now < r->last_due_ns ? now : r->last_due_ns;
	for (; is_open(r) && r->n_started < r->most && !trace_is_over(r) && r->next_due_ns <= last; set_next_due(r)) {
		struct serve_outcome o = {.started_ns = r->next_due_ns};
		r->all->n_late += serve_is_late(&o, now, &r->plan->slo);
	}
}

static void run(struct load_run *r, uint64_t most, double seconds, double drain_s)
{
	bool shows = isatty(STDERR_FILENO);
	uint64_t now = clock_now_ns(), shown = now;
	r->most = most;
	r->n_started = r->n_ended = 0;
	r->n_traced = 0;
	r->begin_ns = r->next_due_ns = now;
	r->last_due_ns = now + (uint64_t)(seconds * 1e9);
	r->end_ns = r->last_due_ns + (is_open(r) ? (uint64_t)(drain_s * 1e9) : 0);
	while (!interrupted && !is_over(r, now)) {
		uint64_t wake = start_due(r, now);
		load_client_turn(r->client, wake < r->end_ns ? wake : r->end_ns);
		now = clock_now_ns();
		if (shows && now - shown >= progress_ns) {
			progress(r, now);
			shown = now;
		}
	}
	if (shows)
		fputs("\r\033[K", stderr);
}

void load_run_warm(struct load_run *r, double seconds)
{
	r->warming = true;
	run(r, (uint64_t)r->n_slots, seconds, 0);
	r->warming = false;
}

void load_run_measure(struct load_run *r, uint64_t most, double seconds, double drain_s)
{
	int n_keys = r->by_key != NULL ? r->plan->n_keys : 0;
	serve_stats_init(r->all);
	for (int i = 0; i < n_keys; i++)
		serve_stats_init(&r->by_key[i]);
	run(r, most, seconds, drain_s);
	uint64_t now = clock_now_ns();
	count_cut(r, now);
	r->all->seconds = (double)(now - r->begin_ns) / 1e9;
	for (int i = 0; i < n_keys; i++)
		r->by_key[i].seconds = r->all->seconds;
}

void load_run_connect(struct load_run *r, double seconds)
{
	uint64_t until = clock_now_ns() + (uint64_t)(seconds * 1e9);
	for (int i = 0; i < r->n_conns; i++)
		load_client_connect(r->client, i);
	while (!interrupted && load_client_n_up(r->client) < r->n_conns && clock_now_ns() < until)
		load_client_turn(r->client, until);
}

const struct serve_stats *load_run_stats(const struct load_run *r, int key)
{
	return key < 0 ? r->all : r->by_key != NULL ? &r->by_key[key] : NULL;
}

/* ---- its life ---- */

static int make_slots(struct load_run *r, int n_conns, int n_slots)
{
	r->slots = sl_zalloc_n((size_t)n_slots, sizeof *r->slots);
	r->free = sl_zalloc_n((size_t)n_slots, sizeof(struct slot *));
	r->all = sl_zalloc(sizeof *r->all);
	if (r->plan->n_keys > 1)
		r->by_key = sl_zalloc_n((size_t)r->plan->n_keys, sizeof *r->by_key);
	if (r->slots == NULL || r->free == NULL || r->all == NULL || (r->plan->n_keys > 1 && r->by_key == NULL))
		return SL_ENOMEM;
	r->n_slots = n_slots;
	for (int i = 0; i < n_slots; i++) {
		struct slot *p = &r->slots[i];
		p->r = r;
		p->call.ops = &ops;
		list_init(&p->call.node);
		list_init(&p->node);
		/* Slots are taken from the end, so consecutive requests use different connections. */
		p->conn = i % n_conns;
		buf_init(&p->body, REPLY_MAX);
		buf_init(&p->reply, REPLY_MAX);
		buf_init(&p->history, REPLY_MAX / 2);
		buf_init(&p->content, REPLY_MAX / 2);
		sse_read_init(&p->sse, SSE_READ_MAX, on_event, p);
		free_slot(p);
	}
	return 0;
}

int load_run_create(const struct load_plan *plan, const struct load_target *target, int conns, int streams,
		    struct load_run **out, struct sl_err *err)
{
	struct load_run *r = sl_zalloc(sizeof *r);
	*out = NULL;
	if (r == NULL)
		return sl_errf(err, SL_ENOMEM, "out of memory");
	r->plan = plan;
	r->arrivals = plan->arrivals;
	r->random.state = plan->seed * 2 + 1;
	r->n_conns = target->http1 ? conns * streams : conns;
	list_init(&r->thinking);
	int rc = make_slots(r, r->n_conns, conns * streams);
	if (rc != 0)
		sl_errf(err, rc, "out of memory");
	else
		rc = load_client_create(target, r->n_conns, &r->client, err);
	if (rc != 0) {
		load_run_destroy(r);
		return rc;
	}
	*out = r;
	return 0;
}

void load_run_destroy(struct load_run *r)
{
	if (r == NULL)
		return;
	load_client_destroy(r->client);
	for (int i = 0; i < r->n_slots; i++) {
		struct slot *p = &r->slots[i];
		buf_dispose(&p->body);
		buf_dispose(&p->reply);
		buf_dispose(&p->history);
		buf_dispose(&p->content);
		sse_read_dispose(&p->sse);
	}
	sl_free(r->slots);
	sl_free(r->free);
	sl_free(r->all);
	sl_free(r->by_key);
	sl_free(r);
}
