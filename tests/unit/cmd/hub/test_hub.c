/* SPDX-License-Identifier: Apache-2.0
 *
 * The pure part of cmd/hub: names from outside, listings, choices of files, headers, the line of progress. And signals
 * that reach a child as it begins.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "cmd/hub/hub.h"
#include "cmd/hub/hub_net.h"
#include "cmd/hub/hub_pick.h"
#include "cmd/hub/hub_progress.h"
#include "cmd/hub/hub_reply.h"
#include "cmd/hub/hub_source.h"
#include "cmd/hub/hub_tree.h"
#include "cmd/hub/hub_work.h"

/* ---- sources ---- */

static void test_sources(void **unused)
{
	static const struct {
		const char *text, *put, *name;
	} good[] = {
	    {"hf:Qwen/Qwen3-0.6B-GGUF:q8_0", "hf:Qwen/Qwen3-0.6B-GGUF:Q8_0", "Qwen3-0.6B-GGUF-Q8_0"},
	    {"hf:a/b", "hf:a/b", "b"},
	    {"hf:a/b@v1.0", "hf:a/b@v1.0", "b"},
	    {"hf:a/b@0123abc:Q4_K_M", "hf:a/b@0123abc:Q4_K_M", "b-Q4_K_M"},
	    {"hf:a/b@main:F16", "hf:a/b:F16", "b-F16"},
	    {"hf.co/a/b:F16", "hf:a/b:F16", "b-F16"},
	    {"https://huggingface.co/a/b", "hf:a/b", "b"},
	    {"https://huggingface.co/a/b/resolve/main/x.gguf", "https://huggingface.co/a/b/resolve/main/x.gguf", "x"},
	    {"https://h.example:8443/x/model-q4_0.gguf?sig=1#f", "https://h.example:8443/x/model-q4_0.gguf",
	     "model-q4_0"},
	    {"https://h/m-00001-of-00003.gguf", "https://h/m-00001-of-00003.gguf", "m"},
	};
	static const char *const bad[] = {"",
					  "hf:",
					  "hf:a",
					  "hf:a/",
					  "hf:/b",
					  "hf:a/b/c",
					  "hf:../b",
					  "hf:a/..",
					  "hf:a/b..c",
					  "hf:a/b:",
					  "hf:a/b@",
					  "hf:a/b:..",
					  "hf:a/b:x/y",
					  "hf:a/b@x/y",
					  "hf:a b/c",
					  "hf:-a/b",
					  "hf:a/.b",
					  "hf:a/b\n",
					  "a/b",
					  "https://h/",
					  "https://h",
					  "https://h/x.bin",
					  "https://h/.gguf",
					  "https://h/..gguf",
					  "https://h/%2e%2e%2fx.gguf",
					  "https://h/a b.gguf",
					  "https://u:p@h/x.gguf",
					  "https:///x.gguf",
					  "ftp://h/x.gguf",
					  "file:///etc/x.gguf",
					  "https://h/x\xc3\xa4.gguf"};
	struct hub_source s;
	struct sl_err err;
	char put[512];
	(void)unused;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		assert_int_equal(hub_source_parse(good[i].text, &s, &err), 0);
		hub_source_put(&s, put, sizeof put);
		assert_string_equal(put, good[i].put);
		assert_string_equal(s.name, good[i].name);
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		if (hub_source_parse(bad[i], &s, &err) == 0)
			fail_msg("accepted: %s", bad[i]);
		assert_null(strchr(err.text, '\n'));
	}
}

