/* SPDX-License-Identifier: Apache-2.0
 *
 * Ollama's API: POST /api/chat, /api/generate and /api/show, GET /api/tags, /api/ps and /api/version. Embeddings are in
 * api_embeddings.c.
 */
#include <string.h>

#include "base/clock.h"
#include "base/json/json_out.h"
#include "gateway/answer/answer_cascade.h"
#include "gateway/api/api_chat.h"
#include "gateway/api/api_request.h"
#include "gateway/api/body_reader.h"
#include "gateway/api/handlers.h"
#include "gateway/dialect/dialect.h"
#include "gateway/dialect/ollama_request.h"
#include "gateway/exchange/app_state.h"
#include "version.h" /* made by the Makefile */

enum { MAX_REPLY = 4 << 20 };

/* ---- chat and generate ---- */

/* keep_alive loads, displaces and pins nothing: it only says when an unused model on demand goes, within the tier's
 * bound. Index: as answer_choose_model has it. */
static void ask_to_keep(struct exchange *x, int index, int64_t ms)
{
	uint64_t most = x->key->tier->keep_alive_ms;
	struct proto_keep k = {.tenant = x->key->tenant};
	struct cascade_models pair = {.small = index, .large = -1};
	if (ms == OLLAMA_KEEP_UNSAID || most == 0)
		return;
	k.keep_ms = (uint32_t)((uint64_t)ms < most ? (uint64_t)ms : most);
	if (index == ANSWER_AUTO)
		(void)answer_auto_find(x->app, x->snapshot, x->key->tier, &pair);
	const int of[] = {pair.small, pair.large};
	for (int i = 0; i < 2; i++) {
		k.model = (uint16_t)of[i];
		if (of[i] >= 0)
			engine_link_keep(x->app->link, &k);
	}
}

static void reply_loaded(struct exchange *x, const struct ollama_request *r, bool is_chat)
{
	char at[DIALECT_TIME_BYTES];
	struct sl_buf out;
	buf_init(&out, MAX_REPLY);
	dialect_time(clock_unix_s(), 0, at);
	int rc = buf_append_str(&out, "{\"model\":");
	if (rc == 0)
		rc = json_out_string(&out, r->chat.c.model, strlen(r->chat.c.model));
	if (rc == 0)
		rc = buf_printf(&out, ",\"created_at\":\"%s\",%s,\"done\":true,\"done_reason\":\"%s\"}", at,
				is_chat ? "\"message\":{\"role\":\"assistant\",\"content\":\"\"}" : "\"response\":\"\"",
				r->keep_ms == 0 ? "unload" : "load");
	api_report(x, &r->chat.c);
	exchange_reply_text(x, &out, rc);
}

static void answer(struct exchange *x, struct ollama_request *r, const struct answer_format *format)
{
	char name[PROTO_MAX_NAME + 1];
	r->chat.c.model = ollama_model_name(x->app->link, r->chat.c.model, name);
	int index = answer_choose_model(x, r->chat.c.model, r->chat.c.user);
	if (index < 0)
		return;
	ask_to_keep(x, index, r->keep_ms);
	if (r->loads) {
		reply_loaded(x, r, format == &answer_ollama_chat);
		return;
	}
	void *own = answer_ollama_create();
	if (own == NULL)
		exchange_reply_no_memory(x);
	else
		api_chat_answer(x, &r->chat, format, own);
}

static void on_chat(struct exchange *x, void *r) { answer(x, r, &answer_ollama_chat); }

static void on_generate(struct exchange *x, void *read)
{
	struct ollama_request *r = read;
	answer(x, r, r->raw ? &answer_ollama_raw : &answer_ollama_generate);
}

static int parse_chat(const void *bytes, size_t n, const struct request_limits *l, void *out, struct request_error *e)
{
	return ollama_chat_parse(bytes, n, l, out, e);
}

static int parse_generate(const void *bytes, size_t n, const struct request_limits *l, void *out,
			  struct request_error *e)
{
	return ollama_generate_parse(bytes, n, l, out, e);
}

