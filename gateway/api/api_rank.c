/* SPDX-License-Identifier: Apache-2.0
 *
 * POST /v1/rerank (as Jina and Cohere have it) and POST /v1/score (as vLLM has it). A cross-encoder reads each pair of
 * texts and scores it; with any other embedding model the score is the cosine of two vectors.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "gateway/api/api_request.h"
#include "gateway/api/body_reader.h"
#include "gateway/api/handlers.h"
#include "gateway/embedding/embed_run.h"
#include "gateway/embedding/embed_write.h"
#include "gateway/request/embedding_request.h"

struct ranked {
	int index;
	double score;
};

struct rank {
	struct exchange *x;
	struct rank_request r;
	bool pairs; /* a cross-encoder's; otherwise vectors: those of the left, then of the right */
	struct embed_item *items;
	struct embed_run *run;
	struct ranked *results; /* [r.n_right] */
	char model[PROTO_MAX_NAME + 1];
	void (*reply)(struct rank *k);
};

static void on_close(struct exchange *x)
{
	struct rank *k = x->state;
	embed_free(k->run);
	rank_request_dispose(&k->r);
	sl_free(k->items);
	sl_free(k->results);
	sl_free(k);
}

/* ---- scores ---- */

/* The left text that right text i is compared with. */
static int left_of(const struct rank *k, int i) { return k->r.n_left == 1 ? 0 : i; }

static double score_of(const struct rank *k, int i)
{
	if (k->pairs)
		return embed_sigmoid((double)embed_result(k->run, i)[0]);
	return embed_cosine(embed_result(k->run, left_of(k, i)), embed_result(k->run, k->r.n_left + i),
			    embed_width(k->run));
}

/* Better ones first, the earlier of equals. */
static int compare(const void *pa, const void *pb)
{
	const struct ranked *a = pa, *b = pb;
	if (a->score != b->score)
		return a->score > b->score ? -1 : 1;
	return a->index - b->index;
}

static void on_done(void *ctx)
{
	struct rank *k = ctx;
	for (int i = 0; i < k->r.n_right; i++)
		k->results[i] = (struct ranked){.index = i, .score = score_of(k, i)};
	k->reply(k);
}

/* ---- replies ---- */

static json_t *usage(const struct rank *k)
{
	json_int_t n = (json_int_t)embed_n_tokens(k->run);
	return json_pack("{s:I, s:I}", "prompt_tokens", n, "total_tokens", n);
}

static json_t *result_json(const struct rank *k, const struct ranked *it)
{
	json_t *v = json_pack("{s:i, s:f}", "index", it->index, "relevance_score", it->score);
	const struct embedding_text *t = &k->r.right[it->index];
	if (k->r.return_documents &&
	    json_object_set_new(v, "document", json_pack("{s:s%}", "text", t->text.at, t->text.n)) != 0) {
		json_decref(v);
		return NULL;
	}
	return v;
}

static void reply_rerank(struct rank *k)
{
	json_t *list = json_array();
	int rc = 0;
	qsort(k->results, (size_t)k->r.n_right, sizeof *k->results, compare);
	for (int i = 0; i < k->r.top_n; i++)
		rc |= json_array_append_new(list, result_json(k, &k->results[i]));
	json_t *v =
	    json_pack("{s:s, s:s, s:o, s:o}", "id", k->x->id, "model", k->model, "results", list, "usage", usage(k));
	if (rc != 0) {
		json_decref(v);
		v = NULL;
	}
	exchange_reply_json(k->x, v);
}

static void reply_score(struct rank *k)
{
	json_t *list = json_array();
	int rc = 0;
	for (int i = 0; i < k->r.n_right; i++)
		rc |= json_array_append_new(
		    list, json_pack("{s:i, s:s, s:f}", "index", i, "object", "score", "score", k->results[i].score));
	json_t *v = json_pack("{s:s, s:s, s:I, s:s, s:o, s:o}", "id", k->x->id, "object", "list", "created",
			      (json_int_t)clock_unix_s(), "model", k->model, "data", list, "usage", usage(k));
	if (rc != 0) {
		json_decref(v);
		v = NULL;
	}
	exchange_reply_json(k->x, v);
}

/* ---- the beginning ---- */

static struct embed_item item_of(const struct embedding_text *t, const char *field)
{
	return (struct embed_item){.kind = t->kind, .text = t->text, .field = field, .index = t->index};
}

static int put_items(struct rank *k)
{
	const struct rank_request *r = &k->r;
	int n = 0;
	for (int i = 0; i < r->n_left && !k->pairs; i++)
		k->items[n++] = item_of(&r->left[i], r->left_field);
	for (int i = 0; i < r->n_right; i++, n++) {
		k->items[n] = item_of(&r->right[i], r->right_field);
		if (!k->pairs)
			continue;
		k->items[n].kind = PROTO_PROMPT_PAIR;
		k->items[n].second = k->items[n].text;
		k->items[n].text = r->left[left_of(k, i)].text;
	}
	return n;
}

static void start(struct rank *k)
{
	int model = embed_choose_model(k->x, k->r.model, PROTO_DOES_EMBED | PROTO_DOES_RANK, &k->pairs);
	if (model < 0)
		return;
	memcpy(k->model, engine_link_model(k->x->app->link, model)->name, sizeof k->model);
	k->items = sl_zalloc_n((size_t)k->r.n_left + (size_t)k->r.n_right, sizeof *k->items);
	k->results = sl_zalloc_n((size_t)k->r.n_right, sizeof *k->results);
	if (k->items == NULL || k->results == NULL) {
		exchange_reply_no_memory(k->x);
		return;
	}
	embed_start(k->x, model, k->items, put_items(k), on_done, k, &k->run);
}

static void begin(struct exchange *x, struct rank_request *read, void (*reply)(struct rank *k))
{
	struct rank *k = exchange_own(x, sizeof *k, on_close);
	if (k == NULL)
		return;
	k->x = x;
	k->r = *read;
	*read = (struct rank_request){0};
	k->reply = reply;
	api_report_ignored(x, &k->r.ignored);
	start(k);
}

static int parse_rerank(const void *bytes, size_t n, const struct request_limits *l, void *out, struct request_error *e)
{
	return rerank_request_parse(bytes, n, l, out, e);
}

static int parse_score(const void *bytes, size_t n, const struct request_limits *l, void *out, struct request_error *e)
{
	return score_request_parse(bytes, n, l, out, e);
}

static void dispose_request(void *r) { rank_request_dispose(r); }
static void on_rerank(struct exchange *x, void *r) { begin(x, r, reply_rerank); }
static void on_score(struct exchange *x, void *r) { begin(x, r, reply_score); }

void api_rerank(struct exchange *x)
{
	static const struct body_parser parser = {sizeof(struct rank_request), parse_rerank, dispose_request};
	body_read(x, &parser, on_rerank);
}

void api_score(struct exchange *x)
{
	static const struct body_parser parser = {sizeof(struct rank_request), parse_score, dispose_request};
	body_read(x, &parser, on_score);
}