static void test_paths(void **unused)
{
	static const struct {
		const char *path;
		enum hub_path kind;
	} cases[] = {
	    {"config.json", HUB_PATH_GOOD}, {"1_Pooling/config.json", HUB_PATH_GOOD},
	    {"a b.gguf", HUB_PATH_GOOD},    {".gitattributes", HUB_PATH_HIDDEN},
	    {"x/.y", HUB_PATH_HIDDEN},      {"-rf", HUB_PATH_HIDDEN},
	    {"...", HUB_PATH_HIDDEN},       {"", HUB_PATH_BAD},
	    {"/etc/passwd", HUB_PATH_BAD},  {"../x", HUB_PATH_BAD},
	    {"x/../y", HUB_PATH_BAD},       {"x/..", HUB_PATH_BAD},
	    {"./x", HUB_PATH_BAD},          {"x//y", HUB_PATH_BAD},
	    {"x/", HUB_PATH_BAD},           {"x\ny", HUB_PATH_BAD},
	    {"x\\y", HUB_PATH_BAD},         {"\xff", HUB_PATH_BAD},
	};
	char longest[HUB_PATH_BYTES + 1];
	(void)unused;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		assert_int_equal(hub_path_check(cases[i].path, strlen(cases[i].path)), cases[i].kind);
	assert_int_equal(hub_path_check("a\0b", 3), HUB_PATH_BAD);
	memset(longest, 'x', sizeof longest);
	longest[100] = '/';
	assert_int_equal(hub_path_check(longest, HUB_PATH_BYTES - 1), HUB_PATH_GOOD);
	assert_int_equal(hub_path_check(longest, HUB_PATH_BYTES), HUB_PATH_BAD);
}

static void test_origins(void **unused)
{
	char a[HUB_URL_BYTES];
	(void)unused;
	assert_true(hub_origin("HTTPS://Hub.Example:443/x?y", a, sizeof a));
	assert_string_equal(a, "https://hub.example");
	assert_true(hub_origin("http://127.0.0.1:8080", a, sizeof a));
	assert_string_equal(a, "http://127.0.0.1:8080");
	assert_true(hub_origin("http://[::1]:80/", a, sizeof a));
	assert_string_equal(a, "http://[::1]");
	assert_false(hub_origin("https://hub.example@evil/", a, sizeof a));
	assert_false(hub_origin("https://hub.example\\@evil/", a, sizeof a));
	assert_false(hub_origin("ftp://x/", a, sizeof a));
	assert_false(hub_origin("https://", a, sizeof a));
	assert_false(hub_origin("https://hub.example/", a, 8));
}

/* ---- listings ---- */

#define SHA1 "0123456789012345678901234567890123456789"
#define SHA256 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define SMALL(path) "{\"type\":\"file\",\"oid\":\"" SHA1 "\",\"size\":12,\"path\":\"" path "\"}"
#define LARGE(path, size)                                                                                          \
	"{\"type\":\"file\",\"oid\":\"" SHA1 "\",\"size\":" size ",\"lfs\":{\"oid\":\"" SHA256 "\",\"size\":" size \
	",\"pointerSize\":134},\"path\":\"" path "\"}"

static int parse(const char *json, struct hub_files *out, struct sl_err *err)
{
	*out = (struct hub_files){.items = NULL};
	return hub_tree_parse(json, strlen(json), out, err);
}

static void test_tree(void **unused)
{
	static const char *const bad[] = {
	    "",
	    "{}",
	    "[",
	    "[]x",
	    "[1]",
	    "[" SMALL("../evil.gguf") "]",
	    "[" SMALL("a/../../evil") "]",
	    "[" SMALL("/etc/passwd") "]",
	    "[" SMALL("x\\u0000y") "]",
	    "[" SMALL("x\\ny") "]",
	    "[{\"type\":\"directory\",\"path\":\"..\",\"oid\":\"" SHA1 "\",\"size\":0}]",
	    "[{\"type\":\"file\",\"path\":\"x\",\"oid\":\"12\",\"size\":1}]",
	    "[{\"type\":\"file\",\"path\":\"x\",\"size\":1}]",
	    "[{\"type\":\"file\",\"oid\":\"" SHA1 "\",\"size\":1}]",
	    "[" LARGE("x", "-5") "]",
	    "[" LARGE("x", "18446744073709551615") "]",
	};
	struct hub_files f;
	struct sl_err err;
	(void)unused;
	assert_int_equal(parse("[" SMALL(".gitattributes") "," SMALL(
				   "config.json") ",{\"type\":\"directory\",\"path\":\"d\","
						  "\"oid\":\"" SHA1
						  "\",\"size\":0}," LARGE("d\\u002fm.gguf", "5000000000") "]",
			       &f, &err),
			 0);
	assert_int_equal(f.n, 2);
	assert_string_equal(f.items[0].path, "config.json");
	assert_int_equal(f.items[0].hash, HUB_GIT_SHA1);
	assert_int_equal(f.items[0].digest[1], 0x23);
	assert_string_equal(f.items[1].path, "d/m.gguf");
	assert_int_equal(f.items[1].hash, HUB_SHA256);
	assert_true(f.items[1].size == 5000000000u);
	assert_int_equal(f.items[1].digest[31], 0xef);
	hub_files_dispose(&f);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		if (parse(bad[i], &f, &err) == 0)
			fail_msg("accepted: %s", bad[i]);
		assert_null(strchr(err.text, '\n'));
		hub_files_dispose(&f);
	}
}

