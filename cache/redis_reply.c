/* SPDX-License-Identifier: Apache-2.0
 *
 * Replies of Redis are untrusted. Functions here build them in place of hiredis' own (same struct redisReply, which
 * hiredis reads), through base/alloc.h and with a bound on their objects; redis_event.c bounds the bytes, hiredis the
 * nesting. A reply whose shape does not match the command is an error.
 */
#include <string.h>

#include "base/alloc.h"
#include "cache/redis_priv.h"

/* ---- building ---- */

static redisReply *make(const redisReadTask *task, int type)
{
	struct redis_guard *guard = task->privdata;
	if (task->parent == NULL) {
		guard->objects = MAX_REPLY_OBJECTS;
		/* A reply without a command: hiredis would assert that this is a subscription. Errors
		 * it knows ("max number of clients reached"). */
		if (guard->ac->replies.head == NULL && type != REDIS_REPLY_ERROR)
			return NULL;
	}
	if (guard->objects == 0)
		return NULL;
	redisReply *r = sl_zalloc(sizeof *r);
	if (r == NULL)
		return NULL;
	guard->objects--;
	r->type = type;
	if (task->parent != NULL) {
		redisReply *parent = task->parent->obj;
		parent->element[task->idx] = r;
	}
	return r;
}

/* If a function below returns NULL, hiredis reports a reader error, closes the connection and frees the partial reply.
 */
static void *make_string(const redisReadTask *task, char *bytes, size_t n)
{
	char *copy = sl_strndup(bytes, n);
	redisReply *r = copy != NULL ? make(task, task->type) : NULL;
	if (r == NULL) {
		sl_free(copy);
		return NULL;
	}
	r->str = copy;
	r->len = n;
	return r;
}

static void *make_array_of(const redisReadTask *task, size_t n)
{
	const struct redis_guard *guard = task->privdata;
	if (n > (task->parent == NULL ? MAX_REPLY_OBJECTS : guard->objects))
		return NULL;
	redisReply **elements = sl_zalloc_n(n, sizeof *elements);
	redisReply *r = elements != NULL ? make(task, REDIS_REPLY_ARRAY) : NULL;
	if (r == NULL) {
		sl_free(elements);
		return NULL;
	}
	r->element = elements;
	r->elements = n;
	return r;
}

#if HIREDIS_MAJOR >= 1
static void *make_array(const redisReadTask *task, size_t n) { return make_array_of(task, n); }
static void *make_double(const redisReadTask *task, double value, char *text, size_t n)
{
	(void)value;
	return make_string(task, text, n);
}
static void *make_bool(const redisReadTask *task, int value)
{
	redisReply *r = make(task, REDIS_REPLY_BOOL);
	if (r != NULL)
		r->integer = value;
	return r;
}
#else
static void *make_array(const redisReadTask *task, int n) { return n < 0 ? NULL : make_array_of(task, (size_t)n); }
#endif

static void *make_integer(const redisReadTask *task, long long value)
{
	redisReply *r = make(task, REDIS_REPLY_INTEGER);
	if (r != NULL)
		r->integer = value;
	return r;
}

static void *make_nil(const redisReadTask *task) { return make(task, REDIS_REPLY_NIL); }

/* As deep as hiredis nests: at most 9. */
static void free_reply(void *arg) /* NOLINT(misc-no-recursion) */
{
	redisReply *r = arg;
	if (r == NULL)
		return;
	for (size_t i = 0; i < r->elements; i++)
		free_reply(r->element[i]);
	sl_free(r->element);
	sl_free(r->str);
	sl_free(r);
}

void redis_reply_attach(redisAsyncContext *ac, struct redis_guard *guard)
{
	static redisReplyObjectFunctions functions = {
		.createString = make_string,
		.createArray = make_array,
		.createInteger = make_integer,
#if HIREDIS_MAJOR >= 1
		.createDouble = make_double,
		.createBool = make_bool,
#endif
		.createNil = make_nil,
		.freeObject = free_reply,
	};
	*guard = (struct redis_guard){.ac = ac, .objects = MAX_REPLY_OBJECTS};
	ac->c.reader->fn = &functions;
	ac->c.reader->privdata = guard;
}

/* ---- errors ---- */

