/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice bench serve URL`: a server under load. C connections with S streams each give C × S slots; a slot carries
 * one request at a time. Closed loop: a slot sends its next request as soon as the last one ends. Open loop (--rate):
 * requests are due at random times with that mean rate, whether or not the server keeps up, and their latency counts
 * from the due time. Otherwise a slow server would receive less load and look better than it is.
 *
 * Prompts are random words of about one token each; the exact counts come from the server's usage. Time between
 * tokens is measured between events that carry text.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/json/json_out.h"
#include "cmd/bench/bench.h"
#include "cmd/load/chat_chunk.h"
#include "cmd/config/cmd.h"
#include "cmd/load/load_client.h"
#include "cmd/load/serve_stats.h"
#include "cmd/http/sse_read.h"

enum { MAX_KEYS = 16, MAX_PLACES = 65536, REPLY_MAX = 16 << 20, WARMUP_TOKENS = 8 };

static const uint64_t pause_ns = 100 * NS_PER_MS; /* before a slot whose connection broke connects again */
static const uint64_t progress_ns = 500 * NS_PER_MS;

static const char *const words[] = {
    "the",    "small",  "river", "runs", "under", "an",    "old",  "stone", "bridge", "while", "many",
    "people", "walk",   "to",    "work", "in",    "cold",  "rain", "and",   "talk",   "about", "bread",
    "music",  "trains", "along", "road", "home",  "again", "with", "green", "quiet",  "light",
};

struct key {
	char text[256];
	double weight;
	struct serve_stats *stats; /* owned; NULL unless of a mix */
};

struct slot {
	struct load_call call;
	struct load *l;
	struct sse_read sse;
	struct sl_buf body, reply; /* reply: a response that is not streamed */
	int conn, key, status;
	struct serve_outcome o;
	bool busy, ended, failed; /* ended: got [DONE] or a finish_reason */
	char code[64];
	uint64_t not_before_ns;
	uint64_t now_ns; /* arrival time of the bytes being read */
};

struct load {
	const char *model;
	struct load_client *client;
	struct slot *slots; /* [n_slots] */
	struct slot **free; /* [n_slots], the first n_free */
	int n_slots, n_free;
	struct key keys[MAX_KEYS];
	int n_keys;
	double rate, prompt_tokens, share_tokens, max_tokens, temperature;
	struct serve_slo slo;
	struct serve_stats *all;
	uint64_t n_started, n_ended, most;
	uint64_t begin_ns, end_ns, next_due_ns;
	uint64_t random;
	bool warming, whole; /* whole: responses are not streamed */
};

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
	(void)sig;
	interrupted = 1;
}

static double draw(struct load *l)
{
	l->random = l->random * 6364136223846793005u + 1442695040888963407u;
	return ((double)(l->random >> 11) + 1) * 0x1p-53;
}

static void on_event(void *ctx, const char *data, size_t n);

/* ---- a request ---- */

static int write_words(struct load *l, struct sl_buf *out, uint64_t n, bool shared)
{
	int rc = 0;
	enum { N_WORDS = sizeof words / sizeof *words };
	for (uint64_t i = 0; i < n && rc == 0; i++) {
		rc = buf_append_str(
		    out, words[shared ? (i * 7 + i / N_WORDS) % N_WORDS : (uint64_t)(draw(l) * (N_WORDS - 1))]);
		if (rc == 0)
			rc = buf_append_str(out, " ");
	}
	return rc;
}

static int write_request(struct load *l, struct sl_buf *out)
{
	uint64_t shared = (uint64_t)l->share_tokens, n = (uint64_t)l->prompt_tokens;
	shared = shared < n ? shared : n;
	buf_clear(out, SIZE_MAX);
	int rc = buf_append_str(out, "{\"model\":");
	if (rc == 0)
		rc = json_out_string(out, l->model, strlen(l->model));
	if (rc == 0)
		rc = buf_printf(
		    out, ",\"max_tokens\":%.0f,\"temperature\":%g,%s\"messages\":[{\"role\":\"user\",\"content\":\"",
		    l->warming && l->max_tokens > WARMUP_TOKENS ? WARMUP_TOKENS : l->max_tokens, l->temperature,
		    l->whole ? "" : "\"stream\":true,\"stream_options\":{\"include_usage\":true},");
	if (rc == 0)
		rc = write_words(l, out, shared, true);
	if (rc == 0)
		rc = write_words(l, out, n - shared, false);
	return rc == 0 ? buf_append_str(out, "\"}]}") : rc;
}

static int choose_key(struct load *l)
{
	double sum = 0;
	for (int i = 0; i < l->n_keys; i++)
		sum += l->keys[i].weight;
	double at = draw(l) * sum;
	for (int i = 0; i < l->n_keys; i++)
		if ((at -= l->keys[i].weight) <= 0)
			return i;
	return l->n_keys - 1;
}

static void report_error(struct slot *p, const char *what)
{
	struct load *l = p->l;
	if (l->warming)
		return;
	serve_stats_error(l->all, what);
	if (l->keys[p->key].stats != NULL)
		serve_stats_error(l->keys[p->key].stats, what);
}

static void free_slot(struct slot *p)
{
	p->busy = false;
	p->l->free[p->l->n_free++] = p;
}

static const char *code_name(int rc)
{
	return rc == SL_ECLOSED  ? "connection: the server accepts no more requests on it"
	       : rc == SL_ENOMEM ? "out of memory"
				 : "connection: could not be opened";
}

static void start(struct slot *p, uint64_t due_ns)
{
	struct load *l = p->l;
	p->o = (struct serve_outcome){.started_ns = due_ns};
	p->status = 0;
	p->ended = p->failed = false;
	p->code[0] = '\0';
	p->key = choose_key(l);
	p->busy = true;
	buf_clear(&p->reply, 0);
	sse_read_dispose(&p->sse);
	sse_read_init(&p->sse, on_event, p);
	int rc = write_request(l, &p->body);
	if (rc == 0)
		rc = load_client_start(l->client, p->conn, &p->call, "/v1/chat/completions", l->keys[p->key].text,
				       (const char *)buf_data(&p->body), p->body.len);
	l->n_started++;
	if (rc == 0)
		return;
	l->n_ended++;
	report_error(p, code_name(rc));
	p->not_before_ns = clock_now_ns() + pause_ns;
	free_slot(p);
}

static void on_head(struct load_call *call, int status, uint64_t now)
{
	(void)now;
	list_entry(call, struct slot, call)->status = status;
}

static void take_chunk(struct slot *p, const struct chat_chunk *k, uint64_t now)
{
	struct load *l = p->l;
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
	if (!k->has_text)
		return;
	struct serve_stats *of[2] = {l->all, l->keys[p->key].stats};
	for (int i = 0; i < 2 && !l->warming; i++) {
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
	p->now_ns = now;
	int rc = p->status == 200 && !p->l->whole ? sse_read_feed(&p->sse, bytes, n) : buf_append(&p->reply, bytes, n);
	if (rc != 0) {
		p->failed = true;
		snprintf(p->code, sizeof p->code, "the response is too large");
	}
}

static void on_end(struct load_call *call, enum load_end how, uint64_t now)
{
	struct slot *p = list_entry(call, struct slot, call);
	struct load *l = p->l;
	struct chat_chunk k;
	char what[STATS_NAME_BYTES];
	p->o.ended_ns = now;
	if (p->reply.len > 0 && chat_chunk_read((const char *)buf_data(&p->reply), p->reply.len, &k))
		take_chunk(p, &k, now);
	if (p->status != 0 && p->status != 200)
		snprintf(what, sizeof what, "%d %.60s", p->status, p->code);
	else if (p->failed)
		snprintf(what, sizeof what, "in the response: %.60s", p->code);
	else if (how == LOAD_LOST)
		snprintf(what, sizeof what, "connection: %.60s", load_client_why(l->client));
	else if (how == LOAD_RESET)
		snprintf(what, sizeof what, "the server reset the stream");
	else if (!p->ended)
		snprintf(what, sizeof what, "the response has no end");
	else
		what[0] = '\0';
	l->n_ended++;
	if (what[0] != '\0') {
		report_error(p, what);
		p->not_before_ns = now + pause_ns;
	} else if (!l->warming) {
		serve_stats_done(l->all, &p->o, &l->slo);
		if (l->keys[p->key].stats != NULL)
			serve_stats_done(l->keys[p->key].stats, &p->o, &l->slo);
	}
	free_slot(p);
}

static const struct load_ops ops = {on_head, on_data, on_end};

/* ---- the loop ---- */

static struct slot *next_free(struct load *l, uint64_t now, uint64_t *wake_ns)
{
	for (int i = l->n_free - 1; i >= 0; i--) {
		struct slot *p = l->free[i];
		if (p->not_before_ns <= now) {
			l->free[i] = l->free[--l->n_free];
			return p;
		}
		*wake_ns = p->not_before_ns < *wake_ns ? p->not_before_ns : *wake_ns;
	}
	return NULL;
}

/* Starts due requests. Returns when the next one is due. */
static uint64_t start_due(struct load *l, uint64_t now)
{
	uint64_t wake = now + progress_ns;
	while (l->n_started < l->most) {
		if (l->rate > 0 && l->next_due_ns > now)
			return l->next_due_ns < wake ? l->next_due_ns : wake;
		struct slot *p = next_free(l, now, &wake);
		if (p == NULL)
			break;
		uint64_t due = l->rate > 0 ? l->next_due_ns : now;
		if (l->rate > 0)
			l->next_due_ns += (uint64_t)(-log(draw(l)) / l->rate * 1e9);
		start(p, due);
	}
	return wake;
}

static void progress(const struct load *l, uint64_t now)
{
	fprintf(
	    stderr, "\r%6.1f s  %llu of %s%llu answered  %llu failed  %.0f events/s\033[K",
	    (double)(now - l->begin_ns) / 1e9, (unsigned long long)l->n_ended, l->most == UINT64_MAX ? "at least " : "",
	    (unsigned long long)(l->most == UINT64_MAX ? l->n_started : l->most), (unsigned long long)l->all->n_failed,
	    (double)l->all->n_events / ((double)(now - l->begin_ns) / 1e9 + 1e-9));
}

/* Runs until `most` requests have ended or the time is over. */
static void run(struct load *l, uint64_t most, double seconds)
{
	bool shows = isatty(STDERR_FILENO);
	uint64_t now = clock_now_ns(), shown = now;
	l->most = most;
	l->n_started = l->n_ended = 0;
	l->begin_ns = l->next_due_ns = now;
	l->end_ns = now + (uint64_t)(seconds * 1e9);
	while (!interrupted && now < l->end_ns && l->n_ended < l->most) {
		uint64_t wake = start_due(l, now);
		load_client_turn(l->client, wake < l->end_ns ? wake : l->end_ns);
		now = clock_now_ns();
		if (shows && now - shown >= progress_ns) {
			progress(l, now);
			shown = now;
		}
	}
	if (shows)
		fputs("\r\033[K", stderr);
	for (int i = 0; i < l->n_slots && !l->warming; i++) {
		struct slot *p = &l->slots[i];
		l->all->n_cut += p->busy;
		if (p->busy && l->keys[p->key].stats != NULL)
			l->keys[p->key].stats->n_cut++;
	}
	l->all->seconds = (double)(now - l->begin_ns) / 1e9;
	for (int i = 0; i < l->n_keys; i++)
		if (l->keys[i].stats != NULL)
			l->keys[i].stats->seconds = l->all->seconds;
}

/* ---- the command ---- */

/* "KEY=WEIGHT,KEY=WEIGHT,…" */
static int parse_mix(struct load *l, const char *mix)
{
	for (const char *at = mix; *at != '\0';) {
		size_t n = strcspn(at, ","), n_key = strcspn(at, "=,");
		if (l->n_keys == MAX_KEYS || n_key == 0 || n_key >= sizeof l->keys->text)
			return SL_EINVAL;
		struct key *k = &l->keys[l->n_keys++];
		memcpy(k->text, at, n_key);
		k->weight = at[n_key] == '=' ? strtod(at + n_key + 1, NULL) : 1;
		k->stats = sl_zalloc(sizeof *k->stats);
		if (!(k->weight > 0) || k->stats == NULL)
			return SL_EINVAL;
		at += n + (at[n] == ',' ? 1 : 0);
	}
	return l->n_keys > 0 ? 0 : SL_EINVAL;
}

static int make_slots(struct load *l, int n_conns, int n_streams)
{
	l->n_slots = n_conns * n_streams;
	l->slots = sl_zalloc_n((size_t)l->n_slots, sizeof *l->slots);
	l->free = sl_zalloc_n((size_t)l->n_slots, sizeof(struct slot *));
	l->all = sl_zalloc(sizeof *l->all);
	if (l->slots == NULL || l->free == NULL || l->all == NULL)
		return SL_ENOMEM;
	for (int i = 0; i < l->n_slots; i++) {
		struct slot *p = &l->slots[i];
		p->l = l;
		p->call.ops = &ops;
		list_init(&p->call.node);
		/* Slots are taken from the end, so consecutive requests use different connections. */
		p->conn = i % n_conns;
		buf_init(&p->body, REPLY_MAX);
		buf_init(&p->reply, REPLY_MAX);
		sse_read_init(&p->sse, on_event, p);
		free_slot(p);
	}
	return 0;
}

static void dispose(struct load *l)
{
	load_client_destroy(l->client);
	for (int i = 0; i < l->n_slots && l->slots != NULL; i++) {
		buf_dispose(&l->slots[i].body);
		buf_dispose(&l->slots[i].reply);
		sse_read_dispose(&l->slots[i].sse);
	}
	for (int i = 0; i < l->n_keys; i++)
		sl_free(l->keys[i].stats);
	sl_free(l->slots);
	sl_free(l->free);
	sl_free(l->all);
}

static void print(const struct load *l, bool json)
{
	if (!json) {
		serve_stats_table(l->all, "all", &l->slo);
		for (int i = 0; i < l->n_keys && l->n_keys > 1; i++) {
			char name[32];
			snprintf(name, sizeof name, "key %d of the mix", i + 1);
			serve_stats_table(l->keys[i].stats, name, &l->slo);
		}
		return;
	}
	printf("{\"all\":");
	serve_stats_json(l->all);
	printf(",\"by_key\":[");
	for (int i = 0; i < l->n_keys && l->n_keys > 1; i++) {
		printf("%s", i == 0 ? "" : ",");
		serve_stats_json(l->keys[i].stats);
	}
	puts("]}");
}

static int measure(struct load *l, const struct load_target *target, int conns, int streams, double requests,
		   double seconds, bool warmup)
{
	struct sl_err err = {0};
	/* An HTTP/1.1 connection carries one request at a time. */
	if (target->http1) {
		conns *= streams;
		streams = 1;
	}
	if (conns * streams > MAX_PLACES)
		return bench_complain(CMD_EXIT_USAGE, "at most %d streams in all", MAX_PLACES);
	if (make_slots(l, conns, streams) != 0)
		return bench_complain(1, "out of memory");
	if (load_client_create(target, conns, &l->client, &err) != 0)
		return bench_complain(1, "%s", err.text);
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	if (warmup) {
		double rate = l->rate;
		l->rate = 0;
		l->warming = true;
		run(l, (uint64_t)l->n_slots, seconds);
		l->warming = false;
		l->rate = rate;
	}
	run(l, requests > 0 ? (uint64_t)requests : UINT64_MAX, seconds);
	return 0;
}

int bench_serve(int argc, char **argv)
{
	const char *url = NULL, *key = NULL, *mix = NULL, *ca = NULL;
	double conns = 1, streams = 1, requests = 0, seconds = 0, seed = 1;
	bool json = false, warmup = false, http1 = false, insecure = false;
	static struct load l;
	l = (struct load){.model = "default", .prompt_tokens = 75, .max_tokens = 64, .temperature = 1};
	const struct bench_option options[] = {
	    {"--key", NULL, &key, NULL, 0, 0},
	    {"--tier-mix", NULL, &mix, NULL, 0, 0},
	    {"--model", NULL, &l.model, NULL, 0, 0},
	    {"--connections", &conns, NULL, NULL, 1, MAX_PLACES},
	    {"--streams", &streams, NULL, NULL, 1, MAX_PLACES},
	    {"--requests", &requests, NULL, NULL, 1, 1e9},
	    {"--seconds", &seconds, NULL, NULL, 0.01, 86400},
	    {"--rate", &l.rate, NULL, NULL, 0.001, 1e6},
	    {"--prompt-tokens", &l.prompt_tokens, NULL, NULL, 1, 1e6},
	    {"--share", &l.share_tokens, NULL, NULL, 0, 1e6},
	    {"--max-tokens", &l.max_tokens, NULL, NULL, 1, 1e6},
	    {"--temperature", &l.temperature, NULL, NULL, 0, 2},
	    {"--slo-ttft", &l.slo.ttft_ms, NULL, NULL, 0, 1e7},
	    {"--slo-itl", &l.slo.itl_ms, NULL, NULL, 0, 1e7},
	    {"--seed", &seed, NULL, NULL, 0, 1e9},
	    {"--cacert", NULL, &ca, NULL, 0, 0},
	    {"--insecure", NULL, NULL, &insecure, 0, 0},
	    {"--http1", NULL, NULL, &http1, 0, 0},
	    {"--whole", NULL, NULL, &l.whole, 0, 0},
	    {"--warmup", NULL, NULL, &warmup, 0, 0},
	    {"--json", NULL, NULL, &json, 0, 0},
	};
	int rc = bench_parse(argc, argv, options, sizeof options / sizeof *options, &url);
	if (rc != 0)
		return rc;
	if (url == NULL)
		return bench_complain(CMD_EXIT_USAGE, "serve needs a server's address, such as https://localhost:8443");
	struct load_target target;
	struct sl_err err = {0};
	if (load_target_parse(url, &target, &err) != 0)
		return bench_complain(1, "%s", err.text);
	target.http1 = http1;
	target.ca_file = ca;
	target.verify = ca != NULL || (target.verify && !insecure);
	if (mix != NULL && parse_mix(&l, mix) != 0) {
		dispose(&l);
		return bench_complain(CMD_EXIT_USAGE, "--tier-mix needs KEY=WEIGHT,KEY=WEIGHT, at most %d", MAX_KEYS);
	}
	if (mix == NULL) {
		l.n_keys = 1;
		l.keys[0].weight = 1;
		snprintf(l.keys[0].text, sizeof l.keys[0].text, "%s", key != NULL ? key : "none");
	}
	l.random = (uint64_t)seed * 2 + 1;
	/* Default: a number of requests. If both are given, both limit the run. */
	if (requests == 0 && seconds == 0)
		requests = 3 * conns * streams;
	rc = measure(&l, &target, (int)conns, (int)streams, requests, seconds > 0 ? seconds : 600, warmup);
	if (rc == 0) {
		if (!json)
			bench_header();
		print(&l, json);
		rc = l.all->n_done > 0 ? 0 : 1;
	}
	dispose(&l);
	return rc;
}
