/* SPDX-License-Identifier: Apache-2.0
 *
 * Trainers save the tokenizer and the chat template that they used beside a PEFT adapter. Requests are converted by the
 * base's, so a token that the base does not have would silently be other tokens than the ones it was trained with.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"
#include "engine/adapter/adapter_priv.h"
#include "engine/file/json_file.h"
#include "engine/source/hf_folder.h"
#include "engine/token/tokenizer_source.h"

/* ---- added tokens ---- */

/* Whether the base's token of this id is that text; SentencePiece's tokens are written with U+2581 for a space. */
static bool is_token(const struct tokenizer *t, uint64_t id, struct proto_str text)
{
	static const char mark[] = "\xE2\x96\x81";
	size_t i = 0;
	if (id >= (uint64_t)tokenizer_n_vocab(t))
		return false;
	struct proto_str has = tokenizer_bytes(t, (int32_t)id);
	if (has.n == 1 && tok_byte_written(text) == (uint8_t)has.at[0])
		return true;
	for (size_t k = 0; k < has.n; k++) {
		if (has.at[k] == ' ' && text.n - i >= 3 && memcmp(text.at + i, mark, 3) == 0)
			i += 3;
		else if (i < text.n && has.at[k] == text.at[i])
			i++;
		else
			return false;
	}
	return i == text.n;
}

static int check_token(const struct tokenizer *t, const char *path, uint64_t id, struct proto_str raw,
		       struct sl_err *err)
{
	char *text = sl_alloc(raw.n + 1);
	size_t n = text != NULL ? json_unescape(raw, text) : 0;
	int rc = 0;
	if (text == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", path);
	if (n == SIZE_MAX) {
		rc = sl_errf(err, SL_EINVAL, "%s: an added token has a malformed escape", path);
	} else if (!is_token(t, id, (struct proto_str){text, n})) {
		text[n] = '\0';
		rc = sl_errf(err, SL_EUNSUPPORTED,
			     "%s: the base's vocabulary does not have the added token \"%.60s\" with id %llu", path,
			     text_has_control(text, n) ? "?" : text, (unsigned long long)id);
	}
	sl_free(text);
	return rc;
}

/* {"content": "<t>", …}, with "id" unless it is known already. */
static int read_entry(const struct tokenizer *t, const char *path, uint64_t id, struct json_scan *j, struct sl_err *err)
{
	struct proto_str key, text = {.at = NULL};
	json_scan_object(j);
	while (json_scan_key(j, &key)) {
		if (json_is(key, "id"))
			json_scan_uint(j, &id);
		else if (json_is(key, "content"))
			json_scan_string(j, &text);
		else
			json_scan_skip(j);
	}
	if (j->bad != NULL) /* reported by json_file_each */
		return 0;
	if (text.at == NULL || id == UINT64_MAX)
		return sl_errf(err, SL_EINVAL, "%s: an added token has no %s", path,
			       text.at == NULL ? "content" : "id");
	return check_token(t, path, id, text, err);
}

/* UINT64_MAX: no number, or one that no vocabulary has. */
static uint64_t number_of(struct proto_str digits)
{
	uint64_t n = 0;
	for (size_t i = 0; i < digits.n; i++) {
		if (digits.n > 9 || digits.at[i] < '0' || digits.at[i] > '9')
			return UINT64_MAX;
		n = n * 10 + (uint64_t)(digits.at[i] - '0');
	}
	return digits.n > 0 ? n : UINT64_MAX;
}

/* "added_tokens": [{"id": 7, "content": "<t>"}, …] */
static int read_tokenizer(void *t, const char *path, struct proto_str key, struct json_scan *j, struct sl_err *err)
{
	int rc = 0;
	if (!json_is(key, "added_tokens")) {
		json_scan_skip(j);
		return 0;
	}
	json_scan_array(j);
	while (rc == 0 && json_scan_item(j))
		rc = read_entry(t, path, UINT64_MAX, j, err);
	return rc;
}

/* "added_tokens_decoder": {"7": {"content": "<t>"}, …} */
static int read_config(void *t, const char *path, struct proto_str key, struct json_scan *j, struct sl_err *err)
{
	int rc = 0;
	if (!json_is(key, "added_tokens_decoder")) {
		json_scan_skip(j);
		return 0;
	}
	json_scan_object(j);
	while (rc == 0 && json_scan_key(j, &key))
		rc = read_entry(t, path, number_of(key), j, err);
	return rc;
}

/* "<t>": 7 */
static int read_added(void *t, const char *path, struct proto_str key, struct json_scan *j, struct sl_err *err)
{
	uint64_t id;
	return json_scan_uint(j, &id) ? check_token(t, path, id, key, err) : 0;
}

static const struct {
	const char *name;
	json_file_fn read;
} files[] = {
    {"tokenizer.json", read_tokenizer}, {"tokenizer_config.json", read_config}, {"added_tokens.json", read_added}};
enum { N_FILES = sizeof files / sizeof *files, PATH_BYTES = 4096 + 32 }; /* a folder's path has at most 4096 */

/* Whether it exists. */
static bool path_of(const struct adapter *a, int i, char path[PATH_BYTES])
{
	struct stat st;
	snprintf(path, PATH_BYTES, "%.4096s/%s", a->path, files[i].name);
	return file_stat(path, &st) == 0;
}

bool adapter_has_tokens(const struct adapter *a)
{
	char path[PATH_BYTES];
	bool has = false;
	for (int i = 0; i < N_FILES && a->gguf == NULL; i++)
		has = has || path_of(a, i, path);
	return has;
}

int adapter_check_tokens(const struct adapter *a, const struct tokenizer *t, struct sl_err *err)
{
	char path[PATH_BYTES];
	int rc = 0;
	for (int i = 0; i < N_FILES && a->gguf == NULL && rc == 0; i++)
		if (path_of(a, i, path))
			rc = json_file_each(path, files[i].read, (void *)(uintptr_t)t, err);
	return rc;
}

/* ---- the chat template ---- */

/* A template ignores a line end behind its last line. */
static size_t trimmed(struct proto_str s)
{
	while (s.n > 0 && (s.at[s.n - 1] == '\n' || s.at[s.n - 1] == '\r'))
		s.n--;
	return s.n;
}

static bool differs(struct proto_str a, struct proto_str b)
{
	size_t n = trimmed(a);
	return n != trimmed(b) || memcmp(a.at, b.at, n) != 0;
}

int adapter_own_template(const struct adapter *a, struct proto_str base, char **out, size_t *n, struct sl_err *err)
{
	struct proto_str own = {"", 0};
	struct sl_err none;
	*out = NULL;
	*n = 0;
	int rc = 0;
	if (a->gguf == NULL)
		rc = hf_read_template(a->path, out, n, err);
	else if (gguf_get_str(a->gguf, "tokenizer.chat_template", &own, &none) == 0 &&
		 (*out = sl_strndup(own.at, *n = own.n)) == NULL)
		rc = sl_errf(err, SL_ENOMEM, "%s: no memory", a->path);
	if (*out == NULL || differs((struct proto_str){*out, *n}, base))
		return rc;
	sl_free(*out);
	*out = NULL;
	return rc;
}