static const struct {
	const char *begins;
	struct redis_error error;
} errors[] = {
    {"NOSCRIPT", {FAILED_OTHER, SL_EAGAIN, ERROR_NOSCRIPT}},
    {"LOADING", {FAILED_LOADING, SL_EAGAIN, ERROR_OF_SERVER}},
    {"OOM", {FAILED_OOM, SL_ELIMIT, ERROR_OF_SERVER}},
    {"READONLY", {FAILED_READONLY, SL_EAGAIN, ERROR_RECONNECT}},
    {"NOAUTH", {FAILED_NOAUTH, SL_EIO, ERROR_RECONNECT}},
    {"WRONGPASS", {FAILED_NOAUTH, SL_EIO, ERROR_RECONNECT}},
    {"NOPERM", {FAILED_NOAUTH, SL_EIO, ERROR_OF_SERVER}},
    {"MOVED", {FAILED_MOVED, SL_EIO, ERROR_OF_SERVER}},
    {"ASK", {FAILED_MOVED, SL_EIO, ERROR_OF_SERVER}},
    {"CROSSSLOT", {FAILED_MOVED, SL_EIO, ERROR_OF_SERVER}},
    {"CLUSTERDOWN", {FAILED_MOVED, SL_EAGAIN, ERROR_OF_SERVER}},
    {"TRYAGAIN", {FAILED_MOVED, SL_EAGAIN, ERROR_OF_SERVER}},
    {"MASTERDOWN", {FAILED_READONLY, SL_EAGAIN, ERROR_RECONNECT}},
    {"NOREPLICAS", {FAILED_READONLY, SL_EAGAIN, ERROR_OF_SERVER}},
    {"MISCONF", {FAILED_READONLY, SL_EAGAIN, ERROR_OF_SERVER}},
    {"BUSY", {FAILED_BUSY, SL_EAGAIN, ERROR_OF_SERVER}},
    {"WRONGTYPE", {FAILED_WRONG_TYPE, SL_EPROTO, ERROR_OF_CALL}},
};

/* Up to Redis 6 an error inside a script arrived as "ERR Error running script …: -OOM command …", and
 * Redis 7 puts its own code first. */
static const char *inner_error(const char *text)
{
	static const char running[] = "ERR Error running script";
	if (strncmp(text, running, strlen(running)) != 0)
		return text;
	const char *dash = strstr(text, ": -");
	return dash == NULL ? text : dash + 3;
}

struct redis_error redis_error_of(const redisReply *reply)
{
	const char *text = inner_error(reply->str);
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
		size_t n = strlen(errors[i].begins);
		if (strncmp(text, errors[i].begins, n) == 0 && (text[n] == ' ' || text[n] == '\0'))
			return errors[i].error;
	}
	return (struct redis_error){FAILED_OTHER, SL_EIO, ERROR_OF_CALL};
}

/* ---- results ---- */

static bool is_integer(const redisReply *r) { return r->type == REDIS_REPLY_INTEGER; }
static bool is_string(const redisReply *r) { return r->type == REDIS_REPLY_STRING; }

static int value(const struct cache_work *w, const redisReply *reply, struct cache_result *r)
{
	if (reply->type == REDIS_REPLY_NIL)
		return SL_ENOTFOUND;
	if (!is_string(reply))
		return SL_EPROTO;
	if (reply->len == 0 || (uint8_t)reply->str[0] != w->version)
		return SL_ENOTFOUND;
	r->bytes = (const uint8_t *)reply->str + 1;
	r->n = reply->len - 1;
	return 0;
}

static int put(const struct cache_work *w, const redisReply *reply, struct cache_result *r)
{
	if (reply->type == REDIS_REPLY_NIL || reply->type == REDIS_REPLY_STATUS)
		return 0;
	r->found = true;
	return w->type == WORK_PUT_ABSENT && value(w, reply, r) == 0 ? 0 : SL_EPROTO;
}

/* Decimal digits only. */
static bool read_digits(const char *s, size_t n, uint64_t *out)
{
	*out = 0;
	for (size_t i = 0; i < n; i++) {
		if (s[i] < '0' || s[i] > '9')
			return false;
		*out = *out * 10 + (uint64_t)(s[i] - '0');
	}
	return true;
}

/* The numbers that scripts of logs begin their answers with. */
static int log_head(const redisReply *reply, struct cache_result *r)
{
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 3 || !is_integer(reply->element[0]) ||
	    !is_integer(reply->element[1]) || !is_integer(reply->element[2]))
		return SL_EPROTO;
	long long first = reply->element[1]->integer, next = reply->element[2]->integer;
	if (first < 0 || next < first)
		return SL_EPROTO;
	r->first_seq = (uint64_t)first;
	r->next_seq = (uint64_t)next;
	switch (reply->element[0]->integer) {
	case 0: return 0;
	case 1: return SL_ERANGE;
	case 2: return SL_ENOTFOUND;
	default: return SL_EPROTO;
	}
}

