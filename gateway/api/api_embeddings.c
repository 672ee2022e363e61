/* SPDX-License-Identifier: Apache-2.0
 *
 * POST /v1/embeddings, and Ollama's /api/embed and /api/embeddings. The reply is written as it is read: a vector at a
 * time, so that neither a megabyte of numbers is kept as text nor the loop is held up by printing it.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/json/json_out.h"
#include "gateway/api/api_request.h"
#include "gateway/api/body_reader.h"
#include "gateway/api/handlers.h"
#include "gateway/dialect/dialect.h"
#include "gateway/embedding/embed_run.h"
#include "gateway/embedding/embed_write.h"
#include "gateway/request/embedding_request.h"

enum { MAX_PIECE = 1 << 20 }; /* of one vector's text */

struct embeddings;

/* What an API writes around the vectors, each function appending to a->piece. */
struct embed_form {
	const char *field; /* where the texts are */
	int (*begin)(struct embeddings *a);
	int (*vector)(struct embeddings *a, int i); /* before it */
	const char *after;                          /* it */
	int (*end)(struct embeddings *a);
};

struct embeddings {
	struct exchange *x;
	const struct embed_form *form;
	struct embedding_request r;
	struct embed_item *items; /* [r.n_inputs] */
	struct embed_run *run;
	char model[PROTO_MAX_NAME + 1];
	uint32_t dimensions;
	float *unit;         /* [dimensions] */
	int next;            /* -1: the beginning; n_inputs: the end; beyond: over */
	struct sl_buf piece; /* rendered, not yet pulled */
};

static void dispose(struct embeddings *a)
{
	embed_free(a->run);
	embedding_request_dispose(&a->r);
	sl_free(a->items);
	sl_free(a->unit);
	buf_dispose(&a->piece);
}

static void on_close(struct exchange *x)
{
	struct embeddings *a = x->state;
	dispose(a);
	sl_free(a);
}

/* ---- OpenAI's form ---- */

static int begin(struct embeddings *a) { return buf_append_str(&a->piece, "{\"object\":\"list\",\"data\":["); }

static int before_vector(struct embeddings *a, int i)
{
	return buf_printf(&a->piece, "%s{\"object\":\"embedding\",\"index\":%d,\"embedding\":", i > 0 ? "," : "", i);
}

static int put_end(struct embeddings *a)
{
	unsigned long long n = embed_n_tokens(a->run);
	int rc = buf_append_str(&a->piece, "],\"model\":");
	if (rc == 0)
		rc = json_out_string(&a->piece, a->model, strlen(a->model));
	return rc != 0 ? rc : buf_printf(&a->piece, ",\"usage\":{\"prompt_tokens\":%llu,\"total_tokens\":%llu}}", n, n);
}

static const struct embed_form openai = {"input", begin, before_vector, "}", put_end};

/* ---- Ollama's forms ---- */

static int begin_lists(struct embeddings *a)
{
	int rc = buf_append_str(&a->piece, "{\"model\":");
	if (rc == 0)
		rc = json_out_string(&a->piece, a->model, strlen(a->model));
	return rc != 0 ? rc : buf_append_str(&a->piece, ",\"embeddings\":[");
}

static int before_list(struct embeddings *a, int i) { return i > 0 ? buf_append_str(&a->piece, ",") : 0; }

static int end_lists(struct embeddings *a)
{
	return buf_printf(&a->piece, "],\"total_duration\":%llu,\"load_duration\":0,\"prompt_eval_count\":%llu}",
			  (unsigned long long)(clock_now_ns() - a->x->complete_ns),
			  (unsigned long long)embed_n_tokens(a->run));
}

static int begin_single(struct embeddings *a) { return buf_append_str(&a->piece, "{\"embedding\":"); }
static int end_single(struct embeddings *a) { return buf_append_str(&a->piece, "}"); }

static const struct embed_form ollama_lists = {"input", begin_lists, before_list, "", end_lists};
static const struct embed_form ollama_single = {"prompt", begin_single, before_list, "", end_single};

/* ---- the reply ---- */

static int put_vector(struct embeddings *a, int i)
{
	int rc = a->form->vector(a, i);
	embed_unit(embed_result(a->run, i), a->dimensions, a->unit);
	if (rc == 0)
		rc = embed_put(&a->piece, a->unit, a->dimensions, a->r.base64);
	return rc != 0 ? rc : buf_append_str(&a->piece, a->form->after);
}

static int put_next(struct embeddings *a)
{
	int i = a->next++;
	if (i < 0)
		return a->form->begin(a);
	return i < a->r.n_inputs ? put_vector(a, i) : a->form->end(a);
}

