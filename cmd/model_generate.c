/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice model generate`: requests through the engine's own door, in this process.
 *
 * Requests live in slots; a slot's index is the request's identifier. The engine's threads fill the
 * slots under one lock, the main thread reads, prints and uses them again. Credit is given for the
 * whole answer at once. With --batch as many requests run side by side as there are slots.
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
#include "base/json_out.h"
#include "base/log.h"
#include "cmd/model.h"
#include "engine/engine.h"

enum {
	N_SLOTS = 32,
	MAX_ANSWER = 64 << 20,
	MAX_PROMPT = 4 << 20,
	KV_MIB = 512,
};

struct slot {
	bool used, done;
	json_t *id; /* --batch: as the line had it */
	struct sl_buf text;
	struct proto_token *tokens;
	size_t n_tokens, tokens_cap;
	bool lost; /* out of memory while collecting */
	struct proto_done end;
	char message[PROTO_MAX_MESSAGE + 1];
};

struct runner {
	pthread_mutex_t lock;
	pthread_cond_t news;
	struct engine *e;
	int state; /* of the model */
	char reason[PROTO_MAX_MESSAGE + 1];
	struct slot slots[N_SLOTS];
	uint64_t n_made;
	bool failed; /* some request ended with an error */
};

/* ---- events ---- */

static void keep_tokens(struct slot *s, const struct proto_tokens *t)
{
	if (s->n_tokens + t->n > s->tokens_cap) {
		size_t cap = 2 * s->tokens_cap + t->n;
		struct proto_token *grown = sl_realloc_n(s->tokens, cap, sizeof *grown);
		if (grown == NULL) {
			s->lost = true;
			return;
		}
		s->tokens = grown;
		s->tokens_cap = cap;
	}
	memcpy(s->tokens + s->n_tokens, t->tokens, t->n * sizeof *t->tokens);
	s->n_tokens += t->n;
	if (buf_append(&s->text, t->text.at, t->text.n) != 0)
		s->lost = true;
}

static void on_event(void *ctx, const struct eng_event *ev)
{
	struct runner *r = ctx;
	pthread_mutex_lock(&r->lock);
	struct slot *s = &r->slots[ev->id % N_SLOTS];
	switch (ev->kind) {
	case ENG_MODEL:
		r->state = ev->u.model.state;
		memcpy(r->reason, ev->u.model.reason.at, ev->u.model.reason.n);
		r->reason[ev->u.model.reason.n] = '\0';
		break;
	case ENG_TOKENS:
		keep_tokens(s, &ev->u.tokens);
		break;
	case ENG_DONE:
		s->end = ev->u.done;
		memcpy(s->message, ev->u.done.message.at, ev->u.done.message.n);
		s->message[ev->u.done.message.n] = '\0';
		s->done = true;
		break;
	case ENG_QUEUED:
	case ENG_PROMPT_LOGPROBS:
	case ENG_CHOICE:
	case ENG_COUNTED:
		break;
	}
	pthread_cond_signal(&r->news);
	pthread_mutex_unlock(&r->lock);
}

/* ---- output ---- */

static const char *finish_name(const struct slot *s)
{
	if (s->lost || s->end.finish == PROTO_FINISH_ERROR)
		return "error";
	if (s->end.finish == PROTO_FINISH_STOP)
		return "stop";
	return s->end.finish == PROTO_FINISH_LENGTH ? "length" : "cancelled";
}

/* Keys in a fixed order, so that two runs can be compared as text. */
static int print_json(const struct slot *s)
{
	struct sl_buf line;
	buf_init(&line, (size_t)8 * MAX_ANSWER);
	int rc = buf_append_str(&line, "{");
	if (rc == 0 && s->id != NULL) {
		char *id = json_dumps(s->id, JSON_ENCODE_ANY | JSON_COMPACT);
		rc = id != NULL ? buf_printf(&line, "\"id\":%s,", id) : SL_ENOMEM;
		free(id);
	}
	if (rc == 0)
		rc = buf_append_str(&line, "\"text\":");
	if (rc == 0)
		rc = json_out_string(&line, s->text.len ? (const char *)buf_data(&s->text) : "",
				     s->text.len);
	for (int pass = 0; pass < 2 && rc == 0; pass++) {
		rc = buf_append_str(&line, pass == 0 ? ",\"tokens\":[" : "],\"logprobs\":[");
		for (size_t i = 0; i < s->n_tokens && rc == 0; i++) {
			const char *comma = i > 0 ? "," : "";
			if (pass == 0)
				rc = buf_printf(&line, "%s%u", comma, s->tokens[i].id);
			else /* nine digits: every float has its own text */
				rc = buf_printf(&line, "%s%.9g", comma,
						(double)s->tokens[i].logprob);
		}
	}
	if (rc == 0)
		rc = buf_printf(&line, "],\"finish_reason\":\"%s\",\"n_prompt\":%u", finish_name(s),
				s->end.n_prompt);
	if (rc == 0 && s->message[0] != '\0') {
		rc = buf_append_str(&line, ",\"error\":");
		if (rc == 0)
			rc = json_out_string(&line, s->message, strlen(s->message));
	}
	if (rc == 0)
		rc = buf_append_str(&line, "}\n");
	if (rc == 0 && fwrite(buf_data(&line), 1, line.len, stdout) != line.len)
		rc = SL_EIO;
	buf_dispose(&line);
	return rc;
}

/* ---- slots ---- */

static void slot_open(struct slot *s)
{
	*s = (struct slot){.used = true};
	buf_init(&s->text, MAX_ANSWER);
}

static void slot_close(struct slot *s)
{
	json_decref(s->id);
	buf_dispose(&s->text);
	sl_free(s->tokens);
	*s = (struct slot){0};
}

static int submit(struct runner *r, int index, const struct proto_submit *req)
{
	int rc = engine_submit(r->e, (uint64_t)index, req);
	if (rc == 0)
		engine_credit(r->e, (uint64_t)index, UINT32_MAX);
	return rc;
}

/* The end of a slot, on the main thread and without the lock: it is done, nobody else writes. */
static int settle(struct runner *r, struct slot *s)
{
	r->n_made += s->end.n_completion;
	if (s->lost || s->end.finish == PROTO_FINISH_ERROR)
		r->failed = true;
	int rc = print_json(s);
	slot_close(s);
	return rc == 0 ? 0 : model_complain(1, "output: %s", sl_code_name(rc));
}

/* Waits until some slot is done and settles it; -1 when none is in use. */
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
		json_array_append_new(messages, json_pack("{s:s,s:s}", "role", "system", "content",
							  o->system));
	json_array_append_new(messages,
			      json_pack("{s:s,s:s}", "role", "user", "content", o->prompt));
	json_t *root = json_pack("{s:o}", "messages", messages);
	char *text = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
	json_decref(root);
	return text;
}

/* Prints the text as it comes. */
static int print_stream(struct runner *r, struct slot *s)
{
	bool done;
	do {
		char chunk[4096];
		size_t n;
		pthread_mutex_lock(&r->lock);
		while (!s->done && s->text.len == 0)
			pthread_cond_wait(&r->news, &r->lock);
		n = s->text.len < sizeof chunk ? s->text.len : sizeof chunk;
		if (n > 0) {
			memcpy(chunk, buf_data(&s->text), n);
			buf_consume(&s->text, n);
		}
		done = s->done && s->text.len == 0;
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
	struct proto_submit req = {
	    .prompt_kind = o->raw ? PROTO_PROMPT_TEXT : PROTO_PROMPT_CHAT,
	    .seed = o->seed,
	    .temperature = o->temperature,
	    .top_p = 1,
	    PROTO_SUBMIT_OFF,
	    .max_tokens = o->n_tokens,
	    .prompt = {.at = prompt, .n = strlen(prompt)}};
	struct slot *s = &r->slots[0];
	slot_open(s);
	uint64_t begin = clock_now_ns();
	int rc = submit(r, 0, &req);
	free(chat);
	if (rc != 0) {
		slot_close(s);
		return model_complain(1, "%s", sl_code_name(rc));
	}
	int status = 0;
	bool json = o->ids || o->logprobs;
	if (!json)
		status = print_stream(r, s);
	pthread_mutex_lock(&r->lock);
	while (!s->done)
		pthread_cond_wait(&r->news, &r->lock);
	pthread_mutex_unlock(&r->lock);
	if (s->end.finish == PROTO_FINISH_ERROR)
		status = model_complain(1, "%s", s->message);
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "%u tokens of prompt, %u made in %.2f s\n", s->end.n_prompt,
			s->end.n_completion, (double)(clock_now_ns() - begin) / 1e9);
	if (json && status == 0)
		return settle(r, s);
	slot_close(s);
	return status;
}

/* ---- many ---- */

/* Reads one request; the prompt's text is *owned (free). */
static const char *read_request(const json_t *line, const struct generate_options *o,
				struct proto_submit *req, char **owned)
{
	const json_t *messages = json_object_get(line, "messages");
	const json_t *prompt = json_object_get(line, "prompt");
	const json_t *n = json_object_get(line, "max_tokens");
	const json_t *temperature = json_object_get(line, "temperature");
	const json_t *seed = json_object_get(line, "seed");
	if (!json_is_object(line))
		return "the line is not a JSON object";
	if ((messages != NULL) == (prompt != NULL))
		return "a line has either messages or prompt";
	if (n != NULL && (!json_is_integer(n) || json_integer_value(n) < 1 ||
			  json_integer_value(n) > UINT32_MAX))
		return "max_tokens is not a number from 1";
	if (temperature != NULL &&
	    (!json_is_number(temperature) || !(json_number_value(temperature) >= 0) ||
	     !(json_number_value(temperature) <= 2)))
		return "temperature is not from 0 to 2";
	if (seed != NULL && !json_is_integer(seed))
		return "seed is not an integer";
	*req = (struct proto_submit){
	    .prompt_kind = messages != NULL ? PROTO_PROMPT_CHAT : PROTO_PROMPT_TEXT,
	    .seed = seed != NULL ? (uint64_t)json_integer_value(seed) : o->seed,
	    .temperature = temperature != NULL ? (float)json_number_value(temperature)
					       : o->temperature,
	    .top_p = 1,
	    PROTO_SUBMIT_OFF,
	    .max_tokens = n != NULL ? (uint32_t)json_integer_value(n) : o->n_tokens};
	if (messages != NULL) {
		json_t *root = json_pack("{s:O}", "messages", messages);
		*owned = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
		json_decref(root);
	} else {
		*owned = json_is_string(prompt) ? strdup(json_string_value(prompt)) : NULL;
	}
	if (*owned == NULL)
		return "the prompt can't be used";
	req->prompt = (struct proto_str){.at = *owned, .n = strlen(*owned)};
	return NULL;
}

/* A line that can't be run is answered at once. */
static int refuse_line(struct runner *r, struct slot *s, const char *why)
{
	s->end = (struct proto_done){.finish = PROTO_FINISH_ERROR};
	snprintf(s->message, sizeof s->message, "%s", why);
	return settle(r, s);
}

static int start_line(struct runner *r, const struct generate_options *o, int index,
		      const char *text, size_t n)
{
	struct slot *s = &r->slots[index];
	struct proto_submit req;
	char *prompt = NULL;
	json_error_t je;
	slot_open(s);
	json_t *line = json_loadb(text, n, 0, &je);
	const char *why = line == NULL ? "the line is not valid JSON" : NULL;
	if (why == NULL) {
		s->id = json_incref(json_object_get(line, "id"));
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

/* ---- the engine around it ---- */

static int run(struct runner *r, const struct generate_options *o)
{
	struct eng_model_config model = {.name = "model", .path = o->path};
	struct eng_config cfg = {.models = &model,
				 .n_models = 1,
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
