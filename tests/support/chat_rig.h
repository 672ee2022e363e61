/* SPDX-License-Identifier: Apache-2.0
 *
 * A complete single-threaded gateway, from listener to engine link, between a plain socket client and an engine in this
 * file that answers every request with "abc". For tests that inject faults.
 */
#ifndef TESTS_SUPPORT_CHAT_RIG_H
#define TESTS_SUPPORT_CHAT_RIG_H

#include "tests/support/transport_rig.h"

#include <fcntl.h>
#include <jansson.h>
#include <openssl/sha.h>
#include <sys/un.h>

#include "base/fault.h"
#include "base/metrics.h"
#include "cache/cache.h"
#include "gateway/api/app.h"
#include "gateway/exchange/app_state.h"
#include "gateway/server/gateway_procs.h"
#include "gateway/generation/engine_link.h"
#include "gateway/generation/generation.h"

enum { ANSWER_BYTES = 65536, FAKE_TOKENS = 3 };

/* Set before chat_set_up: a Redis instead of memory; a cascade and its log. */
static const char *chat_store_address;
static const struct casc_settings *chat_cascade;
static char *chat_cascade_log;
/* And the context of its model. */
static uint32_t chat_context = 100;

/* The test itself does not allocate through base/alloc.h while a fault is armed. */
struct chat_rig {
	struct rig r;
	struct gw_app *app;
	struct cache *store;
	char dir[64], path[96], digest[65];
	struct gw_tier_config tier;
	struct gw_key_config key;
	int listener, engine;
	uint8_t in[65536];
	size_t n_in;
	uint64_t credited_id; /* the last answered sequence */
	struct sl_buf hello, queued, tokens, done, computed, counted;
	struct sl_buf queued_other;             /* the answer of the second model, if there is one */
	struct sl_buf tokens_other, done_other; /* the same */
	struct sl_buf verified;                 /* the first tokens of a request with given tokens */
	uint64_t other_id, given_id;            /* of the last ones of those kinds */
	char prompt[1024];                      /* of the last one for the first model, cut to fit */
	uint32_t max_tokens;                    /* the same one's */
	char answer[ANSWER_BYTES];
	size_t n_answer;
	const char *bearer; /* what requests show; "": nothing */
	const char *host;   /* NULL: "x" */
	const char *type;   /* of their bodies; NULL: application/json */
	bool silent;        /* the engine sends no token */
	bool stalled;       /* it does not reply to a SUBMIT */
	int n_submits;
	unsigned slow_ms; /* how long a step lasts before a submitted request counts */
	/* Of prompts that are only to be computed. */
	uint64_t prefill_id; /* the last one */
	int n_prefills, n_cancelled;
	uint8_t prefill_priority;
	uint64_t prefill_tenant;
	struct sl_buf prefilled; /* its prompt */
	bool keeps_prefills;     /* not answered */
	int n_counts;
	uint64_t newest_credited;
	int n_credits, displace_at; /* the number of the answer displaced before its first token; 0: none */
	struct sl_buf displaced;
	int n_frames, drop_at; /* received frames, including HELLO; the one at which the engine exits, 0: never */
	uint64_t fake_ns;
};

/* ---- the engine ---- */

static void engine_says(struct chat_rig *c, struct sl_buf *frame, uint64_t id)
{
	if (frame->len == 0)
		return;
	for (int i = 0; i < 8 && id != 0; i++)
		buf_data(frame)[8 + i] = (uint8_t)(id >> (8 * i));
	/* The next read notices a link that went down meanwhile. */
	(void)!send(c->engine, buf_data(frame), frame->len, MSG_NOSIGNAL);
}

