/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice bench coupling`: how often a draft model draws the token of its model, and how often any rule could. The
 * model answers prompts at one temperature; the draft reads the same tokens. At each position both distributions give
 *
 *   d         their total variation distance; no rule makes two draws coincide with probability above 1 - d
 *   (1 - d) / (1 + d)   what the exponential race promises at least (kernels/race.h)
 *
 * and the two draws by the same key either coincide or not, in many races.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/log.h"
#include "cmd/bench/bench.h"
#include "cmd/config/cmd.h"
#include "engine/chat/chat_template.h"
#include "engine/kv/kv.h"
#include "engine/model/model.h"
#include "engine/sample/sampler.h"
#include "engine/token/tokenizer.h"

enum { PAGE = 16, MAX_PAST = 512, RACES = 32 };

struct side {
	struct model *m;
	struct kn_backend *b;
	struct kv_pool *pool;
	float *logits;
	double *p;
};

struct coupling {
	struct side of[2]; /* the model, its draft */
	const struct kn_ops *ops;
	int n_vocab;
	bool plain; /* prompts are no chats */
	struct sampler_scratch scratch;
	double temperature, below, bound, race, inverse;
	uint64_t n, n_races;
};

static int open_side(struct coupling *c, struct side *s, const char *path)
{
	struct model_info info;
	struct sl_err err = {0};
	if (model_inspect(path, &info, &err) != 0)
		return bench_complain(1, "%s", err.text);
	const struct model_arch *a = &info.arch;
	const struct kn_config kc = {.n_threads = 1, .max_rows = 1, .max_width = arch_widest(a)};
	if (arch_is_recurrent(a))
		return bench_complain(1, "%s: some layers keep a state, which this measurement does not support", path);
	if (c->n_vocab != 0 && c->n_vocab != a->n_vocab)
		return bench_complain(1, "the draft has another vocabulary");
	if (a->n_ctx < MAX_PAST)
		return bench_complain(1, "%s: the context is shorter than %d tokens", path, MAX_PAST);
	c->n_vocab = a->n_vocab;
	struct kn_kv layout = model_kv_layout(a, KN_F16, PAGE, a->n_layers);
	layout.n_pages = MAX_PAST / PAGE;
	if (c->ops->open(&kc, &s->b, &err) != 0 || model_load(path, c->ops, s->b, 1, 0, &s->m, &err) != 0 ||
	    kv_pool_make(c->ops, s->b, &layout, &s->pool, &err) != 0)
		return bench_complain(1, "%s", err.text);
	s->logits = sl_zalloc_n((size_t)a->n_vocab, sizeof *s->logits);
	s->p = sl_zalloc_n((size_t)a->n_vocab, sizeof *s->p);
	return s->logits != NULL && s->p != NULL ? 0 : bench_complain(1, "out of memory");
}

static void close_side(const struct coupling *c, struct side *s)
{
	kv_pool_destroy(s->pool);
	if (s->m != NULL)
		model_free(s->m);
	if (s->b != NULL)
		c->ops->close(s->b);
	sl_free(s->logits);
	sl_free(s->p);
}

static int feed(struct side *s, int32_t token, int32_t pos)
{
	int32_t seq = 0, want = 0, pages[MAX_PAST / PAGE];
	for (int i = 0; i < MAX_PAST / PAGE; i++)
		pages[i] = i;
	struct kn_step step = {.n_rows = 1,
			       .row_token = &token,
			       .row_pos = &pos,
			       .row_seq = &seq,
			       .n_seqs = 1,
			       .page_table = pages,
			       .max_pages = MAX_PAST / PAGE};
	return model_forward(s->m, &step, kv_pool_layout(s->pool), &want, 1, s->logits);
}

static void weigh(struct side *s, int n, double temperature)
{
	double most = -INFINITY, sum = 0;
	for (int i = 0; i < n; i++)
		most = fmax(most, (double)s->logits[i]);
	for (int i = 0; i < n; i++)
		sum += s->p[i] = exp(((double)s->logits[i] - most) / temperature);
	for (int i = 0; i < n; i++)
		s->p[i] /= sum;
}

/* How likely one number in [0, 1), looked up in both cumulative sums, gives the same token: the rule without a race. */
static double inverse_of(const double *p, const double *q, int n)
{
	double from_p = 0, from_q = 0, same = 0;
	for (int i = 0; i < n; i++) {
		same += fmax(0, fmin(from_p + p[i], from_q + q[i]) - fmax(from_p, from_q));
		from_p += p[i];
		from_q += q[i];
	}
	return same;
}

static int32_t race(struct coupling *c, struct side *s, uint64_t seed, uint64_t index)
{
	struct sampler_params p = {
	    .temperature = (float)c->temperature, .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .seed = seed};
	struct sampler_choice out;
	sampler_draw(&p, NULL, s->logits, c->n_vocab, index, &c->scratch, &out);
	return out.id;
}

/* One position. Returns the model's token, by `seed`. */
static int32_t judge(struct coupling *c, uint64_t seed, uint64_t index)
{
	double d = 0;
	for (int i = 0; i < 2; i++)
		weigh(&c->of[i], c->n_vocab, c->temperature);
	for (int i = 0; i < c->n_vocab; i++)
		d += fabs(c->of[0].p[i] - c->of[1].p[i]) / 2;
	c->bound += 1 - d;
	c->below += (1 - d) / (1 + d);
	c->inverse += inverse_of(c->of[0].p, c->of[1].p, c->n_vocab);
	for (uint64_t k = 1; k <= RACES; k++)
		c->race +=
		    race(c, &c->of[0], seed + k * 1000003, index) == race(c, &c->of[1], seed + k * 1000003, index);
	c->n_races += RACES;
	c->n++;
	return race(c, &c->of[0], seed, index);
}

static const char *const prompts[] = {
    "What is the capital of France?",
    "Tell me a story about a dog.",
    "What can you do?",
    "How many legs does a cat have?",
    "What color is the sky?",
    "Write a short poem about the sea.",
    "Who are you?",
    "Why is the night dark?",
};

/* As a chat where the model has a template. */
static int encode(const struct model *m, bool plain, const char *prompt, struct tok_ids *ids)
{
	struct sl_buf text, trust;
	struct sl_err err = {0};
	buf_init(&text, 1 << 16);
	buf_init(&trust, 1 << 16);
	json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", prompt);
	const struct chat_vars vars = {
	    .messages = messages, .bos_token = "", .eos_token = "", .add_generation_prompt = true};
	bool chat = !plain && model_template(m) != NULL;
	int rc = messages == NULL ? SL_ENOMEM
		 : chat           ? chat_template_render(model_template(m), &vars, &text, &trust, &err)
				  : buf_append(&text, prompt, strlen(prompt));
	if (rc == 0)
		rc = tokenizer_add_bos(model_tokenizer(m), ids);
	if (rc == 0)
		rc = tokenizer_encode(model_tokenizer(m), (const char *)buf_data(&text), text.len,
				      chat ? buf_data(&trust) : NULL, ids);
	json_decref(messages);
	buf_dispose(&text);
	buf_dispose(&trust);
	return rc;
}

static int answer(struct coupling *c, uint64_t seed, int n_tokens)
{
	const struct tokenizer *t = model_tokenizer(c->of[0].m);
	struct tok_ids ids = {.max = MAX_PAST / 2};
	int rc = encode(c->of[0].m, c->plain, prompts[seed % (sizeof prompts / sizeof *prompts)], &ids);
	int32_t pos = 0;
	for (; rc == 0 && pos < (int32_t)ids.n; pos++)
		for (int i = 0; i < 2 && rc == 0; i++)
			rc = feed(&c->of[i], ids.ids[pos], pos);
	tok_ids_dispose(&ids);
	for (int k = 0; k < n_tokens && rc == 0 && pos < MAX_PAST; k++, pos++) {
		int32_t id = judge(c, seed, (uint64_t)k);
		if (id < 0 || tokenizer_is_end(t, id))
			break;
		for (int i = 0; i < 2 && rc == 0; i++)
			rc = feed(&c->of[i], id, pos);
	}
	return rc == 0 ? 0 : bench_complain(1, "the model can't compute");
}

static void show(const struct coupling *c, bool json)
{
	double n = (double)c->n, bound = c->bound / n, below = c->below / n, inverse = c->inverse / n;
	double same = c->race / (double)c->n_races;
	if (json)
		printf("{\"temperature\":%.6g,\"positions\":%.0f,\"bound\":%.6g,\"race\":%.6g,\"race_at_least\":%.6g,"
		       "\"cumulative_sum\":%.6g}\n",
		       c->temperature, n, bound, same, below, inverse);
	else
		printf("T %.2f, %.0f positions: 1 - d %.4f; the race %.4f, at least %.4f; by the cumulative sum %.4f\n",
		       c->temperature, n, bound, same, below, inverse);
}

int bench_coupling(int argc, char **argv)
{
	const char *path = NULL, *draft = NULL;
	double temperature = 1, answers = 24, tokens = 80;
	bool json = false, plain = false;
	const struct bench_option options[] = {
	    {"--draft", NULL, &draft, NULL, 0, 0},          {"--temperature", &temperature, NULL, NULL, 0.01, 10},
	    {"--answers", &answers, NULL, NULL, 1, 100000}, {"--tokens", &tokens, NULL, NULL, 1, MAX_PAST},
	    {"--plain", NULL, NULL, &plain, 0, 0},          {"--json", NULL, NULL, &json, 0, 0},
	};
	int rc = bench_parse(argc, argv, options, sizeof options / sizeof *options, &path);
	if (rc != 0)
		return rc;
	if (path == NULL || draft == NULL)
		return bench_complain(CMD_EXIT_USAGE, "coupling needs a model file and --draft FILE");
	struct coupling c = {.temperature = temperature, .plain = plain};
	struct sl_err err = {0};
	log_init("bench", LOG_ERROR);
	c.ops = kn_select("auto", &err);
	if (c.ops == NULL)
		return bench_complain(1, "%s", err.text);
	rc = open_side(&c, &c.of[0], path);
	if (rc == 0)
		rc = open_side(&c, &c.of[1], draft);
	if (rc == 0 && sampler_scratch_reserve(&c.scratch, c.n_vocab) != 0)
		rc = bench_complain(1, "out of memory");
	for (uint64_t seed = 0; seed < (uint64_t)answers && rc == 0; seed++)
		rc = answer(&c, seed, (int)tokens);
	if (rc == 0)
		show(&c, json);
	sampler_scratch_dispose(&c.scratch);
	close_side(&c, &c.of[0]);
	close_side(&c, &c.of[1]);
	return rc;
}
