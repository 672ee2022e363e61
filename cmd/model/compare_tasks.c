/* SPDX-License-Identifier: Apache-2.0
 *
 * A task occupies a slot while an engine answers it. The engine's threads fill slots under runner.lock; the main thread
 * takes finished ones and starts others.
 */
#include "cmd/model/compare_tasks.h"

#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/log.h"
#include "cmd/model/model.h"
#include "engine/model/model.h"

enum { N_SLOTS = 32, MAX_ANSWER = 1 << 20, KV_MIB = 512 };

/* ---- reading ---- */

static json_t *accepted(const json_t *line)
{
	json_t *a = json_object_get(line, "answer");
	a = a != NULL ? a : json_object_get(line, "answers");
	if (json_is_string(a))
		return json_pack("[O]", a);
	for (size_t i = 0; i < json_array_size(a); i++)
		if (!json_is_string(json_array_get(a, i)))
			return NULL;
	return json_array_size(a) > 0 ? json_incref(a) : NULL;
}

static char *chat_of(const json_t *line, const json_t *prompt)
{
	json_t *messages = json_object_get(line, "messages");
	json_t *root = messages != NULL
			   ? json_pack("{s:O, s:O*}", "messages", messages, "tools", json_object_get(line, "tools"))
			   : json_pack("{s:[{s:s, s:O}]}", "messages", "role", "user", "content", prompt);
	char *text = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
	json_decref(root);
	return text;
}

/* NULL, or what is wrong with the line. */
static const char *read_task(const json_t *line, bool raw, struct task *t)
{
	const json_t *prompt = json_object_get(line, "prompt");
	prompt = prompt != NULL ? prompt : json_object_get(line, "question");
	bool messages = json_object_get(line, "messages") != NULL;
	if (!json_is_object(line))
		return "not a JSON object";
	if (messages == (prompt != NULL) || (!messages && !json_is_string(prompt)) || (raw && messages))
		return raw ? "needs a prompt" : "needs a prompt, or messages";
	t->answers = accepted(line);
	if (t->answers == NULL)
		return "needs an answer: a string, or a list of strings";
	t->prompt = raw ? strdup(json_string_value(prompt)) : chat_of(line, prompt);
	return t->prompt != NULL ? NULL : "out of memory";
}

static int add_task(struct tasks *t, const char *path, size_t number, const char *at, size_t n, struct sl_err *err)
{
	json_error_t je;
	if (t->n == t->cap) {
		size_t cap = 2 * t->cap + 64;
		struct task *grown = sl_realloc_n(t->all, cap, sizeof *grown);
		if (grown == NULL)
			return sl_errf(err, SL_ENOMEM, "out of memory");
		t->all = grown;
		t->cap = cap;
	}
	struct task *task = &t->all[t->n++];
	*task = (struct task){.line = number};
	json_t *line = json_loadb(at, n, 0, &je);
	const char *why = read_task(line, t->raw, task);
	json_decref(line);
	return why == NULL ? 0 : sl_errf(err, SL_EINVAL, "%s:%zu: %s", path, number, why);
}

int tasks_read(const char *path, bool raw, struct tasks *out, struct sl_err *err)
{
	struct sl_buf in;
	*out = (struct tasks){.raw = raw};
	int rc = model_read(path, MODEL_MAX_INPUT, &in, err);
	const char *at = in.len > 0 ? (const char *)buf_data(&in) : "", *end = at + in.len;
	for (size_t number = 1; at < end && rc == 0; number++) {
		const char *stop = memchr(at, '\n', (size_t)(end - at));
		stop = stop != NULL ? stop : end;
		const char *from = at;
		while (from < stop && isspace((unsigned char)*from))
			from++;
		if (from < stop)
			rc = add_task(out, path, number, from, (size_t)(stop - from), err);
		at = stop < end ? stop + 1 : end;
	}
	buf_dispose(&in);
	if (rc == 0 && out->n == 0)
		rc = sl_errf(err, SL_EINVAL, "%s: there is no task in it", path);
	if (rc != 0)
		tasks_dispose(out);
	return rc;
}