static void engine_on_submit(struct chat_rig *c, const struct proto_head *h, bool other)
{
	struct proto_submit s;
	assert_int_equal(proto_get_submit(c->in + PROTO_HEAD_BYTES, h->length, &s, NULL), 0);
	c->other_id = other ? h->id : c->other_id;
	c->given_id = s.n_given > 0 ? h->id : c->given_id;
	if (!other) {
		snprintf(c->prompt, sizeof c->prompt, "%.*s", (int)s.prompt.n, s.prompt.at);
		c->max_tokens = s.max_tokens;
	}
	if ((s.flags & PROTO_SUBMIT_PREFILL_ONLY) == 0)
		return;
	c->prefill_id = h->id;
	c->n_prefills++;
	c->prefill_priority = s.priority;
	c->prefill_tenant = s.tenant;
	buf_clear(&c->prefilled, 0);
	assert_int_equal(buf_append(&c->prefilled, s.prompt.at, s.prompt.n), 0);
}

/* A token for every two bytes. */
static void engine_counts(struct chat_rig *c, const struct proto_head *h)
{
	const struct proto_counted counted = {.n_tokens = h->length / 2, .message = {"", 0}};
	buf_clear(&c->counted, SIZE_MAX);
	assert_int_equal(proto_put_counted(&c->counted, h->id, &counted), 0);
	engine_says(c, &c->counted, 0);
}

static void engine_on_frame(struct chat_rig *c, const struct proto_head *h)
{
	if (++c->n_frames == c->drop_at) {
		close(c->engine);
		c->engine = -1;
	} else if (h->type == PROTO_COUNT) {
		c->n_counts++;
		engine_counts(c, h);
	} else if (h->type == PROTO_HELLO) {
		engine_says(c, &c->hello, 0);
	} else if (h->type == PROTO_SUBMIT) {
		bool other = c->in[PROTO_HEAD_BYTES] == 1 && c->queued_other.len > 0;
		engine_on_submit(c, h, other);
		c->n_submits++;
		(void)usleep(c->slow_ms * 1000);
		if (!c->stalled)
			engine_says(c, other ? &c->queued_other : &c->queued, h->id);
	} else if (h->type == PROTO_CANCEL) {
		c->n_cancelled++;
	} else if (h->type == PROTO_CREDIT && c->credited_id != h->id) {
		c->credited_id = h->id;
		if (c->prefill_id == h->id) {
			if (!c->keeps_prefills)
				engine_says(c, &c->computed, h->id);
			return;
		}
		if (c->silent)
			return;
		if (h->id > c->newest_credited) {
			c->newest_credited = h->id;
			if (++c->n_credits == c->displace_at) {
				engine_says(c, &c->displaced, h->id);
				return;
			}
		}
		bool other = h->id == c->other_id && c->tokens_other.len > 0;
		if (h->id == c->given_id)
			engine_says(c, &c->verified, h->id);
		engine_says(c, other ? &c->tokens_other : &c->tokens, h->id);
		engine_says(c, other ? &c->done_other : &c->done, h->id);
	}
}

static void engine_turn(struct chat_rig *c)
{
	struct proto_head h;
	if (c->engine < 0) {
		c->engine = accept(c->listener, NULL, NULL);
		c->n_in = 0;
		c->credited_id = 0;
	}
	if (c->engine < 0)
		return;
	ssize_t n = recv(c->engine, c->in + c->n_in, sizeof c->in - c->n_in, MSG_DONTWAIT);
	if (n == 0) {
		close(c->engine);
		c->engine = -1;
		return;
	}
	c->n_in += n > 0 ? (size_t)n : 0;
	while (c->engine >= 0 && c->n_in >= PROTO_HEAD_BYTES) {
		assert_int_equal(proto_head_read(c->in, &h, NULL), 0);
		size_t whole = PROTO_HEAD_BYTES + (size_t)h.length;
		if (c->n_in < whole)
			break;
		engine_on_frame(c, &h);
		memmove(c->in, c->in + whole, c->n_in - whole);
		c->n_in -= whole;
	}
}

