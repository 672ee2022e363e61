/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/bench/grammar_case.h"

#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/json/json_out.h"
#include "base/json/json_scan.h"
#include "engine/constraint/constraint.h"
#include "engine/grammar/grammar.h"
#include "engine/token/tokenizer.h"

enum { MAX_LEVELS = 1000, MAX_TEXT = 1 << 24 };

/* ---- reading ---- */

static bool compact(struct json_scan *s, struct sl_buf *out, int level);

static bool compact_string(struct proto_str raw, struct sl_buf *out)
{
	char *text = sl_alloc(raw.n + 1);
	size_t n = text != NULL ? json_unescape(raw, text) : SIZE_MAX;
	bool good = n != SIZE_MAX && json_out_string(out, text, n) == 0;
	sl_free(text);
	return good;
}

static bool compact_object(struct json_scan *s, struct sl_buf *out, int level)
{
	struct proto_str key;
	bool good = json_scan_object(s) && buf_append_str(out, "{") == 0;
	for (bool first = true; good && json_scan_key(s, &key); first = false)
		good = (first || buf_append_str(out, ",") == 0) && compact_string(key, out) &&
		       buf_append_str(out, ":") == 0 && compact(s, out, level + 1);
	return good && s->bad == NULL && buf_append_str(out, "}") == 0;
}

static bool compact_array(struct json_scan *s, struct sl_buf *out, int level)
{
	bool good = json_scan_array(s) && buf_append_str(out, "[") == 0;
	for (bool first = true; good && json_scan_item(s); first = false)
		good = (first || buf_append_str(out, ",") == 0) && compact(s, out, level + 1);
	return good && s->bad == NULL && buf_append_str(out, "]") == 0;
}

/* Copies the next value without whitespace; numbers stay as written. */
static bool compact(struct json_scan *s, struct sl_buf *out, int level)
{
	struct proto_str raw;
	char first = json_scan_peek(s);
	const char *begin = s->at;
	if (level > MAX_LEVELS)
		return false;
	if (first == '{')
		return compact_object(s, out, level);
	if (first == '[')
		return compact_array(s, out, level);
	if (first == '"')
		return json_scan_string(s, &raw) && compact_string(raw, out);
	return json_scan_skip(s) && buf_append(out, begin, (size_t)(s->at - begin)) == 0;
}

static bool is(struct proto_str s, const char *what) { return s.n == strlen(what) && memcmp(s.at, what, s.n) == 0; }

static bool read_instance(struct json_scan *s, struct grammar_instance *out)
{
	struct sl_buf word, other;
	struct proto_str key;
	bool good = json_scan_object(s);
	buf_init(&out->text, MAX_TEXT);
	buf_init(&word, MAX_TEXT);
	buf_init(&other, MAX_TEXT);
	while (good && json_scan_key(s, &key)) {
		buf_clear(&other, SIZE_MAX);
		good = compact(s, is(key, "data") ? &out->text : is(key, "valid") ? &word : &other, 0);
	}
	out->valid = word.len == 4;
	buf_dispose(&word);
	buf_dispose(&other);
	return good && s->bad == NULL;
}

static bool read_instances(struct json_scan *s, struct grammar_case *out)
{
	bool good = json_scan_array(s);
	while (good && json_scan_item(s)) {
		struct grammar_instance *grown = sl_realloc_n(out->instances, out->n + 1, sizeof *grown);
		if (grown == NULL)
			return false;
		out->instances = grown;
		good = read_instance(s, &out->instances[out->n++]);
	}
	return good && s->bad == NULL;
}

bool grammar_case_read(const char *text, size_t n, struct grammar_case *out)
{
	struct json_scan s;
	struct proto_str key;
	struct sl_buf other;
	*out = (struct grammar_case){0};
	json_scan_init(&s, text, n);
	buf_init(&other, MAX_TEXT);
	bool good = json_scan_object(&s);
	while (good && json_scan_key(&s, &key)) {
		json_scan_peek(&s);
		const char *begin = s.at;
		buf_clear(&other, SIZE_MAX);
		good = is(key, "tests") ? read_instances(&s, out) : compact(&s, &other, 0);
		if (is(key, "schema"))
			out->schema = (struct proto_str){begin, (size_t)(s.at - begin)};
	}
	buf_dispose(&other);
	return good && s.bad == NULL && out->schema.n > 0;
}

void grammar_case_dispose(struct grammar_case *c)
{
	for (size_t i = 0; i < c->n; i++)
		buf_dispose(&c->instances[i].text);
	sl_free(c->instances);
}

/* ---- running ---- */