void tasks_dispose(struct tasks *t)
{
	for (size_t i = 0; i < t->n; i++) {
		free(t->all[i].prompt);
		json_decref(t->all[i].answers);
	}
	sl_free(t->all);
	*t = (struct tasks){0};
}

/* ---- answers ---- */

int task_match_from_name(const char *name)
{
	static const char *const names[] = {"exact", "prefix", "words"};
	for (int i = 0; i < 3; i++)
		if (strcmp(name, names[i]) == 0)
			return i;
	return -1;
}

/* Bytes of other scripts count as letters. */
static bool in_word(char c) { return isalnum((unsigned char)c) || (c & 0x80) != 0; }

static bool has_words(const char *text, const char *words)
{
	size_t n = strlen(words);
	if (n == 0)
		return false;
	for (const char *at = text; (at = strcasestr(at, words)) != NULL; at++)
		if ((at == text || !in_word(at[-1]) || !in_word(*words)) && (!in_word(at[n]) || !in_word(words[n - 1])))
			return true;
	return false;
}

bool task_is_right(const struct task *t, enum task_match match, const char *answer)
{
	while (isspace((unsigned char)*answer))
		answer++;
	size_t n = strlen(answer);
	while (n > 0 && isspace((unsigned char)answer[n - 1]))
		n--;
	for (size_t i = 0; i < json_array_size(t->answers); i++) {
		const char *want = json_string_value(json_array_get(t->answers, i));
		size_t len = strlen(want);
		bool begins = n >= len && memcmp(answer, want, len) == 0;
		if (match == TASK_WORDS ? has_words(answer, want) : begins && (match == TASK_PREFIX || n == len))
			return true;
	}
	return false;
}

/* ---- running ---- */

struct slot {
	struct task *task; /* NULL: free */
	bool done;
	struct sl_buf text;
	int lost; /* code: text could not be kept */
	uint8_t finish;
	char message[PROTO_MAX_MESSAGE + 1];
};

struct runner {
	pthread_mutex_t lock;
	pthread_cond_t news;
	struct engine *e;
	uint16_t model; /* that answers */
	int state;      /* its: PROTO_MODEL_* */
	char reason[PROTO_MAX_MESSAGE + 1];
	struct slot slots[N_SLOTS];
};

static void keep_text(char *to, struct proto_str text)
{
	memcpy(to, text.at, text.n);
	to[text.n] = '\0';
}

static void on_event(void *ctx, const struct eng_event *ev)
{
	struct runner *r = ctx;
	pthread_mutex_lock(&r->lock);
	struct slot *s = &r->slots[ev->id % N_SLOTS];
	if (ev->kind == ENG_MODEL && ev->u.model.index == r->model) {
		r->state = ev->u.model.state;
		keep_text(r->reason, ev->u.model.reason);
	} else if (ev->kind == ENG_TOKENS && s->lost == 0) {
		s->lost = buf_append(&s->text, ev->u.tokens.text.at, ev->u.tokens.text.n);
	} else if (ev->kind == ENG_DONE) {
		s->finish = ev->u.done.finish;
		keep_text(s->message, ev->u.done.message);
		s->done = true;
	}
	pthread_cond_signal(&r->news);
	pthread_mutex_unlock(&r->lock);
}

static int start(struct runner *r, int i, struct task *task, const struct tasks *t, const struct tasks_how *how,
		 struct sl_err *err)
{
	struct proto_submit req = {PROTO_SUBMIT_OFF,
				   .model = r->model,
				   .top_p = 1,
				   .prompt_kind = t->raw ? PROTO_PROMPT_TEXT : PROTO_PROMPT_CHAT,
				   .max_tokens = how->most_tokens,
				   .prompt = {.at = task->prompt, .n = strlen(task->prompt)}};
	struct slot *s = &r->slots[i];
	*s = (struct slot){.task = task};
	buf_init(&s->text, MAX_ANSWER);
	int rc = engine_submit(r->e, (uint64_t)i, &req);
	if (rc != 0) {
		buf_dispose(&s->text);
		s->task = NULL;
		return sl_errf(err, rc, "line %zu: %s", task->line, sl_code_name(rc));
	}
	engine_credit(r->e, (uint64_t)i, UINT32_MAX);
	return 0;
}

