/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice batch`: sends the requests of a file, several at once and behind everybody else's, and writes each result as
 * soon as it is there. What ends it early (a signal, a crash) costs nothing: the next run goes on after the results
 * that the output has. Requests in flight carry an Idempotency-Key, so the server gives their answers again instead of
 * computing them anew.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"
#include "cmd/client/batch_file.h"
#include "cmd/client/client.h"
#include "cmd/config/cmd.h"

enum {
	LOWEST = 100, /* `priority`: behind more classes than there are */
	TURN_MS = 200,
	SHOW_MS = 500,
	FIRST_WAIT_MS = 500,
	LONGEST_WAIT_S = 60,
	IDLE_S = 600, /* an answer that waits behind everybody else's sends nothing */
	PARALLEL_MAX = 256,
	RETRIES = 20,
};

static const char usage[] =
    "usage: sluice batch FILE.jsonl [--out FILE] [--parallel N] [--retries N]\n"
    "\n"
    "Sends the requests of FILE, one JSON object a line as in OpenAI's Batch API:\n"
    "  {\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{…}}\n"
    "and writes one line for each result, as they become ready. Run again after an interruption,\n"
    "it sends what has no result yet. Requests go at the lowest priority unless their body has a\n"
    "`priority` or `service_tier`. The exit status is 1 if a result is an error.\n"
    "\n"
    "  --out FILE        the results (FILE.results.jsonl)\n"
    "  --parallel N      requests at once (16)\n"
    "  --retries N       how often a request is repeated after a failure of the connection or the\n"
    "                    server (20); one that is told to wait waits as long as it is told\n" CLIENT_USAGE;

struct batch;

enum sending_state { IDLE, IN_FLIGHT, WAITING };

/* One of the requests that are under way. It keeps its line until that has a result. */
struct sending {
	struct http_call call;
	struct batch *batch;
	size_t line;
	char *body; /* owned */
	char key[96];
	char custom_id[BATCH_ID_MAX + 1];
	enum sending_state state;
	uint32_t attempts; /* that failed */
	uint64_t due_ns;   /* WAITING: when it is repeated */
};

struct batch {
	struct batch_file file;
	struct http_client *client;
	struct sending *sendings;
	uint32_t parallel, retries;
	size_t next; /* no line before it remains to be sent */
	size_t n_waiting, n_before, n_failed;
	struct sl_err err; /* ends the run */
	uint64_t begun_ns, shown_ns;
	bool shows;
};

/* ---- results ---- */

static bool is_passing(int status)
{
	return status == 408 || status == 409 || status == 425 || status == 429 || status >= 500;
}

static uint64_t wait_ms(const struct sending *s)
{
	char text[32];
	unsigned long seconds;
	if (http_call_field(&s->call, "retry-after", text, sizeof text)) {
		seconds = strtoul(text, NULL, 10);
		return 1000 * (seconds < LONGEST_WAIT_S ? seconds : LONGEST_WAIT_S);
	}
	uint64_t ms = (uint64_t)FIRST_WAIT_MS << (s->attempts < 8 ? s->attempts : 8);
	return ms < 1000 * LONGEST_WAIT_S ? ms : 1000 * LONGEST_WAIT_S;
}

/* The result of a response, or of a failure: a new reference; NULL: no memory. */
static json_t *result_of(const struct sending *s)
{
	const struct http_call *c = &s->call;
	char id[128], why[512];
	json_t *body = NULL, *response = json_null(), *error = json_null();
	if (c->end == HTTP_DONE && c->text.len > 0)
		body = json_loadb((const char *)buf_data(&c->text), c->text.len, 0, NULL);
	if (!http_call_field(c, "x-request-id", id, sizeof id))
		id[0] = '\0';
	if (body != NULL) {
		response = json_pack("{s:i,s:s,s:o}", "status_code", c->status, "request_id", id, "body", body);
	} else {
		http_call_explain(c, why, sizeof why);
		text_one_line(why, ' ');
		error = json_pack("{s:s,s:s}", "code", c->end == HTTP_DONE ? "no_json" : "connection", "message", why);
	}
	if (response == NULL || error == NULL) {
		json_decref(response);
		json_decref(error);
		return NULL;
	}
	return json_pack("{s:s,s:s,s:o,s:o}", "id", s->key, "custom_id", s->custom_id, "response", response, "error",
			 error);
}

static void write_result(struct sending *s)
{
	struct batch *b = s->batch;
	json_t *result = result_of(s);
	if (result == NULL)
		sl_errf(&b->err, SL_ENOMEM, "request %zu: no memory", s->line + 1);
	else
		batch_file_add(&b->file, s->line, result, &b->err);
	if (s->call.end != HTTP_DONE || s->call.status >= 300 || !json_is_null(json_object_get(result, "error")))
		b->n_failed++;
	json_decref(result);
}

static void forget(struct sending *s)
{
	sl_free(s->body);
	s->body = NULL;
	s->state = IDLE;
}

static void on_end(struct http_call *call)
{
	struct sending *s = list_entry(call, struct sending, call);
	struct batch *b = s->batch;
	bool told = call->end == HTTP_DONE && (call->status == 429 || call->status == 503);
	bool again =
	    call->end == HTTP_LOST || call->end == HTTP_LATE || (call->end == HTTP_DONE && is_passing(call->status));
	if (again && (told || s->attempts < b->retries)) {
		s->due_ns = clock_now_ns() + wait_ms(s) * NS_PER_MS;
		s->attempts++;
		s->state = WAITING;
		b->n_waiting++;
		return;
	}
	write_result(s);
	forget(s);
}

/* ---- sending ---- */

/* The same request has the same key in each run. */
static void make_key(struct sending *s, const char *custom_id)
{
	XXH128_hash_t h = XXH3_128bits_withSeed(s->body, strlen(s->body), XXH3_64bits(custom_id, strlen(custom_id)));
	snprintf(s->key, sizeof s->key, "batch_%016" PRIx64 "%016" PRIx64, h.high64, h.low64);
}

static int fill(struct sending *s, struct batch_request *r)
{
	bool orders = strcmp(r->url, "/v1/embeddings") != 0 && json_object_get(r->body, "priority") == NULL &&
		      json_object_get(r->body, "service_tier") == NULL;
	if (orders && json_object_set_new(r->body, "priority", json_integer(LOWEST)) != 0)
		return SL_ENOMEM;
	s->body = json_dumps(r->body, JSON_COMPACT);
	if (s->body == NULL)
		return SL_ENOMEM;
	make_key(s, r->custom_id);
	snprintf(s->custom_id, sizeof s->custom_id, "%s", r->custom_id);
	return 0;
}

static const char *endpoint_of(const char *url)
{
	/* The call borrows its path beyond the request. */
	static const char *const all[] = {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (strcmp(url, all[i]) == 0)
			return all[i];
	return "/";
}

static int start(struct sending *s)
{
	char idempotency[128];
	snprintf(idempotency, sizeof idempotency, "Idempotency-Key: %s", s->key);
	s->call.method = "POST";
	s->call.headers[0] = idempotency;
	s->call.body = s->body;
	s->call.n_body = strlen(s->body);
	s->call.idle_s = IDLE_S;
	s->call.on_end = on_end;
	s->state = IN_FLIGHT;
	return http_call_start(s->batch->client, &s->call);
}

static void send_line(struct sending *s, size_t i)
{
	struct batch *b = s->batch;
	struct batch_request r;
	if (batch_file_request(&b->file, i, &r, &b->err) != 0)
		return;
	s->line = i;
	s->attempts = 0;
	s->call.path = endpoint_of(r.url);
	int rc = fill(s, &r);
	batch_request_release(&r);
	if (rc == 0)
		rc = start(s);
	if (rc != 0) {
		forget(s);
		sl_errf(&b->err, rc, "request %zu: no memory", i + 1);
	}
}

/* The next line to send; SIZE_MAX: none. */
static size_t next_line(struct batch *b)
{
	while (b->next < b->file.n && b->file.lines[b->next].done)
		b->next++;
	return b->next < b->file.n ? b->next++ : SIZE_MAX;
}

static void advance(struct sending *s, uint64_t now)
{
	struct batch *b = s->batch;
	if (s->state == WAITING && s->due_ns <= now) {
		b->n_waiting--;
		if (start(s) != 0)
			sl_errf(&b->err, SL_ENOMEM, "request %zu: no memory", s->line + 1);
	} else if (s->state == IDLE) {
		size_t i = next_line(b);
		if (i != SIZE_MAX)
			send_line(s, i);
	}
}

static void show(struct batch *b, uint64_t now)
{
	double seconds = (double)(now - b->begun_ns) / NS_PER_S;
	size_t here = b->file.n_done - b->n_before;
	double left = here > 0 ? seconds / (double)here * (double)(b->file.n - b->file.n_done) : 0;
	b->shown_ns = now;
	fprintf(stderr, "\r%zu of %zu, %zu failed, %.1f a second, %d:%02d left%s\033[K", b->file.n_done, b->file.n,
		b->n_failed, seconds > 0 ? (double)here / seconds : 0, (int)left / 60, (int)left % 60,
		b->n_waiting > 0 ? ", waiting for the server" : "");
	fflush(stderr);
}

static int run(struct batch *b)
{
	b->begun_ns = clock_now_ns();
	while (b->file.n_done < b->file.n && b->err.code == 0 && !client_stopped) {
		uint64_t now = clock_now_ns();
		for (uint32_t k = 0; k < b->parallel && b->err.code == 0; k++)
			advance(&b->sendings[k], now);
		if (b->shows && now - b->shown_ns >= SHOW_MS * NS_PER_MS)
			show(b, now);
		http_client_turn(b->client, TURN_MS);
	}
	if (b->shows)
		fputs("\r\033[K", stderr);
	if (b->err.code != 0) {
		fprintf(stderr, "sluice batch: %s\n", b->err.text);
		return 1;
	}
	fprintf(stderr, "%zu of %zu results in %s", b->file.n_done, b->file.n, b->file.out_path);
	if (b->n_failed > 0)
		fprintf(stderr, ", %zu of this run's are errors", b->n_failed);
	fputs(b->file.n_done < b->file.n ? "; run it again to go on\n" : "\n", stderr);
	return b->file.n_done < b->file.n || b->n_failed > 0;
}

/* ---- the command ---- */

static int open_all(struct batch *b, const struct client_options *o, const char *in, const char *out)
{
	struct sl_err err = {0};
	int rc = http_client_create(&o->server, &b->client, &err);
	if (rc == 0)
		rc = batch_file_open(&b->file, in, out, &err);
	if (rc == 0) {
		b->sendings = sl_zalloc_n(b->parallel, sizeof *b->sendings);
		if (b->sendings == NULL)
			rc = sl_errf(&err, SL_ENOMEM, "no memory");
	}
	if (rc != 0)
		fprintf(stderr, "sluice batch: %s\n", err.text);
	for (uint32_t k = 0; rc == 0 && k < b->parallel; k++)
		b->sendings[k].batch = b;
	b->n_before = b->file.n_done;
	return rc;
}

static void close_all(struct batch *b)
{
	http_client_destroy(b->client);
	for (uint32_t k = 0; b->sendings != NULL && k < b->parallel; k++) {
		sl_free(b->sendings[k].body);
		http_call_dispose(&b->sendings[k].call);
	}
	sl_free(b->sendings);
	batch_file_dispose(&b->file);
}

int cmd_batch(int argc, char **argv)
{
	struct client_options o;
	struct batch b = {.parallel = 16, .retries = RETRIES, .file = {.in = -1, .out = -1}};
	const char *in = NULL, *out = NULL;
	char named[4096];
	const struct client_option own[] = {
	    {"--out", CLIENT_TEXT, &out, 0, 0},
	    {"--parallel", CLIENT_UINT, &b.parallel, 1, PARALLEL_MAX},
	    {"--retries", CLIENT_UINT, &b.retries, 0, UINT8_MAX - 1},
	};
	int rc = client_options_read(&o, own, sizeof own / sizeof *own, argc, argv, usage, &in);
	if (rc != 0)
		return rc;
	if (in == NULL) {
		fputs(usage, stderr);
		return CMD_EXIT_USAGE;
	}
	if (out == NULL) {
		size_t n = strlen(in) - (text_ends(in, ".jsonl") ? 6 : 0);
		snprintf(named, sizeof named, "%.*s.results.jsonl", (int)n, in);
		out = named;
	}
	client_stop_on_signals();
	b.shows = isatty(STDERR_FILENO);
	int status = open_all(&b, &o, in, out) == 0 ? run(&b) : 1;
	close_all(&b);
	return status;
}
