/* SPDX-License-Identifier: Apache-2.0
 *
 * libcurl, opened at run time by the process that downloads. So the executable does not need it: the gateway and the
 * engine, which are the same executable, never map it, and their start does not pay for its thirty libraries.
 */
#ifndef CMD_HUB_CURL_H
#define CMD_HUB_CURL_H

#include <curl/curl.h>
/* Macros of the header that would call the library directly. */
#undef curl_easy_setopt
#undef curl_easy_getinfo

#include "base/err.h"

struct hub_curl {
	__typeof__(curl_global_init) *global_init;
	__typeof__(curl_easy_init) *init;
	__typeof__(curl_easy_setopt) *set;
	__typeof__(curl_easy_getinfo) *info;
	__typeof__(curl_easy_perform) *perform;
	__typeof__(curl_easy_reset) *reset;
	__typeof__(curl_easy_cleanup) *cleanup;
	__typeof__(curl_easy_strerror) *strerror;
	__typeof__(curl_slist_append) *slist_append;
	__typeof__(curl_slist_free_all) *slist_free;
};

/* Also initializes the library. SL_ENOTFOUND: it is not installed, or too old. */
int hub_curl_open(struct hub_curl *out, struct sl_err *err);

#endif
