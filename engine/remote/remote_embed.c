/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <math.h>

#include "base/alloc.h"
#include "base/json/json_depth.h"
#include "engine/remote/remote_priv.h"

enum { RESULT_DEPTH = 16 };

/* All numbers of the list, finite. */
static bool read_numbers(const json_t *list, size_t n, float *out)
{
	for (size_t i = 0; i < n; i++) {
		const json_t *v = json_array_get(list, i);
		out[i] = (float)json_number_value(v);
		if (!json_is_number(v) || !isfinite(out[i]))
			return false;
	}
	return true;
}

static void post_values(struct remote_seq *s, const float *values, size_t n)
{
	struct eng_event ev = {
	    .kind = ENG_EMBEDDING, .id = s->node.key, .u.embedding = {.n = (uint16_t)n, .values = values}};
	hub_post_here(s->r->hub, &ev);
}

static bool post_score(struct remote_seq *s, const json_t *root)
{
	const json_t *v = json_object_get(json_array_get(json_object_get(root, "data"), 0), "score");
	float score = (float)json_number_value(v);
	bool ok = json_is_number(v) && isfinite(score);
	if (ok)
		post_values(s, &score, 1);
	return ok;
}

static bool post_vector(struct remote_seq *s, const json_t *root)
{
	const json_t *list = json_object_get(json_array_get(json_object_get(root, "data"), 0), "embedding");
	size_t n = json_array_size(list);
	uint32_t wanted = s->r->models[s->asked.model].n_embd;
	float *values = n > 0 && n <= PROTO_MAX_EMBEDDING && n == wanted ? sl_alloc(n * sizeof *values) : NULL;
	bool ok = values != NULL && read_numbers(list, n, values);
	if (ok)
		post_values(s, values, n);
	sl_free(values);
	return ok;
}

static void read_usage(struct remote_seq *s, const json_t *root)
{
	const json_t *v = json_object_get(json_object_get(root, "usage"), "prompt_tokens");
	json_int_t n = json_integer_value(v);
	if (!json_is_integer(v))
		return;
	s->answer.usage = (struct remote_usage){.known = true, .is_false = n <= 0 || n > s->answer.prompt_most};
	s->answer.usage.n_prompt = s->answer.usage.is_false ? 0 : (uint32_t)n;
}

void remote_embed_end(struct remote_seq *s)
{
	static const struct remote_failure bad = {.error = PROTO_ERR_INTERNAL,
						  .message = "The model's server sent no such result."};
	const struct sl_buf *text = &s->stream->call.text;
	const char *at = text->len > 0 ? (const char *)buf_data(text) : "";
	json_t *root = !json_deeper_than(at, text->len, RESULT_DEPTH) ? json_loadb(at, text->len, 0, NULL) : NULL;
	bool pair = s->asked.prompt_kind == PROTO_PROMPT_PAIR, ok = pair ? post_score(s, root) : post_vector(s, root);
	read_usage(s, root);
	json_decref(root);
	if (!ok)
		remote_failed(s->r, false, PROTO_FAULT_EVENT, "a vector or score is missing, or of another length");
	remote_seq_end(s, ok ? PROTO_FINISH_STOP : PROTO_FINISH_ERROR, ok ? NULL : &bad);
}
