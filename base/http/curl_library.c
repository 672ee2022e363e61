/* SPDX-License-Identifier: Apache-2.0 */
#include "base/http/curl_library.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>

static const struct {
	const char *name;
	size_t at;
} functions[] = {
#define X(name) {#name, offsetof(struct curl_library, name)},
    CURL_FUNCTIONS(X)
#undef X
};

const struct curl_library *curl_library(struct sl_err *err)
{
	static struct curl_library lib;
	static bool is_open;
	if (is_open)
		return &lib;
	void *so = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
	if (so == NULL) {
		sl_errf(err, SL_EUNSUPPORTED, "libcurl is not installed (Debian: libcurl4): %s", dlerror());
		return NULL;
	}
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
		void **to = (void **)((char *)&lib + functions[i].at);
		*to = dlsym(so, functions[i].name);
		if (*to == NULL) {
			sl_errf(err, SL_EUNSUPPORTED, "libcurl is too old: it has no %s", functions[i].name);
			return NULL;
		}
	}
	if (lib.curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
		sl_errf(err, SL_EIO, "libcurl can't be initialized");
		return NULL;
	}
	is_open = true;
	return &lib;
}
