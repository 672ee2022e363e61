/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: what clients of HTTP servers need, the commands (cmd/http, cmd/hub) and the engine whose models another
 * server runs (engine/remote): libcurl, a parser of HTTP/1.1 responses (http1_read.h) and one of server-sent events
 * (sse_read.h).
 *
 * libcurl is opened by the process that needs it. Linked, it would bring some thirty shared objects into the gateway
 * and the other engines, which must not have what they do not use.
 *
 * Thread: the first call is made while the process has one.
 */
#ifndef BASE_CURL_LIBRARY_H
#define BASE_CURL_LIBRARY_H

#define CURL_DISABLE_TYPECHECK 1
#include <curl/curl.h>

#include "base/err.h"

/* The functions in use, under their own names. */
#define CURL_FUNCTIONS(X)           \
	X(curl_global_init)         \
	X(curl_easy_init)           \
	X(curl_easy_setopt)         \
	X(curl_easy_getinfo)        \
	X(curl_easy_perform)        \
	X(curl_easy_reset)          \
	X(curl_easy_cleanup)        \
	X(curl_easy_pause)          \
	X(curl_easy_strerror)       \
	X(curl_slist_append)        \
	X(curl_slist_free_all)      \
	X(curl_multi_init)          \
	X(curl_multi_setopt)        \
	X(curl_multi_add_handle)    \
	X(curl_multi_remove_handle) \
	X(curl_multi_perform)       \
	X(curl_multi_poll)          \
	X(curl_multi_info_read)     \
	X(curl_multi_socket_action) \
	X(curl_multi_assign)        \
	X(curl_multi_strerror)      \
	X(curl_multi_cleanup)

struct curl_library {
#define X(name) __typeof__(name) *name;
	CURL_FUNCTIONS(X)
#undef X
};

/* The library, opened and initialized once; NULL with *err where it is not installed or too old. */
const struct curl_library *curl_library(struct sl_err *err);

#endif
