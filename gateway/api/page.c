/* SPDX-License-Identifier: Apache-2.0
 *
 * The built-in page: files of www/, embedded in the executable, with a policy that lets them run only
 * themselves and talk only to this server.
 */
#include <string.h>

#include "gateway/exchange/exchange.h"
#include "gateway/api/handlers.h"
#include "gateway/api/www.h"

static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'";

static const struct www_file *file_of(const char *path)
{
	if (strcmp(path, "/") == 0)
		return www_find("index.html");
	if (strcmp(path, "/admin") == 0)
		return www_find("admin.html");
	if (strcmp(path, "/favicon.ico") == 0)
		return www_find("icon.svg");
	/* The client module has an address of its own, for the front ends of others. */
	if (strncmp(path, "/client.", 8) == 0)
		return www_find(path + 1);
	return strncmp(path, "/www/", 5) == 0 ? www_find(path + 5) : NULL;
}

/* If-None-Match is a list of quoted tags or "*" (RFC 9110, 13.1.2). */
static bool is_known(const char *header, const char *etag)
{
	if (header == NULL)
		return false;
	return strcmp(header, "*") == 0 || strstr(header, etag) != NULL;
}

void page_serve(struct exchange *x)
{
	const struct http_request *r = http_request(x->stream);
	const struct www_file *f = file_of(r->path);
	if (f == NULL) {
		exchange_refuse(x, 404, "not_found", NULL, "There is no such file.");
		return;
	}
	const struct http_field fields[] = {
	    {"etag", f->etag},
	    {"cache-control", "no-cache"},
	    {"content-security-policy", policy},
	    {"x-content-type-options", "nosniff"},
	    {"referrer-policy", "no-referrer"},
	    {"cross-origin-opener-policy", "same-origin"},
	};
	size_t n = sizeof fields / sizeof fields[0];
	if (is_known(http_header(r, "if-none-match"), f->etag))
		exchange_reply(x, 304, NULL, fields, n, NULL, 0);
	else
		exchange_reply(x, 200, f->content_type, fields, n, f->bytes, f->n_bytes);
}
