/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/remote/remote_fault.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json/json_depth.h"
#include "base/log.h"
#include "base/text.h"
#include "base/utf8.h"

enum { ERROR_DEPTH = 16 };
#define LOG_EACH_NS (60 * NS_PER_S)

static const struct {
	const char *name;
	uint8_t error;
	bool breaks;
	const char *message;
} kinds[PROTO_FAULTS] = {
    [PROTO_FAULT_RESOLVE] = {"resolve", PROTO_ERR_NOT_READY, true, "The address of the model's server can't be found."},
    [PROTO_FAULT_CONNECT] = {"connect", PROTO_ERR_NOT_READY, true, "The model's server can't be reached."},
    [PROTO_FAULT_TLS] = {"tls", PROTO_ERR_NOT_READY, true, "The connection to the model's server can't be secured."},
    [PROTO_FAULT_KEY] = {"key", PROTO_ERR_NOT_READY, true, "The model's server refuses this server's key."},
    [PROTO_FAULT_NO_MODEL] = {"no_model", PROTO_ERR_NOT_READY, false, "The model's server does not have the model."},
    [PROTO_FAULT_LIMITED] = {"limited", PROTO_ERR_OVERLOADED, false,
			     "The model's server limits this server's requests."},
    [PROTO_FAULT_REFUSED] = {"refused", PROTO_ERR_BAD_REQUEST, false, "The model's server refuses the request."},
    [PROTO_FAULT_SERVER] = {"server", PROTO_ERR_INTERNAL, true, "The model's server failed."},
    [PROTO_FAULT_REDIRECT] = {"redirect", PROTO_ERR_INTERNAL, true,
			      "The model's server redirects, which is not followed."},
    [PROTO_FAULT_HEADERS] = {"headers", PROTO_ERR_INTERNAL, true,
			     "The response head of the model's server is too long."},
    [PROTO_FAULT_NO_STREAM] = {"no_stream", PROTO_ERR_INTERNAL, true,
			       "The response of the model's server is no event stream."},
    [PROTO_FAULT_EVENT] = {"event", PROTO_ERR_INTERNAL, true, "The model's server sent an event that can't be read."},
    [PROTO_FAULT_LONG] = {"long", PROTO_ERR_INTERNAL, true, "The model's server sent an event that is too long."},
    [PROTO_FAULT_CUT] = {"cut", PROTO_ERR_INTERNAL, true,
			 "The model's server closed the connection before its answer was complete."},
    [PROTO_FAULT_STALL] = {"stall", PROTO_ERR_INTERNAL, true, "The model's server fell silent."},
    [PROTO_FAULT_AWAY] = {"away", PROTO_ERR_NOT_READY, true, "The model's server can't serve requests now."},
    [PROTO_FAULT_SLOW] = {"slow", PROTO_ERR_INTERNAL, false, "The answer of the model's server took too long."},
};

const char *remote_fault_name(enum proto_fault fault) { return kinds[fault].name; }

bool remote_fault_breaks(enum proto_fault fault) { return kinds[fault].breaks; }

bool remote_fault_retries(const struct remote_call *c)
{
	return !c->fresh && c->status == 0 && c->n_head == 0 &&
	       (c->fault == PROTO_FAULT_CONNECT || c->fault == PROTO_FAULT_CUT);
}

static void copy_line(char *out, size_t room, const json_t *v)
{
	snprintf(out, room, "%s", json_is_string(v) ? json_string_value(v) : "");
	out[utf8_whole_prefix((const uint8_t *)out, strlen(out))] = '\0';
	text_one_line(out, ' ');
}

bool remote_error_read(const char *json, size_t n, struct remote_error *out)
{
	json_t *root = n > 0 && !json_deeper_than(json, n, ERROR_DEPTH) ? json_loadb(json, n, 0, NULL) : NULL;
	const json_t *error = json_object_get(root, "error");
	if (error == NULL)
		error = root; /* vLLM's older form */
	copy_line(out->message, sizeof out->message, json_is_string(error) ? error : json_object_get(error, "message"));
	copy_line(out->code, sizeof out->code, json_object_get(error, "code"));
	copy_line(out->param, sizeof out->param, json_object_get(error, "param"));
	json_decref(root);
	return out->message[0] != '\0';
}

enum proto_fault remote_fault_of_error(const char *code)
{
	static const struct {
		const char *code;
		enum proto_fault fault;
	} known[] = {{"overloaded", PROTO_FAULT_LIMITED},
		     {"overloaded_error", PROTO_FAULT_LIMITED},
		     {"rate_limit_exceeded", PROTO_FAULT_LIMITED},
		     {"engine_unavailable", PROTO_FAULT_AWAY}};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (strcmp(code, known[i].code) == 0)
			return known[i].fault;
	return PROTO_FAULT_SERVER;
}

/* What a refusal is about. */
static uint8_t error_of(const struct remote_error *e)
{
	static const struct {
		const char *param;
		uint8_t error;
	} about[] = {{"tool", PROTO_ERR_BAD_CONSTRAINT},       {"response_format", PROTO_ERR_BAD_CONSTRAINT},
		     {"guided_", PROTO_ERR_BAD_CONSTRAINT},    {"stop_token_ids", PROTO_ERR_BAD_STOP_IDS},
		     {"logit_bias", PROTO_ERR_BAD_LOGIT_BIAS}, {"documents", PROTO_ERR_BAD_DOCUMENTS},
		     {"chat_template", PROTO_ERR_BAD_KWARGS},  {"bad_words", PROTO_ERR_BAD_WORDS}};
	if (strcmp(e->code, "context_length_exceeded") == 0 || strstr(e->message, "maximum context length") != NULL)
		return PROTO_ERR_CONTEXT_LENGTH;
	for (size_t i = 0; i < sizeof about / sizeof *about; i++)
		if (strncmp(e->param, about[i].param, strlen(about[i].param)) == 0)
			return about[i].error;
	return PROTO_ERR_BAD_REQUEST;
}

void remote_failure_of(const struct remote_call *c, struct remote_failure *out)
{
	struct remote_error e;
	*out = (struct remote_failure){.error = kinds[c->fault].error, .retry_after_s = c->retry_s};
	bool said =
	    c->fault == PROTO_FAULT_REFUSED && remote_error_read((const char *)buf_data(&c->text), c->text.len, &e);
	if (said)
		out->error = error_of(&e);
	snprintf(out->message, sizeof out->message, "%s", said ? e.message : kinds[c->fault].message);
}

void remote_fault_log(struct remote_fault_notes *notes, const char *url, enum proto_fault fault, const char *why,
		      uint64_t now_ns)
{
	uint64_t *last = &notes->last_ns[fault], *unsaid = &notes->unsaid[fault];
	if (*last != 0 && now_ns - *last < LOG_EACH_NS) {
		++*unsaid;
		return;
	}
	if (*unsaid > 0)
		log_warn("upstream %s: %s (%llu times more since)", url, kinds[fault].message,
			 (unsigned long long)*unsaid);
	log_warn("upstream %s: %s: %s", url, remote_fault_name(fault), why);
	*last = now_ns;
	*unsaid = 0;
}