static void engine_prepare(struct chat_rig *c)
{
	struct proto_hello hello = {.version = PROTO_VERSION, .epoch = 1, .n_models = 1, .name = {"test", 4}};
	struct proto_model model = {.state = PROTO_MODEL_READY,
				    .role = 2,
				    .does = PROTO_DOES_GENERATE,
				    .n_ctx = chat_context,
				    .name = {"m", 1}};
	struct proto_queued queued = {.n_prompt = 3};
	struct proto_token t[FAKE_TOKENS] = {{.n_bytes = 1}, {.n_bytes = 1}, {.n_bytes = 1}};
	struct proto_tokens tokens = {.n = FAKE_TOKENS, .tokens = t, .text = {"abc", 3}};
	struct proto_done done = {
	    .finish = PROTO_FINISH_STOP, .n_prompt = 3, .n_completion = FAKE_TOKENS, .message = {"", 0}};
	buf_init(&c->hello, 4096);
	buf_init(&c->queued, 4096);
	buf_init(&c->tokens, 4096);
	buf_init(&c->done, 4096);
	buf_init(&c->computed, 4096);
	buf_init(&c->prefilled, 1 << 20);
	buf_init(&c->counted, 4096);
	buf_init(&c->displaced, 4096);
	const struct proto_done displaced = {
	    .finish = PROTO_FINISH_ERROR, .error = PROTO_ERR_OVERLOADED, .message = {"full", 4}};
	assert_int_equal(proto_put_done(&c->displaced, 1, &displaced), 0);
	assert_int_equal(proto_put_counted(&c->counted, 1, &(struct proto_counted){.message = {"", 0}}), 0);
	assert_int_equal(proto_put_hello(&c->hello, &hello), 0);
	assert_int_equal(proto_put_model(&c->hello, &model), 0);
	assert_int_equal(proto_put_queued(&c->queued, 1, &queued), 0);
	assert_int_equal(proto_put_tokens(&c->tokens, 1, &tokens), 0);
	assert_int_equal(proto_put_done(&c->done, 1, &done), 0);
	done.finish = PROTO_FINISH_LENGTH;
	done.n_completion = 0;
	assert_int_equal(proto_put_done(&c->computed, 1, &done), 0);
}

/* The engine has a large model (m) and a small one (s), whose tokenizers have this digest. */
static inline void engine_has_two(struct chat_rig *c, uint64_t tokenizer)
{
	const struct proto_hello hello = {.version = PROTO_VERSION, .epoch = 1, .n_models = 2, .name = {"test", 4}};
	const struct proto_model large = {.state = PROTO_MODEL_READY,
					  .role = 2,
					  .does = PROTO_DOES_GENERATE,
					  .n_ctx = 100,
					  .name = {"m", 1},
					  .tokenizer = tokenizer};
	const struct proto_model small = {.index = 1,
					  .state = PROTO_MODEL_READY,
					  .role = 1,
					  .does = PROTO_DOES_GENERATE,
					  .n_ctx = 100,
					  .name = {"s", 1},
					  .tokenizer = tokenizer};
	buf_clear(&c->hello, SIZE_MAX);
	assert_int_equal(proto_put_hello(&c->hello, &hello), 0);
	assert_int_equal(proto_put_model(&c->hello, &large), 0);
	assert_int_equal(proto_put_model(&c->hello, &small), 0);
}

/* ---- the gateway ---- */

static void turn(struct chat_rig *c)
{
	engine_turn(c);
	rig_turn(&c->r);
}

