/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice bench overload`: a server under many times its capacity. First the peak: as many streams as the server has
 * slots (or half or a quarter, if more of those are in time), each followed by the next. Then the flood: factor times
 * as many requests per second, at random times, independent of each other. Then a light load until latency is normal.
 *
 *   goodput     responses per second that completed with their first token within their tier's ttft_target
 *   refusal     time from the request to the end of the refusal
 *   off         error of the first wait reported to a stream (": queue … wait_ms=")
 *
 * `sluice bench pacing`: throughput that paced streams of a low tier take from unpaced streams of a high tier.
 * Windows with and without paced streams alternate. Speculation is off, because what drafts save depends on the text.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/percentile.h"
#include "cmd/bench/bench.h"
#include "cmd/bench/bench_box.h"
#include "cmd/load/chat_chunk.h"
#include "cmd/config/cmd.h"
#include "cmd/load/histogram.h"
#include "base/http/sse_read.h"

enum {
	MAX_CALLS = 6400,
	PER_CONN = 100,
	BODY_MAX = 1 << 16,
	LINE_BYTES = 96,
	MAX_OFF = 100000,
	DRAIN_S = 30,
	BEGIN_S = 120,
	REFUSAL_MS = 20
};

static const char key_free[] = "sluice-bench-free", key_paid[] = "sluice-bench-paid";

static const char *const words[] = {"the",    "small", "river", "runs",   "under", "an", "old",  "stone",
				    "bridge", "while", "many",  "people", "walk",  "to", "work", "in"};

/* Counters of a phase. */
struct tally {
	uint64_t asked, good, answered, refused, refused_late, failed, events;
	struct histogram ttft, refusal;
	uint64_t last_bad_ns; /* start time of the last refused or slow request */
	char why[80];         /* of the last failure */
};

struct run;

struct call {
	struct load_call call;
	struct run *r;
	struct sse_read sse;
	struct sl_buf body;
	const char *key;
	int conn, status;
	bool busy, again, ended, failed, paid;
	struct tally *of;
	uint64_t asked_ns, first_ns, told_ns, now_ns;
	double told_ms;
	char line[LINE_BYTES]; /* the start of the response's first line */
	size_t n_line;
};

struct run {
	struct load_client *client;
	struct call *calls; /* [n_calls] */
	int n_calls, n_busy, next;
	double prompt, tokens, target_ms, slow_ms;
	bool echo;
	uint64_t random;
	double *off; /* [MAX_OFF] */
	size_t n_off;
	struct tally *now;
};

static double draw(struct run *r)
{
	r->random = r->random * 6364136223846793005u + 1442695040888963407u;
	return ((double)(r->random >> 11) + 1) * 0x1p-53;
}

/* ---- a request ---- */

static int write_body(struct call *c)
{
	struct run *r = c->r;
	enum { N_WORDS = sizeof words / sizeof *words };
	buf_clear(&c->body, SIZE_MAX);
	int rc =
	    buf_printf(&c->body,
		       "{\"model\":\"default\",\"stream\":true,\"temperature\":1,\"max_tokens\":%.0f,\"messages\":["
		       "{\"role\":\"user\",\"content\":\"%s",
		       r->tokens * (0.5 + draw(r)) + 0.5, r->echo ? "repeat " : "");
	for (int i = 0; rc == 0 && i < (int)r->prompt; i++)
		rc = buf_printf(&c->body, "%s ", words[(size_t)(draw(r) * (N_WORDS - 1))]);
	return rc == 0 ? buf_append_str(&c->body, "\"}]}") : rc;
}

static int ask(struct call *c, struct tally *of)
{
	struct run *r = c->r;
	c->of = of;
	c->status = 0;
	c->ended = c->failed = false;
	c->first_ns = c->told_ns = 0;
	c->n_line = 0;
	sse_read_dispose(&c->sse);
	void (*on_event)(void *ctx, const char *data, size_t n) = c->sse.on_event;
	sse_read_init(&c->sse, SSE_READ_MAX, on_event, c);
	c->asked_ns = clock_now_ns();
	int rc = write_body(c);
	if (rc == 0)
		rc = load_client_start(r->client, c->conn, &c->call, "/v1/chat/completions", c->key,
				       (const char *)buf_data(&c->body), c->body.len);
	if (rc != 0) {
		of->failed++;
		snprintf(of->why, sizeof of->why, "could not be sent: %.50s", load_client_why(r->client));
		return rc;
	}
	of->asked++;
	c->busy = true;
	r->n_busy++;
	return 0;
}

static void on_event(void *ctx, const char *data, size_t n)
{
	struct call *c = ctx;
	struct chat_chunk k;
	if (!chat_chunk_read(data, n, &k))
		return;
	c->ended |= k.finished;
	c->failed |= k.is_error;
	if (!k.has_text)
		return;
	c->of->events++;
	if (c->first_ns != 0)
		return;
	c->first_ns = c->now_ns;
	histogram_add(&c->of->ttft, c->first_ns - c->asked_ns);
	double truth = (double)(c->first_ns - c->told_ns) / 1e6;
	if (c->told_ns != 0 && truth > 0 && c->r->n_off < MAX_OFF)
		c->r->off[c->r->n_off++] = fabs(c->told_ms - truth) / truth;
}

static void on_head(struct load_call *call, int status, uint64_t now_ns)
{
	(void)now_ns;
	list_entry(call, struct call, call)->status = status;
}

/* The first line of a waiting response reports its queue position. */
static void take_place(struct call *c, const uint8_t *bytes, size_t n)
{
	static const char begin[] = ": queue position=", wait[] = " wait_ms=";
	size_t room = LINE_BYTES - 1 - c->n_line, take = n < room ? n : room;
	memcpy(c->line + c->n_line, bytes, take);
	c->n_line += take;
	c->line[c->n_line] = '\0';
	const char *at = strstr(c->line, wait);
	if (c->told_ns == 0 && at != NULL && strchr(at, '\n') != NULL &&
	    strncmp(c->line, begin, sizeof begin - 1) == 0) {
		c->told_ns = c->now_ns;
		c->told_ms = strtod(at + sizeof wait - 1, NULL);
	}
}

static void on_data(struct load_call *call, const uint8_t *bytes, size_t n, uint64_t now_ns)
{
	struct call *c = list_entry(call, struct call, call);
	c->now_ns = now_ns;
	if (c->status != 200)
		return;
	take_place(c, bytes, n);
	c->failed |= sse_read_feed(&c->sse, bytes, n) != 0;
}

static void on_end(struct load_call *call, enum load_end how, uint64_t now_ns)
{
	struct call *c = list_entry(call, struct call, call);
	struct tally *t = c->of;
	bool good = c->first_ns != 0 && (double)(c->first_ns - c->asked_ns) / 1e6 <= c->r->target_ms;
	c->busy = false;
	c->r->n_busy--;
	if (c->status == 503 || c->status == 429) {
		t->refused++;
		t->refused_late += now_ns - c->asked_ns > REFUSAL_MS * NS_PER_MS;
		histogram_add(&t->refusal, now_ns - c->asked_ns);
	} else if (how == LOAD_DONE && c->status == 200 && c->ended && !c->failed) {
		t->answered++;
		t->good += good;
	} else {
		t->failed++;
		snprintf(t->why, sizeof t->why, "status %d: %.50s", c->status, load_client_why(c->r->client));
	}
	bool slow = c->first_ns == 0 || (double)(c->first_ns - c->asked_ns) / 1e6 > c->r->slow_ms;
	if (slow && c->asked_ns > t->last_bad_ns)
		t->last_bad_ns = c->asked_ns;
	if (c->again)
		(void)ask(c, c->r->now);
}

static const struct load_ops ops = {on_head, on_data, on_end};

/* ---- phases ---- */

static struct call *find_free(struct run *r)
{
	for (int i = 0; i < r->n_calls; i++) {
		struct call *c = &r->calls[(r->next + i) % r->n_calls];
		if (!c->busy && !c->again) {
			r->next = (r->next + i + 1) % r->n_calls;
			return c;
		}
	}
	return NULL;
}

/* Starts n closed-loop clients: each sends its next request when the last one ends. */
static void keep_asking(struct run *r, int n, const char *key, struct tally *t)
{
	r->now = t;
	for (int i = 0; i < n; i++) {
		struct call *c = find_free(r);
		if (c == NULL)
			return;
		c->key = key;
		c->again = true;
		(void)ask(c, t);
	}
}

static void ask_no_more(struct run *r)
{
	for (int i = 0; i < r->n_calls; i++)
		r->calls[i].again = false;
}

static void stop_asking(struct run *r)
{
	uint64_t deadline = clock_now_ns() + DRAIN_S * NS_PER_S;
	ask_no_more(r);
	while (r->n_busy > 0 && clock_now_ns() < deadline)
		load_client_turn(r->client, deadline);
}

static void turn_for(struct run *r, double seconds)
{
	uint64_t end = clock_now_ns() + (uint64_t)(seconds * 1e9);
	while (clock_now_ns() < end)
		load_client_turn(r->client, end);
}

/* Sends requests at random times with that mean rate. Returns how many found no free call. */
static uint64_t ask_at(struct run *r, double rate, double seconds, struct tally *t)
{
	uint64_t begin = clock_now_ns(), end = begin + (uint64_t)(seconds * 1e9), due = begin, unsent = 0, now;
	while ((now = clock_now_ns()) < end) {
		for (; due <= now; due += (uint64_t)(-log(draw(r)) / rate * 1e9)) {
			struct call *c = find_free(r);
			if (c == NULL || ask(c, t) != 0)
				unsent++;
		}
		load_client_turn(r->client, due < end ? due : end);
	}
	return unsent;
}

static int open_run(struct run *r, const struct load_target *target, int n_calls, struct sl_err *err)
{
	r->n_calls = n_calls;
	r->random = 1;
	r->calls = sl_zalloc_n((size_t)n_calls, sizeof *r->calls);
	r->off = sl_zalloc_n(MAX_OFF, sizeof *r->off);
	if (r->calls == NULL || r->off == NULL)
		return sl_errf(err, SL_ENOMEM, "out of memory");
	int n_conns = (n_calls + PER_CONN - 1) / PER_CONN;
	int rc = load_client_create(target, n_conns, &r->client, err);
	for (int i = 0; rc == 0 && i < n_calls; i++) {
		struct call *c = &r->calls[i];
		*c = (struct call){.call.ops = &ops, .r = r, .conn = i % n_conns, .key = key_free};
		list_init(&c->call.node);
		buf_init(&c->body, BODY_MAX);
		sse_read_init(&c->sse, SSE_READ_MAX, on_event, c);
	}
	return rc;
}

static void close_run(struct run *r)
{
	load_client_destroy(r->client);
	for (int i = 0; r->calls != NULL && i < r->n_calls; i++) {
		buf_dispose(&r->calls[i].body);
		sse_read_dispose(&r->calls[i].sse);
	}
	sl_free(r->calls);
	sl_free(r->off);
	r->client = NULL;
	r->calls = NULL;
	r->off = NULL;
}

/* ---- servers ---- */

struct shape {
	const char *model; /* NULL: the echo */
	double slots, rate, ttft_ms, target_ms, pace_tps;
	double threads; /* the engine's; 0: one for each processor */
	bool plain;     /* without speculation */
};

static int start_box(struct bench_box *b, const struct shape *s, struct sl_err *err)
{
	char engine[BOX_PATH + 512], gateway[2048], paid[65], unpaid[65];
	bench_box_hash(key_paid, paid);
	bench_box_hash(key_free, unpaid);
	if (s->model == NULL)
		snprintf(engine, sizeof engine,
			 "  echo:\n    enabled: true\n    rate: %g\n    ttft: %.0fms\n    slots: %.0f\n    context: "
			 "100000\n",
			 s->rate, s->ttft_ms, s->slots);
	else
		snprintf(engine, sizeof engine,
			 "  threads: %.0f\n  max_sequences: %.0f\n  max_waiting: 1000\n  kv_memory: 2GiB\n  "
			 "speculation:\n    mode: %s\n"
			 "  models:\n    - name: bench\n      path: %s\n",
			 s->threads, s->slots, s->plain ? "off" : "auto", s->model);
	snprintf(gateway, sizeof gateway,
		 "  threads: 1\n"
		 "  queue:\n    size: 900\n    tell: 10ms\n"
		 "  tiers:\n"
		 "    - name: free\n      priority: 1\n      max_output: 100000\n      concurrency: 100000\n      "
		 "coalesce: off\n"
		 "      ttft_target: %.0fms\n      when_late: refuse\n      pace_tps: %g\n"
		 "    - name: paid\n      priority: 0\n      max_output: 100000\n      concurrency: 100000\n      "
		 "coalesce: off\n"
		 "  keys:\n    - name: free\n      sha256: %s\n      tier: free\n"
		 "    - name: paid\n      sha256: %s\n      tier: paid\n"
		 "  limits:\n    connections: 20000\n    requests_per_key: 0\n",
		 s->target_ms, s->pace_tps, unpaid, paid);
	return bench_box_start(b, engine, gateway, s->model == NULL, err);
}

/* ---- overload ---- */

static double ms(uint64_t ns) { return (double)ns / 1e6; }

static void line(bool json, bool *first, const char *name, double v, const char *unit)
{
	if (json)
		printf("%s\"%s\":%.4f", *first ? "{" : ",", name, v);
	else
		printf("  %-34s %12.3f %s\n", name, v, unit);
	*first = false;
}

/* The number of closed-loop clients with the most responses in time: the number of slots, or fewer if prompts delay
 * each other. */
static int best_at_once(struct run *r, int n_places, double peak_s)
{
	int best = 1;
	double best_rate = -1;
	for (int n = n_places; n >= 1 && n * 8 > n_places; n /= 2) {
		struct tally *t = sl_zalloc(sizeof *t);
		if (t == NULL)
			return n_places;
		keep_asking(r, n, key_free, t);
		turn_for(r, peak_s / 4);
		uint64_t before = t->good, begin = clock_now_ns();
		turn_for(r, peak_s / 4);
		double rate = (double)(t->good - before) / ms(clock_now_ns() - begin);
		stop_asking(r);
		/* Responses that come after the end of their phase still count for it. */
		if (r->n_busy == 0)
			sl_free(t);
		if (rate > best_rate) {
			best_rate = rate;
			best = n;
		}
	}
	return best;
}

/* Results: a single client, the peak, the flood, and the recovery. */
struct overload {
	struct tally *idle, *peak, *flood, *after;
	int at_once;
	double peak_rate, flood_rate, asked_rate; /* per second: good responses, good responses, requests */
	uint64_t end_ns;                          /* of the flood */
	uint64_t unsent;
};

static void tell_overload(struct run *r, const struct overload *o, bool json)
{
	bool first = true;
	uint64_t late = o->flood->answered - o->flood->good;
	double recovered = o->after->last_bad_ns > o->end_ns ? ms(o->after->last_bad_ns - o->end_ns) / 1e3 : 0;
	if (!json)
		bench_header();
	line(json, &first, "first_token_alone_p95_ms", ms(histogram_percentile(&o->idle->ttft, 95)), "ms");
	line(json, &first, "peak_at_once", o->at_once, "");
	line(json, &first, "peak_goodput", o->peak_rate, "answers/s");
	line(json, &first, "peak_first_token_p50_ms", ms(histogram_percentile(&o->peak->ttft, 50)), "ms");
	line(json, &first, "asked_per_s", o->asked_rate, "requests/s");
	line(json, &first, "goodput", o->flood_rate, "answers/s");
	line(json, &first, "goodput_of_peak", o->peak_rate > 0 ? o->flood_rate / o->peak_rate : 0, "");
	line(json, &first, "late_answers", (double)late, "");
	line(json, &first, "of_answers_in_time",
	     o->flood->answered > 0 ? (double)o->flood->good / (double)o->flood->answered : 0, "");
	line(json, &first, "refused", (double)o->flood->refused, "");
	line(json, &first, "refusal_p50_ms", ms(histogram_percentile(&o->flood->refusal, 50)), "ms");
	line(json, &first, "refusal_p99_ms", ms(histogram_percentile(&o->flood->refusal, 99)), "ms");
	line(json, &first, "refusals_within_20_ms_percent",
	     o->flood->refused > 0 ? 100 - 100 * (double)o->flood->refused_late / (double)o->flood->refused : 100, "%");
	line(json, &first, "first_token_p50_ms", ms(histogram_percentile(&o->flood->ttft, 50)), "ms");
	line(json, &first, "first_token_p99_ms", ms(histogram_percentile(&o->flood->ttft, 99)), "ms");
	line(json, &first, "predictions", (double)r->n_off, "");
	line(json, &first, "prediction_off_p50_percent", 100 * percentile(r->off, r->n_off, 50), "%");
	line(json, &first, "prediction_off_p90_percent", 100 * percentile(r->off, r->n_off, 90), "%");
	line(json, &first, "normal_after_s", recovered, "s");
	line(json, &first, "failed", (double)(o->flood->failed + o->after->failed + o->unsent), o->flood->why);
	if (json)
		puts("}");
}

/* Measures all phases into o, whose tallies the caller provides. 1 after printing an error: there is no peak. */
static int measure(struct run *r, const struct shape *s, double peak_s, double factor, double seconds,
		   struct overload *o)
{
	static struct tally warm;
	/* The engine learns its costs; then a single client is measured. */
	keep_asking(r, (int)s->slots, key_free, &warm);
	turn_for(r, peak_s / 4);
	stop_asking(r);
	keep_asking(r, 1, key_free, o->idle);
	turn_for(r, peak_s / 4);
	stop_asking(r);
	r->slow_ms = 2 * ms(histogram_percentile(&o->idle->ttft, 95)) + 50;
	o->at_once = best_at_once(r, (int)s->slots, peak_s);
	keep_asking(r, o->at_once, key_free, o->peak);
	/* All prompts start at once, so measuring waits until they have spread out. */
	turn_for(r, peak_s / 2);
	uint64_t begin = clock_now_ns(), good_before = o->peak->good;
	turn_for(r, peak_s);
	o->peak_rate = (double)(o->peak->good - good_before) / ms(clock_now_ns() - begin) * 1e3;
	/* The flood meets a busy server, whose responses count for it too. */
	ask_no_more(r);
	good_before = o->peak->good;
	if (!(o->peak_rate > 0))
		return bench_complain(
		    1, "no answer began within %.0f ms in the %.0f s of its peak: raise --target or --peak-seconds",
		    s->target_ms, peak_s);
	r->n_off = 0;
	begin = clock_now_ns();
	o->unsent = ask_at(r, factor * o->peak_rate, seconds, o->flood);
	o->end_ns = clock_now_ns();
	double took_s = ms(o->end_ns - begin) / 1e3;
	o->flood_rate = (double)(o->flood->good + o->peak->good - good_before) / took_s;
	o->asked_rate = (double)o->flood->asked / took_s;
	(void)ask_at(r, o->peak_rate / 4, 15, o->after);
	stop_asking(r);
	return 0;
}

int bench_overload(int argc, char **argv)
{
	static struct tally idle, peak, flood, after;
	struct overload o = {.idle = &idle, .peak = &peak, .flood = &flood, .after = &after};
	const char *model = NULL;
	double seconds = 60, peak_s = 10, factor = 10;
	struct shape s = {.slots = 8, .rate = 200, .ttft_ms = 20, .target_ms = 1000};
	struct run r = {.prompt = 20, .tokens = 20, .slow_ms = 1e12};
	bool json = false;
	const struct bench_option options[] = {
	    {"--seconds", &seconds, NULL, NULL, 1, 3600},
	    {"--peak-seconds", &peak_s, NULL, NULL, 1, 3600},
	    {"--factor", &factor, NULL, NULL, 1, 1000},
	    {"--slots", &s.slots, NULL, NULL, 1, 4096},
	    {"--rate", &s.rate, NULL, NULL, 1, 1e6},
	    {"--first-token", &s.ttft_ms, NULL, NULL, 0, 1e5},
	    {"--target", &s.target_ms, NULL, NULL, 1, 60000},
	    {"--threads", &s.threads, NULL, NULL, 0, 1024},
	    {"--prompt-tokens", &r.prompt, NULL, NULL, 1, 8000},
	    {"--max-tokens", &r.tokens, NULL, NULL, 2, 1e5},
	    {"--json", NULL, NULL, &json, 0, 0},
	};
	int rc = bench_parse(argc, argv, options, sizeof options / sizeof *options, &model);
	if (rc != 0)
		return rc;
	struct bench_box box;
	struct sl_err err = {0};
	s.model = model;
	r.echo = model == NULL;
	r.target_ms = s.target_ms;
	rc = bench_box_open(&box, &err);
	if (rc == 0)
		rc = start_box(&box, &s, &err);
	if (rc == 0)
		rc = open_run(&r, &box.target, MAX_CALLS, &err);
	if (rc != 0)
		rc = bench_complain(1, "%s", err.text);
	else
		rc = measure(&r, &s, peak_s, factor, seconds, &o);
	if (rc == 0) {
		tell_overload(&r, &o, json);
		rc = o.flood_rate > 0 ? 0 : 1;
	}
	close_run(&r);
	bench_box_close(&box);
	return rc;
}

/* ---- pacing ---- */

static double events_per_s(struct run *r, double seconds, struct tally *t)
{
	uint64_t begin = clock_now_ns(), before = t->events;
	turn_for(r, seconds);
	return (double)(t->events - before) / ms(clock_now_ns() - begin) * 1e3;
}

/* The capacity: all streams unpaced. */
static int measure_capacity(struct bench_box *box, struct shape *s, int n, double seconds, double tokens, double *out,
			    struct sl_err *err)
{
	static struct tally t;
	struct run r = {.prompt = 8, .tokens = tokens, .echo = s->model == NULL};
	int rc = start_box(box, s, err);
	if (rc == 0)
		rc = open_run(&r, &box->target, n, err);
	if (rc == 0) {
		keep_asking(&r, n, key_paid, &t);
		/* All streams decode before measuring starts: prompts must not count. */
		uint64_t deadline = clock_now_ns() + BEGIN_S * NS_PER_S;
		while (t.ttft.n < (uint64_t)n && t.failed == 0 && clock_now_ns() < deadline)
			load_client_turn(r.client, clock_now_ns() + NS_PER_MS);
		turn_for(&r, seconds / 4);
		*out = events_per_s(&r, seconds, &t);
	}
	close_run(&r);
	bench_box_stop(box);
	return rc == 0 && !(*out > 0) ? sl_errf(err, SL_EIO, "no tokens arrived: %s", t.why) : rc;
}

enum { WINDOWS = 3 };

static void turn_both(struct run *high, struct run *low, double seconds)
{
	uint64_t end = clock_now_ns() + (uint64_t)(seconds * 1e9);
	while (clock_now_ns() < end) {
		load_client_turn(high->client, clock_now_ns() + 2 * NS_PER_MS);
		load_client_turn(low->client, clock_now_ns());
	}
}

static int measure_windows(struct bench_box *box, struct shape *s, int paced, int unpaced, double seconds,
			   double tokens, double with[WINDOWS], double without[WINDOWS], double *low,
			   struct sl_err *err)
{
	static struct tally high, slow;
	struct run r = {.prompt = 8, .tokens = tokens, .echo = s->model == NULL};
	double low_events = 0;
	int rc = start_box(box, s, err);
	if (rc == 0)
		rc = open_run(&r, &box->target, unpaced, err);
	if (rc == 0)
		keep_asking(&r, unpaced, key_paid, &high);
	for (int i = 0; rc == 0 && i < WINDOWS; i++) {
		turn_for(&r, seconds / 4);
		without[i] = events_per_s(&r, seconds, &high);
		/* The paced streams decode before measuring starts: their prompts must not count. */
		struct run p = {.prompt = 8, .tokens = 10000, .echo = r.echo};
		slow = (struct tally){0};
		rc = open_run(&p, &box->target, paced, err);
		if (rc == 0)
			keep_asking(&p, paced, key_free, &slow);
		uint64_t deadline = clock_now_ns() + BEGIN_S * NS_PER_S;
		while (rc == 0 && slow.ttft.n < (uint64_t)paced && clock_now_ns() < deadline && slow.failed == 0) {
			load_client_turn(p.client, clock_now_ns() + NS_PER_MS);
			load_client_turn(r.client, clock_now_ns() + NS_PER_MS);
		}
		if (rc == 0 && slow.ttft.n < (uint64_t)paced)
			rc = sl_errf(err, SL_EIO, "the paced streams did not begin: %s", slow.why);
		/* Nor must their burst, which is computed at once and delivered at their pace. */
		if (rc == 0)
			turn_both(&r, &p, seconds);
		if (rc == 0) {
			uint64_t begin = clock_now_ns(), before = high.events, slow_before = slow.events;
			turn_both(&r, &p, seconds);
			double took = ms(clock_now_ns() - begin) / 1e3;
			with[i] = (double)(high.events - before) / took;
			low_events += (double)(slow.events - slow_before) / took / WINDOWS;
		}
		close_run(&p);
	}
	*low = low_events;
	if (rc == 0 && !(low_events > 0))
		rc = sl_errf(err, SL_EIO, "the paced streams got no token while measured: raise --seconds");
	close_run(&r);
	bench_box_stop(box);
	return rc;
}

int bench_pacing(int argc, char **argv)
{
	const char *model = NULL;
	double seconds = 10, paced = 32, unpaced = 4, tokens = 200, share = 10;
	bool json = false, first = true;
	const struct bench_option options[] = {
	    {"--seconds", &seconds, NULL, NULL, 1, 600},   {"--paced", &paced, NULL, NULL, 1, 1000},
	    {"--unpaced", &unpaced, NULL, NULL, 1, 1000},  {"--share", &share, NULL, NULL, 0.1, 100},
	    {"--max-tokens", &tokens, NULL, NULL, 2, 1e5}, {"--json", NULL, NULL, &json, 0, 0},
	};
	int rc = bench_parse(argc, argv, options, sizeof options / sizeof *options, &model);
	if (rc != 0)
		return rc;
	if (model == NULL)
		return bench_complain(CMD_EXIT_USAGE,
				      "pacing needs a model file: the echo engine has no capacity to share");
	struct bench_box box;
	struct sl_err err = {0};
	struct shape s = {.model = model, .slots = paced + unpaced, .target_ms = 60000, .plain = true};
	double capacity = 0, low = 0, with[WINDOWS], without[WINDOWS];
	rc = bench_box_open(&box, &err);
	if (rc == 0)
		rc = measure_capacity(&box, &s, (int)(paced + unpaced), seconds, tokens, &capacity, &err);
	s.pace_tps = capacity * share / 100 / paced;
	if (rc == 0)
		rc = measure_windows(&box, &s, (int)paced, (int)unpaced, seconds, tokens, with, without, &low, &err);
	bench_box_close(&box);
	if (rc != 0)
		return bench_complain(1, "%s", err.text);
	if (!json)
		bench_header();
	double ratios[WINDOWS];
	for (int i = 0; i < WINDOWS; i++)
		ratios[i] = with[i] / without[i];
	line(json, &first, "capacity_tokens_per_s", capacity, "tokens/s");
	line(json, &first, "paced_tokens_per_s", low, "tokens/s");
	line(json, &first, "unpaced_alone_tokens_per_s", percentile(without, WINDOWS, 50), "tokens/s");
	line(json, &first, "unpaced_beside_tokens_per_s", percentile(with, WINDOWS, 50), "tokens/s");
	line(json, &first, "beside_of_alone", percentile(ratios, WINDOWS, 50), "");
	if (json)
		puts("}");
	return 0;
}