struct run {
	struct grammar_outcome *out;
	const struct tokenizer *t;
	uint32_t *mask, *mask_ns;
	size_t room;
};

static uint64_t thread_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void note_slice(struct run *r, uint64_t ns) { r->out->slice_ns = ns > r->out->slice_ns ? ns : r->out->slice_ns; }

/* In slices, as the engine makes it. *begin: of the last one. */
static int make_mask(struct run *r, struct grammar_state *s, uint64_t *begin)
{
	int rc;
	while ((rc = grammar_mask_within(s, r->mask, GRAMMAR_SLICE)) == SL_EAGAIN) {
		uint64_t now = thread_ns();
		note_slice(r, now - *begin);
		*begin = now;
	}
	return rc;
}

static void note_time(struct run *r, uint64_t ns)
{
	if (r->out->n_masks < r->room)
		r->mask_ns[r->out->n_masks++] = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

/* Walks the masks. Returns the accepted bytes; *whole: all were accepted and the text may end there. */
static size_t walk(struct run *r, struct grammar_state *s, const struct tok_ids *ids, bool *whole)
{
	size_t bytes = 0;
	*whole = false;
	for (size_t i = 0; i < ids->n; i++) {
		int32_t id = ids->ids[i];
		uint64_t begin = thread_ns(), last = begin;
		int rc = make_mask(r, s, &last);
		bool permitted = rc == 0 && (r->mask[id / 32] >> (id % 32) & 1) != 0;
		rc = permitted ? grammar_accept(s, id) : rc;
		uint64_t end = thread_ns();
		note_time(r, end - begin);
		note_slice(r, end - last);
		if (rc != 0)
			strcpy(r->out->reason, "a mask failed");
		if (!permitted || rc != 0)
			return bytes;
		bytes += tokenizer_bytes(r->t, id).n;
	}
	*whole = grammar_may_end(s);
	return bytes;
}

static void check(struct run *r, struct grammar *g, const struct grammar_instance *instance, size_t at)
{
	struct tok_ids ids = {0};
	struct grammar_state s;
	bool whole = false;
	size_t bytes = 0;
	int rc = tokenizer_encode(r->t, (const char *)buf_data(&instance->text), instance->text.len, NULL, &ids);
	rc = rc == 0 ? grammar_state_init(&s, g) : rc;
	if (rc == 0) {
		bytes = walk(r, &s, &ids, &whole);
		grammar_state_dispose(&s);
	}
	tok_ids_dispose(&ids);
	if (whole == instance->valid && rc == 0)
		return;
	r->out->wrong_accept += whole;
	r->out->wrong_refuse += !whole;
	if (r->out->first_wrong < 0) {
		r->out->first_wrong = (int32_t)at;
		r->out->refused_at = (uint32_t)bytes;
	}
}

static struct grammar *translate(struct run *r, const struct grammar_case *c, struct grammar_vocab *v)
{
	struct sl_err err = {0};
	struct rules *rules;
	struct grammar *g = NULL;
	struct grammar_state s;
	uint64_t begin = thread_ns();
	int rc = constraint_rules(CONSTRAINT_JSON_SCHEMA, c->schema.at, c->schema.n, NULL, &rules, &err);
	rc = rc == 0 ? grammar_create(v, rules, NULL, &g, &err) : rc;
	if (rc == 0 && grammar_state_init(&s, g) == 0) {
		rc = grammar_mask(&s, r->mask);
		grammar_state_dispose(&s);
	}
	r->out->first_mask_ns = thread_ns() - begin;
	r->out->rc = rc;
	if (rc != 0)
		memcpy(r->out->reason, err.text[0] != '\0' ? err.text : "the first mask failed",
		       strnlen(err.text[0] != '\0' ? err.text : "the first mask failed", GRAMMAR_CASE_REASON - 1));
	return g;
}

void grammar_case_run(const struct grammar_case *c, struct grammar_vocab *v, const struct tokenizer *t,
		      struct grammar_outcome *out, uint32_t *mask_ns, size_t room)
{
	struct run r = {.out = out, .t = t, .mask_ns = mask_ns, .room = room};
	*out = (struct grammar_outcome){.first_wrong = -1, .n_instances = (uint32_t)c->n};
	r.mask = sl_zalloc_n(grammar_vocab_mask_words(v), sizeof *r.mask);
	if (r.mask == NULL)
		return;
	struct grammar *g = translate(&r, c, v);
	for (size_t i = 0; out->rc == 0 && i < c->n; i++)
		check(&r, g, &c->instances[i], i);
	if (g != NULL)
		grammar_unref(g);
	sl_free(r.mask);
}