static ssize_t pull(void *ctx, uint8_t *dst, size_t room, bool *end)
{
	struct embeddings *a = ctx;
	size_t n = 0;
	while (n < room && (a->piece.len > 0 || a->next <= a->r.n_inputs)) {
		if (a->piece.len == 0 && put_next(a) != 0)
			return SL_ENOMEM;
		size_t part = a->piece.len < room - n ? a->piece.len : room - n;
		memcpy(dst + n, buf_data(&a->piece), part);
		buf_consume(&a->piece, part);
		n += part;
	}
	*end = a->piece.len == 0 && a->next > a->r.n_inputs;
	return (ssize_t)n;
}

static void on_done(void *ctx)
{
	struct embeddings *a = ctx;
	a->next = -1;
	exchange_reply_json_stream(a->x, (struct http_source){.pull = pull, .ctx = a});
}

/* Whether vectors of m may have so many numbers. False: x is answered. */
static bool may_have(struct embeddings *a, const struct link_model *m)
{
	bool listed = m->n_lengths == 0;
	for (int i = 0; i < m->n_lengths; i++)
		listed |= m->lengths[i] == a->dimensions;
	if (a->dimensions > m->n_embd)
		return exchange_refuse(a->x, 400, "invalid_value", "dimensions",
				       "Invalid value for 'dimensions': the embeddings of '%s' have %u.", a->model,
				       m->n_embd);
	if (a->dimensions == m->n_embd)
		return true;
	if ((m->does & PROTO_DOES_SHORTEN) == 0)
		return exchange_refuse(a->x, 400, "unsupported_parameter", "dimensions",
				       "Unsupported parameter: 'dimensions'. The embeddings of '%s' have %u and cannot "
				       "be shortened.",
				       a->model, m->n_embd);
	return listed || exchange_refuse(a->x, 400, "invalid_value", "dimensions",
					 "Invalid value for 'dimensions': '%s' was not trained for embeddings of %u.",
					 a->model, a->dimensions);
}

/* False: x is answered. */
static bool choose(struct embeddings *a, int *model)
{
	bool pairs;
	char room[PROTO_MAX_NAME + 1];
	const char *name = a->form == &openai ? a->r.model : ollama_model_name(a->x->app->link, a->r.model, room);
	*model = embed_choose_model(a->x, name, PROTO_DOES_EMBED, &pairs);
	if (*model < 0)
		return false;
	const struct link_model *m = engine_link_model(a->x->app->link, *model);
	memcpy(a->model, m->name, sizeof a->model);
	a->dimensions = a->r.dimensions > 0 ? a->r.dimensions : m->n_embd;
	return may_have(a, m);
}

static void start(struct embeddings *a)
{
	int model;
	if (!choose(a, &model))
		return;
	a->unit = sl_zalloc_n(a->dimensions, sizeof *a->unit);
	a->items = sl_zalloc_n((size_t)a->r.n_inputs, sizeof *a->items);
	if (a->unit == NULL || a->items == NULL) {
		exchange_reply_no_memory(a->x);
		return;
	}
	for (int i = 0; i < a->r.n_inputs; i++)
		a->items[i] = (struct embed_item){.kind = a->r.inputs[i].kind,
						  .text = a->r.inputs[i].text,
						  .field = a->form->field,
						  .index = a->r.inputs[i].index};
	embed_start(a->x, model, a->items, a->r.n_inputs, on_done, a, &a->run);
}

static int parse(const void *bytes, size_t n, const struct request_limits *l, void *out, struct request_error *e)
{
	return embedding_request_parse(bytes, n, l, out, e);
}

static void dispose_request(void *r) { embedding_request_dispose(r); }

static void answer(struct exchange *x, struct embedding_request *read, const struct embed_form *form)
{
	struct embeddings *a = exchange_own(x, sizeof *a, on_close);
	if (a == NULL)
		return;
	a->x = x;
	a->form = form;
	a->r = *read;
	*read = (struct embedding_request){0};
	buf_init(&a->piece, MAX_PIECE);
	api_report_ignored(x, &a->r.ignored);
	start(a);
}

static void on_read(struct exchange *x, void *r) { answer(x, r, &openai); }
static void on_read_lists(struct exchange *x, void *r) { answer(x, r, &ollama_lists); }
static void on_read_single(struct exchange *x, void *r) { answer(x, r, &ollama_single); }

static int parse_single(const void *bytes, size_t n, const struct request_limits *l, void *out, struct request_error *e)
{
	return embedding_request_parse_text(bytes, n, l, "prompt", out, e);
}

void api_ollama_embed(struct exchange *x)
{
	static const struct body_parser parser = {sizeof(struct embedding_request), parse, dispose_request};
	body_read(x, &parser, on_read_lists);
}

void api_ollama_embeddings(struct exchange *x)
{
	static const struct body_parser parser = {sizeof(struct embedding_request), parse_single, dispose_request};
	body_read(x, &parser, on_read_single);
}

void api_embeddings(struct exchange *x)
{
	static const struct body_parser parser = {sizeof(struct embedding_request), parse, dispose_request};
	body_read(x, &parser, on_read);
}
