/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/request/request_files.h"

#include <openssl/evp.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "gateway/request/request_fields.h"

void request_files_dispose(struct request_files *f)
{
	for (size_t i = 0; i < f->n; i++)
		sl_free(f->at[i].text);
	sl_free(f->at);
	*f = (struct request_files){0};
}

size_t request_files_bytes(const struct request_files *f)
{
	size_t n = 0;
	for (size_t i = 0; i < f->n; i++)
		n += f->at[i].n;
	return n;
}

bool request_files_lack(const struct request_files *f)
{
	for (size_t i = 0; f != NULL && i < f->n; i++)
		if (f->at[i].text == NULL)
			return true;
	return false;
}

int request_file_named(struct request_files *files, const json_t *id, const char *param,
		       const struct request_file **out, struct request_error *e)
{
	if (id == NULL)
		return request_missing(e, param);
	if (!json_is_string(id))
		return request_wrong_type(e, param, "a string", id);
	const char *name = json_string_value(id);
	size_t n = json_string_length(id);
	if (n == 0 || n >= REQUEST_FILE_ID_BYTES || strlen(name) != n)
		return request_bad(e, "invalid_value", param, "Invalid value for '%s': it is no id of a file.", param);
	if (files == NULL)
		return request_bad(e, "unsupported_value", param, "'%s' can't name a file here.", param);
	for (size_t i = 0; i < files->n; i++)
		if (strcmp(files->at[i].id, name) == 0) {
			*out = &files->at[i];
			return 0;
		}
	if (files->n == REQUEST_MOST_FILES)
		return request_bad(e, "array_above_max_length", param,
				   "Invalid '%s': a request names at most %d different files.", param,
				   REQUEST_MOST_FILES);
	if (files->at == NULL && (files->at = sl_zalloc_n(REQUEST_MOST_FILES, sizeof *files->at)) == NULL)
		return SL_ENOMEM;
	struct request_file *f = &files->at[files->n++];
	memcpy(f->id, name, n + 1);
	snprintf(f->param, sizeof f->param, "%s", param);
	*out = f;
	return 0;
}

/* ---- checks ---- */

int request_file_check_name(const char *name, size_t n, const char *param, struct request_error *e)
{
	bool well = n > 0 && n < REQUEST_FILE_NAME_BYTES && utf8_valid(name, n);
	for (size_t i = 0; i < n && well; i++)
		well = (unsigned char)name[i] >= ' ' && name[i] != 0x7f;
	if (well)
		return 0;
	return request_bad(e, "invalid_value", param,
			   "Invalid value for '%s': a name has 1 to %d bytes of UTF-8 without control characters.",
			   param, REQUEST_FILE_NAME_BYTES - 1);
}

/* The type without its parameters, for a message. */
static size_t shown(const char *type, size_t n)
{
	size_t k = 0;
	while (k < n && k < 64 && type[k] > ' ' && type[k] < 0x7f && type[k] != ';' && type[k] != ',')
		k++;
	return k;
}

int request_file_check_type(const char *type, size_t n, const char *param, struct request_error *e)
{
	static const char *const refused[] = {"image/",          "audio/",          "video/",          "font/",
					      "application/pdf", "application/zip", "application/gzip"};
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
		size_t k = strlen(refused[i]);
		if (n >= k && strncasecmp(type, refused[i], k) == 0)
			return request_bad(e, "unsupported_value", param,
					   "Unsupported value: '%s' is of the type '%.*s', and only text is supported "
					   "by this version.",
					   param, (int)shown(type, n), type);
	}
	return 0;
}

