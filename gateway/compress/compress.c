/* SPDX-License-Identifier: Apache-2.0
 *
 * The prompt is parsed once. Each message gets the number of its block, or KEPT. The token estimate depends on the
 * message alone; scaled by the engine's counts, it would move the borders of blocks from turn to turn.
 */
#include "gateway/compress/compress.h"

#include <jansson.h>
#include <openssl/sha.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "gateway/request/json_mem.h"
#include "gateway/request/request_fields.h"

enum {
	KEPT = -1,
	MESSAGE_TOKENS = 4,    /* that a template adds to a message */
	ASCII_PER_TOKEN = 4,   /* bytes */
	OTHER_PER_TOKEN = 3,   /* bytes, of characters that are not ASCII */
	LEAST_OF_MESSAGE = 64, /* bytes of each message in a transcript, at the least */
	CALLERS = 16,          /* messages with calls that are searched for a result's call */
	/* Only the user knows the user's facts. Facts of other messages count if they occur more than once. */
	USERS_WEIGHT = 4,
	OTHERS_WEIGHT = 1,
	LEAST_WEIGHT = 2,
};

struct message {
	const json_t *json;
	const char *role;
	size_t turn;
	size_t calls; /* 1 + the index of the last message up to this one that calls tools; 0: none */
	int block;    /* KEPT: not removed */
	uint64_t estimate;
};

struct block {
	uint64_t estimate;
	size_t n_messages;
};

struct compress_chat {
	json_t *root; /* owned */
	struct message *messages;
	size_t n_messages;
	struct block *blocks; /* [n_blocks]; room for n_messages */
	size_t n_blocks;
	uint64_t estimate;
};

/* ---- reading ---- */

static const char *text_of(const json_t *m, const char *key, size_t *n)
{
	const json_t *v = json_object_get(m, key);
	*n = json_string_length(v);
	return json_is_string(v) ? json_string_value(v) : "";
}

static uint64_t tokens_of(const char *s, size_t n)
{
	uint64_t ascii = 0;
	for (size_t i = 0; i < n; i++)
		ascii += (uint8_t)s[i] < 0x80;
	return ascii / ASCII_PER_TOKEN + (n - ascii) / OTHER_PER_TOKEN + 1;
}

static uint64_t estimate_of(const json_t *m)
{
	static const char *const keys[] = {"content", "reasoning_content"};
	uint64_t all = MESSAGE_TOKENS;
	size_t n;
	for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
		const char *s = text_of(m, keys[k], &n);
		all += n > 0 ? tokens_of(s, n) : 0;
	}
	const json_t *calls = json_object_get(m, "tool_calls");
	for (size_t k = 0; k < json_array_size(calls); k++) {
		const char *s = text_of(json_object_get(json_array_get(calls, k), "function"), "arguments", &n);
		all += MESSAGE_TOKENS + tokens_of(s, n);
	}
	return all;
}

static bool is_role(const struct message *m, const char *role) { return strcmp(m->role, role) == 0; }

static bool has_call(const struct message *m, const char *id)
{
	const json_t *calls = json_object_get(m->json, "tool_calls");
	for (size_t k = 0; k < json_array_size(calls); k++) {
		const char *have = json_string_value(json_object_get(json_array_get(calls, k), "id"));
		if (have != NULL && strcmp(have, id) == 0)
			return true;
	}
	return false;
}

/* The message that made the call; i if none is near. */
static size_t caller_of(const struct compress_chat *c, size_t i, const char *id)
{
	size_t at = c->messages[i].calls;
	for (int tries = 0; at > 0 && tries < CALLERS; tries++) {
		if (has_call(&c->messages[at - 1], id))
			return at - 1;
		at = at > 1 ? c->messages[at - 2].calls : 0;
	}
	return i;
}

/* A result belongs to the turn of its call, and so do the messages between them. */
static void join_results(struct compress_chat *c)
{
	for (size_t i = 0; i < c->n_messages; i++) {
		const char *id = json_string_value(json_object_get(c->messages[i].json, "tool_call_id"));
		if (id == NULL || !is_role(&c->messages[i], "tool"))
			continue;
		size_t at = caller_of(c, i, id), turn = c->messages[at].turn, old = c->messages[i].turn;
		for (size_t k = at; turn != old && k < c->n_messages && c->messages[k].turn <= old; k++)
			c->messages[k].turn = turn;
	}
}

