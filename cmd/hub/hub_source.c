/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/hub/hub_source.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "base/utf8.h"
#include "cmd/config/model_path.h"

#define WORD "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

static const char *const prefixes[] = {"hf:", "hf.co/", "huggingface.co/", "https://hf.co/", "https://huggingface.co/"};
enum { N_SHORT = 3 }; /* these cannot be the address of a file */

/* Copies n bytes that are letters, digits and . _ -, the first of them no . or -. */
static bool take_word(const char *at, size_t n, char *out, size_t size)
{
	if (n == 0 || n >= size || at[0] == '.' || at[0] == '-' || strspn(at, WORD) < n)
		return false;
	memcpy(out, at, n);
	out[n] = '\0';
	return true;
}

/* A model's name of the repository's name and the tag. */
static bool name_repo(struct hub_source *s)
{
	int n = snprintf(s->name, sizeof s->name, s->tag[0] != '\0' ? "%s-%s" : "%s", s->repo, s->tag);
	return n > 0 && (size_t)n < sizeof s->name && model_name_valid(s->name);
}

/* OWNER/NAME[@REVISION][:TAG] */
static bool parse_repo(const char *at, struct hub_source *s)
{
	size_t owner = strcspn(at, "/");
	const char *repo = at[owner] == '/' ? at + owner + 1 : at + owner;
	size_t n = strcspn(repo, "@:");
	const char *rest = repo + n;
	s->kind = HUB_REPO;
	snprintf(s->revision, sizeof s->revision, "main");
	if (!take_word(at, owner, s->owner, sizeof s->owner) || !take_word(repo, n, s->repo, sizeof s->repo) ||
	    strstr(s->repo, "..") != NULL)
		return false;
	if (*rest == '@') {
		n = strcspn(++rest, ":");
		if (!take_word(rest, n, s->revision, sizeof s->revision))
			return false;
		rest += n;
	}
	if (*rest == ':' && !take_word(rest + 1, strlen(rest + 1), s->tag, sizeof s->tag))
		return false;
	for (char *c = s->tag; *c != '\0'; c++)
		*c = (char)toupper((unsigned char)*c);
	return name_repo(s);
}

/* The length of a file's name without .gguf and -00001-of-00003; 0: it is no GGUF file's. */
static size_t plain_length(const char *name, size_t n)
{
	static const char form[] = "-00000-of-00000";
	if (n <= 5 || strncasecmp(name + n - 5, ".gguf", 5) != 0)
		return 0;
	n -= 5;
	size_t m = sizeof form - 1;
	if (n <= m)
		return n;
	for (size_t i = 0; i < m; i++) {
		char c = name[n - m + i];
		if (form[i] == '0' ? !isdigit((unsigned char)c) : c != form[i])
			return n;
	}
	return n - m;
}

static bool parse_url(const char *text, struct hub_source *s)
{
	char origin[HUB_URL_BYTES];
	s->kind = HUB_URL;
	for (const char *c = text; *c != '\0'; c++)
		if (*c <= ' ' || *c >= 0x7f)
			return false;
	if (strlen(text) >= sizeof s->url || !hub_origin(text, origin, sizeof origin))
		return false;
	snprintf(s->url, sizeof s->url, "%s", text);
	const char *path = strchr(strstr(text, "://") + 3, '/'), *name = path;
	size_t end = path != NULL ? strcspn(path, "?#") : 0;
	for (size_t i = 0; i < end; i++)
		if (path[i] == '/')
			name = path + i + 1;
	return path != NULL &&
	       take_word(name, plain_length(name, end - (size_t)(name - path)), s->name, sizeof s->name);
}

/* What follows the prefix of a repository; NULL: it is none. */
static const char *after_prefix(const char *text)
{
	for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
		size_t n = strlen(prefixes[i]);
		/* https://huggingface.co/OWNER/NAME/resolve/… is the address of a file. */
		bool is_file = i >= N_SHORT && strstr(text, "/resolve/") != NULL;
		if (strncasecmp(text, prefixes[i], n) == 0 && !is_file)
			return text + n;
	}
	return NULL;
}

bool hub_source_like(const char *text)
{
	return after_prefix(text) != NULL || strncasecmp(text, "https://", 8) == 0 ||
	       strncasecmp(text, "http://", 7) == 0;
}

int hub_source_parse(const char *text, struct hub_source *out, struct sl_err *err)
{
	const char *repo = after_prefix(text);
	*out = (struct hub_source){.kind = HUB_REPO};
	if (repo != NULL ? parse_repo(repo, out) : hub_source_like(text) && parse_url(text, out))
		return 0;
	char shown[100];
	snprintf(shown, sizeof shown, "%.90s", text);
	text_one_line(shown, '?');
	return sl_errf(err, SL_EINVAL, "%s: hf:OWNER/NAME[:TAG] or https://HOST/FILE.gguf is wanted", shown);
}

void hub_source_put(const struct hub_source *s, char *out, size_t size)
{
	bool main = strcmp(s->revision, "main") == 0, tag = s->tag[0] != '\0';
	if (s->kind == HUB_URL)
		snprintf(out, size, "%.*s", (int)strcspn(s->url, "?#"), s->url);
	else
		snprintf(out, size, "hf:%s/%s%s%s%s%s", s->owner, s->repo, main ? "" : "@", main ? "" : s->revision,
			 tag ? ":" : "", s->tag);
}

/* ---- paths ---- */

static bool is_bad_part(const char *part, size_t n)
{
	return n == 0 || n > 200 || (part[0] == '.' && (n == 1 || (n == 2 && part[1] == '.')));
}

enum hub_path hub_path_check(const char *path, size_t n)
{
	enum hub_path kind = HUB_PATH_GOOD;
	if (n == 0 || n >= HUB_PATH_BYTES || !utf8_valid(path, n) || text_has_control(path, n) ||
	    memchr(path, '\\', n) != NULL)
		return HUB_PATH_BAD;
	for (size_t at = 0; at <= n;) {
		const char *slash = memchr(path + at, '/', n - at);
		size_t part = slash != NULL ? (size_t)(slash - path) - at : n - at;
		if (is_bad_part(path + at, part))
			return HUB_PATH_BAD;
		if (path[at] == '.' || path[at] == '-')
			kind = HUB_PATH_HIDDEN;
		at += part + 1;
	}
	return kind;
}

bool hub_origin(const char *url, char *out, size_t size)
{
	bool tls = strncasecmp(url, "https://", 8) == 0;
	if (!tls && strncasecmp(url, "http://", 7) != 0)
		return false;
	const char *host = url + (tls ? 8 : 7), *fallback = tls ? ":443" : ":80";
	size_t n = strcspn(host, "/?#"), port = strlen(fallback);
	if (n == 0 || memchr(host, '@', n) != NULL || memchr(host, '\\', n) != NULL)
		return false;
	if (n > port && strncmp(host + n - port, fallback, port) == 0)
		n -= port;
	int length = snprintf(out, size, "%s://%.*s", tls ? "https" : "http", (int)n, host);
	for (char *c = out; length > 0 && (size_t)length < size && *c != '\0'; c++)
		*c = (char)tolower((unsigned char)*c);
	return length > 0 && (size_t)length < size;
}
