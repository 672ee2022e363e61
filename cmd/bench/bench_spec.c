/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice bench speculation`: what drafts save and what they cost. First the cost of verifying: passes of 1, 2, 3 …
 * rows of one sequence, all with logits, in turns. Then engines: one for each source of drafts and one without answer
 * the same requests in turns, so that other load on the machine affects all alike. Their answers are compared token
 * by token. Kinds of text:
 *
 *   repeated   greedy, from a prompt that repeats one phrase
 *   prose      greedy, from a sentence
 *   varied     sampled from a dozen tokens with a frequency penalty, so earlier text predicts badly
 *   noise      a dozen equally likely tokens: the last token always occurs earlier in the text, and the token that
 *              followed it is wrong in eleven of twelve cases. (A draft model samples from the same dozen with the
 *              same random numbers, so it is right.)
 *   questions  greedy, chats of a file's questions (JSON, one a line) up to their end: whole requests, prompts included
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/percentile.h"
#include "cmd/bench/bench.h"
#include "cmd/config/cmd.h"
#include "engine/engine.h"
#include "engine/kv/kv.h"
#include "engine/model/model.h"
#include "engine/sched/spec.h"

enum {
	PAGE = 16,
	PAST = 256,
	MOST_ROWS = SPEC_MAX_DRAFT + 1,
	MAX_ROUNDS = 999,
	MAX_TOKENS = 4096,
	MAX_LINE = 4096,
	NOISE = 12,
	WAYS = 5
};

static void say(bool json, bool *first, const char *what, double value, const char *unit)
{
	if (json)
		printf("%s\"%s\":%.6g", *first ? "{" : ",", what, value);
	else
		printf("  %-46s %12.4g %s\n", what, value, unit);
	*first = false;
	fflush(stdout);
}

/* ---- the cost of verifying ---- */

struct passes {
	const struct kn_ops *ops;
	struct kn_backend *b;
	struct model *m;
	struct kv_pool *pool;
	float *logits;
};

static double pass_ns(struct passes *p, int n_rows)
{
	int32_t token[MOST_ROWS], pos[MOST_ROWS], seq[MOST_ROWS] = {0}, want[MOST_ROWS], pages[PAST / PAGE + 2];
	for (int i = 0; i < n_rows; i++) {
		token[i] = i * 31 % model_info(p->m)->arch.n_vocab;
		pos[i] = PAST + i;
		want[i] = i;
	}
	for (int i = 0; i < PAST / PAGE + 2; i++)
		pages[i] = i;
	struct kn_step s = {.n_rows = n_rows,
			    .row_token = token,
			    .row_pos = pos,
			    .row_seq = seq,
			    .n_seqs = 1,
			    .page_table = pages,
			    .max_pages = PAST / PAGE + 2};
	uint64_t begin = clock_now_ns();
	if (model_forward(p->m, &s, kv_pool_layout(p->pool), want, n_rows, p->logits) != 0)
		return NAN;
	return (double)(clock_now_ns() - begin);
}

static int verifying(const struct eng_config *cfg, int rounds, bool json, bool *first)
{
	static const int rows[] = {1, 2, 3, 5, 9, 17};
	enum { N = sizeof rows / sizeof *rows };
	static double ns[N][MAX_ROUNDS], over[MAX_ROUNDS];
	struct passes p = {0};
	struct model_info info;
	struct sl_err err = {0};
	int rc = model_inspect(cfg->models[0].path, &info, &err);
	const struct model_arch *a = &info.arch;
	long n_cores = sysconf(_SC_NPROCESSORS_ONLN);
	struct kn_config kc = {.n_threads = cfg->n_threads > 0 ? cfg->n_threads : (int)n_cores,
			       .max_rows = MOST_ROWS,
			       .max_width = arch_widest(a),
			       .pad_rows = true};
	struct kn_kv layout = model_kv_layout(a, KN_F32, PAGE, a->n_layers);
	layout.n_pages = PAST / PAGE + 2;
	if (rc == 0 && arch_is_recurrent(a))
		return bench_complain(1, "%s: some layers keep a state, which this measurement does not support",
				      cfg->models[0].path);
	p.ops = rc == 0 ? kn_select("auto", &err) : NULL;
	if (p.ops == NULL || p.ops->open(&kc, &p.b, &err) != 0 ||
	    model_load(cfg->models[0].path, p.ops, p.b, MOST_ROWS, 0, &p.m, &err) != 0 ||
	    kv_pool_make(p.ops, p.b, &layout, &p.pool, &err) != 0)
		rc = bench_complain(1, "%s", err.text);
	p.logits = rc == 0 ? sl_zalloc_n((size_t)MOST_ROWS * (size_t)a->n_vocab, sizeof *p.logits) : NULL;
	if (rc == 0 && p.logits == NULL)
		rc = bench_complain(1, "out of memory");
	for (int k = -1; rc == 0 && k < rounds; k++) { /* the first round brings the weights into memory */
		for (int i = 0; i < N; i++) {
			int at = (i + k + 1) % N;
			pass_ns(&p, rows[at]);
			ns[at][k < 0 ? 0 : k] = pass_ns(&p, rows[at]);
		}
	}
	for (int i = 0; rc == 0 && i < N; i++) {
		char name[64];
		for (int k = 0; k < rounds; k++)
			over[k] = ns[i][k] / ns[0][k];
		snprintf(name, sizeof name, i == 0 ? "decode_us" : "verify_%d_over_decode", rows[i] - 1);
		if (i == 0)
			memcpy(over, ns[0], sizeof over);
		double median = percentile(over, (size_t)rounds, 50);
		say(json, first, name, i == 0 ? median / 1e3 : median, i == 0 ? "us" : "times");
	}
	kv_pool_destroy(p.pool);
	sl_free(p.logits);
	if (p.m != NULL)
		model_free(p.m);
	if (p.b != NULL)
		p.ops->close(p.b);
	return rc;
}

/* ---- engines side by side ---- */

struct answering {
	struct engine *e;
	pthread_mutex_t lock;
	pthread_cond_t news;
	int n_ready;
	bool failed, done;
	int32_t ids[MAX_TOKENS];
	int n_ids;
	uint64_t asked_ns, first_ns, done_ns;
};

static void on_event(void *ctx, const struct eng_event *ev)
{
	struct answering *a = ctx;
	pthread_mutex_lock(&a->lock);
	if (ev->kind == ENG_MODEL) {
		a->n_ready += ev->u.model.state == PROTO_MODEL_READY;
		a->failed = a->failed || ev->u.model.state == PROTO_MODEL_FAILED;
	} else if (ev->kind == ENG_TOKENS) {
		if (a->n_ids == 0)
			a->first_ns = clock_now_ns();
		for (int i = 0; i < ev->u.tokens.n && a->n_ids < MAX_TOKENS; i++)
			a->ids[a->n_ids++] = (int32_t)ev->u.tokens.tokens[i].id;
	} else if (ev->kind == ENG_DONE) {
		a->done_ns = clock_now_ns();
		a->done = true;
		a->failed = a->failed || ev->u.done.finish == PROTO_FINISH_ERROR;
	}
	/* Not for each token: the waiting thread would wake up on a processor that computes. */
	if (ev->kind == ENG_MODEL || a->done)
		pthread_cond_signal(&a->news);
	pthread_mutex_unlock(&a->lock);
}

static int open_engine(struct answering *a, const struct eng_config *cfg)
{
	struct sl_err err = {0};
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->news, NULL);
	if (engine_create(cfg, on_event, a, &a->e, &err) != 0)
		return bench_complain(1, "%s", err.text);
	pthread_mutex_lock(&a->lock);
	while (a->n_ready < cfg->n_models && !a->failed)
		pthread_cond_wait(&a->news, &a->lock);
	pthread_mutex_unlock(&a->lock);
	return a->failed ? bench_complain(1, "a model can't be loaded") : 0;
}

/* Processor time of all threads; excludes other load on the machine. */
static double cpu_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

/* Runs one request. *ns: from its first token to its last or, whole, from the request on. *cpu: processor time of the
 * whole request. */
static int ask(struct answering *a, const struct proto_submit *req, bool whole, double *ns, double *cpu)
{
	double begin = cpu_ns();
	a->n_ids = 0;
	a->done = false;
	a->asked_ns = clock_now_ns();
	if (engine_submit(a->e, 1, req) != 0)
		return bench_complain(1, "a request was refused");
	engine_credit(a->e, 1, req->max_tokens);
	pthread_mutex_lock(&a->lock);
	while (!a->done)
		pthread_cond_wait(&a->news, &a->lock);
	pthread_mutex_unlock(&a->lock);
	*ns = (double)(a->done_ns - (whole ? a->asked_ns : a->first_ns));
	*cpu = cpu_ns() - begin;
	return a->failed ? bench_complain(1, "a request failed") : 0;
}

enum { REPEATED, PROSE, VARIED, NOISY, QUESTIONS, TEXTS };
static const char *const texts[TEXTS] = {"repeated", "prose", "varied", "noise", "questions"};
static const char *const ways[] = {[ENG_SPEC_OFF] = "off",
				   [ENG_SPEC_NGRAM] = "ngram",
				   [ENG_SPEC_DRAFT] = "draft",
				   [ENG_SPEC_AUTO] = "auto",
				   [ENG_SPEC_HEAD] = "head"};

struct wording {
	int32_t ids[PAST];
	char text[PAST];
	struct proto_id_f32 biases[NOISE];
	FILE *questions; /* NULL: none */
	char line[MAX_LINE], chat[MAX_LINE + 64];
};

/* What is compared: engines, each with its source of drafts, the first without. */
struct comparison {
	struct answering a[WAYS];
	enum eng_spec_mode modes[WAYS];
	int n;
	struct wording w;
	int rounds, n_tokens, n_vocab;
	bool json, *first;
};

/* The next question as a chat; false: there is none. */
static bool next_question(struct wording *w)
{
	static const char key[] = "\"question\": \"";
	if (fgets(w->line, sizeof w->line, w->questions) == NULL)
		return false;
	char *at = strstr(w->line, key), *end = at != NULL ? strchr(at + sizeof key - 1, '"') : NULL;
	while (end != NULL && end[-1] == '\\')
		end = strchr(end + 1, '"');
	if (end == NULL)
		return false;
	*end = '\0';
	snprintf(w->chat, sizeof w->chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}",
		 at + sizeof key - 1);
	return true;
}

static struct proto_submit request(struct wording *w, int text, int round, int n_tokens, int n_vocab)
{
	static const char *const phrases[] = {"One two three four five. ", "Tom has a red ball. ",
					      "The dog runs to the tree and back. ", "apple, pear, plum, "};
	static const char sentence[] = "The river runs to the sea, and on its way it passes the old town, where";
	struct proto_submit req = {PROTO_SUBMIT_OFF,
				   .prompt_kind = PROTO_PROMPT_TOKENS,
				   .flags = PROTO_SUBMIT_IGNORE_EOS,
				   .tenant = 1,
				   .top_p = 1,
				   .max_tokens = (uint32_t)n_tokens,
				   .seed = (uint64_t)round + 1,
				   .prompt = {(const char *)w->ids, sizeof w->ids}};
	uint32_t random = (uint32_t)round * 2654435761u + 12345;
	for (int i = 0; i < PAST; i++) {
		random = random * 1664525u + 1013904223u;
		w->ids[i] = (int32_t)((random >> 8) % (uint32_t)n_vocab);
	}
	if (text == REPEATED) {
		const char *phrase = phrases[(size_t)round % (sizeof phrases / sizeof *phrases)];
		size_t n = 0;
		while (n + strlen(phrase) < sizeof w->text)
			n += (size_t)snprintf(w->text + n, sizeof w->text - n, "%s", phrase);
		req.prompt_kind = PROTO_PROMPT_TEXT;
		req.prompt = (struct proto_str){w->text, n};
	}
	if (text == PROSE) {
		req.prompt_kind = PROTO_PROMPT_TEXT;
		req.prompt = (struct proto_str){sentence, sizeof sentence - 1};
		req.tenant = (uint64_t)round + 10;
	}
	if (text == QUESTIONS) {
		req.prompt_kind = PROTO_PROMPT_CHAT;
		req.prompt = (struct proto_str){w->chat, strlen(w->chat)};
		req.tenant = (uint64_t)round + 10;
		req.flags = 0;
	}
	if (text == VARIED || text == NOISY) {
		req.temperature = text == VARIED ? 2 : 1e6f;
		req.top_k = NOISE;
		req.frequency_penalty = text == VARIED ? 2 : 0;
		for (int i = 0; i < NOISE; i++)
			w->biases[i] = (struct proto_id_f32){(uint32_t)(n_vocab / 2 + i), 100};
		req.logit_bias = w->biases;
		req.n_logit_bias = NOISE;
	}
	return req;
}

/* One request to all engines, in turns that change. */
static int compare_one(struct comparison *c, int text, int round, double *ns, double *cpu)
{
	struct proto_submit req = request(&c->w, text, round, c->n_tokens, c->n_vocab);
	for (int i = 0; i < c->n; i++) {
		int k = (i + round) % c->n, rc = ask(&c->a[k], &req, text == QUESTIONS, &ns[k], &cpu[k]);
		if (rc != 0)
			return rc;
	}
	const struct answering *plain = &c->a[0];
	for (int k = 1; k < c->n; k++)
		if (c->a[k].n_ids != plain->n_ids ||
		    memcmp(c->a[k].ids, plain->ids, (size_t)plain->n_ids * sizeof *plain->ids) != 0)
			return bench_complain(1, "an answer with drafts differs");
	return 0;
}

static void say_of(const struct comparison *c, int text, int k, const char *what, double value, const char *unit)
{
	char name[64];
	snprintf(name, sizeof name, "%s_%s_%s", texts[text], ways[c->modes[k]], what);
	say(c->json, c->first, name, value, unit);
}

static int compare(struct comparison *c, int text)
{
	static double ratio[WAYS][MAX_ROUNDS], cpu_ratio[WAYS][MAX_ROUNDS];
	struct proto_stats before[WAYS] = {0}, after[WAYS] = {0};
	double ns[WAYS] = {0}, cpu[WAYS] = {0}, all[WAYS] = {0}, n_tokens = 0;
	int n = 0;
	for (int k = 0; k < c->n; k++)
		engine_stats(c->a[k].e, &before[k]);
	for (; n < c->rounds && (text != QUESTIONS || next_question(&c->w)); n++) {
		int rc = compare_one(c, text, n, ns, cpu);
		if (rc != 0)
			return rc;
		for (int k = 0; k < c->n; k++) {
			ratio[k][n] = ns[k] / ns[0];
			cpu_ratio[k][n] = cpu[k] / cpu[0];
			all[k] += ns[k];
		}
		n_tokens += c->a[0].n_ids;
	}
	if (n == 0)
		return bench_complain(1, "no line has a \"question\"");
	for (int k = 0; k < c->n; k++)
		engine_stats(c->a[k].e, &after[k]);
	double plain = (double)(after[0].steps - before[0].steps);
	for (int k = 1; k < c->n; k++) {
		double drafted = (double)(after[k].spec_drafted - before[k].spec_drafted);
		double accepted = (double)(after[k].spec_accepted - before[k].spec_accepted);
		say_of(c, text, k, "steps_fewer", plain / (double)(after[k].steps - before[k].steps), "times");
		say_of(c, text, k, "time_percent", 100 * percentile(ratio[k], (size_t)n, 50), "% (median of pairs)");
		say_of(c, text, k, "all_time_percent", 100 * all[k] / all[0], "%");
		say_of(c, text, k, "cpu_percent", 100 * percentile(cpu_ratio[k], (size_t)n, 50), "% (median of pairs)");
		say_of(c, text, k, "accepted_percent", drafted > 0 ? 100 * accepted / drafted : 0, "%");
		say_of(c, text, k, "drafted_per_token", drafted / n_tokens, "");
	}
	return 0;
}

int bench_speculation(int argc, char **argv)
{
	const char *path = NULL, *draft = NULL, *head = NULL, *questions = NULL;
	double threads = 0, rounds = 15, tokens = 300, most = 8;
	bool json = false, first = true;
	const struct bench_option options[] = {
	    {"--draft", NULL, &draft, NULL, 0, 0},
	    {"--head", NULL, &head, NULL, 0, 0},
	    {"--questions", NULL, &questions, NULL, 0, 0},
	    {"--threads", &threads, NULL, NULL, 0, 1024},
	    {"--rounds", &rounds, NULL, NULL, 1, MAX_ROUNDS},
	    {"--tokens", &tokens, NULL, NULL, 2, MAX_TOKENS},
	    {"--max-draft", &most, NULL, NULL, 1, SPEC_MAX_DRAFT},
	    {"--json", NULL, NULL, &json, 0, 0},
	};
	struct model_info info;
	int rc = bench_parse_model(argc, argv, options, sizeof options / sizeof *options, &path, &info);
	if (rc != 0)
		return rc;
	log_init("bench", LOG_WARN);
	int n_ctx = info.arch.n_ctx, n_tokens = (int)tokens;
	n_tokens = PAST + n_tokens < n_ctx ? n_tokens : n_ctx - PAST - 1;
	if (n_tokens < 2)
		return bench_complain(1, "a context of %d tokens is too short", n_ctx);
	struct eng_model_config models[2] = {{.name = "large", .path = path, .head = head, .role = PROTO_ROLE_LARGE},
					     {.name = "small", .path = draft, .role = PROTO_ROLE_SMALL}};
	struct eng_config cfg = {.models = models,
				 .n_models = draft != NULL ? 2 : 1,
				 .backend = "auto",
				 .n_threads = (int)threads,
				 .n_text_workers = 1,
				 .page_tokens = PAGE,
				 .kv_bytes = 512 << 20,
				 .max_sequences = 4,
				 .max_waiting = 16,
				 .step_tokens = 256,
				 .max_prompt_bytes = 1 << 20,
				 .itl_target_ms = 50,
				 .spec_max_draft = (int)most};
	struct comparison *c = sl_zalloc(sizeof *c);
	if (c == NULL)
		return bench_complain(1, "out of memory");
	*c = (struct comparison){
	    .rounds = (int)rounds, .n_tokens = n_tokens, .n_vocab = info.arch.n_vocab, .json = json, .first = &first};
	if (!json)
		bench_header();
	rc = verifying(&cfg, (int)rounds, json, &first);
	const bool has[] = {[ENG_SPEC_OFF] = true,
			    [ENG_SPEC_NGRAM] = true,
			    [ENG_SPEC_DRAFT] = draft != NULL,
			    [ENG_SPEC_AUTO] = draft != NULL || head != NULL || info.arch.n_drafting > 0,
			    [ENG_SPEC_HEAD] = head != NULL || info.arch.n_drafting > 0};
	for (int mode = 0; mode < WAYS && rc == 0; mode++) {
		if (!has[mode])
			continue;
		c->modes[c->n] = (enum eng_spec_mode)mode;
		cfg.spec_mode = mode;
		rc = open_engine(&c->a[c->n++], &cfg);
	}
	if (rc == 0 && questions != NULL && (c->w.questions = fopen(questions, "r")) == NULL)
		rc = bench_complain(1, "%s: can't be read", questions);
	/* With questions, these alone. */
	for (int text = 0; text < TEXTS && rc == 0; text++)
		if ((text == QUESTIONS) == (questions != NULL))
			rc = compare(c, text);
	if (json && !first)
		puts("}");
	for (int k = 0; k < c->n; k++)
		if (c->a[k].e != NULL)
			engine_destroy(c->a[k].e);
	if (c->w.questions != NULL)
		fclose(c->w.questions);
	sl_free(c);
	return rc;
}
