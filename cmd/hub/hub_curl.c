/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/hub/hub_curl.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

int hub_curl_open(struct hub_curl *out, struct sl_err *err)
{
	static const struct {
		const char *name;
		size_t at;
	} symbols[] = {{"curl_global_init", offsetof(struct hub_curl, global_init)},
		       {"curl_easy_init", offsetof(struct hub_curl, init)},
		       {"curl_easy_setopt", offsetof(struct hub_curl, set)},
		       {"curl_easy_getinfo", offsetof(struct hub_curl, info)},
		       {"curl_easy_perform", offsetof(struct hub_curl, perform)},
		       {"curl_easy_reset", offsetof(struct hub_curl, reset)},
		       {"curl_easy_cleanup", offsetof(struct hub_curl, cleanup)},
		       {"curl_easy_strerror", offsetof(struct hub_curl, strerror)},
		       {"curl_slist_append", offsetof(struct hub_curl, slist_append)},
		       {"curl_slist_free_all", offsetof(struct hub_curl, slist_free)}};
	/* Debian's other builds of it, with GnuTLS or NSS, have names of their own. */
	void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
	if (library == NULL)
		return sl_errf(err, SL_ENOTFOUND, "libcurl is not installed (Debian: libcurl4)");
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		void *f = dlsym(library, symbols[i].name);
		if (f == NULL)
			return sl_errf(err, SL_ENOTFOUND, "libcurl has no %s", symbols[i].name);
		memcpy((char *)out + symbols[i].at, &f, sizeof f);
	}
	if (out->global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return sl_errf(err, SL_ENOMEM, "libcurl does not start");
	return 0;
}