static void find_turns(struct compress_chat *c)
{
	size_t turn = 0;
	for (size_t i = 0; i < c->n_messages; i++) {
		if (is_role(&c->messages[i], "user") && i > 0)
			turn++;
		c->messages[i].turn = turn;
		bool calls = json_array_size(json_object_get(c->messages[i].json, "tool_calls")) > 0;
		c->messages[i].calls = calls ? i + 1 : i > 0 ? c->messages[i - 1].calls : 0;
	}
	join_results(c);
}

static bool is_pinned(const struct message *m) { return json_is_true(json_object_get(m->json, "pinned")); }

/* The end of the turn that begins at i. */
static size_t turn_end(const struct compress_chat *c, size_t i)
{
	size_t end = i;
	while (end < c->n_messages && c->messages[end].turn == c->messages[i].turn)
		end++;
	return end;
}

static bool may_go(const struct compress_chat *c, size_t from, size_t to)
{
	if (to == c->n_messages)
		return false;
	for (size_t i = from; i < to; i++)
		if (is_pinned(&c->messages[i]))
			return false;
	return true;
}

static void cut(struct compress_chat *c, uint64_t block_tokens)
{
	struct block *b = &c->blocks[0];
	for (size_t i = 0, end; i < c->n_messages; i = end) {
		end = turn_end(c, i);
		bool goes = may_go(c, i, end);
		for (size_t k = i; k < end; k++) {
			struct message *m = &c->messages[k];
			m->block = KEPT;
			if (!goes || is_role(m, "system") || is_role(m, "developer"))
				continue;
			m->block = (int)(b - c->blocks);
			b->n_messages++;
			b->estimate += m->estimate;
		}
		if (b->estimate >= block_tokens && b->n_messages > 0)
			b++;
	}
	c->n_blocks = (size_t)(b - c->blocks) + (b->n_messages > 0);
}

int compress_chat_read(const char *prompt, size_t n, uint32_t block_tokens, struct compress_chat **out)
{
	struct compress_chat *c = sl_zalloc(sizeof *c);
	if (c == NULL)
		return SL_ENOMEM;
	c->root = json_mem_load(prompt, n, JSON_ALLOW_NUL, NULL);
	const json_t *list = json_object_get(c->root, "messages");
	c->n_messages = json_array_size(list);
	if (c->n_messages == 0) {
		compress_chat_free(c);
		return SL_EINVAL;
	}
	c->messages = sl_zalloc_n(c->n_messages, sizeof *c->messages);
	c->blocks = sl_zalloc_n(c->n_messages + 1, sizeof *c->blocks);
	if (c->messages == NULL || c->blocks == NULL) {
		compress_chat_free(c);
		return SL_ENOMEM;
	}
	for (size_t i = 0; i < c->n_messages; i++) {
		struct message *m = &c->messages[i];
		m->json = json_array_get(list, i);
		m->role = json_string_value(json_object_get(m->json, "role"));
		if (m->role == NULL) {
			compress_chat_free(c);
			return SL_EINVAL;
		}
		m->estimate = estimate_of(m->json);
		c->estimate += m->estimate;
	}
	find_turns(c);
	cut(c, block_tokens);
	*out = c;
	return 0;
}

void compress_chat_free(struct compress_chat *c)
{
	if (c == NULL)
		return;
	json_decref(c->root);
	sl_free(c->messages);
	sl_free(c->blocks);
	sl_free(c);
}

size_t compress_n_blocks(const struct compress_chat *c) { return c->n_blocks; }
uint64_t compress_block_estimate(const struct compress_chat *c, size_t block) { return c->blocks[block].estimate; }
uint64_t compress_estimate(const struct compress_chat *c) { return c->estimate; }

size_t compress_n_messages(const struct compress_chat *c, size_t n_blocks)
{
	size_t n = 0;
	for (size_t i = 0; i < n_blocks; i++)
		n += c->blocks[i].n_messages;
	return n;
}

/* ---- a block ---- */

