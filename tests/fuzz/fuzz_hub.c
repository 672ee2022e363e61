/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/hub: what a hub says. The first byte chooses the input: a listing (whose files are then picked from), a Link
 * header, a line of a header, a source. No path that leaves the folder survives; errors are one line.
 */
#include <stdio.h>
#include <string.h>

#include "cmd/hub/hub_net.h"
#include "cmd/hub/hub_pick.h"
#include "cmd/hub/hub_reply.h"
#include "cmd/hub/hub_source.h"
#include "tests/fuzz/fuzz.h"

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	static const char *const seeds[] = {
	    "0[{\"type\":\"file\",\"oid\":\"0123456789012345678901234567890123456789\",\"size\":3,\"path\":\"config."
	    "json\"},"
	    "{\"type\":\"file\",\"size\":9,\"lfs\":{\"oid\":"
	    "\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\","
	    "\"size\":9},\"path\":\"d/m-Q4_K_M-00001-of-00002.gguf\"}]",
	    "0[{\"type\":\"file\",\"oid\":\"0123456789012345678901234567890123456789\",\"size\":3,\"path\":\"..\\/"
	    "x.gguf\"}]",
	    "1<https://h/a?c=1>; rel=\"next\", </b>; title=\"x, y\"; rel=prev",
	    "2Content-Range: bytes 10-19/20\r\n",
	    "2X-Linked-ETag: \"0123456789abcdef\"\r\n",
	    "3hf:Qwen/Qwen3-0.6B-GGUF@main:Q8_0",
	    "3https://h.example:8443/x/model-q4_0-00001-of-00002.gguf?sig=1",
	};
	return fuzz_seed_text(seeds, sizeof seeds / sizeof *seeds, i, out, max);
}

static void require_inside(const char *path)
{
	FUZZ_REQUIRE(path[0] != '/' && path[0] != '.' && path[0] != '\0');
	FUZZ_REQUIRE(strstr(path, "/.") == NULL && strstr(path, "//") == NULL && strchr(path, '\\') == NULL);
}

static void try_tree(const char *text, size_t n)
{
	static const char *const tags[] = {"", "Q4_K_M", "SAFETENSORS"};
	struct hub_files all = {.items = NULL}, picked;
	struct sl_err err = {0};
	if (hub_tree_parse(text, n, &all, &err) != 0)
		FUZZ_REQUIRE(err.text[0] != '\0' && strchr(err.text, '\n') == NULL);
	for (size_t i = 0; i < all.n; i++)
		require_inside(all.items[i].path);
	for (size_t t = 0; t < sizeof tags / sizeof *tags; t++) {
		int rc = hub_pick(&all, tags[t], &picked, &err);
		FUZZ_REQUIRE(rc != 0 || picked.n > 0);
		for (size_t i = 0; i < picked.n; i++)
			require_inside(hub_pick_local(&picked.items[i]));
		hub_files_dispose(&picked);
	}
	hub_files_dispose(&all);
}

static void try_reply(const char *line, size_t n)
{
	struct hub_reply r = {.start = -1, .total = -1, .linked_size = -1};
	hub_reply_header(&r, line, n);
	FUZZ_REQUIRE(r.start >= -1 && r.total >= -1 && r.linked_size >= -1);
	FUZZ_REQUIRE(strlen(r.etag) < sizeof r.etag && strlen(r.next) < sizeof r.next);
}

static void try_source(const uint8_t *data, size_t n)
{
	char text[300], put[512];
	struct hub_source s;
	struct sl_err err = {0};
	snprintf(text, sizeof text, "%.*s", (int)(n < 299 ? n : 299), (const char *)data);
	if (hub_source_parse(text, &s, &err) != 0) {
		FUZZ_REQUIRE(err.text[0] != '\0' && strchr(err.text, '\n') == NULL);
		return;
	}
	require_inside(s.name);
	FUZZ_REQUIRE(strchr(s.name, '/') == NULL);
	hub_source_put(&s, put, sizeof put);
	FUZZ_REQUIRE(strchr(put, '\n') == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	char next[HUB_URL_BYTES];
	if (n == 0)
		return 0;
	const char *rest = (const char *)data + 1;
	switch (data[0] % 4) {
	case 0: try_tree(rest, n - 1); break;
	case 1:
		if (hub_link_next(rest, n - 1, next, sizeof next))
			FUZZ_REQUIRE(next[0] != '\0' && strlen(next) < n);
		break;
	case 2: try_reply(rest, n - 1); break;
	default: try_source(data + 1, n - 1);
	}
	return 0;
}