static int log_items(struct cache_work *w, const redisReply *reply, struct cache_result *r)
{
	int rc = log_head(reply, r);
	size_t n = rc == 0 ? reply->elements - 3 : 0;
	if (n == 0)
		return rc;
	struct cache_item *items = sl_zalloc_n(n, sizeof *items);
	if (items == NULL)
		return SL_ENOMEM;
	w->out = items;
	for (size_t i = 0; i < n; i++) {
		const redisReply *batch = reply->element[3 + i];
		uint64_t first, count;
		if (!is_string(batch) || batch->len < LOG_HEADER || !read_digits(batch->str, 16, &first) ||
		    !read_digits(batch->str + 16, 8, &count))
			return SL_EPROTO;
		/* Contiguous, from the batch with the requested number up to at most the end. */
		if (i == 0 ? first > w->seq : first != items[i - 1].first_seq + items[i - 1].n_items)
			return SL_EPROTO;
		if (count == 0 || first + count > r->next_seq)
			return SL_EPROTO;
		items[i] = (struct cache_item){.first_seq = first,
					       .n_items = (uint32_t)count,
					       .bytes = (const uint8_t *)batch->str + LOG_HEADER,
					       .n = batch->len - LOG_HEADER};
	}
	r->items = items;
	r->n_items = n;
	return 0;
}

static int digests(struct cache_work *w, const redisReply *reply, struct cache_result *r)
{
	if (reply->type != REDIS_REPLY_ARRAY)
		return SL_EPROTO;
	if (reply->elements == 0)
		return 0;
	struct cache_item *items = sl_zalloc_n(reply->elements, sizeof *items);
	if (items == NULL)
		return SL_ENOMEM;
	w->out = items;
	for (size_t i = 0; i < reply->elements; i++) {
		const redisReply *digest = reply->element[i];
		if (!is_string(digest) || digest->len != CACHE_DIGEST_LEN)
			return SL_EPROTO;
		items[i].bytes = (const uint8_t *)digest->str;
		items[i].n = digest->len;
	}
	r->items = items;
	r->n_items = reply->elements;
	return 0;
}

static int eval_values(struct cache_work *w, const redisReply *reply, struct cache_result *r)
{
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements > CACHE_MAX_VALUES)
		return SL_EPROTO;
	struct cache_value *values = sl_zalloc_n(reply->elements, sizeof *values);
	if (values == NULL)
		return SL_ENOMEM;
	w->out = values;
	for (size_t i = 0; i < reply->elements; i++) {
		const redisReply *v = reply->element[i];
		if (is_integer(v))
			values[i].i = v->integer;
		else if (is_string(v))
			values[i] = (struct cache_value){.p = v->str, .n = v->len};
		else
			return SL_EPROTO;
	}
	r->values = values;
	r->n_values = reply->elements;
	return 0;
}

const char *sentinel_named(const redisReply *reply, int *port, const char **why)
{
	if (reply->type == REDIS_REPLY_ERROR)
		*why = reply->str;
	else if (reply->type == REDIS_REPLY_NIL)
		*why = "it knows no Redis of that name";
	else if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 && is_string(reply->element[0]) &&
		 is_string(reply->element[1]) &&
		 sentinel_names_host(reply->element[0]->str, (size_t)reply->element[0]->len, reply->element[1]->str,
				     port))
		return reply->element[0]->str;
	else
		*why = "an answer that a sentinel doesn't give";
	return NULL;
}

static int result(struct cache_work *w, const redisReply *reply, struct cache_result *r)
{
	switch (w->type) {
	case WORK_GET: return value(w, reply, r);
	case WORK_PUT:
	case WORK_PUT_ABSENT: return put(w, reply, r);
	case WORK_DELETE: r->found = is_integer(reply) && reply->integer > 0; return is_integer(reply) ? 0 : SL_EPROTO;
	case WORK_LOG_APPEND: return log_head(reply, r);
	case WORK_LOG_READ: return log_items(w, reply, r);
	case WORK_LIST: return digests(w, reply, r);
	case WORK_EVAL: return eval_values(w, reply, r);
	case WORK_FLUSH: break;
	}
	BUG("no answer to work of type %d", (int)w->type);
}

/* Codes with a meaning for the caller; other negative ones mean an unusable reply. */
static bool is_answer(int code) { return code == 0 || code == SL_ENOTFOUND || code == SL_ERANGE; }

int redis_result(struct cache_work *w, const redisReply *reply, struct cache_result *r)
{
	*r = (struct cache_result){0};
	r->code = result(w, reply, r);
	if (is_answer(r->code))
		return 0;
	sl_free(w->out);
	w->out = NULL;
	return r->code;
}