/* The next message of a block from i on; n_messages: none. */
static size_t next_of(const struct compress_chat *c, size_t block, size_t i)
{
	while (i < c->n_messages && c->messages[i].block != (int)block)
		i++;
	return i;
}

int compress_block_digest(const struct compress_chat *c, size_t block, uint8_t out[COMPRESS_DIGEST_BYTES])
{
	struct sl_buf all;
	int rc = 0;
	buf_init(&all, REQUEST_MAX_PROMPT);
	for (size_t i = next_of(c, block, 0); rc == 0 && i < c->n_messages; i = next_of(c, block, i + 1))
		rc = request_put_json(&all, c->messages[i].json);
	if (rc == 0)
		SHA256(buf_data(&all), all.len, out);
	buf_dispose(&all);
	return rc;
}

/* Appends the text or, if it is longer than `most` bytes, its beginning and end in whole characters. */
static int put_clipped(struct sl_buf *out, const char *s, size_t n, size_t most)
{
	if (n <= most)
		return buf_append(out, s, n);
	size_t head = most * 2 / 3, tail = most - head;
	while (head > 0 && ((uint8_t)s[head] & 0xc0) == 0x80)
		head--;
	while (tail > 0 && ((uint8_t)s[n - tail] & 0xc0) == 0x80)
		tail--;
	int rc = buf_append(out, s, head);
	if (rc == 0)
		rc = buf_append_str(out, " … ");
	return rc == 0 ? buf_append(out, s + n - tail, tail) : rc;
}

static int put_calls(struct sl_buf *out, const json_t *m, size_t most)
{
	const json_t *calls = json_object_get(m, "tool_calls");
	int rc = 0;
	for (size_t k = 0; rc == 0 && k < json_array_size(calls); k++) {
		const json_t *f = json_object_get(json_array_get(calls, k), "function");
		size_t n;
		const char *s = text_of(f, "name", &n);
		rc = buf_append_str(out, " ");
		if (rc == 0)
			rc = put_clipped(out, s, n, most);
		if (rc == 0)
			rc = buf_append_str(out, "(");
		s = text_of(f, "arguments", &n);
		if (rc == 0)
			rc = put_clipped(out, s, n, most);
		if (rc == 0)
			rc = buf_append_str(out, ")");
	}
	return rc;
}

/* Does the turn of message i have one of the facts? */
static bool has_one(const struct compress_chat *c, size_t i, const struct compress_facts *facts)
{
	size_t turn = c->messages[i].turn, n;
	while (i > 0 && c->messages[i - 1].turn == turn)
		i--;
	for (; i < c->n_messages && c->messages[i].turn == turn; i++) {
		const char *s = text_of(c->messages[i].json, "content", &n);
		for (size_t k = 0; k < facts->n; k++)
			if (facts->at[k].at >= s && facts->at[k].at < s + n)
				return true;
	}
	return false;
}

int compress_block_transcript(const struct compress_chat *c, size_t block, const struct compress_excerpt *t,
			      struct sl_buf *out)
{
	size_t fair = t->max_bytes / (c->blocks[block].n_messages + 1), start = out->len, n;
	int rc = 0;
	if (fair < LEAST_OF_MESSAGE)
		fair = LEAST_OF_MESSAGE;
	/* If all of it fits, nothing is clipped. */
	if (c->blocks[block].estimate * ASCII_PER_TOKEN < t->max_bytes)
		fair = t->max_bytes;
	for (size_t i = next_of(c, block, 0); rc == 0 && i < c->n_messages; i = next_of(c, block, i + 1)) {
		const struct message *m = &c->messages[i];
		const char *s = text_of(m->json, "content", &n);
		bool others = !is_role(m, "user") && t->of_others > 0 && t->of_others < fair;
		size_t most = others ? t->of_others : fair;
		if (t->only != NULL && !has_one(c, i, t->only))
			continue;
		rc = buf_printf(out, "%s%s: ", out->len > start ? "\n" : "", m->role);
		if (rc == 0)
			rc = put_clipped(out, s, n, most);
		if (rc == 0)
			rc = put_calls(out, m->json, most);
	}
	return rc;
}