static void test_tree_is_bounded(void **unused)
{
	struct hub_files f = {.items = NULL};
	struct hub_file file = {.path = "x"};
	(void)unused;
	for (int i = 0; i < HUB_MAX_FILES; i++)
		assert_int_equal(hub_files_add(&f, &file), 0);
	assert_int_equal(hub_files_add(&f, &file), SL_ELIMIT);
	hub_files_dispose(&f);
}

static void test_link(void **unused)
{
	static const struct {
		const char *header, *next;
	} cases[] = {
	    {"<https://h/a?c=1>; rel=\"next\"", "https://h/a?c=1"},
	    {"</a>; rel=\"prev\", </b>; title=\"x, y; z\"; rel=\"next\"", "/b"},
	    {"</a>;rel=next", "/a"},
	    {"</a>; rel=\"first\"", NULL},
	    {"", NULL},
	    {"</a", NULL},
	    {"/a; rel=\"next\"", NULL},
	    {"<>; rel=\"next\"", NULL},
	    {"</a b>; rel=\"next\"", NULL},
	    {"</a>;;;; rel=\"next\"", "/a"},
	    {"</a>; rel=\"next", NULL},
	};
	char next[64];
	(void)unused;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		bool found = hub_link_next(cases[i].header, strlen(cases[i].header), next, sizeof next);
		assert_int_equal(found, cases[i].next != NULL);
		if (found)
			assert_string_equal(next, cases[i].next);
	}
	assert_false(hub_link_next("</0123456789>; rel=next", 23, next, 8));
}

/* ---- choices ---- */

/* The picked paths, joined by blanks; NULL: an error, in why. */
static const char *pick(const char *const *paths, const char *tag, struct sl_err *why)
{
	static char joined[1024];
	struct hub_files all = {.items = NULL}, out;
	size_t at = 0;
	for (size_t i = 0; paths[i] != NULL; i++) {
		struct hub_file f = {.size = 1};
		snprintf(f.path, sizeof f.path, "%s", paths[i]);
		assert_int_equal(hub_files_add(&all, &f), 0);
	}
	int rc = hub_pick(&all, tag, &out, why);
	joined[0] = '\0';
	for (size_t i = 0; i < out.n; i++)
		at += (size_t)snprintf(joined + at, sizeof joined - at, "%s%s", i > 0 ? " " : "", out.items[i].path);
	hub_files_dispose(&all);
	hub_files_dispose(&out);
	return rc == 0 ? joined : NULL;
}

static void test_gguf_by_tag(void **unused)
{
	static const char *const repo[] = {"README.md",
					   "m-Q4_K_S.gguf",
					   "m-Q4_K_M.gguf",
					   "m-UD-Q4_K_M.gguf",
					   "m.IQ4_XS.gguf",
					   "m-Q8_0.gguf",
					   "mmproj-Q8_0.gguf",
					   "m-imatrix.gguf",
					   "x/m-BF16-00002-of-00002.gguf",
					   "x/m-BF16-00001-of-00002.gguf",
					   NULL};
	static const char *const one[] = {"x.gguf", "config.json", "model.safetensors", NULL};
	static const char *const two[] = {"x.gguf", "y.gguf", NULL};
	static const char *const torn[] = {"m-Q8_0-00001-of-00003.gguf", "m-Q8_0-00003-of-00003.gguf", NULL};
	struct sl_err why;
	(void)unused;
	assert_string_equal(pick(repo, "", &why), "m-Q4_K_M.gguf");
	assert_string_equal(pick(repo, "Q8_0", &why), "m-Q8_0.gguf");
	assert_string_equal(pick(repo, "IQ4_XS", &why), "m.IQ4_XS.gguf");
	assert_string_equal(pick(repo, "BF16", &why), "x/m-BF16-00002-of-00002.gguf x/m-BF16-00001-of-00002.gguf");
	assert_null(pick(repo, "Q4_K", &why));
	assert_non_null(strstr(why.text, "Q4_K_M"));
	assert_null(pick(repo, "Q4_XS", &why));
	assert_string_equal(pick(one, "", &why), "x.gguf");
	assert_string_equal(pick(one, "SAFETENSORS", &why), "config.json model.safetensors");
	assert_null(pick(two, "", &why));
	assert_null(pick(torn, "", &why));
	assert_non_null(strstr(why.text, "2 of the 3"));
}

