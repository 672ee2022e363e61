/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/model/text_pieces.h"

#include <jansson.h>
#include <string.h>

#include "base/alloc.h"
#include "cmd/model/model.h"
#include "engine/chat/chat_template.h"
#include "engine/core/prompt.h"
#include "engine/token/tokenizer.h"

struct reading {
	const struct model *m;
	const struct tokenizer *tok;
	int most;
	struct text_pieces *out;
	struct sl_err *err;
};

/* A document: text, trust for each of its bytes (NULL: none), where what counts begins. */
struct document {
	const char *text;
	size_t n, counts;
	const uint8_t *trust;
	bool
	    answer; /* what counts ends with the token that ends an answer: no model writes what templates put behind */
};

/* ---- pieces ---- */

static int no_memory(struct sl_err *err) { return sl_errf(err, SL_ENOMEM, "out of memory"); }

static int add_piece(struct text_pieces *p, const int32_t *bos, size_t n_bos, const int32_t *ids, size_t n, int first)
{
	size_t all = n_bos + n;
	if (p->n_ids + all > p->ids_cap) {
		size_t cap = 2 * p->ids_cap + all;
		int32_t *grown = sl_realloc_n(p->ids, cap, sizeof *grown);
		if (grown == NULL)
			return SL_ENOMEM;
		p->ids = grown;
		p->ids_cap = cap;
	}
	if (p->n == p->pieces_cap) {
		size_t cap = 2 * p->pieces_cap + 16;
		struct text_piece *grown = sl_realloc_n(p->pieces, cap, sizeof *grown);
		if (grown == NULL)
			return SL_ENOMEM;
		p->pieces = grown;
		p->pieces_cap = cap;
	}
	memcpy(p->ids + p->n_ids, bos, n_bos * sizeof *bos);
	memcpy(p->ids + p->n_ids + n_bos, ids, n * sizeof *ids);
	p->pieces[p->n++] =
	    (struct text_piece){.at = p->n_ids, .n = all, .first = first, .document = (int)p->n_documents};
	p->n_ids += all;
	return 0;
}

/* ids[first …] count. */
static int cut(struct reading *r, const struct tok_ids *bos, const int32_t *ids, size_t n, size_t first)
{
	size_t room = (size_t)r->most - bos->n;
	int rc = 0;
	for (size_t at = 0; at < n && rc == 0; at += room) {
		size_t len = n - at < room ? n - at : room, from = (first > at ? first - at : 0) + bos->n;
		from = from > 0 ? from : 1; /* nothing predicts a text's first token */
		if (from < bos->n + len)
			rc = add_piece(r->out, bos->ids, bos->n, ids + at, len, (int)from);
	}
	return rc == 0 ? 0 : no_memory(r->err);
}

static int encode(const struct reading *r, const struct document *d, size_t from, size_t to, struct tok_ids *out)
{
	const uint8_t *trust = d->trust != NULL ? d->trust + from : NULL;
	return from == to ? 0 : tokenizer_encode(r->tok, d->text + from, to - from, trust, out);
}

static int add_document(struct reading *r, const struct document *d)
{
	struct tok_ids bos = {0}, ids = {0};
	int rc = tokenizer_add_bos(r->tok, &bos);
	if (rc == 0)
		rc = encode(r, d, 0, d->counts, &ids);
	size_t first = ids.n;
	if (rc == 0)
		rc = encode(r, d, d->counts, d->n, &ids);
	for (size_t i = first; i < ids.n && d->answer; i++)
		if (tokenizer_is_end(r->tok, ids.ids[i]))
			ids.n = i + 1;
	if (rc != 0) {
		sl_errf(r->err, rc, "the text cannot be tokenized: %s", sl_code_name(rc));
	} else if (bos.n >= (size_t)r->most) {
		rc = sl_errf(r->err, SL_EINVAL, "--block %d is too short", r->most);
	} else {
		/* Templates usually write BOS themselves. */
		size_t skip = bos.n > 0 && ids.n > 0 && ids.ids[0] == bos.ids[0];
		rc = cut(r, &bos, ids.ids + skip, ids.n - skip, first > skip ? first - skip : 0);
	}
	r->out->n_documents++;
	tok_ids_dispose(&bos);
	tok_ids_dispose(&ids);
	return rc;
}

/* ---- chats ---- */

static char *token_text(const struct tokenizer *t, int32_t id)
{
	struct proto_str s = id >= 0 ? tokenizer_bytes(t, id) : (struct proto_str){0};
	return id >= 0 ? sl_strndup(s.at, s.n) : NULL;
}

static int render(const struct reading *r, const json_t *line, const json_t *messages, bool prompt, struct sl_buf *text,
		  struct sl_buf *trust)
{
	char *bos = token_text(r->tok, tokenizer_bos(r->tok)), *eos = token_text(r->tok, tokenizer_eos(r->tok));
	struct chat_vars vars = {.messages = messages,
				 .tools = json_object_get(line, "tools"),
				 .bos_token = bos,
				 .eos_token = eos,
				 .add_generation_prompt = prompt};
	int rc = chat_template_render(model_template(r->m), &vars, text, trust, r->err);
	sl_free(bos);
	sl_free(eos);
	return rc;
}