void compress_block_facts(const struct compress_chat *c, size_t block, struct compress_facts *out)
{
	out->n = 0;
	out->clock = out->n_texts = 0;
	for (size_t i = next_of(c, block, 0); i < c->n_messages; i = next_of(c, block, i + 1)) {
		size_t n;
		const char *s = text_of(c->messages[i].json, "content", &n);
		compress_facts_read(out, s, n, is_role(&c->messages[i], "user") ? USERS_WEIGHT : OTHERS_WEIGHT);
	}
	compress_facts_choose(out, LEAST_WEIGHT);
}

/* ---- the last message ---- */

static struct message *last_of(const struct compress_chat *c)
{
	struct message *m = &c->messages[c->n_messages - 1];
	return is_role(m, "user") && json_is_string(json_object_get(m->json, "content")) ? m : NULL;
}

const char *compress_last_text(const struct compress_chat *c, size_t *n, uint64_t *estimate)
{
	const struct message *m = last_of(c);
	*n = 0;
	if (m == NULL)
		return NULL;
	*estimate = m->estimate;
	return text_of(m->json, "content", n);
}

int compress_set_last_text(struct compress_chat *c, const char *text, size_t n)
{
	struct message *m = last_of(c);
	json_t *v = m != NULL ? json_stringn(text, n) : NULL;
	if (v == NULL)
		return SL_EINVAL;
	/* The parsed prompt is this chat's own. */
	if (json_object_set_new((json_t *)(uintptr_t)m->json, "content", v) != 0)
		return SL_ENOMEM;
	c->estimate -= m->estimate;
	m->estimate = estimate_of(m->json);
	c->estimate += m->estimate;
	return 0;
}

/* ---- writing ---- */

/* NULL: no memory. json_copy would drop members when memory is short. */
static json_t *copy_object(const json_t *o)
{
	json_t *copy = json_object();
	if (json_object_update(copy, (json_t *)(uintptr_t)o) == 0)
		return copy;
	json_decref(copy);
	return NULL;
}

/* A message that is kept, in the engine's form. */
static json_t *kept(const json_t *m)
{
	json_t *copy = copy_object(m);
	if (copy != NULL)
		json_object_del(copy, "pinned");
	return copy;
}

/* Puts the summary before a user's text. */
static int fold(json_t *m, const char *summary, size_t n)
{
	size_t n_said;
	const char *said = text_of(m, "content", &n_said);
	json_t *both = json_pack("s%++%", summary, n, "\n\n", said, n_said);
	return json_object_set_new(m, "content", both) == 0 ? 0 : SL_ENOMEM;
}

static int append(json_t *list, json_t *v) { return json_array_append_new(list, v) == 0 ? 0 : SL_ENOMEM; }

static int put_messages(const struct compress_chat *c, size_t n_blocks, enum compress_form form, const char *summary,
			size_t n, json_t *list)
{
	size_t last = 0; /* the last one removed */
	bool told = n == 0;
	int rc = 0;
	for (size_t i = 0; i < c->n_messages; i++)
		if (c->messages[i].block != KEPT && (size_t)c->messages[i].block < n_blocks)
			last = i;
	for (size_t i = 0; rc == 0 && i < c->n_messages; i++) {
		const struct message *m = &c->messages[i];
		if (!told && form == COMPRESS_MESSAGE && i == last) {
			rc = append(list, json_pack("{s:s, s:s%}", "role", "system", "content", summary, n));
			told = true;
		}
		if (rc != 0 || (m->block != KEPT && (size_t)m->block < n_blocks))
			continue;
		json_t *copy = kept(m->json);
		if (copy != NULL && !told && i > last && is_role(m, "user")) {
			rc = fold(copy, summary, n);
			told = true;
		}
		int added = append(list, copy);
		rc = rc == 0 ? added : rc;
	}
	return rc;
}

int compress_write(const struct compress_chat *c, size_t n_blocks, enum compress_form form, const char *summary,
		   size_t n, struct sl_buf *out)
{
	json_t *root = copy_object(c->root), *list = json_array();
	int rc = root == NULL || list == NULL ? SL_ENOMEM : put_messages(c, n_blocks, form, summary, n, list);
	if (rc == 0 && json_object_set(root, "messages", list) != 0)
		rc = SL_ENOMEM;
	if (rc == 0)
		rc = request_put_json(out, root);
	json_decref(list);
	json_decref(root);
	return rc;
}
