/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parsers of a body's parts share: errors that name the field, and the values that were found in it.
 */
#ifndef GATEWAY_REQUEST_ERROR_H
#define GATEWAY_REQUEST_ERROR_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "gateway/request/request_table.h"

/* What went wrong, for the client. */
struct request_error {
	const char *code; /* "invalid_value", "unsupported_parameter", … ; NULL: null */
	char param[96];   /* "": null */
	char message[256];
};

/* What a body has of the members that parsers read, borrowed from it: found in one pass over the few keys of a
 * body, since looking for each name costs more than parsing them. NULL: absent, or null. */
struct request_values {
	json_t *at[N_REQUEST_VALUES];
	const char *name[N_REQUEST_VALUES]; /* as the client calls it; NULL where at is */
};

/* ---- errors: each fills *e and returns SL_EINVAL ---- */

int request_bad(struct request_error *e, const char *code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
int request_wrong_type(struct request_error *e, const char *param, const char *want, const json_t *got);
/* above: lo itself is outside. An infinite bound is none. */
int request_out_of_range(struct request_error *e, const char *param, double lo, bool above, double hi, double got);
int request_missing(struct request_error *e, const char *param);
/* instead: a sentence, what to use; NULL: none. */
int request_refuse(struct request_error *e, const char *param, const char *instead);
/* How many bytes of a string are quoted in a message: whole characters. */
int request_quoted(const json_t *string);

/* ---- reading ---- */

/* A member that is there and not null; else NULL. */
json_t *request_get(const json_t *object, const char *key);

#endif