static void dispose(void *r) { ollama_request_dispose(r); }

void api_ollama_chat(struct exchange *x)
{
	static const struct body_parser parser = {sizeof(struct ollama_request), parse_chat, dispose};
	body_read(x, &parser, on_chat);
}

void api_ollama_generate(struct exchange *x)
{
	static const struct body_parser parser = {sizeof(struct ollama_request), parse_generate, dispose};
	body_read(x, &parser, on_generate);
}

/* ---- models ---- */

/* The cascade as a model. */
static bool find_auto(const struct exchange *x, struct link_model *out)
{
	struct cascade_models m;
	if (!answer_auto_find(x->app, x->snapshot, x->key->tier, &m))
		return false;
	const struct link_model *small = engine_link_model(x->app->link, m.small),
				*large = engine_link_model(x->app->link, m.large);
	*out = large->n_ctx >= small->n_ctx ? *large : *small;
	out->n_params = small->n_params + large->n_params;
	out->state = m.can_small || m.can_large ? PROTO_MODEL_READY : PROTO_MODEL_LOADING;
	memcpy(out->name, answer_auto_name, strlen(answer_auto_name) + 1);
	return true;
}

static int put_model(struct exchange *x, struct sl_buf *out, const struct link_model *m, bool running, size_t *n)
{
	if (running && (m->state != PROTO_MODEL_READY || m->residence != PROTO_RESIDENCE_HERE))
		return 0;
	int rc = (*n)++ > 0 ? buf_append_str(out, ",") : 0;
	return rc == 0 ? ollama_put_model(out, m, x->app->started_s, running) : rc;
}

static void list(struct exchange *x, bool running)
{
	const struct engine_link *link = x->app->link;
	struct link_model both;
	struct sl_buf out;
	size_t n = 0;
	buf_init(&out, MAX_REPLY);
	int rc = buf_append_str(&out, "{\"models\":[");
	for (int i = 0; i < engine_link_n_models(link) && rc == 0; i++)
		if (api_model_visible(x, engine_link_model(link, i)))
			rc = put_model(x, &out, engine_link_model(link, i), running, &n);
	if (rc == 0 && find_auto(x, &both))
		rc = put_model(x, &out, &both, running, &n);
	exchange_reply_text(x, &out, rc == 0 ? buf_append_str(&out, "]}") : rc);
}

void api_ollama_tags(struct exchange *x) { list(x, false); }
void api_ollama_ps(struct exchange *x) { list(x, true); }

static void on_show(struct exchange *x, void *read)
{
	const struct ollama_name *r = read;
	const struct engine_link *link = x->app->link;
	char room[PROTO_MAX_NAME + 1];
	const char *name = ollama_model_name(link, r->model, room);
	struct link_model both;
	struct sl_buf out;
	int i = engine_link_find_model(link, name);
	const struct link_model *m = i >= 0 ? engine_link_model(link, i) : NULL;
	if (m == NULL && strcmp(name, answer_auto_name) == 0 && find_auto(x, &both))
		m = &both;
	if (m == NULL || (m != &both && !api_model_visible(x, m))) {
		exchange_refuse(x, 404, "model_not_found", "model",
				"The model '%s' does not exist or you do not have access to it.", name);
		return;
	}
	buf_init(&out, MAX_REPLY);
	exchange_reply_text(x, &out, ollama_put_show(&out, m, x->app->started_s));
}

static int parse_name(const void *bytes, size_t n, const struct request_limits *l, void *out, struct request_error *e)
{
	return ollama_name_parse(bytes, n, l, out, e);
}

static void dispose_name(void *r) { (void)r; }

void api_ollama_show(struct exchange *x)
{
	static const struct body_parser parser = {sizeof(struct ollama_name), parse_name, dispose_name};
	body_read(x, &parser, on_show);
}

/* Without what a build adds to it: clients compare versions. */
void api_ollama_version(struct exchange *x)
{
	static const char version[] = SLUICE_VERSION;
	exchange_reply_json(x, json_pack("{s:s%}", "version", version, strcspn(version, " ")));
}