#define CHAT_UNTIL(c, cond)                                               \
	do {                                                              \
		time_t until_end = rig_now() + RIG_PATIENCE_S;            \
		while (!(cond)) {                                         \
			if (rig_now() > until_end)                        \
				fail_msg("waited in vain for %s", #cond); \
			turn(c);                                          \
		}                                                         \
	} while (0)

static int chat_set_up(void **state)
{
	struct chat_rig *c = calloc(1, sizeof *c);
	struct sl_err err = {0};
	uint8_t digest[SHA256_DIGEST_LENGTH];
	assert_non_null(c);
	snprintf(c->dir, sizeof c->dir, "/tmp/sluice-chat-XXXXXX");
	assert_non_null(mkdtemp(c->dir));
	snprintf(c->path, sizeof c->path, "%s/s", c->dir);
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	snprintf(addr.sun_path, sizeof addr.sun_path, "%s", c->path);
	c->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(c->listener, (struct sockaddr *)&addr, sizeof addr), 0);
	assert_int_equal(listen(c->listener, 4), 0);
	c->engine = -1;
	engine_prepare(c);

	SHA256((const uint8_t *)"sk-test", 7, digest);
	for (size_t i = 0; i < sizeof digest; i++)
		snprintf(c->digest + 2 * i, 3, "%02x", digest[i]);
	c->tier = (struct gw_tier_config){.name = "t", .max_output = 100, .concurrency = 1};
	c->key = (struct gw_key_config){.name = "k", .sha256 = c->digest, .tier = "t"};
	rig_config(&c->r);
	struct gw_config *cfg = &c->r.cfg;
	cfg->tiers = (struct conf_list){.items = &c->tier, .n = 1};
	cfg->keys = (struct conf_list){.items = &c->key, .n = 1};
	cfg->engine_socket = c->path;
	cfg->cascade = chat_cascade;
	cfg->cascade_log = chat_cascade_log;
	cfg->state_dir = c->dir;
	cfg->heartbeat_ms = 10000;
	cfg->limits.window_tokens = 4;
	cfg->limits.messages = 16;
	cfg->limits.json_depth = 16;
	cfg->limits.submit_wait_ms = cfg->limits.first_token_ms = 5000;
	cfg->responses.keep_ms = 60000;
	cfg->conversations = (struct gw_conversations){.keep_ms = 60000, .bytes = 1 << 20};
	cfg->files = (struct gw_files){.keep_ms = 60000, .bytes = 4096, .per_tenant = 8, .tenant_bytes = 12000};
	cfg->resume =
	    (struct gw_resume){.grace_ms = 5000, .keep_ms = 5000, .stream_bytes = 1 << 20, .memory_bytes = 8 << 20};
	assert_int_equal(gw_thread_init(&c->r.t, 0, cfg, &err), 0);
	struct cache_config store;
	cache_config_init(&store);
	/* The memory store's thread may wait for a CPU when many tests run at once. */
	store.op_timeout_ms = 5000;
	if (chat_store_address != NULL) {
		store.store = CACHE_REDIS;
		store.address = chat_store_address;
		store.connect_timeout_ms = 5000;
		store.backoff_least_ms = 1;
		store.backoff_most_ms = 5;
	}
	c->bearer = "sk-test";
	if (cache_create(&store, gateway_procs, GATEWAY_PROCS, &c->store, &err) != 0)
		fail_msg("%s", err.text);
	assert_int_equal(cache_client_create(c->store, c->r.t.base, &c->r.t.cache), 0);
	if (app_create(&c->r.t, &c->app, &err) != 0)
		fail_msg("%s", err.text);
	if (transport_create(&c->r.t, &app_http, c->app, &c->r.tr, &err) != 0)
		fail_msg("%s", err.text);
	c->r.t.transport = c->r.tr;
	c->r.t.app = c->app;
	*state = c;
	return 0;
}

