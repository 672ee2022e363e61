/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of text in the messages of a request: named by an id (gateway/files), or sent with it.
 *
 * A parser names the files that it needs and does not have yet, and ends with SL_EAGAIN; its caller fetches their texts
 * and parses again (gateway/api/body_reader.h). A file's text stands in a fixed frame before all other text of its
 * message, cleansed by itself, so the prompt begins alike whatever is asked about it:
 *
 *   <file name="NAME">\nTEXT\n</file>\n\n
 *
 * Pure.
 */
#ifndef GATEWAY_REQUEST_FILES_H
#define GATEWAY_REQUEST_FILES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "gateway/cleanse/cleanse.h"
#include "gateway/request/request_error.h"

enum {
	REQUEST_MOST_FILES = 16,    /* different ones of a request, named by ids */
	REQUEST_FILE_ID_BYTES = 64, /* with the NUL */
	REQUEST_FILE_NAME_BYTES = 256,
};

struct request_file {
	char id[REQUEST_FILE_ID_BYTES];
	char name[REQUEST_FILE_NAME_BYTES]; /* once it has been fetched */
	char param[96];                     /* where the request names it first */
	char *text;                         /* owned; NULL: to be fetched */
	size_t n;
};

/* Zeros: none. May be moved. */
struct request_files {
	size_t n;
	struct request_file *at; /* owned: room for REQUEST_MOST_FILES, or NULL */
};

void request_files_dispose(struct request_files *f);
/* Bytes of the texts. */
size_t request_files_bytes(const struct request_files *f);
/* Some text is still to be fetched. */
bool request_files_lack(const struct request_files *f);

/* The file of that id, noted as needed at param if it is new; its text may be NULL. files NULL: this request can't
 * name any. 0, SL_EINVAL with *e, SL_ENOMEM. */
int request_file_named(struct request_files *files, const json_t *id, const char *param,
		       const struct request_file **out, struct request_error *e);
/* A name of 1 to 255 bytes of UTF-8 without control characters: 0, or SL_EINVAL with *e. */
int request_file_check_name(const char *name, size_t n, const char *param, struct request_error *e);
/* A media type, such as "text/plain; charset=utf-8", may be that of a text: 0, or SL_EINVAL with *e. */
int request_file_check_type(const char *type, size_t n, const char *param, struct request_error *e);
/* UTF-8 without NUL, and not empty: 0, or SL_EINVAL with *e. */
int request_file_check_text(const char *text, size_t n, const char *param, struct request_error *e);
/* Appends the text of "data:TYPE;base64,…" (RFC 2397). 0, SL_EINVAL with *e, SL_ELIMIT, SL_ENOMEM. */
int request_file_decode(const json_t *data, const char *param, struct sl_buf *out, struct request_error *e);

/* Appends the frame with the text, cleansed. 0, SL_ELIMIT, SL_ENOMEM. */
int request_file_put(struct sl_buf *out, const char *name, const char *text, size_t n, enum cleanse_level level,
		     struct cleanse_stats *cleansed);

#endif