static void test_folders(void **unused)
{
	static const char *const plain[] = {"pytorch_model.bin",
					    "model.safetensors",
					    "config.json",
					    "modeling_x.py",
					    "tokenizer.json",
					    "tokenizer.model",
					    "onnx/model.safetensors",
					    "adapter_model.safetensors",
					    "1_Pooling/config.json",
					    NULL};
	static const char *const parts[] = {"model-00001-of-00002.safetensors",
					    "model-00002-of-00002.safetensors",
					    "consolidated-00001-of-00001.safetensors",
					    "model.safetensors.index.json",
					    "config.json",
					    "tokenizer.model",
					    "model.safetensors",
					    NULL};
	static const char *const pickles[] = {"pytorch_model.bin", "config.json", NULL};
	struct sl_err why;
	(void)unused;
	assert_string_equal(pick(plain, "", &why),
			    "config.json tokenizer.json 1_Pooling/config.json model.safetensors");
	assert_string_equal(pick(parts, "", &why), "config.json tokenizer.model model.safetensors.index.json "
						   "model-00001-of-00002.safetensors model-00002-of-00002.safetensors");
	assert_null(pick(pickles, "", &why));
	assert_non_null(strstr(why.text, "never read"));
}

static void test_local_names(void **unused)
{
	const struct hub_file gguf = {.path = "Q8_0/m.gguf"}, pooling = {.path = "1_Pooling/config.json"};
	(void)unused;
	assert_string_equal(hub_pick_local(&gguf), "m.gguf");
	assert_string_equal(hub_pick_local(&pooling), "1_Pooling/config.json");
}

/* ---- headers ---- */

static void header(struct hub_reply *r, const char *line) { hub_reply_header(r, line, strlen(line)); }

static void test_headers(void **unused)
{
	struct hub_reply r = {.start = -1, .total = -1, .linked_size = -1};
	(void)unused;
	header(&r, "HTTP/1.1 206 Partial Content\r\n");
	header(&r, "ETag: \"abc\"\r\n");
	header(&r, "x-linked-etag: \"" SHA256 "\"\r\n");
	header(&r, "X-Linked-Size: 77\r\n");
	header(&r, "Content-Range: bytes 10-19/20\r\n");
	header(&r, "Retry-After: 3\r\n");
	header(&r, "Link: </next>; rel=\"next\"\r\n");
	assert_string_equal(r.etag, "\"abc\"");
	assert_string_equal(r.linked_etag, SHA256);
	assert_true(r.linked_size == 77 && r.start == 10 && r.total == 20 && r.retry_after_s == 3);
	assert_string_equal(r.next, "/next");
	header(&r, "ETag: W/\"weak\"\r\n");
	assert_string_equal(r.etag, "\"abc\"");
	header(&r, "Content-Range: bytes 10-19/*\r\n");
	header(&r, "X-Linked-Size: 99999999999999999999\r\n");
	header(&r, "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\n");
	assert_true(r.total == -1 && r.linked_size == -1 && r.retry_after_s == 0);
	header(&r, "Content-Range: bytes /-\r\n");
	header(&r, ":\r\n");
	header(&r, "\r\n");
	assert_true(r.total == -1);
}

/* ---- progress ---- */

