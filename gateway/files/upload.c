/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/files/upload.h"

#include <stdio.h>
#include <string.h>

#include "gateway/request/request_files.h"

/* OpenAI's bounds on expires_after: an hour and 30 days. */
enum { LEAST_S = 3600, MOST_S = 2592000 };

enum field { FIELD_FILE, FIELD_PURPOSE, FIELD_ANCHOR, FIELD_SECONDS, N_FIELDS };

static const char *const names[N_FIELDS] = {"file", "purpose", "expires_after[anchor]", "expires_after[seconds]"};

static int bad_form(struct request_error *e, const char *why)
{
	return request_bad(e, "malformed_request", "", "The form can't be read: %s.", why);
}

static int read_file(const struct multipart_part *p, struct upload *out, struct request_error *e)
{
	int rc;
	if (!p->has_filename)
		return request_bad(e, "invalid_value", "file", "Invalid value for 'file': it has no file name.");
	if ((rc = request_file_check_name(p->filename, strlen(p->filename), "file", e)) != 0 ||
	    (p->type != NULL && (rc = request_file_check_type(p->type, p->n_type, "file", e)) != 0) ||
	    (rc = request_file_check_text(p->bytes, p->n, "file", e)) != 0)
		return rc;
	out->file = *p;
	return 0;
}

static bool is_text(const struct multipart_part *p, const char *text)
{
	return p->n == strlen(text) && memcmp(p->bytes, text, p->n) == 0;
}

static int read_purpose(const struct multipart_part *p, struct upload *out, struct request_error *e)
{
	static const char *const purposes[] = {"user_data", "assistants"};
	for (size_t i = 0; i < sizeof purposes / sizeof *purposes; i++)
		if (is_text(p, purposes[i])) {
			snprintf(out->purpose, sizeof out->purpose, "%s", purposes[i]);
			return 0;
		}
	return request_bad(e, "unsupported_value", "purpose",
			   "Unsupported value: 'purpose' must be 'user_data' or 'assistants' in this version.");
}

static int read_seconds(const struct multipart_part *p, struct upload *out, struct request_error *e)
{
	uint64_t s = 0;
	for (size_t i = 0; i < p->n && s <= MOST_S; i++) {
		bool digit = p->bytes[i] >= '0' && p->bytes[i] <= '9';
		s = digit ? s * 10 + (uint64_t)(p->bytes[i] - '0') : MOST_S + 1;
	}
	if (s < LEAST_S || s > MOST_S)
		return request_bad(e, "invalid_value", names[FIELD_SECONDS],
				   "Invalid value for '%s': it must be a whole number from %d to %d.",
				   names[FIELD_SECONDS], LEAST_S, MOST_S);
	out->keep_s = s;
	return 0;
}

static int read_part(const struct multipart_part *p, bool had[N_FIELDS], struct upload *out, struct request_error *e)
{
	int i = 0;
	while (i < N_FIELDS && strcmp(names[i], p->name) != 0)
		i++;
	if (i == N_FIELDS)
		return request_bad(e, "unknown_parameter", "", "The form has an unknown field.");
	if (had[i])
		return request_bad(e, "invalid_value", names[i], "Invalid form: '%s' comes more than once.", names[i]);
	had[i] = true;
	switch ((enum field)i) {
	case FIELD_FILE: return read_file(p, out, e);
	case FIELD_PURPOSE: return read_purpose(p, out, e);
	case FIELD_SECONDS: return read_seconds(p, out, e);
	case FIELD_ANCHOR:
		return is_text(p, "created_at")
			   ? 0
			   : request_bad(e, "invalid_value", names[i],
					 "Invalid value for '%s': it must be 'created_at'.", names[i]);
	case N_FIELDS: break;
	}
	return 0;
}

int upload_read(const char *content_type, const char *bytes, size_t n, struct upload *out, struct request_error *e)
{
	struct multipart m;
	struct multipart_part p;
	struct sl_err err = {0};
	bool had[N_FIELDS] = {false};
	int rc;
	*out = (struct upload){0};
	*e = (struct request_error){0};
	if (multipart_init(&m, content_type != NULL ? content_type : "", bytes, n, &err) != 0)
		return bad_form(e, err.text);
	while ((rc = multipart_next(&m, &p, &err)) > 0)
		if ((rc = read_part(&p, had, out, e)) != 0)
			return rc;
	if (rc != 0)
		return bad_form(e, err.text);
	for (int i = 0; i < N_FIELDS; i++)
		if (!had[i] && (i < FIELD_ANCHOR || had[FIELD_ANCHOR] != had[FIELD_SECONDS]))
			return request_missing(e, names[i]);
	return 0;
}
