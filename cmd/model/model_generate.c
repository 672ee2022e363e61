/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice model generate`: runs requests through engine/engine.h in this process.
 *
 * Each request occupies a slot; the slot's index is the request's id. The engine's threads fill slots under
 * runner.lock; the main thread prints the results and reuses the slots. A request gets credit for its whole answer at
 * once. --batch runs up to N_SLOTS requests in parallel.
 */
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "cmd/model/model.h"
#include "cmd/model/model_answer.h"
#include "engine/engine.h"

enum {
	N_SLOTS = 32,
	MAX_PROMPT = 4 << 20,
	KV_MIB = 512,
};

struct slot {
	bool used, done;
	struct model_answer answer;
};

struct runner {
	uint16_t model; /* the index that requests name */
	pthread_mutex_t lock;
	pthread_cond_t news;
	struct engine *e;
	int state; /* of the model: PROTO_MODEL_* */
	char reason[PROTO_MAX_MESSAGE + 1];
	struct slot slots[N_SLOTS];
	uint64_t n_made;
	bool failed; /* some request ended with an error */
};

/* ---- events ---- */

static void on_event(void *ctx, const struct eng_event *ev)
{
	struct runner *r = ctx;
	pthread_mutex_lock(&r->lock);
	struct slot *s = &r->slots[ev->id % N_SLOTS];
	switch (ev->kind) {
	case ENG_MODEL:
		if (ev->u.model.index != r->model)
			break;
		r->state = ev->u.model.state;
		memcpy(r->reason, ev->u.model.reason.at, ev->u.model.reason.n);
		r->reason[ev->u.model.reason.n] = '\0';
		break;
	case ENG_DONE:
		model_answer_take(&s->answer, ev);
		s->done = true;
		break;
	case ENG_QUEUED:
	case ENG_VERIFIED:
	case ENG_EMBEDDING:
	case ENG_HANDED:
	case ENG_COUNTED: break;
	case ENG_PROMPT_LOGPROBS:
	case ENG_TOKENS:
	case ENG_CHOICE: model_answer_take(&s->answer, ev); break;
	}
	pthread_cond_signal(&r->news);
	pthread_mutex_unlock(&r->lock);
}

/* ---- slots ---- */

static void slot_open(struct slot *s, int n_choices)
{
	s->used = true;
	s->done = false;
	model_answer_init(&s->answer, n_choices);
}

static void slot_close(struct slot *s)
{
	model_answer_dispose(&s->answer);
	s->used = s->done = false;
}

static int submit(struct runner *r, int index, const struct proto_submit *req)
{
	struct proto_submit to = *req;
	to.model = r->model;
	int rc = engine_submit(r->e, (uint64_t)index, &to);
	if (rc == 0)
		engine_credit(r->e, (uint64_t)index, UINT32_MAX);
	return rc;
}

/* Prints and frees a finished slot. Main thread; needs no lock, since no event for the slot can follow. */
static int settle(struct runner *r, struct slot *s)
{
	r->n_made += s->answer.end.n_completion;
	r->failed = r->failed || model_answer_failed(&s->answer);
	int rc = model_answer_print_json(&s->answer);
	slot_close(s);
	return rc == 0 ? 0 : model_complain(1, "output: %s", sl_code_name(rc));
}

/* Waits until a slot is done, settles it and returns its index; -1 if none is in use. */
static int settle_one(struct runner *r, int *status)
{
	int found = -1;
	bool any = false;
	pthread_mutex_lock(&r->lock);
	do {
		any = false;
		for (int i = 0; i < N_SLOTS && found < 0; i++) {
			any = any || r->slots[i].used;
			if (r->slots[i].used && r->slots[i].done)
				found = i;
		}
		if (any && found < 0)
			pthread_cond_wait(&r->news, &r->lock);
	} while (any && found < 0);
	pthread_mutex_unlock(&r->lock);
	if (found < 0)
		return -1;
	*status = settle(r, &r->slots[found]);
	return found;
}

/* ---- one request ---- */

static char *chat_of(const struct generate_options *o)
{
	json_t *messages = json_array();
	if (o->system != NULL)
		json_array_append_new(messages, json_pack("{s:s,s:s}", "role", "system", "content", o->system));
	json_array_append_new(messages, json_pack("{s:s,s:s}", "role", "user", "content", o->prompt));
	json_t *root = json_pack("{s:o}", "messages", messages);
	char *text = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
	json_decref(root);
	return text;
}

/* Prints the text as it arrives. */
static int print_stream(struct runner *r, struct slot *s)
{
	struct sl_buf *text = &s->answer.choices[0].text;
	bool done;
	do {
		char chunk[4096];
		size_t n;
		pthread_mutex_lock(&r->lock);
		while (!s->done && text->len == 0)
			pthread_cond_wait(&r->news, &r->lock);
		n = text->len < sizeof chunk ? text->len : sizeof chunk;
		if (n > 0) {
			memcpy(chunk, buf_data(text), n);
			buf_consume(text, n);
		}
		done = s->done && text->len == 0;
		pthread_mutex_unlock(&r->lock);
		if (n > 0 && (fwrite(chunk, 1, n, stdout) != n || fflush(stdout) != 0))
			return model_complain(1, "output: %s", strerror(errno));
	} while (!done);
	fputc('\n', stdout);
	return 0;
}

static int run_single(struct runner *r, const struct generate_options *o)
{
	char *chat = o->raw ? NULL : chat_of(o);
	const char *prompt = o->raw ? o->prompt : chat;
	if (prompt == NULL)
		return model_complain(1, "the prompt is not valid UTF-8");
	struct proto_submit req = o->sampling.req;
	/* Only a single choice without log probabilities can be printed while it is generated. */
	bool stream = !o->json && !o->logprobs && req.prompt_logprobs == 0 && req.best_of == 1 && req.beam_width == 0;
	req.prompt_kind = o->raw ? PROTO_PROMPT_TEXT : PROTO_PROMPT_CHAT;
	req.flags = stream ? 0 : PROTO_SUBMIT_WANT_LOGPROBS;
	req.seed = o->seed;
	req.temperature = o->temperature;
	req.max_tokens = o->n_tokens;
	req.prompt = (struct proto_str){.at = prompt, .n = strlen(prompt)};
	struct slot *s = &r->slots[0];
	slot_open(s, req.n);
	uint64_t begin = clock_now_ns();
	int rc = submit(r, 0, &req);
	free(chat);
	if (rc != 0) {
		slot_close(s);
		return model_complain(1, "%s", sl_code_name(rc));
	}
	int status = 0;
	if (stream)
		status = print_stream(r, s);
	pthread_mutex_lock(&r->lock);
	while (!s->done)
		pthread_cond_wait(&r->news, &r->lock);
	pthread_mutex_unlock(&r->lock);
	const struct model_answer *a = &s->answer;
	if (a->end.finish == PROTO_FINISH_ERROR)
		status = model_complain(1, "%s", a->message);
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "%u prompt tokens, %u tokens generated in %.2f s\n", a->end.n_prompt,
			a->end.n_completion, (double)(clock_now_ns() - begin) / 1e9);
	if (o->json && status == 0)
		return settle(r, s);
	if (!stream && status == 0) {
		rc = model_answer_print(a, o->logprobs);
		if (rc != 0)
			status = model_complain(1, "output: %s", sl_code_name(rc));
	}
	slot_close(s);
	return status;
}

/* ---- many ---- */

/* Parses one line of a batch into *req, whose prompt is *owned (free it). NULL, or the reason for refusing the line. */
static const char *read_request(const json_t *line, const struct generate_options *o, struct proto_submit *req,
				char **owned)
{
	const json_t *messages = json_object_get(line, "messages");
	const json_t *prompt = json_object_get(line, "prompt");
	const json_t *n = json_object_get(line, "max_tokens");
	const json_t *temperature = json_object_get(line, "temperature");
	const json_t *seed = json_object_get(line, "seed");
	if (!json_is_object(line))
		return "the line is not a JSON object";
	if ((messages != NULL) == (prompt != NULL))
		return "the line needs messages or prompt, not both";
	if (n != NULL && (!json_is_integer(n) || json_integer_value(n) < 1 || json_integer_value(n) > UINT32_MAX))
		return "max_tokens is not a positive integer";
	if (temperature != NULL && (!json_is_number(temperature) || !(json_number_value(temperature) >= 0) ||
				    !(json_number_value(temperature) <= 2)))
		return "temperature is not a number from 0 to 2";
	if (seed != NULL && !json_is_integer(seed))
		return "seed is not an integer";
	*req = o->sampling.req;
	req->prompt_kind = messages != NULL ? PROTO_PROMPT_CHAT : PROTO_PROMPT_TEXT;
	req->flags = PROTO_SUBMIT_WANT_LOGPROBS;
	req->seed = seed != NULL ? (uint64_t)json_integer_value(seed) : o->seed;
	req->temperature = temperature != NULL ? (float)json_number_value(temperature) : o->temperature;
	req->max_tokens = n != NULL ? (uint32_t)json_integer_value(n) : o->n_tokens;
	if (req->min_tokens > req->max_tokens)
		return "max_tokens is below --min-tokens";
	if (messages != NULL) {
		json_t *root = json_pack("{s:O, s:O*}", "messages", messages, "tools", json_object_get(line, "tools"));
		*owned = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
		json_decref(root);
	} else {
		*owned = json_is_string(prompt) ? strdup(json_string_value(prompt)) : NULL;
	}
	if (*owned == NULL)
		return "the prompt is not usable text";
	req->prompt = (struct proto_str){.at = *owned, .n = strlen(*owned)};
	return NULL;
}

/* Prints an error in place of the answer to a line. */
static int refuse_line(struct runner *r, struct slot *s, const char *why)
{
	s->answer.end = (struct proto_done){.finish = PROTO_FINISH_ERROR};
	snprintf(s->answer.message, sizeof s->answer.message, "%s", why);
	return settle(r, s);
}

static int start_line(struct runner *r, const struct generate_options *o, int index, const char *text, size_t n)
{
	struct slot *s = &r->slots[index];
	struct proto_submit req;
	char *prompt = NULL;
	json_error_t je;
	slot_open(s, o->sampling.req.n);
	json_t *line = json_loadb(text, n, 0, &je);
	const char *why = line == NULL ? "the line is not valid JSON" : NULL;
	if (why == NULL) {
		s->answer.id = json_incref(json_object_get(line, "id"));
		why = read_request(line, o, &req, &prompt);
	}
	json_decref(line);
	int rc = why == NULL ? submit(r, index, &req) : 0;
	free(prompt);
	if (rc != 0)
		why = sl_code_name(rc);
	return why != NULL ? refuse_line(r, s, why) : 0;
}

static int run_batch(struct runner *r, const struct generate_options *o)
{
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;
	int status = 0, settled;
	uint64_t lines = 0, begin = clock_now_ns();
	while (status == 0 && (n = getline(&line, &cap, stdin)) >= 0) {
		if (strspn(line, " \t\r\n") == (size_t)n)
			continue;
		int index = 0;
		while (index < N_SLOTS && r->slots[index].used)
			index++;
		if (index == N_SLOTS)
			index = settle_one(r, &status);
		if (status == 0)
			status = start_line(r, o, index, line, (size_t)n);
		lines++;
		if (isatty(STDERR_FILENO))
			fprintf(stderr, "\r%llu lines", (unsigned long long)lines);
	}
	free(line);
	do
		settled = settle_one(r, &status);
	while (settled >= 0);
	if (fflush(stdout) != 0)
		status = model_complain(1, "output: %s", strerror(errno));
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r%llu lines, %llu tokens in %.2f s\n", (unsigned long long)lines,
			(unsigned long long)r->n_made, (double)(clock_now_ns() - begin) / 1e9);
	return status != 0 ? status : r->failed ? 1 : 0;
}

/* ---- the engine ---- */

static int run(struct runner *r, const struct generate_options *o)
{
	struct eng_model_config model = {
	    .name = "model", .path = o->path, .quantize = o->quantize, .kv_type = o->kv_type};
	struct eng_adapter_config adapter = {.name = "model:adapter", .path = o->adapter};
	struct eng_config cfg = {.models = &model,
				 .n_models = 1,
				 .adapters = &adapter,
				 .n_adapters = o->adapter != NULL,
				 .backend = o->backend,
				 .n_threads = o->n_threads,
				 .n_text_workers = 1,
				 .page_tokens = 16,
				 .kv_bytes = (uint64_t)KV_MIB << 20,
				 .max_sequences = N_SLOTS,
				 .max_waiting = 2 * N_SLOTS,
				 .step_tokens = 256,
				 .max_prompt_bytes = MAX_PROMPT};
	struct sl_err err = {0};
	r->model = o->adapter != NULL; /* adapters follow the models */
	if (engine_create(&cfg, on_event, r, &r->e, &err) != 0)
		return model_complain(1, "%s", err.text);
	pthread_mutex_lock(&r->lock);
	while (r->state == PROTO_MODEL_LOADING)
		pthread_cond_wait(&r->news, &r->lock);
	bool ready = r->state == PROTO_MODEL_READY;
	pthread_mutex_unlock(&r->lock);
	int status;
	if (!ready)
		status = model_complain(1, "%s", r->reason);
	else
		status = o->batch ? run_batch(r, o) : run_single(r, o);
	engine_destroy(r->e);
	for (int i = 0; i < N_SLOTS; i++)
		slot_close(&r->slots[i]);
	return status;
}

int model_generate(const struct generate_options *o)
{
	struct runner *r = sl_zalloc(sizeof *r);
	if (r == NULL)
		return model_complain(1, "out of memory");
	log_init("model", LOG_ERROR);
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->news, NULL);
	r->state = PROTO_MODEL_LOADING;
	int status = run(r, o);
	pthread_cond_destroy(&r->news);
	pthread_mutex_destroy(&r->lock);
	sl_free(r);
	return status;
}
