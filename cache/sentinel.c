/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/sentinel.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char prefix[] = "sentinel:";
static const char form[] = "sentinel:NAME@HOST:PORT,HOST:PORT…";

bool sentinel_is(const char *address) { return strncmp(address, prefix, sizeof prefix - 1) == 0; }

static bool is_port(const char *text, size_t n, int *out)
{
	int port = 0;
	if (n < 1 || n > 5 || strspn(text, "0123456789") < n)
		return false;
	for (size_t i = 0; i < n; i++)
		port = 10 * port + (text[i] - '0');
	if (port < 1 || port > 65535)
		return false;
	*out = port;
	return true;
}

bool redis_split_address(const char *text, size_t n, size_t *host_at, size_t *host_n, int *port)
{
	size_t colon = n;
	while (colon > 0 && text[colon - 1] != ':')
		colon--;
	if (colon < 2 || !is_port(text + colon, n - colon, port))
		return false;
	bool brackets = colon > 3 && text[0] == '[' && text[colon - 2] == ']';
	*host_at = brackets;
	*host_n = colon - 1 - (brackets ? 2 : 0);
	return true;
}

int redis_find_host(const char *host, int port, char out[64], struct sl_err *err)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
	char text[8];
	snprintf(text, sizeof text, "%d", port);
	int rc = getaddrinfo(host, text, &hints, &found);
	if (rc == 0) {
		rc = getnameinfo(found->ai_addr, found->ai_addrlen, out, 64, NULL, 0, NI_NUMERICHOST);
		freeaddrinfo(found);
	}
	return rc == 0 ? 0 : sl_errf(err, SL_EIO, "%s: %s", host, gai_strerror(rc));
}

bool sentinel_names_host(const char *host, size_t n, const char *port, int *out)
{
	return n > 0 && n < SENTINEL_HOST_MOST &&
	       strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:_-%") == n &&
	       is_port(port, strlen(port), out);
}

static int add_sentinel(struct sentinel_set *s, const char *text, size_t n, const char *address, struct sl_err *err)
{
	size_t at, host_n;
	char host[SENTINEL_HOST_MOST];
	struct sentinel_place *to = &s->of[s->n];
	if (s->n == MAX_SENTINELS)
		return sl_errf(err, SL_EINVAL, "cache address %s: at most %d sentinels", address, MAX_SENTINELS);
	if (!redis_split_address(text, n, &at, &host_n, &to->port) || host_n >= sizeof host)
		return sl_errf(err, SL_EINVAL, "cache address %s: %s", address, form);
	memcpy(host, text + at, host_n);
	host[host_n] = '\0';
	struct sl_err why;
	int rc = redis_find_host(host, to->port, to->host, &why);
	s->n += rc == 0;
	return rc == 0 ? 0 : sl_errf(err, rc, "cache address %s: %s", address, why.text);
}

int sentinel_parse(const char *address, struct sentinel_set *out, struct sl_err *err)
{
	const char *name = address + sizeof prefix - 1, *at = strchr(name, '@');
	size_t n = at == NULL ? 0 : (size_t)(at - name);
	int rc = 0;
	*out = (struct sentinel_set){.n = 0};
	if (n < 1 || n > SENTINEL_NAME_MOST ||
	    strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") < n)
		return sl_errf(err, SL_EINVAL, "cache address %s: %s", address, form);
	memcpy(out->name, name, n);
	do {
		at++;
		n = strcspn(at, ",");
		rc = add_sentinel(out, at, n, address, err);
		at += n;
	} while (rc == 0 && *at == ',');
	return rc;
}