/* The last message counts. */
static int add_chat(struct reading *r, const json_t *line)
{
	struct sl_buf all, prompt, trust, ignored;
	struct sl_buf *const bufs[] = {&all, &prompt, &trust, &ignored};
	if (model_template(r->m) == NULL)
		return sl_errf(r->err, SL_EINVAL, "the model has no chat template for messages");
	json_t *messages = json_copy(json_object_get(line, "messages"));
	for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
		buf_init(bufs[i], MODEL_MAX_INPUT);
	int rc = messages == NULL ? no_memory(r->err) : render(r, line, messages, false, &all, &trust);
	if (rc == 0) {
		json_array_remove(messages, json_array_size(messages) - 1);
		rc = render(r, line, messages, true, &prompt, &ignored);
	}
	if (rc == 0 && (prompt.len >= all.len || memcmp(buf_data(&all), buf_data(&prompt), prompt.len) != 0))
		rc = sl_errf(r->err, SL_EINVAL, "the template does not put the last message after the others");
	if (rc == 0)
		rc = add_document(r, &(struct document){.text = (const char *)buf_data(&all),
							.n = all.len,
							.counts = prompt.len,
							.trust = buf_data(&trust),
							.answer = true});
	json_decref(messages);
	for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
		buf_dispose(bufs[i]);
	return rc;
}

/* ---- files ---- */

static int add_prompted(struct reading *r, const json_t *prompt, const json_t *text)
{
	struct sl_buf both;
	buf_init(&both, MODEL_MAX_INPUT);
	int rc = prompt != NULL ? buf_append(&both, json_string_value(prompt), json_string_length(prompt)) : 0;
	size_t counts = both.len;
	if (rc == 0)
		rc = buf_append(&both, json_string_value(text), json_string_length(text));
	rc = rc != 0 ? no_memory(r->err)
		     : add_document(r, &(struct document){.text = both.len > 0 ? (const char *)buf_data(&both) : "",
							  .n = both.len,
							  .counts = counts});
	buf_dispose(&both);
	return rc;
}

/* Checks messages as requests do. */
static int add_messages(struct reading *r, const json_t *line)
{
	struct prompt_chat chat;
	char *text = json_dumps(line, JSON_COMPACT);
	int rc = text == NULL ? no_memory(r->err) : prompt_parse_chat(text, strlen(text), &chat, r->err);
	free(text);
	if (rc != 0)
		return rc;
	rc = json_array_size(chat.messages) < 2 ? sl_errf(r->err, SL_EINVAL, "messages needs two or more of them")
						: add_chat(r, chat.root);
	prompt_chat_dispose(&chat);
	return rc;
}

static int add_line(struct reading *r, const char *at, size_t n)
{
	json_error_t je;
	json_t *line = json_loadb(at, n, 0, &je);
	const json_t *text = json_object_get(line, "text"), *prompt = json_object_get(line, "prompt");
	int rc;
	if (!json_is_object(line))
		rc = sl_errf(r->err, SL_EINVAL, "not a JSON object");
	else if (json_object_get(line, "messages") != NULL)
		rc = add_messages(r, line);
	else if (!json_is_string(text) || (prompt != NULL && !json_is_string(prompt)))
		rc = sl_errf(r->err, SL_EINVAL, "needs a text, after a prompt or not, or messages");
	else
		rc = add_prompted(r, prompt, text);
	json_decref(line);
	return rc;
}

static int add_lines(struct reading *r, const char *path, const char *at, size_t n)
{
	int rc = 0;
	for (size_t line = 1; n > 0 && rc == 0; line++) {
		const char *end = memchr(at, '\n', n);
		size_t len = end != NULL ? (size_t)(end - at) : n, used = end != NULL ? len + 1 : len;
		size_t blank = 0;
		while (blank < len && strchr(" \t\r", at[blank]) != NULL)
			blank++;
		if (blank < len && (rc = add_line(r, at, len)) != 0) {
			struct sl_err why = *r->err;
			sl_errf(r->err, rc, "%s:%zu: %.200s", path, line, why.text);
		}
		at += used;
		n -= used;
	}
	return rc;
}

int text_pieces_read(const struct model *m, const char *path, int most, struct text_pieces *out, struct sl_err *err)
{
	struct sl_buf in;
	struct reading r = {.m = m, .tok = model_tokenizer(m), .most = most, .out = out, .err = err};
	*out = (struct text_pieces){0};
	int rc = model_read(path, MODEL_MAX_INPUT, &in, err);
	const char *text = in.len > 0 ? (const char *)buf_data(&in) : "";
	if (rc == 0 && model_ends_with(path, ".jsonl"))
		rc = add_lines(&r, path, text, in.len);
	else if (rc == 0)
		rc = add_document(&r, &(struct document){.text = text, .n = in.len});
	buf_dispose(&in);
	if (rc == 0 && out->n == 0)
		rc = sl_errf(err, SL_EINVAL, "%s: there is nothing to predict in it", path);
	if (rc != 0)
		text_pieces_dispose(out);
	return rc;
}

void text_pieces_dispose(struct text_pieces *p)
{
	sl_free(p->ids);
	sl_free(p->pieces);
	*p = (struct text_pieces){0};
}