static int chat_tear_down(void **state)
{
	struct chat_rig *c = *state;
	fault_disarm_all();
	clock_fake(NULL);
	transport_destroy(c->r.tr);
	app_destroy(c->app);
	cache_client_destroy(c->r.t.cache);
	cache_destroy(c->store);
	gw_thread_dispose(&c->r.t);
	buf_dispose(&c->hello);
	buf_dispose(&c->queued);
	buf_dispose(&c->queued_other);
	buf_dispose(&c->tokens_other);
	buf_dispose(&c->done_other);
	buf_dispose(&c->verified);
	buf_dispose(&c->tokens);
	buf_dispose(&c->done);
	buf_dispose(&c->computed);
	buf_dispose(&c->prefilled);
	buf_dispose(&c->counted);
	buf_dispose(&c->displaced);
	if (c->engine >= 0)
		close(c->engine);
	close(c->listener);
	unlink(c->path);
	snprintf(c->answer, sizeof c->answer, "rm -rf %s", c->dir);
	(void)!system(c->answer); /* browser token secrets may remain */
	free(c);
	return 0;
}

/* ---- one request ---- */

static bool answer_ended(struct chat_rig *c, int fd)
{
	for (;;) {
		assert_true(c->n_answer < ANSWER_BYTES - 1);
		ssize_t n = recv(fd, c->answer + c->n_answer, ANSWER_BYTES - 1 - c->n_answer, MSG_DONTWAIT);
		if (n <= 0)
			return n == 0 || errno != EAGAIN;
		c->n_answer += (size_t)n;
	}
}

/* fields: further header lines, each ended. */
static int send_request(struct chat_rig *c, const char *target, const char *fields, const char *body)
{
	static char request[64 << 10];
	int n = snprintf(request, sizeof request,
			 "%s HTTP/1.1\r\nhost: %s\r\nconnection: close\r\n%s"
			 "%s%s%scontent-type: %s\r\n"
			 "content-length: %zu\r\n\r\n%s",
			 target, c->host != NULL ? c->host : "x", fields,
			 c->bearer[0] != '\0' ? "authorization: Bearer " : "", c->bearer,
			 c->bearer[0] != '\0' ? "\r\n" : "", c->type != NULL ? c->type : "application/json",
			 strlen(body), body);
	assert_true(n > 0 && (size_t)n < sizeof request);
	int fd = rig_connect(&c->r);
	c->n_answer = 0;
	(void)!send(fd, request, (size_t)n, MSG_NOSIGNAL);
	return fd;
}

static void take_answer(struct chat_rig *c, int fd)
{
	CHAT_UNTIL(c, answer_ended(c, fd));
	c->answer[c->n_answer] = '\0';
	close(fd);
}

static void ask(struct chat_rig *c, const char *target, const char *fields, const char *body)
{
	take_answer(c, send_request(c, target, fields, body));
}

/* Checks that nothing is in progress. */
static bool at_rest(const struct chat_rig *c)
{
	return c->app->n_exchanges == 0 && list_empty(&c->app->answers) && c->r.tr->n_streams == 0 &&
	       c->r.tr->n_conns == 0;
}

/* Sends requests while the nth pass of a fault point fails, until all has ended; returns the number of passes. */
static inline long ask_with_fault(struct chat_rig *c, enum fault_point point, long n, const char *target,
				  const char *fields, const char *body)
{
	long before = fault_passes(point);
	fault_arm(point, n, 1);
	ask(c, target, fields, body);
	CHAT_UNTIL(c, at_rest(c));
	long passes = fault_passes(point) - before;
	fault_disarm_all();
	return passes;
}

/* The number of generations, from the gauges. */
static long n_generations(void)
{
	struct sl_buf b;
	long n = 0;
	buf_init(&b, 1 << 20);
	assert_int_equal(metrics_print(&b), 0);
	static const char name[] = "\nsluice_generations{";
	for (const char *p = buf_cstr(&b); (p = strstr(p, name)) != NULL; p++)
		n += labs(atol(strchr(p + 1, ' ') + 1));
	buf_dispose(&b);
	return n;
}

static int n_running(struct chat_rig *c)
{
	struct http_field f = {"authorization", "Bearer sk-test"};
	struct http_request r = {.fields = &f, .n_fields = 1};
	bool given;
	return atomic_load(auth_check(c->app->auth, &r, &given)->n_running);
}

#endif
