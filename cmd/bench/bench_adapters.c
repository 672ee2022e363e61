/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice bench adapters`: steps of several sequences that each have an adapter of their own, beside the same steps
 * without any, and prompts with one. Steps of every kind take turns, so that a disturbance of the machine affects all;
 * the floor is what the bytes of the adapters add to those of the weights, and their multiply-adds to a prompt's.
 *
 * With --zipf N a whole engine serves streams whose requests name N adapters by Zipf's law (the k-th with a weight of
 * 1/k), with room for --adapters of them at once, in turns with the same requests to their base.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/percentile.h"
#include "cmd/bench/bench.h"
#include "cmd/bench/bench_folder.h"
#include "engine/adapter/adapter_make.h"
#include "engine/engine.h"
#include "engine/kv/kv.h"
#include "engine/model/adapters.h"
#include "kernels/kv_type.h"

enum { MAX_STREAMS = 64, MAX_TURNS = 201, PAGE = 16, CHUNK = 256 };

/* Kinds of steps. HALF: every second sequence has an adapter; ONE: all have the same. */
enum kind { NONE, EACH, HALF, ONE, PROMPT_NONE, PROMPT_ONE, KINDS };

static const char *const kinds[KINDS] = {[NONE] = "answers, no adapter",
					 [EACH] = "answers, an adapter each",
					 [HALF] = "answers, every second with one",
					 [ONE] = "answers, all the same one",
					 [PROMPT_NONE] = "prompt, no adapter",
					 [PROMPT_ONE] = "prompt with an adapter"};

static const char *const keys[KINDS] = {[NONE] = "none",
					[EACH] = "each",
					[HALF] = "half",
					[ONE] = "one",
					[PROMPT_NONE] = "prompt_none",
					[PROMPT_ONE] = "prompt_one"};

struct rig {
	const struct kn_ops *ops;
	struct kn_backend *b;
	struct model *m;
	struct kv_pool *pool;
	int n_streams, max_pages, past;
	int32_t *pages;
	int32_t token[CHUNK], pos[CHUNK], seq[CHUNK], want[CHUNK], slot[CHUNK];
	float *logits;
	double adapter_bytes, weight_bytes, adapter_ops, step_ops; /* ops: of a row */
	double seconds[KINDS][MAX_TURNS];
};

/* The type in which an adapter is kept; its file has bf16 for KN_LORA_I8. */
static int load_packed(struct rig *r, const char *file, int type, int *slot, struct sl_err *err)
{
	struct adapter *a;
	struct chat_template *template;
	struct model_adapter *packed;
	uint64_t digest;
	int rc = model_open_adapter(r->m, file, &a, &template, &digest, err);
	if (rc != 0)
		return rc;
	rc = model_pack_adapter(r->m, a, type, &packed, err);
	if (rc == 0 && (rc = model_put_adapter(r->m, packed, slot, err)) != 0)
		model_drop_adapter(r->m, packed);
	chat_template_free(template);
	adapter_close(a);
	return rc;
}

static int file_type(int type) { return type == KN_LORA_I8 ? KN_BF16 : type; }

static int load_adapters(struct rig *r, const char *path, int n, int rank, int type)
{
	char dir[128], file[160];
	struct sl_err err = {0};
	int rc = bench_folder_make(dir, sizeof dir, &err);
	for (int i = 0; i < n && rc == 0; i++) {
		struct adapter_make m = {
		    .base = path, .out = file, .type = file_type(type), .seed = (uint64_t)i + 1, .replace = true};
		int slot;
		for (int t = 0; t < ADAPTER_DENSE_TARGETS; t++) {
			m.ranks[t] = rank;
			m.alphas[t] = 2 * rank;
		}
		snprintf(file, sizeof file, "%s/a.gguf", dir);
		rc = adapter_make(&m, &err);
		if (rc == 0)
			rc = load_packed(r, file, type, &slot, &err);
		if (rc == 0)
			r->adapter_bytes = (double)model_adapter_bytes(r->m, slot);
	}
	bench_folder_remove(dir);
	return rc == 0 ? 0 : bench_complain(1, "%s", err.text);
}

static int open_rig(struct rig *r, const char *path, const struct model_info *info, int n_threads)
{
	struct sl_err err = {0};
	const struct model_arch *a = &info->arch;
	struct kn_config kc = {.n_threads = n_threads, .max_rows = CHUNK, .max_width = arch_widest(a)};
	r->ops = kn_select("auto", &err);
	if (r->ops == NULL || r->ops->open(&kc, &r->b, &err) != 0 ||
	    model_load(path, r->ops, r->b, CHUNK, 0, &r->m, &err) != 0)
		return bench_complain(1, "%s", err.text);
	r->max_pages = ((r->past > CHUNK ? r->past : CHUNK) + MAX_TURNS + PAGE) / PAGE;
	int n_pages = r->n_streams * r->max_pages;
	if (kv_pool_create(r->ops, r->b, kn_kv_type_auto(r->ops), n_pages, PAGE, a->n_layers, a->n_kv_heads,
			   a->head_dim, &r->pool, &err) != 0)
		return bench_complain(1, "%s", err.text);
	r->pages = sl_zalloc_n((size_t)n_pages, sizeof *r->pages);
	r->logits = sl_zalloc_n((size_t)r->n_streams * (size_t)a->n_vocab, sizeof *r->logits);
	if (r->pages == NULL || r->logits == NULL)
		return bench_complain(1, "out of memory");
	for (int i = 0; i < n_pages; i++)
		r->pages[i] = i;
	double embed = (double)a->n_vocab * a->n_embd;
	r->weight_bytes = (double)(info->file_bytes - (a->tied_embeddings ? 0 : info->embed_bytes));
	r->step_ops = 2 * ((double)info->n_params - embed); /* of a prompt's row, without the head */
	return 0;
}

static void close_rig(struct rig *r)
{
	kv_pool_destroy(r->pool);
	model_free(r->m);
	if (r->b != NULL)
		r->ops->close(r->b);
	sl_free(r->pages);
	sl_free(r->logits);
}

/* Seconds of one step; negative after a fault. */
static double step(struct rig *r, int n_rows, int n_want)
{
	struct kn_step s = {.n_rows = n_rows,
			    .row_token = r->token,
			    .row_pos = r->pos,
			    .row_seq = r->seq,
			    .row_adapter = r->slot,
			    .n_seqs = r->n_streams,
			    .page_table = r->pages,
			    .max_pages = r->max_pages};
	uint64_t begin = clock_now_ns();
	int rc = model_forward(r->m, &s, kv_pool_layout(r->pool), r->want, n_want, r->logits);
	return rc == 0 ? (double)(clock_now_ns() - begin) / 1e9 : -1;
}

static double answers(struct rig *r, enum kind kind, int turn, int n_adapters)
{
	for (int i = 0; i < r->n_streams; i++) {
		r->token[i] = (turn * 31 + i) % model_info(r->m)->arch.n_vocab;
		r->pos[i] = r->past + turn;
		r->seq[i] = r->want[i] = i;
		r->slot[i] = kind == EACH || (kind == HALF && i % 2 == 0) ? i % n_adapters : kind == ONE ? 0 : -1;
	}
	return step(r, r->n_streams, r->n_streams);
}

static double prompt(struct rig *r, enum kind kind)
{
	for (int i = 0; i < CHUNK; i++) {
		r->token[i] = i * 7919 % model_info(r->m)->arch.n_vocab;
		r->pos[i] = i;
		r->seq[i] = 0;
		r->slot[i] = kind == PROMPT_ONE ? 0 : -1;
	}
	r->want[0] = CHUNK - 1;
	return step(r, CHUNK, 1);
}

static int measure(struct rig *r, int turns, int n_adapters)
{
	for (int turn = -1; turn < turns; turn++) /* the first brings the weights into memory */
		for (int k = 0; k < KINDS; k++) {
			double s =
			    k < PROMPT_NONE ? answers(r, (enum kind)k, turn + 1, n_adapters) : prompt(r, (enum kind)k);
			if (s < 0)
				return bench_complain(1, "a step failed");
			if (turn >= 0)
				r->seconds[k][turn] = s;
		}
	return 0;
}

/* What bytes, or a prompt's operations, allow at most: the share of the speed without adapters. */
static double floor_of(const struct rig *r, int kind, int n_adapters)
{
	int used = kind == EACH ? n_adapters : kind == HALF ? (n_adapters + 1) / 2 : kind == ONE ? 1 : 0;
	if (kind == PROMPT_ONE)
		return r->step_ops / (r->step_ops + r->adapter_ops);
	return r->weight_bytes / (r->weight_bytes + used * r->adapter_bytes);
}

static void report(struct rig *r, int turns, int n_adapters, int rank, const char *type, bool json)
{
	double ms[KINDS];
	for (int k = 0; k < KINDS; k++)
		ms[k] = 1e3 * percentile(r->seconds[k], (size_t)turns, 50);
	if (json)
		printf(
		    "{\"backend\":\"%s\",\"streams\":%d,\"adapters\":%d,\"rank\":%d,\"type\":\"%s\",\"weight_bytes\":"
		    "%.6g,\"adapter_bytes\":%.6g",
		    r->ops->name, r->n_streams, n_adapters, rank, type, r->weight_bytes, r->adapter_bytes);
	else
		printf("%s; %d streams, %d adapters of rank %d in %s, %.1f MB each beside %.1f MB of weights\n\n"
		       "                                      ms a step  of the speed without  floor\n",
		       r->ops->name, r->n_streams, n_adapters, rank, type, r->adapter_bytes / 1e6,
		       r->weight_bytes / 1e6);
	for (int k = 0; k < KINDS; k++) {
		double without = ms[k < PROMPT_NONE ? NONE : PROMPT_NONE];
		if (json)
			printf(",\"%s\":{\"ms\":%.5g,\"share\":%.4g,\"floor\":%.4g}", keys[k], ms[k], without / ms[k],
			       floor_of(r, k, n_adapters));
		else
			printf("%-35s %11.2f %18.1f %% %6.1f %%\n", kinds[k], ms[k], 100 * without / ms[k],
			       100 * floor_of(r, k, n_adapters));
	}
	if (json)
		puts("}");
}

/* ---- an engine ---- */

enum { MAX_ZIPF = 200, ZIPF_PROMPT = 48, ZIPF_TOKENS = 48, MAX_ROUNDS = 32 };

struct zipf {
	struct engine *e;
	pthread_mutex_t lock;
	pthread_cond_t news;
	int n_ready, n_free, n_failed;
	bool free[MAX_STREAMS];
	uint64_t n_tokens;
	char names[MAX_ZIPF][32], paths[MAX_ZIPF][160];
	int32_t prompt[ZIPF_PROMPT];
};

static void on_event(void *ctx, const struct eng_event *ev)
{
	struct zipf *z = ctx;
	pthread_mutex_lock(&z->lock);
	if (ev->kind == ENG_MODEL) {
		z->n_ready += ev->u.model.state == PROTO_MODEL_READY;
		z->n_failed += ev->u.model.state == PROTO_MODEL_FAILED;
	} else if (ev->kind == ENG_DONE) {
		z->n_tokens += ev->u.done.n_completion;
		z->n_failed += ev->u.done.finish == PROTO_FINISH_ERROR;
		z->free[ev->id - 1] = true;
		z->n_free++;
	}
	pthread_cond_signal(&z->news);
	pthread_mutex_unlock(&z->lock);
}

static int make_files(struct zipf *z, const char *path, const char *dir, int n, int rank, int type,
		      struct eng_adapter_config *out)
{
	struct sl_err err = {0};
	int rc = 0;
	for (int i = 0; i < n && rc == 0; i++) {
		struct adapter_make m = {
		    .base = path, .out = z->paths[i], .type = file_type(type), .seed = (uint64_t)i + 1};
		for (int t = 0; t < ADAPTER_DENSE_TARGETS; t++) {
			m.ranks[t] = rank;
			m.alphas[t] = 2 * rank;
		}
		snprintf(z->names[i], sizeof z->names[i], "base:a%d", i);
		snprintf(z->paths[i], sizeof z->paths[i], "%s/a%d.gguf", dir, i);
		rc = adapter_make(&m, &err);
		out[i] = (struct eng_adapter_config){.name = z->names[i], .path = z->paths[i]};
	}
	return rc == 0 ? 0 : bench_complain(1, "%s", err.text);
}

/* By Zipf's law among n: 1 … n. */
static int zipf_draw(uint32_t *random, int n)
{
	double all = 0, at;
	*random = *random * 1664525u + 1013904223u;
	for (int k = 1; k <= n; k++)
		all += 1.0 / k;
	at = (double)(*random >> 8) / (1 << 24) * all;
	for (int k = 1; k <= n; k++)
		if ((at -= 1.0 / k) < 0)
			return k;
	return n;
}

/* Tokens a second of n requests on streams that each take the next as soon as they have an answer. */
static double zipf_round(struct zipf *z, int streams, int n, int n_adapters, uint32_t *random)
{
	struct proto_submit req = {PROTO_SUBMIT_OFF,
				   .prompt_kind = PROTO_PROMPT_TOKENS,
				   .flags = PROTO_SUBMIT_IGNORE_EOS,
				   .top_p = 1,
				   .max_tokens = ZIPF_TOKENS,
				   .prompt = {(const char *)z->prompt, sizeof z->prompt}};
	uint64_t begin = clock_now_ns();
	z->n_tokens = 0;
	for (int i = 0; i < n && z->n_failed == 0; i++) {
		int at = 0;
		pthread_mutex_lock(&z->lock);
		while (z->n_free == 0)
			pthread_cond_wait(&z->news, &z->lock);
		while (!z->free[at])
			at++;
		z->free[at] = false;
		z->n_free--;
		pthread_mutex_unlock(&z->lock);
		req.tenant = (uint64_t)at + 1;
		req.cache_salt = req.seed = *random; /* no prompt is found again */
		int drawn = zipf_draw(random, n_adapters > 0 ? n_adapters : 1);
		req.model = (uint16_t)(n_adapters > 0 ? drawn : 0);
		if (engine_submit(z->e, (uint64_t)at + 1, &req) != 0)
			return -1;
		engine_credit(z->e, (uint64_t)at + 1, ZIPF_TOKENS);
	}
	pthread_mutex_lock(&z->lock);
	while (z->n_free < streams)
		pthread_cond_wait(&z->news, &z->lock);
	pthread_mutex_unlock(&z->lock);
	return z->n_failed == 0 ? (double)z->n_tokens / ((double)(clock_now_ns() - begin) / 1e9) : -1;
}

static int zipf_run(struct zipf *z, const struct eng_config *cfg, int streams, int n, int rounds, bool json)
{
	static double share[MAX_ROUNDS], speed[MAX_ROUNDS];
	struct sl_err err = {0};
	struct proto_stats s;
	uint32_t random = 1;
	if (engine_create(cfg, on_event, z, &z->e, &err) != 0)
		return bench_complain(1, "%s", err.text);
	pthread_mutex_lock(&z->lock);
	while (z->n_ready < 1 && z->n_failed == 0)
		pthread_cond_wait(&z->news, &z->lock);
	pthread_mutex_unlock(&z->lock);
	for (int i = -1; i < rounds && z->n_failed == 0; i++) { /* the first brings the weights into memory */
		double plain = zipf_round(z, streams, 4 * streams, 0, &random);
		double mixed = zipf_round(z, streams, 4 * streams, n, &random);
		if (i >= 0) {
			speed[i] = plain;
			share[i] = mixed / plain;
		}
	}
	engine_stats(z->e, &s);
	engine_destroy(z->e);
	if (z->n_failed > 0)
		return bench_complain(1, "a model, an adapter or a request failed");
	double plain = percentile(speed, (size_t)rounds, 50), part = percentile(share, (size_t)rounds, 50);
	if (json)
		printf(
		    "{\"streams\":%d,\"zipf\":%d,\"slots\":%d,\"tokens_per_s\":%.5g,\"share\":%.4g,\"loads\":%llu}\n",
		    streams, n, cfg->adapter_slots, plain, part, (unsigned long long)s.adapter_loads);
	else
		printf("%d streams, Zipf over %d adapters with room for %d: %.1f %% of %.1f tokens a second without; "
		       "%llu loads\n",
		       streams, n, cfg->adapter_slots, 100 * part, plain, (unsigned long long)s.adapter_loads);
	return 0;
}

static int bench_zipf(const char *path, int streams, int n, int slots, int rank, int type, int n_threads, int rounds,
		      bool json)
{
	static struct eng_adapter_config adapters[MAX_ZIPF];
	const struct eng_model_config model = {.name = "base", .path = path};
	char dir[128];
	struct sl_err err = {0};
	struct zipf *z = sl_zalloc(sizeof *z);
	if (z == NULL || bench_folder_make(dir, sizeof dir, &err) != 0) {
		sl_free(z);
		return bench_complain(1, "no memory, or no folder");
	}
	pthread_mutex_init(&z->lock, NULL);
	pthread_cond_init(&z->news, NULL);
	z->n_free = streams;
	for (int i = 0; i < streams; i++)
		z->free[i] = true;
	for (int i = 0; i < ZIPF_PROMPT; i++)
		z->prompt[i] = i * 37 % 500;
	const struct eng_config cfg = {.models = &model,
				       .n_models = 1,
				       .adapters = adapters,
				       .n_adapters = n,
				       .adapter_slots = slots,
				       .adapter_turn_ms = 200,
				       .adapter_type = type == KN_LORA_I8 ? "int8" : NULL,
				       .backend = "auto",
				       .n_threads = n_threads,
				       .n_text_workers = 1,
				       .page_tokens = PAGE,
				       .kv_bytes = (uint64_t)512 << 20,
				       .max_sequences = streams,
				       .max_waiting = 2 * MAX_STREAMS,
				       .step_tokens = 128,
				       .max_prompt_bytes = 1 << 20};
	int rc = make_files(z, path, dir, n, rank, type, adapters);
	if (rc == 0)
		rc = zipf_run(z, &cfg, streams, n, rounds, json);
	bench_folder_remove(dir);
	sl_free(z);
	return rc;
}

int bench_adapters(int argc, char **argv)
{
	double streams = 8, adapters = 8, rank = 16, past = 128, repeat = 25, threads = 0, zipf = 0;
	const char *path = NULL, *type = "bf16";
	bool json = false;
	struct model_info info;
	const struct bench_option options[] = {
	    {"--streams", &streams, NULL, NULL, 1, MAX_STREAMS},
	    {"--adapters", &adapters, NULL, NULL, 1, MODEL_MAX_ADAPTERS},
	    {"--rank", &rank, NULL, NULL, 1, ADAPTER_MAX_RANK},
	    {"--past", &past, NULL, NULL, 1, 1 << 16},
	    {"--repeat", &repeat, NULL, NULL, 1, MAX_TURNS},
	    {"--threads", &threads, NULL, NULL, 0, 256},
	    {"--zipf", &zipf, NULL, NULL, 0, MAX_ZIPF},
	    {"--type", NULL, &type, NULL, 0, 0},
	    {"--json", NULL, NULL, &json, 0, 0},
	};
	int rc = bench_parse_model(argc, argv, options, sizeof options / sizeof *options, &path, &info);
	if (rc != 0)
		return rc;
	int number = strcmp(type, "int8") == 0 ? KN_LORA_I8 : kn_type_from_name(type), n = (int)adapters;
	if (number != KN_F32 && number != KN_F16 && number != KN_BF16 && number != KN_LORA_I8)
		return bench_complain(CMD_EXIT_USAGE, "--type %s is none of f32, f16, bf16, int8", type);
	if (zipf > 0)
		return bench_zipf(path, (int)streams, (int)zipf, n, (int)rank, number, (int)threads,
				  repeat < MAX_ROUNDS ? (int)repeat : MAX_ROUNDS, json);
	struct rig *r = sl_zalloc(sizeof *r);
	if (r == NULL)
		return bench_complain(1, "out of memory");
	r->n_streams = (int)streams;
	r->past = (int)past;
	rc = open_rig(r, path, &info, (int)threads);
	if (rc == 0)
		rc = load_adapters(r, path, n, (int)rank, number);
	/* A multiply-add for each number of an adapter. */
	r->adapter_ops = 2 * r->adapter_bytes / (double)kn_lora_bytes(number);
	if (rc == 0)
		rc = measure(r, (int)repeat, n);
	if (rc == 0 && !json)
		bench_header();
	if (rc == 0)
		report(r, (int)repeat, n < r->n_streams ? n : r->n_streams, (int)rank, type, json);
	close_rig(r);
	sl_free(r);
	return rc;
}
