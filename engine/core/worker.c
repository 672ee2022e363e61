/* SPDX-License-Identifier: Apache-2.0
 *
 * Text workers turn prompts into token ids. Templates and tokenizers may take milliseconds, so they run neither on the
 * I/O thread nor on the step thread. A worker takes a sequence from the queue, fills its `text` and mails it to the
 * step thread, even when cancelled, because the step thread waits for that mail. COUNTs are answered here.
 *
 * Constraints that are not compiled yet go on to one compiler, in fair order of tenants. So compilations, however many
 * a tenant asks for, delay no prompt, and they take the processor time that other threads leave.
 *
 * Workers validate everything, although the gateway already has.
 */
#include <string.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/step/internal.h"
#include "engine/core/grammar_cache.h"
#include "engine/core/prompt.h"

/* ---- prompts ---- */

static int refuse(struct seq_text *t, uint8_t error, const char *why)
{
	t->error = error;
	return sl_errf(&t->err, SL_EINVAL, "%s", why);
}

/* rc as a refusal, unless it is 0: out of memory is not the client's fault. */
static int refuse_code(struct seq_text *t, int rc, const char *why)
{
	if (rc == 0)
		return 0;
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

static bool has_own_template(const struct eng_seq *s) { return s->lora != NULL && s->lora->template != NULL; }

/* How the model, or its adapter with a template of its own, writes. */
static const struct parts_detected *parts_of(const struct eng_seq *s, const struct eng_model *m)
{
	return has_own_template(s) ? &s->lora->form.parts : &m->form.parts;
}

static int add_chat(struct eng_seq *s, const struct eng_model *m, size_t max_bytes)
{
	struct seq_text *t = &s->text;
	const struct chat_template *template = has_own_template(s) ? s->lora->template : model_template(m->model);
	if (template == NULL)
		return refuse(t, PROTO_ERR_NO_CHAT, "This model has no chat template; it takes plain prompts only.");
	struct prompt_chat chat;
	int rc = prompt_parse_chat(t->prompt.at, t->prompt.n, &chat, &t->err);
	if (rc != 0) {
		rc = refuse_code(t, rc, NULL);
		t->error = chat.refused != 0 ? chat.refused : t->error;
		return rc;
	}
	const struct parts_format_desc *calls = parts_format_desc(parts_of(s, m)->format);
	if (calls->numbered && prompt_number_calls(&chat, calls->prefix) != 0) {
		prompt_chat_dispose(&chat);
		return refuse_code(t, SL_ENOMEM, NULL);
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

/* The words' tokens, as they stand at the beginning of a text and behind a space. Each must be one. */
static int find_bad_ids(struct seq_text *t, const struct tokenizer *tok)
{
	char spaced[1 + PROTO_MAX_STOP_BYTES];
	spaced[0] = ' ';
	for (int i = 0; i < t->n_bad_words; i++) {
		struct proto_str word = t->bad_words[i];
		size_t before = t->bad_ids.n;
		memcpy(spaced + 1, word.at, word.n);
		int rc = tokenizer_encode(tok, word.at, word.n, NULL, &t->bad_ids);
		bool one = rc == 0 && t->bad_ids.n == before + 1;
		/* Some tokenizers put the space there themselves. */
		struct proto_str bytes = one ? tokenizer_bytes(tok, t->bad_ids.ids[before]) : (struct proto_str){0};
		if (one && (bytes.n == 0 || bytes.at[0] != ' ')) {
			rc = tokenizer_encode(tok, spaced, 1 + word.n, NULL, &t->bad_ids);
			one = rc == 0 && t->bad_ids.n == before + 2;
		}
		if (rc != 0 && rc != SL_ELIMIT)
			return refuse_code(t, rc, NULL);
		if (!one) {
			t->error = PROTO_ERR_BAD_WORDS;
			return sl_errf(&t->err, SL_EINVAL,
				       "Word %d of 'bad_words' is not one token of this model, and longer ones are not "
				       "supported by this version. Use 'logit_bias'.",
				       i);
		}
	}
	return 0;
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
	if (t->no_adapter != 0)
		return refuse(t, t->no_adapter,
			      t->no_adapter == PROTO_ERR_NOT_READY ? "The adapter has failed."
								   : "There is no such adapter.");
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
	bool repeats = e->n_models > 1 && t->prompt_kind < PROTO_PROMPT_TOKENS && t->count_wants == 0;
	rc = find_bad_ids(t, model_tokenizer(m->model));
	if (rc != 0)
		return rc;
	if (repeats && prompt_memo_find(&e->memo, &key, &t->ids, clock_now_ns()))
		return check_ids(t, m);
	if (t->prompt_kind == PROTO_PROMPT_TOKENS)
		rc = add_ids(t);
	else if ((t->count_wants & PROTO_COUNT_PLAIN) != 0)
		rc = refuse_code(t,
				 tokenizer_encode(model_tokenizer(m->model), t->prompt.at, t->prompt.n, NULL, &t->ids),
				 "The prompt has too many tokens.");
	else if (t->prompt_kind >= PROTO_PROMPT_INPUT)
		rc = add_input(t, model_tokenizer(m->model));
	else if (t->prompt_kind == PROTO_PROMPT_TEXT)
		rc = add_text(t, model_tokenizer(m->model), t->prompt.at, t->prompt.n, NULL);
	else
		rc = add_chat(s, m, e->cfg.max_prompt_bytes);
	if (rc == 0 && repeats)
		prompt_memo_put(&e->memo, &key, &t->ids, clock_now_ns());
	return rc != 0 ? rc : check_ids(t, m);
}

/* Sees how the answer to a chat begins, by the end of its prompt. */
static void see_phase(struct eng_seq *s, const struct eng_model *m)
{
	enum { LAST_TOKENS = 64 };
	struct seq_text *t = &s->text;
	const struct tokenizer *tok = model_tokenizer(m->model);
	int reasoning = (int)parts_of(s, m)->reasoning;
	struct sl_buf end;
	if (t->prompt_kind != PROTO_PROMPT_CHAT || reasoning == PARTS_REASONING_NONE)
		return;
	buf_init(&end, LAST_TOKENS * PROTO_MAX_PIECE);
	for (size_t i = t->ids.n > LAST_TOKENS ? t->ids.n - LAST_TOKENS : 0; i < t->ids.n; i++) {
		struct proto_str bytes = tokenizer_bytes(tok, t->ids.ids[i]);
		if (buf_append(&end, bytes.at, bytes.n) != 0)
			buf_clear(&end, SIZE_MAX); /* what comes last counts */
	}
	t->phase = constrain_prompt(parts_of(s, m)->reasoning, (const char *)buf_data(&end), end.len);
	buf_dispose(&end);
	/* The grammar of calls has the channels before them (constraint.c). */
	if (t->constraint_kind == PROTO_CONSTRAINT_CALLS && reasoning == PARTS_REASONING_HARMONY)
		t->phase = CONSTRAIN_BODY;
}

static struct grammar_cache_key key_of(struct engine *e, const struct eng_seq *s)
{
	pthread_mutex_lock(&e->info_lock);
	uint64_t tokenizer = e->models[s->text.model].shown.tokenizer;
	pthread_mutex_unlock(&e->info_lock);
	return (struct grammar_cache_key){.tokenizer = tokenizer,
					  .tenant = s->tenant_digest,
					  .kind = (enum constraint_kind)s->text.constraint_kind,
					  .text = s->text.constraint};
}

/* True: the compiler continues with s. */
static bool make_text(struct engine *e, struct eng_seq *s)
{
	struct seq_text *t = &s->text;
	if (make_ids(e, s) != 0)
		return false;
	see_phase(s, &e->models[t->model]);
	if (t->constraint_kind == PROTO_CONSTRAINT_NONE)
		return false;
	const struct grammar_cache_key key = key_of(e, s);
	if ((t->grammar = grammar_cache_find(e->grammars, &key)) != NULL)
		return false;
	if (text_queue_put(&e->text_queue, TEXT_CONSTRAINTS, s) == 0)
		return true;
	(void)refuse_code(t, SL_ENOMEM, NULL);
	return false;
}

static void make_grammar(struct engine *e, struct eng_seq *s)
{
	struct seq_text *t = &s->text;
	const struct tokenizer *tok = model_tokenizer(e->models[t->model].model);
	const struct grammar_cache_key key = key_of(e, s);
	int rc = grammar_cache_get(e->grammars, tok, &key, &t->grammar, &t->err);
	if (rc != 0)
		t->error = rc == SL_ENOMEM ? PROTO_ERR_OVERLOADED : PROTO_ERR_BAD_CONSTRAINT;
}

/* The ids as the wire has them, and their text, as far as a COUNT wants them. */
static int list_tokens(struct engine *e, struct seq_text *t, struct sl_buf *ids, struct sl_buf *text)
{
	const struct tokenizer *tok = model_tokenizer(e->models[t->model].model);
	struct text_stream stream;
	uint8_t *at;
	bool stopped;
	int rc = 0;
	if ((t->count_wants & (PROTO_COUNT_IDS | PROTO_COUNT_TEXT)) == 0)
		return 0;
	if (t->ids.n > PROTO_MAX_LISTED)
		return SL_ELIMIT;
	if ((t->count_wants & PROTO_COUNT_IDS) != 0 && (rc = buf_reserve(ids, 4 * t->ids.n, &at)) == 0) {
		for (size_t i = 0; i < t->ids.n; i++)
			for (int k = 0; k < 4; k++)
				at[4 * i + (size_t)k] = (uint8_t)((uint32_t)t->ids.ids[i] >> 8 * k);
		buf_commit(ids, 4 * t->ids.n);
	}
	if (rc != 0 || (t->count_wants & PROTO_COUNT_TEXT) == 0)
		return rc;
	rc = text_stream_init(&stream, NULL, 0);
	for (size_t i = 0; i < t->ids.n && rc == 0; i++) {
		struct proto_str bytes = tokenizer_bytes(tok, t->ids.ids[i]);
		rc = text_stream_push(&stream, bytes.at, bytes.n, text, &stopped);
	}
	if (rc == 0)
		rc = text_stream_finish(&stream, text);
	text_stream_dispose(&stream);
	return rc;
}

static struct proto_str str_of(const struct sl_buf *b)
{
	return (struct proto_str){b->len > 0 ? (const char *)buf_data(b) : "", b->len};
}

static void answer_count(struct engine *e, struct eng_seq *s)
{
	struct seq_text *t = &s->text;
	struct sl_buf ids, text;
	buf_init(&ids, 4 * PROTO_MAX_LISTED);
	buf_init(&text, PROTO_MAX_COUNTED_TEXT);
	int rc = t->error == 0 ? list_tokens(e, t, &ids, &text) : 0;
	if (rc != 0)
		(void)refuse_code(t, rc, "There are too many tokens to list.");
	struct eng_event ev = {.kind = ENG_COUNTED,
			       .id = s->node.key,
			       .u.counted = {.error = t->error,
					     .n_tokens = t->error == 0 ? (uint32_t)t->ids.n : 0,
					     .message = {.at = t->err.text, .n = strlen(t->err.text)},
					     .ids = str_of(&ids),
					     .text = str_of(&text)}};
	if (t->error != 0)
		ev.u.counted.ids = ev.u.counted.text = (struct proto_str){"", 0};
	pthread_mutex_lock(&e->index_lock);
	wait_limits_leave(&e->counts, &s->wait_entry);
	pthread_mutex_unlock(&e->index_lock);
	e->on_event(e->on_event_ctx, &ev);
	buf_dispose(&ids);
	buf_dispose(&text);
	eng_seq_free(s);
	atomic_fetch_sub(&e->n_counting, 1);
}

/* Whether s is still to be worked on; else its refusal. */
static bool is_wanted(struct engine *e, struct eng_seq *s)
{
	bool stopping = atomic_load(&e->stopping);
	if (!atomic_load(&s->text.unwanted) && !stopping)
		return true;
	if (s->text.counting && !stopping)
		refuse(&s->text, PROTO_ERR_OVERLOADED, "The engine's queue is full.");
	else
		refuse(&s->text, PROTO_ERR_NOT_READY, "The engine is shutting down.");
	return false;
}

void *text_worker_main(void *engine)
{
	struct engine *e = engine;
	struct eng_seq *s;
	while ((s = text_queue_take(&e->text_queue, TEXT_PROMPTS)) != NULL) {
		if (is_wanted(e, s) && make_text(e, s))
			continue;
		if (s->text.counting)
			answer_count(e, s);
		else
			mailbox_send(&e->box, &s->mail.mail);
	}
	return NULL;
}

void *compiler_main(void *engine)
{
	enum { NICE = 19 };
	struct engine *e = engine;
	struct eng_seq *s;
	/* Of this thread. Refused by a sandbox, it only competes more. */
	(void)setpriority(PRIO_PROCESS, 0, NICE);
	while ((s = text_queue_take(&e->text_queue, TEXT_CONSTRAINTS)) != NULL) {
		if (is_wanted(e, s))
			make_grammar(e, s);
		mailbox_send(&e->box, &s->mail.mail);
	}
	return NULL;
}
