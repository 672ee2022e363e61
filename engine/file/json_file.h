/* SPDX-License-Identifier: Apache-2.0
 *
 * A JSON file that may be large: scanned in its mapping (base/json/json_scan.h), key by key.
 */
#ifndef ENGINE_JSON_FILE_H
#define ENGINE_JSON_FILE_H

#include "base/err.h"
#include "base/json/json_scan.h"

/* Consumes the value of the key. Not 0: the file is left. */
typedef int (*json_file_fn)(void *ctx, const char *path, struct proto_str key, struct json_scan *j, struct sl_err *err);

/* A file is read into memory, not mapped: it may change meanwhile. */
#define JSON_FILE_MAX_BYTES ((uint64_t)1 << 30)

/* Calls read for each key of the file's object. SL_EINVAL: malformed; as map_file_read, or read's. */
int json_file_each(const char *path, json_file_fn read, void *ctx, struct sl_err *err);

#endif