static void test_progress(void **unused)
{
	struct hub_progress p = {.shows = true};
	struct hub_note n = {.kind = HUB_NOTE_PROGRESS, .total = 1000000000, .text = "m.gguf"};
	char line[256];
	(void)unused;
	hub_progress_line(&p, &n, 1, line, sizeof line);
	assert_string_equal(line, "m.gguf  0 B of 1.0 GB  0 %");
	for (uint64_t i = 1; i <= 100; i++) { /* 10 MB a second, ten readings a second */
		n.done = i * 1000000;
		hub_progress_line(&p, &n, 1 + i * NS_PER_S / 10, line, sizeof line);
	}
	assert_string_equal(line, "m.gguf  100 MB of 1.0 GB  10 %  10.0 MB/s  1 min 30 s left");
	n.done = 5; /* it started over */
	hub_progress_line(&p, &n, 1 + 11 * NS_PER_S, line, sizeof line);
	assert_string_equal(line, "m.gguf  5 B of 1.0 GB  0 %");
	n = (struct hub_note){.kind = HUB_NOTE_WAITING, .total = 8000, .text = "no answer"};
	hub_progress_line(&p, &n, 1, line, sizeof line);
	assert_string_equal(line, "no answer: again in 8 s");
}

static void test_waits(void **unused)
{
	(void)unused;
	assert_true(hub_wait_ms(1000, 1, 0) == 1000);
	assert_true(hub_wait_ms(1000, 4, 0) == 8000);
	assert_true(hub_wait_ms(1000, 4, 3) == 8000);
	assert_true(hub_wait_ms(1000, 1, 30) == 30000);
	assert_true(hub_wait_ms(1000, 1000000, 0) == 60000);
	assert_true(hub_wait_ms(600000, 1, 90) == 90000);
}

static void test_sizes(void **unused)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} cases[] = {{0, "0 B"},         {999, "999 B"},     {1000, "1.0 kB"},
		     {999499, "999 kB"}, {999500, "1.0 MB"}, {604000000, "604 MB"}};
	char out[32];
	(void)unused;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		hub_size_text(cases[i].bytes, out, sizeof out);
		assert_string_equal(out, cases[i].text);
	}
}

/* ---- children ---- */

static volatile sig_atomic_t swallowed;

static void swallow(int sig) { swallowed = sig; }

/* One that is sent as soon as the child exists stops it, whatever the parent does with its own. */
static void test_no_signal_is_swallowed(void **unused)
{
	static const int sent[] = {SIGTERM, SIGHUP, SIGINT};
	(void)unused;
	hub_catch_signals(swallow);
	for (int i = 0; i < 60; i++) {
		int status = 0, sig = sent[i % 3];
		pid_t pid = hub_fork();
		if (pid == 0) {
			while (!swallowed)
				usleep(100);
			_exit(0);
		}
		assert_true(pid > 0);
		assert_int_equal(kill(pid, sig), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), sig);
	}
	assert_int_equal(raise(SIGTERM), 0);
	assert_int_equal(swallowed, SIGTERM); /* the parent's are as before */
	hub_catch_signals(SIG_DFL);
}

/* A signal that comes while a note is shown, before the wait for the next one, ends that wait. */
static void test_no_signal_is_missed(void **unused)
{
	int ends[2];
	(void)unused;
	swallowed = 0;
	hub_catch_signals(swallow);
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(write(ends[1], "x", 1), 1);
	assert_true(hub_wait_input(ends[0], &swallowed));
	char c;
	assert_int_equal(read(ends[0], &c, 1), 1);
	assert_int_equal(raise(SIGINT), 0);
	assert_false(hub_wait_input(ends[0], &swallowed)); /* without input */
	swallowed = 0;
	close(ends[1]);
	assert_true(hub_wait_input(ends[0], &swallowed));
	close(ends[0]);
	hub_catch_signals(SIG_DFL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_sources),
	    cmocka_unit_test(test_paths),
	    cmocka_unit_test(test_origins),
	    cmocka_unit_test(test_tree),
	    cmocka_unit_test(test_tree_is_bounded),
	    cmocka_unit_test(test_link),
	    cmocka_unit_test(test_gguf_by_tag),
	    cmocka_unit_test(test_folders),
	    cmocka_unit_test(test_local_names),
	    cmocka_unit_test(test_headers),
	    cmocka_unit_test(test_progress),
	    cmocka_unit_test(test_sizes),
	    cmocka_unit_test(test_waits),
	    cmocka_unit_test(test_no_signal_is_swallowed),
	    cmocka_unit_test(test_no_signal_is_missed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
