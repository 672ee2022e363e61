/* SPDX-License-Identifier: Apache-2.0
 *
 * Text workers turn prompts into token ids. Templates and tokenizers may take milliseconds, so they run neither on the
 * I/O thread nor on the step thread. A worker takes a sequence from the queue, fills its `text` and mails it to the
 * step thread, even when cancelled, because the step thread waits for that mail. COUNTs are answered here.
 *
 * Workers validate everything, although the gateway already has.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/step/internal.h"
#include "engine/core/prompt.h"

/* ---- prompts ---- */

static int refuse(struct seq_text *t, uint8_t error, const char *why)
{
	t->error = error;
	return sl_errf(&t->err, SL_EINVAL, "%s", why);
}

/* rc as a refusal: out of memory is not the client's fault. */
static int refuse_code(struct seq_text *t, int rc, const char *why)
{
	if (rc == SL_ENOMEM)
		return refuse(t, PROTO_ERR_OVERLOADED, "The engine is out of memory.");
	t->error = PROTO_ERR_BAD_REQUEST;
	if (why != NULL)
		sl_errf(&t->err, rc, "%s", why);
	return rc;
}

static int add_ids(struct seq_text *t)
{
	size_t n = t->prompt.n / 4;
	int32_t *ids = sl_zalloc_n(n > 0 ? n : 1, sizeof *ids);
	if (ids == NULL)
		return refuse_code(t, SL_ENOMEM, NULL);
	for (size_t i = 0; i < n; i++) {
		const uint8_t *at = (const uint8_t *)t->prompt.at + 4 * i;
		ids[i] =
		    (int32_t)((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
	}
	t->ids.ids = ids;
	t->ids.n = t->ids.cap = n;
	t->n_first = UINT32_MAX; /* of the first type, all */
	return 0;
}

/* Templates usually write the BOS token themselves; it must not be doubled. */
static int add_text(struct seq_text *t, const struct tokenizer *tok, const char *text, size_t n, const uint8_t *trust)
{
	int rc = tokenizer_add_bos(tok, &t->ids);
	size_t n_bos = t->ids.n;
	if (rc == 0)
		rc = tokenizer_encode(tok, text, n, trust, &t->ids);
	if (rc != 0)
		return refuse_code(t, rc, "The prompt has too many tokens.");
	if (n_bos > 0 && t->ids.n > n_bos && t->ids.ids[n_bos] == t->ids.ids[0]) {
		memmove(t->ids.ids, t->ids.ids + n_bos, (t->ids.n - n_bos) * sizeof *t->ids.ids);
		t->ids.n -= n_bos;
	}
	return 0;
}

/* The two texts of a pair. */
static int split_pair(struct seq_text *t, struct proto_str out[2])
{
	const uint8_t *at = (const uint8_t *)t->prompt.at;
	if (t->prompt.n < 4)
		return refuse(t, PROTO_ERR_BAD_REQUEST, "The pair is malformed.");
	size_t n = (size_t)at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16 | (size_t)at[3] << 24;
	if (n > t->prompt.n - 4)
		return refuse(t, PROTO_ERR_BAD_REQUEST, "The pair is malformed.");
	out[0] = (struct proto_str){t->prompt.at + 4, n};
	out[1] = (struct proto_str){t->prompt.at + 4 + n, t->prompt.n - 4 - n};
	return 0;
}

static int add_input(struct seq_text *t, const struct tokenizer *tok)
{
	struct proto_str texts[2] = {t->prompt};
	bool pair = t->prompt_kind == PROTO_PROMPT_PAIR;
	size_t n_first = 0;
	int rc = pair ? split_pair(t, texts) : 0;
	if (rc == 0 && (rc = tokenizer_encode_input(tok, texts, pair ? 2 : 1, &t->ids, &n_first)) != 0)
		return refuse_code(t, rc, "The input has too many tokens.");
	t->n_first = pair ? (uint32_t)n_first : UINT32_MAX;
	return rc;
}

static int add_chat(struct seq_text *t, const struct eng_model *m, size_t max_bytes)
{
	const struct chat_template *template = model_template(m->model);
	if (template == NULL)
		return refuse(t, PROTO_ERR_NO_CHAT, "This model has no chat template; it takes plain prompts only.");
	struct prompt_chat chat;
	int rc = prompt_parse_chat(t->prompt.at, t->prompt.n, &chat, &t->err);
	if (rc != 0) {
		rc = refuse_code(t, rc, NULL);
		t->error = chat.refused != 0 ? chat.refused : t->error;
		return rc;
	}
	struct chat_vars vars = {.messages = chat.messages,
				 .tools = chat.tools,
				 .documents = chat.documents,
				 .more = chat.variables,
				 .bos_token = m->bos,
				 .eos_token = m->eos,
				 .add_generation_prompt = chat.add_generation_prompt,
				 .continue_final_message = chat.continue_final_message};
	struct sl_buf text, trust;
	/* Templates repeat little of their input and add far less than 64 KiB. */
	buf_init(&text, 2 * max_bytes + (64 << 10));
	buf_init(&trust, 2 * max_bytes + (64 << 10));
	rc = chat_template_render(template, &vars, &text, &trust, &t->err);
	if (rc != 0)
		rc = refuse_code(t, rc, t->err.code == 0 ? "The chat can't be rendered." : NULL);
	else
		rc = add_text(t, model_tokenizer(m->model), (const char *)buf_data(&text), text.len, buf_data(&trust));
	buf_dispose(&text);
	buf_dispose(&trust);
	prompt_chat_dispose(&chat);
	return rc;
}

static int check_ids(struct seq_text *t, const struct eng_model *m)
{
	int n_vocab = m->info.arch.n_vocab;
	if (t->ids.n == 0)
		return refuse(t, PROTO_ERR_BAD_REQUEST, "The prompt is empty.");
	for (size_t i = 0; i < t->ids.n; i++) {
		if (t->ids.ids[i] < 0 || t->ids.ids[i] >= n_vocab)
			return refuse(t, PROTO_ERR_BAD_REQUEST, "The prompt has a token that the model does not know.");
	}
	return 0;
}

static int make_ids(struct engine *e, struct eng_seq *s)
{
	struct seq_text *t = &s->text;
	if (t->model >= e->n_models)
		return refuse(t, PROTO_ERR_NO_MODEL, "There is no such model.");
	const struct eng_model *m = &e->models[t->model];
	int state = atomic_load(&m->state);
	if (state == PROTO_MODEL_LOADING)
		return refuse(t, PROTO_ERR_NOT_READY, "The model is still loading.");
	if (state == PROTO_MODEL_FAILED)
		return refuse(t, PROTO_ERR_NOT_READY, "The model has failed.");
	if (t->prompt.n > e->cfg.max_prompt_bytes) {
		t->error = PROTO_ERR_BAD_REQUEST;
		return sl_errf(&t->err, SL_ELIMIT, "The prompt has %zu bytes; the limit is %u.", t->prompt.n,
			       e->cfg.max_prompt_bytes);
	}
	if (t->searching)
		return refuse(t, PROTO_ERR_BAD_REQUEST,
			      "Beam search requires temperature 0 and supports neither penalties nor stop strings.");
	int rc;
	const struct prompt_memo_key key = {.tenant = s->tenant_digest,
					    .salt = s->salt,
					    .text = model_info(m->model)->text,
					    .kind = t->prompt_kind,
					    .prompt = t->prompt};
	/* Inputs go to one model only, and their pairs have more than ids. */
	bool repeats = e->n_models > 1 && t->prompt_kind < PROTO_PROMPT_TOKENS;
	if (repeats && prompt_memo_find(&e->memo, &key, &t->ids, clock_now_ns()))
		return check_ids(t, m);
	if (t->prompt_kind == PROTO_PROMPT_TOKENS)
		rc = add_ids(t);
	else if (t->prompt_kind >= PROTO_PROMPT_INPUT)
		rc = add_input(t, model_tokenizer(m->model));
	else if (t->prompt_kind == PROTO_PROMPT_TEXT)
		rc = add_text(t, model_tokenizer(m->model), t->prompt.at, t->prompt.n, NULL);
	else
		rc = add_chat(t, m, e->cfg.max_prompt_bytes);
	if (rc == 0 && repeats)
		prompt_memo_put(&e->memo, &key, &t->ids, clock_now_ns());
	return rc != 0 ? rc : check_ids(t, m);
}

static void answer_count(struct engine *e, struct eng_seq *s)
{
	struct seq_text *t = &s->text;
	struct eng_event ev = {.kind = ENG_COUNTED,
			       .id = s->node.key,
			       .u.counted = {.error = t->error,
					     .n_tokens = t->error == 0 ? (uint32_t)t->ids.n : 0,
					     .message = {.at = t->err.text, .n = strlen(t->err.text)}}};
	pthread_mutex_lock(&e->index_lock);
	wait_limits_leave(&e->counts, &s->wait_entry);
	pthread_mutex_unlock(&e->index_lock);
	e->on_event(e->on_event_ctx, &ev);
	eng_seq_free(s);
	atomic_fetch_sub(&e->n_counting, 1);
}

void *text_worker_main(void *engine)
{
	struct engine *e = engine;
	struct eng_seq *s;
	while ((s = text_queue_take(&e->text_queue)) != NULL) {
		if (!atomic_load(&s->text.unwanted) && !atomic_load(&e->stopping))
			make_ids(e, s);
		else if (s->text.counting && !atomic_load(&e->stopping))
			refuse(&s->text, PROTO_ERR_OVERLOADED, "The engine's queue is full.");
		else
			refuse(&s->text, PROTO_ERR_NOT_READY, "The engine is shutting down.");
		if (s->text.counting)
			answer_count(e, s);
		else
			mailbox_send(&e->box, &s->mail.mail);
	}
	return NULL;
}