int request_file_check_text(const char *text, size_t n, const char *param, struct request_error *e)
{
	if (n == 0)
		return request_bad(e, "invalid_value", param, "Invalid value for '%s': the file is empty.", param);
	if (n >= 5 && memcmp(text, "%PDF-", 5) == 0)
		return request_bad(e, "unsupported_value", param,
				   "Unsupported value: '%s' is a PDF, and only text is supported by this version.",
				   param);
	if (memchr(text, '\0', n) != NULL || !utf8_valid(text, n))
		return request_bad(e, "invalid_value", param,
				   "Invalid value for '%s': a file is text, in UTF-8 and without NUL.", param);
	return 0;
}

/* ---- a text sent with the request ---- */

static int bad_data(const char *param, struct request_error *e)
{
	return request_bad(e, "invalid_value", param,
			   "Invalid value for '%s': it must be 'data:text/plain;base64,' and the text in base64.",
			   param);
}

/* Alphabet and padding; EVP_DecodeBlock would skip blanks around it. */
static bool is_base64(const char *at, size_t n)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t pad = n > 0 && at[n - 1] == '=' ? n > 1 && at[n - 2] == '=' ? 2 : 1 : 0;
	return n > 0 && n % 4 == 0 && strspn(at, digits) == n - pad;
}

int request_file_decode(const json_t *data, const char *param, struct sl_buf *out, struct request_error *e)
{
	static const char mark[] = ";base64,";
	if (data == NULL)
		return request_missing(e, param);
	if (!json_is_string(data))
		return request_wrong_type(e, param, "a string", data);
	const char *at = json_string_value(data), *comma = strchr(at, ',');
	size_t all = json_string_length(data), head = comma != NULL ? (size_t)(comma + 1 - at) : 0;
	if (strlen(at) != all || strncasecmp(at, "data:", 5) != 0 || head < 5 + sizeof mark - 1 ||
	    strncasecmp(at + head - (sizeof mark - 1), mark, sizeof mark - 1) != 0)
		return bad_data(param, e);
	int rc = request_file_check_type(at + 5, head - 5 - (sizeof mark - 1), param, e);
	if (rc != 0)
		return rc;
	size_t n = all - head, before = out->len;
	at += head;
	if (n == 0)
		return request_file_check_text("", 0, param, e);
	if (!is_base64(at, n) || n > INT32_MAX)
		return bad_data(param, e);
	uint8_t *to;
	if ((rc = buf_reserve(out, n / 4 * 3, &to)) != 0)
		return rc;
	int got = EVP_DecodeBlock(to, (const unsigned char *)at, (int)n);
	if (got < 0)
		return bad_data(param, e);
	got -= (at[n - 1] == '=') + (at[n - 2] == '=');
	buf_commit(out, (size_t)got);
	return request_file_check_text((const char *)buf_data(out) + before, (size_t)got, param, e);
}

/* ---- the frame ---- */

/* What could end the attribute, or the tag, becomes '_'. */
static int put_name(struct sl_buf *out, const char *name)
{
	int rc = 0;
	while (*name != '\0' && rc == 0) {
		size_t n = strcspn(name, "\"<>");
		rc = buf_append(out, name, n);
		name += n;
		if (rc == 0 && *name != '\0') {
			rc = buf_append_str(out, "_");
			name++;
		}
	}
	return rc;
}

int request_file_put(struct sl_buf *out, const char *name, const char *text, size_t n, enum cleanse_level level,
		     struct cleanse_stats *cleansed)
{
	int rc;
	if ((rc = buf_append_str(out, "<file name=\"")) != 0 || (rc = put_name(out, name)) != 0 ||
	    (rc = buf_append_str(out, "\">\n")) != 0)
		return rc;
	if (level == CLEANSE_OFF) {
		rc = buf_append(out, text, n);
	} else {
		struct sl_buf clean;
		buf_init(&clean, REQUEST_MAX_PROMPT);
		rc = cleanse(level, text, n, &clean, cleansed);
		if (rc == 0 && clean.len > 0)
			rc = buf_append(out, buf_data(&clean), clean.len);
		buf_dispose(&clean);
	}
	return rc == 0 ? buf_append_str(out, "\n</file>\n\n") : rc;
}