static int settle(struct slot *s, int which, enum task_match match, struct sl_err *err)
{
	struct task *t = s->task;
	const char *text = s->lost == 0 ? buf_cstr(&s->text) : NULL;
	int rc = 0;
	if (s->finish == PROTO_FINISH_ERROR)
		rc = sl_errf(err, SL_EINVAL, "line %zu of the tasks: %s", t->line, s->message);
	else if (text == NULL)
		rc = sl_errf(err, SL_ENOMEM, "out of memory");
	else
		t->right[which] = task_is_right(t, match, text);
	buf_dispose(&s->text);
	s->task = NULL;
	return rc;
}

/* Waits for a slot that is done; -1: none is in use. */
static int wait_slot(struct runner *r)
{
	int found = -1;
	bool any = true;
	pthread_mutex_lock(&r->lock);
	while (found < 0 && any) {
		any = false;
		for (int i = 0; i < N_SLOTS && found < 0; i++) {
			any = any || r->slots[i].task != NULL;
			found = r->slots[i].task != NULL && r->slots[i].done ? i : -1;
		}
		if (found < 0 && any)
			pthread_cond_wait(&r->news, &r->lock);
	}
	pthread_mutex_unlock(&r->lock);
	return found;
}

static int run_all(struct runner *r, struct tasks *t, int which, const struct tasks_how *how, struct sl_err *err)
{
	size_t next = 0, done = 0;
	int rc = 0, i = 0;
	for (; i < N_SLOTS && next < t->n && rc == 0; i++)
		rc = start(r, i, &t->all[next++], t, how, err);
	while (rc == 0 && (i = wait_slot(r)) >= 0) {
		rc = settle(&r->slots[i], which, how->match, err);
		if (how->report != NULL)
			how->report(how->ctx, ++done, t->n);
		if (rc == 0 && next < t->n)
			rc = start(r, i, &t->all[next++], t, how, err);
	}
	return rc;
}

static int run(struct runner *r, struct tasks *t, int which, const struct tasks_how *how, struct sl_err *err)
{
	const struct eng_model_config model = {
	    .name = "model", .path = how->path, .quantize = how->quantize, .kv_type = how->kv_type};
	const struct eng_adapter_config adapter = {.name = "model:adapter", .path = how->adapter};
	const struct eng_config cfg = {.models = &model,
				       .n_models = 1,
				       .adapters = &adapter,
				       .n_adapters = how->adapter != NULL,
				       .backend = how->backend,
				       .n_threads = how->n_threads,
				       .kv_rotation = model_kv_rotation_from_name(how->kv_rotation),
				       .n_text_workers = 1,
				       .page_tokens = 16,
				       .kv_bytes = (uint64_t)KV_MIB << 20,
				       .max_sequences = N_SLOTS,
				       .max_waiting = 2 * N_SLOTS,
				       .step_tokens = 256,
				       .max_prompt_bytes = MAX_ANSWER};
	r->model = how->adapter != NULL; /* adapters follow the models */
	if (engine_create(&cfg, on_event, r, &r->e, err) != 0)
		return SL_EINVAL;
	pthread_mutex_lock(&r->lock);
	while (r->state == PROTO_MODEL_LOADING)
		pthread_cond_wait(&r->news, &r->lock);
	bool ready = r->state == PROTO_MODEL_READY;
	pthread_mutex_unlock(&r->lock);
	int rc = ready ? run_all(r, t, which, how, err) : sl_errf(err, SL_EINVAL, "%s", r->reason);
	engine_destroy(r->e);
	for (int i = 0; i < N_SLOTS; i++)
		if (r->slots[i].task != NULL)
			buf_dispose(&r->slots[i].text);
	return rc;
}

int tasks_run(struct tasks *t, int which, const struct tasks_how *how, struct sl_err *err)
{
	struct runner *r = sl_zalloc(sizeof *r);
	if (r == NULL)
		return sl_errf(err, SL_ENOMEM, "out of memory");
	log_init("model", LOG_ERROR);
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->news, NULL);
	r->state = PROTO_MODEL_LOADING;
	int rc = run(r, t, which, how, err);
	pthread_cond_destroy(&r->news);
	pthread_mutex_destroy(&r->lock);
	sl_free(r);
	return rc;
}
