/* SPDX-License-Identifier: Apache-2.0
 *
 * POST /v1/embeddings. The reply is written as it is read: a vector at a time, so that neither a megabyte of numbers is
 * kept as text nor the loop is held up by printing it.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/json/json_out.h"
#include "gateway/api/api_request.h"
#include "gateway/api/body_reader.h"
#include "gateway/api/handlers.h"
#include "gateway/embedding/embed_run.h"
#include "gateway/embedding/embed_write.h"
#include "gateway/request/embedding_request.h"

enum { MAX_PIECE = 1 << 20 }; /* of one vector's text */

struct embeddings {
	struct exchange *x;
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

static int put_vector(struct embeddings *a, int i)
{
	int rc = buf_printf(&a->piece, "%s{\"object\":\"embedding\",\"index\":%d,\"embedding\":", i > 0 ? "," : "", i);
	embed_unit(embed_result(a->run, i), a->dimensions, a->unit);
	if (rc == 0)
		rc = embed_put(&a->piece, a->unit, a->dimensions, a->r.base64);
	return rc != 0 ? rc : buf_append_str(&a->piece, "}");
}

static int put_end(struct embeddings *a)
{
	unsigned long long n = embed_n_tokens(a->run);
	int rc = buf_append_str(&a->piece, "],\"model\":");
	if (rc == 0)
		rc = json_out_string(&a->piece, a->model, strlen(a->model));
	return rc != 0 ? rc : buf_printf(&a->piece, ",\"usage\":{\"prompt_tokens\":%llu,\"total_tokens\":%llu}}", n, n);
}

static int put_next(struct embeddings *a)
{
	int i = a->next++;
	if (i < 0)
		return buf_append_str(&a->piece, "{\"object\":\"list\",\"data\":[");
	return i < a->r.n_inputs ? put_vector(a, i) : put_end(a);
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

/* False: x is answered. */
static bool choose(struct embeddings *a, int *model)
{
	bool pairs;
	*model = embed_choose_model(a->x, a->r.model, PROTO_DOES_EMBED, &pairs);
	if (*model < 0)
		return false;
	const struct link_model *m = engine_link_model(a->x->app->link, *model);
	memcpy(a->model, m->name, sizeof a->model);
	a->dimensions = a->r.dimensions > 0 ? a->r.dimensions : m->n_embd;
	if (a->dimensions > m->n_embd)
		return exchange_refuse(a->x, 400, "invalid_value", "dimensions",
				       "Invalid value for 'dimensions': the embeddings of '%s' have %u.", a->model,
				       m->n_embd);
	return true;
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
						  .field = "input",
						  .index = a->r.inputs[i].index};
	embed_start(a->x, model, a->items, a->r.n_inputs, on_done, a, &a->run);
}

static int parse(const void *bytes, size_t n, const struct request_limits *l, void *out, struct request_error *e)
{
	return embedding_request_parse(bytes, n, l, out, e);
}

static void dispose_request(void *r) { embedding_request_dispose(r); }

static void on_read(struct exchange *x, void *r)
{
	struct embedding_request *read = r;
	struct embeddings *a = exchange_own(x, sizeof *a, on_close);
	if (a == NULL)
		return;
	a->x = x;
	a->r = *read;
	*read = (struct embedding_request){0};
	buf_init(&a->piece, MAX_PIECE);
	start(a);
}

void api_embeddings(struct exchange *x)
{
	static const struct body_parser parser = {sizeof(struct embedding_request), parse, dispose_request};
	body_read(x, &parser, on_read);
}
