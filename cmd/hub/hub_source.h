/* SPDX-License-Identifier: Apache-2.0
 *
 * Names from outside: sources, models, and paths of files in a repository. Pure.
 */
#ifndef CMD_HUB_SOURCE_H
#define CMD_HUB_SOURCE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum { HUB_NAME_BYTES = 101, HUB_URL_BYTES = 2048, HUB_PATH_BYTES = 256 };

enum hub_kind { HUB_REPO, HUB_URL };

struct hub_source {
	enum hub_kind kind;
	char owner[97], repo[97], revision[65]; /* of a repository; revision: "main" unless given */
	char tag[33];                           /* in capitals; "": none */
	char url[HUB_URL_BYTES];                /* of HUB_URL */
	char name[HUB_NAME_BYTES];              /* what the model is called unless --name is given */
};

/* hf:OWNER/NAME[@REVISION][:TAG] (also hf.co/… and huggingface.co/…), or http(s)://…/FILE.gguf. SL_EINVAL. */
int hub_source_parse(const char *text, struct hub_source *out, struct sl_err *err);
/* Whether text has the form of a source, valid or not. */
bool hub_source_like(const char *text);
/* The source as text, without what follows a `?`, which may be a secret. */
void hub_source_put(const struct hub_source *s, char *out, size_t size);

enum hub_path { HUB_PATH_GOOD, HUB_PATH_HIDDEN, HUB_PATH_BAD };
/* A file's path in a repository. BAD: it is absolute, leads upwards, is too long, or has a byte that no honest name
 * has; a listing with such a path is refused. HIDDEN: a part begins with . or -; never fetched. */
enum hub_path hub_path_check(const char *path, size_t n);

/* scheme://host:port of a URL, in small letters, without a default port; false: not an http(s) URL, or one with a user
 * name. */
bool hub_origin(const char *url, char *out, size_t size);

#endif
