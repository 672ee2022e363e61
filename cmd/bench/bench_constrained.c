/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice bench constrained`: tokens per second of constrained streams beside those of free ones. One engine answers
 * in turns: free streams, streams with constraints that it has seen, streams with constraints that it has not. The
 * figure is tokens per second of the step thread's processor time, which other load on the machine changes little; with
 * one thread (the default) that thread computes the whole step: masks, matrices and draws. The order of the kinds
 * changes from round to round, so drift affects all alike.
 *
 * A turn is measured between two ends of steps: the first at which every stream has two tokens, and the last at which
 * none is complete. Only a stream whose mask is unfinished sits a step out in between.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/percentile.h"
#include "cmd/bench/bench.h"
#include "cmd/config/cmd.h"
#include "engine/engine.h"
#include "engine/model/model.h"

enum { MAX_STREAMS = 256, MAX_TURNS = 200, PROMPT = 8, WAIT_S = 900, SCHEMA_BYTES = 512 };
enum kind { FREE, SEEN, NEW, KINDS };

static const char *const names[KINDS] = {"free", "seen", "new"};

/* What the step thread has done up to the end of a step. */
struct mark {
	double cpu_ns, ns;
	uint64_t steps, tokens, forced;
};

struct bench {
	struct engine *e;
	struct eng_model_config model;
	struct eng_config cfg;
	pthread_mutex_t lock;
	pthread_cond_t news;
	int state;
	uint32_t n_streams, n_tokens, n_ended;
	bool failed;
	char reason[PROTO_MAX_MESSAGE + 1];
	/* Of the turn. */
	bool queued[MAX_STREAMS];
	uint32_t made[MAX_STREAMS], n_queued, n_first, n_begun; /* streams with a token, with two */
	bool credited, begun, over;
	struct mark last, from, to; /* last: after the newest event */
	double taking_ns;           /* processor time between two events of one step: draws and what follows them */
	uint64_t n_taking;
	int32_t prompts[MAX_STREAMS][PROMPT];
	char schemas[MAX_STREAMS][SCHEMA_BYTES];
	uint64_t random, n_new;
	int n_vocab;
	/* Of all turns. */
	double per_cpu_s[KINDS][MAX_TURNS], per_s[KINDS][MAX_TURNS], step_us[KINDS][MAX_TURNS];
	double take_us[KINDS][MAX_TURNS];
	uint64_t tokens[KINDS], steps[KINDS], forced[KINDS];
};

static double of_clock(clockid_t clock)
{
	struct timespec ts;
	clock_gettime(clock, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

/* ---- events; those of tokens come on the step thread ---- */

static void give_credit(struct bench *b, uint32_t n)
{
	for (uint32_t i = 0; i < b->n_streams; i++)
		engine_credit(b->e, i + 1, n);
}

/* The first event of a step: the last one was the end of the step before. */
static void end_step(struct bench *b)
{
	if (b->begun && !b->over) {
		b->to = b->last;
	} else if (!b->begun && b->n_begun == b->n_streams) {
		b->begun = true;
		b->from = b->to = b->last;
	}
}

static void on_token(struct bench *b, uint64_t id, uint32_t n)
{
	struct proto_stats stats;
	engine_stats(b->e, &stats);
	if (stats.steps != b->last.steps)
		end_step(b);
	double cpu_ns = of_clock(CLOCK_THREAD_CPUTIME_ID);
	if (stats.steps == b->last.steps && b->begun && !b->over) {
		b->taking_ns += cpu_ns - b->last.cpu_ns;
		b->n_taking += n;
	}
	uint32_t *made = &b->made[id - 1];
	b->n_first += *made == 0;
	b->n_begun += *made < 2 && *made + n >= 2;
	*made += n;
	b->over = b->over || *made >= b->n_tokens;
	b->last = (struct mark){.cpu_ns = cpu_ns,
				.ns = (double)clock_now_ns(),
				.steps = stats.steps,
				.tokens = b->last.tokens + n,
				.forced = stats.forced_tokens};
}

static void on_event(void *ctx, const struct eng_event *ev)
{
	struct bench *b = ctx;
	pthread_mutex_lock(&b->lock);
	if (ev->kind == ENG_MODEL) {
		b->state = ev->u.model.state;
		snprintf(b->reason, sizeof b->reason, "%.*s", (int)ev->u.model.reason.n, ev->u.model.reason.at);
	} else if (ev->kind == ENG_QUEUED) {
		b->n_queued += !b->queued[ev->id - 1];
		b->queued[ev->id - 1] = true;
	} else if (ev->kind == ENG_TOKENS) {
		on_token(b, ev->id, ev->u.tokens.n);
	} else if (ev->kind == ENG_DONE) {
		if (ev->u.done.finish == PROTO_FINISH_ERROR) {
			b->failed = true;
			snprintf(b->reason, sizeof b->reason, "%.*s", (int)ev->u.done.message.n, ev->u.done.message.at);
		}
		b->n_ended++;
	}
	/* Not for each token: the waiting thread would wake up on a processor that computes. */
	if (ev->kind != ENG_TOKENS)
		pthread_cond_signal(&b->news);
	bool together = b->n_first == b->n_streams && !b->credited;
	b->credited = b->credited || together;
	pthread_mutex_unlock(&b->lock);
	if (together) /* here, so that the step thread finds it all at once */
		give_credit(b, b->n_tokens - 1);
}

static bool is_loaded(const struct bench *b) { return b->state != PROTO_MODEL_LOADING; }

/* A refused request ends without being queued, and without a token. */
static bool all_queued(const struct bench *b) { return b->n_queued + b->n_ended >= b->n_streams; }

static bool all_ended(const struct bench *b) { return b->failed || b->n_ended == b->n_streams; }

/* False: it has not come in time. */
static bool wait_for(struct bench *b, bool (*met)(const struct bench *b))
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += WAIT_S;
	int rc = 0;
	pthread_mutex_lock(&b->lock);
	while (rc == 0 && !met(b))
		rc = pthread_cond_timedwait(&b->news, &b->lock, &until);
	pthread_mutex_unlock(&b->lock);
	return rc == 0;
}

/* ---- requests ---- */

static uint32_t draw(struct bench *b, uint32_t below)
{
	b->random = b->random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(b->random >> 33) % below;
}

/* Arrays too long to end within a turn. `unseen` > 0 makes the text differ, and nothing else. */
static void write_schema(char *to, uint32_t stream, uint64_t unseen)
{
	static const char object[] =
	    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"done\":{\"type\":\"boolean\"}},"
	    "\"required\":[\"name\",\"done\"],\"additionalProperties\":false}";
	static const char *const items[] = {
	    "{\"type\":\"integer\"}",
	    "{\"type\":\"number\"}",
	    "{\"type\":\"string\",\"maxLength\":40}",
	    "{\"type\":\"string\",\"pattern\":\"^[a-z]{2,8}-[0-9]{1,4}$\"}",
	    "{\"type\":\"string\",\"format\":\"date\"}",
	    "{\"enum\":[\"red\",\"green\",\"blue\",7,null]}",
	    object,
	    "{\"type\":\"string\"}",
	};
	snprintf(to, SCHEMA_BYTES, "{\"$comment\":\"%llu\",\"type\":\"array\",\"minItems\":10000,\"items\":%s}",
		 (unsigned long long)unseen, items[stream % (sizeof items / sizeof *items)]);
}

static int submit(struct bench *b, uint32_t i, enum kind kind)
{
	for (int k = 0; k < PROMPT; k++)
		b->prompts[i][k] = (int32_t)draw(b, (uint32_t)b->n_vocab);
	struct proto_submit req = {PROTO_SUBMIT_OFF,
				   .prompt_kind = PROTO_PROMPT_TOKENS,
				   .flags = PROTO_SUBMIT_IGNORE_EOS,
				   .tenant = 1,
				   .temperature = 1,
				   .top_p = 1,
				   .seed = draw(b, 1u << 30),
				   .max_tokens = b->n_tokens,
				   .prompt = {(const char *)b->prompts[i], sizeof b->prompts[i]}};
	if (kind != FREE) {
		write_schema(b->schemas[i], i, kind == NEW ? ++b->n_new : 0);
		req.constraint_kind = PROTO_CONSTRAINT_JSON_SCHEMA;
		req.constraint = (struct proto_str){b->schemas[i], strlen(b->schemas[i])};
	}
	return engine_submit(b->e, i + 1, &req);
}

/* All streams of a turn. They begin together: once every constraint is compiled and every prompt computed. */
static int answer(struct bench *b, enum kind kind)
{
	pthread_mutex_lock(&b->lock);
	memset(b->made, 0, sizeof b->made);
	memset(b->queued, 0, sizeof b->queued);
	b->n_queued = b->n_first = b->n_begun = b->n_ended = 0;
	b->credited = b->begun = b->over = false;
	b->taking_ns = 0;
	b->n_taking = 0;
	b->from = b->to = b->last;
	pthread_mutex_unlock(&b->lock);
	for (uint32_t i = 0; i < b->n_streams; i++)
		if (submit(b, i, kind) != 0)
			return bench_complain(1, "a request was refused");
	bool in_time = wait_for(b, all_queued);
	give_credit(b, 1); /* and the rest after every stream's first token */
	in_time = in_time && wait_for(b, all_ended);
	if (!in_time || b->failed)
		return bench_complain(1, "%s", b->failed ? b->reason : "a request took too long");
	return 0;
}

static int measure(struct bench *b, enum kind kind, int round)
{
	int rc = answer(b, kind);
	if (rc != 0)
		return rc;
	double cpu = b->to.cpu_ns - b->from.cpu_ns, tokens = (double)(b->to.tokens - b->from.tokens);
	if (b->to.steps <= b->from.steps)
		return bench_complain(1, "the answers are too short for a measurement");
	if (round < 0)
		return 0;
	b->per_cpu_s[kind][round] = tokens / cpu * 1e9;
	b->per_s[kind][round] = tokens / (b->to.ns - b->from.ns) * 1e9;
	b->step_us[kind][round] = cpu / 1e3 / (double)(b->to.steps - b->from.steps);
	b->take_us[kind][round] = b->taking_ns / 1e3 / (double)(b->n_taking > 0 ? b->n_taking : 1);
	b->tokens[kind] += b->to.tokens - b->from.tokens;
	b->steps[kind] += b->to.steps - b->from.steps;
	b->forced[kind] += b->to.forced - b->from.forced;
	return 0;
}

/* ---- figures ---- */

/* The geometric mean of x to y and its interval of 95 %: normal, so it wants a dozen pairs. */
static void ratio(const double *x, const double *y, int n, double out[3])
{
	double sum = 0, squares = 0;
	for (int i = 0; i < n; i++) {
		double r = log(x[i] / y[i]);
		sum += r;
		squares += r * r;
	}
	double mean = sum / n, var = n > 1 ? (squares - n * mean * mean) / (n - 1) : 0;
	double half = 1.96 * sqrt(var > 0 ? var / n : 0);
	out[0] = exp(mean);
	out[1] = exp(mean - half);
	out[2] = exp(mean + half);
}

static void show(struct bench *b, enum kind kind, int rounds, bool json)
{
	double cpu[3], wall[3], step_us = percentile(b->step_us[kind], (size_t)rounds, 50);
	double take_us = percentile(b->take_us[kind], (size_t)rounds, 50);
	double per_step = (double)b->tokens[kind] / (double)b->steps[kind];
	double forced = (double)b->forced[kind] / (double)b->tokens[kind];
	ratio(b->per_cpu_s[kind], b->per_cpu_s[FREE], rounds, cpu);
	ratio(b->per_s[kind], b->per_s[FREE], rounds, wall);
	if (json)
		printf("%s\"%s\":{\"step_us\":%.6g,\"take_us\":%.6g,\"tokens_per_step\":%.6g,\"forced\":%.6g,\"to_"
		       "free\":[%.6g,%.6g,%.6g],"
		       "\"to_free_elapsed\":[%.6g,%.6g,%.6g]}",
		       kind == FREE ? "{" : ",", names[kind], step_us, take_us, per_step, forced, cpu[0], cpu[1],
		       cpu[2], wall[0], wall[1], wall[2]);
	else
		printf("%-6s %12.0f %12.1f %14.2f %8.3f   %.4f [%.4f, %.4f]   %.3f [%.3f, %.3f]\n", names[kind],
		       step_us, take_us, per_step, forced, cpu[0], cpu[1], cpu[2], wall[0], wall[1], wall[2]);
}

static int run(struct bench *b, int rounds, bool json)
{
	int rc = 0;
	/* The first round is not counted: it brings the weights into memory and compiles what the others have seen. */
	for (int round = -1; round < rounds && rc == 0; round++)
		for (int k = 0; k < KINDS && rc == 0; k++)
			rc = measure(b, (enum kind)((k + round + 1) % KINDS), round);
	if (rc != 0)
		return rc;
	if (!json) {
		bench_header();
		printf("%u streams, %d rounds\n\n       step, us cpu  a draw, us  tokens a step   forced   to free, a "
		       "cpu second"
		       "     to free, a second\n",
		       b->n_streams, rounds);
	}
	/* percentile sorts its array: nothing else reads step_us and take_us. */
	for (int k = 0; k < KINDS; k++)
		show(b, (enum kind)k, rounds, json);
	if (json)
		puts("}");
	return 0;
}

/* ---- the command ---- */

static int open_engine(struct bench *b, const char *path, int threads)
{
	struct sl_err err = {0};
	b->model = (struct eng_model_config){.name = "model", .path = path};
	b->cfg = (struct eng_config){.models = &b->model,
				     .n_models = 1,
				     .backend = "auto",
				     .n_threads = threads,
				     .n_text_workers = 1,
				     .page_tokens = 16,
				     .kv_bytes = 1ull << 30,
				     .max_sequences = (int)b->n_streams,
				     .max_waiting = MAX_STREAMS,
				     .step_tokens = 256,
				     .max_prompt_bytes = 1 << 20,
				     .itl_target_ms = 1000,
				     .no_prefix_cache = true};
	if (engine_create(&b->cfg, on_event, b, &b->e, &err) != 0)
		return bench_complain(1, "%s", err.text);
	bool ready = wait_for(b, is_loaded) && b->state == PROTO_MODEL_READY;
	return ready ? 0 : bench_complain(1, "%s", b->reason);
}

int bench_constrained(int argc, char **argv)
{
	const char *path = NULL;
	double threads = 1, streams = 32, tokens = 40, rounds = 20;
	bool json = false;
	const struct bench_option options[] = {
	    {"--threads", &threads, NULL, NULL, 1, 1024}, {"--streams", &streams, NULL, NULL, 1, MAX_STREAMS},
	    {"--tokens", &tokens, NULL, NULL, 4, 4096},   {"--rounds", &rounds, NULL, NULL, 1, MAX_TURNS},
	    {"--json", NULL, NULL, &json, 0, 0},
	};
	struct model_info info;
	int rc = bench_parse_model(argc, argv, options, sizeof options / sizeof *options, &path, &info);
	if (rc != 0)
		return rc;
	struct bench *b = sl_zalloc(sizeof *b);
	if (b == NULL)
		return bench_complain(1, "out of memory");
	log_init("bench", LOG_ERROR);
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->news, NULL);
	b->state = PROTO_MODEL_LOADING;
	b->n_streams = (uint32_t)streams;
	b->n_tokens = (uint32_t)tokens;
	b->n_vocab = info.arch.n_vocab;
	b->random = 1;
	rc = open_engine(b, path, (int)threads);
	if (rc == 0)
		rc = run(b, (int)rounds, json);
	if (b->e != NULL)
		engine_destroy(b->e);
	pthread_cond_destroy(&b->news);
	pthread_mutex_destroy(&b->lock);
	sl_free(b);
	return rc;
}
