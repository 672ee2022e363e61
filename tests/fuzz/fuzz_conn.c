/* SPDX-License-Identifier: Apache-2.0
 *
 * A whole connection on a socket pair, cleartext HTTP/1.1 or HTTP/2: any bytes in, an application
 * that answers in every way, then the peer leaves. Every exchange ends exactly once and nothing is
 * left (the transport's own assertions and the leak checker see to it).
 *
 * The first byte: bit 0 puts the HTTP/2 preface in front, the rest is the length of the pieces.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "gateway/transport/conn.h"
#include "gateway/transport/listener.h"
#include "tests/fuzz/fuzz.h"

static struct gw_config cfg = {
    .threads = 1,
    .limits = {.connections = 10,
	       .streams_per_connection = 10,
	       .header_bytes = 2048,
	       .header_fields = 20,
	       .body_bytes = 1000,
	       .handshake_ms = 1000,
	       .header_ms = 1000,
	       .body_ms = 1000,
	       .idle_ms = 1000,
	       .stall_ms = 1000,
	       .output_bytes = 4096,
	       .resets_per_s = 10,
	       .resets_burst = 20,
	       .refused_per_s = 5,
	       .refused_burst = 20,
	       .control_frames_per_s = 10,
	       .control_frames_burst = 50},
};
static struct gw_thread thread;
static int n_open;
static long left[64];
/* Places that outlive their streams; the oldest makes room. */
static struct http_hold *holds[8];

static const char h1_seed[] = "\x3e"
			      "POST /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
			      "GET /a HTTP/1.1\r\nHost: h\r\n\r\nHEAD /c HTTP/1.1\r\nHost: h\r\n\r\n";
static const char h2_seed[] = "\xff"
			      "\0\0\0\4\0\0\0\0\0"                       /* SETTINGS */
			      "\0\0\3\1\5\0\0\0\1\x82\x86\x84"           /* GET / */
			      "\0\0\7\1\4\0\0\0\3\x83\x86\x04\x02/b\x41" /* POST, malformed end */
			      "\0\0\6\1\4\0\0\0\5\x83\x86\x04\x02/b"     /* POST /b */
			      "\0\0\3\0\1\0\0\0\5xyz"                    /* DATA */
			      "\0\0\x08\6\0\0\0\0\0"
			      "12345678"                      /* PING */
			      "\0\0\4\3\0\0\0\0\1\0\0\0\x08"  /* RST_STREAM */
			      "\0\0\4\x08\0\0\0\0\0\0\0\1\0"; /* WINDOW_UPDATE */

/* A head in pieces, padding, an upload with trailers, held and reset streams, window updates. */
static const char h2_more_seed[] = "\x0f"
				   "\0\0\6\4\0\0\0\0\0\0\4\0\0\0\x10"                /* SETTINGS, a small window */
				   "\0\0\2\1\0\0\0\0\1\x83\x86"                      /* HEADERS without an end */
				   "\0\0\4\x09\0\0\0\0\1\x04\x02/b"                  /* CONTINUATION */
				   "\0\0\3\x09\4\0\0\0\1\x01\x01h"                   /* and its end */
				   "\0\0\6\0\x08\0\0\0\1\2xyz\0\0"                   /* DATA with padding */
				   "\0\0\3\0\x08\0\0\0\1\2\0\0"                      /* nothing but padding */
				   "\0\0\5\1\5\0\0\0\1\0\1t\1u"                      /* trailers */
				   "\0\0\x0a\1\5\0\0\0\3\x82\x86\x04\x02/h\x01\x01h" /* held */
				   "\0\0\4\3\0\0\0\0\3\0\0\0\x08"                    /* and reset */
				   "\0\0\x0a\1\5\0\0\0\5\x82\x86\x04\x02/s\x01\x01h" /* a long answer */
				   "\0\0\4\x08\0\0\0\0\5\0\0\1\0\0\0\4\x08\0\0\0\0\0\0\0\1\0" /* WINDOW_UPDATE */
				   "\0\0\5\2\0\0\0\0\7\0\0\0\0\x10"                           /* PRIORITY */
				   "\0\0\x08\7\0\0\0\0\0\0\0\0\0\0\0\0\0"                     /* GOAWAY */
				   "\0\0\1\xee\0\0\0\0\0x";                                   /* unknown */
static const char h1_more_seed[] =
    "\x06"
    "POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nAbcde"
    "GET http://h/s?x HTTP/1.1\r\nHost: h\r\n\r\nGET /h HTTP/1.0\r\n\r\n";

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	static const struct {
		const char *at;
		size_t n;
	} seeds[] = {{h1_seed, sizeof h1_seed - 1},
		     {h2_seed, sizeof h2_seed - 1},
		     {h2_more_seed, sizeof h2_more_seed - 1},
		     {h1_more_seed, sizeof h1_more_seed - 1}};
	if (i >= sizeof seeds / sizeof *seeds || seeds[i].n > max)
		return 0;
	memcpy(out, seeds[i].at, seeds[i].n);
	return seeds[i].n;
}

static ssize_t pull(void *ctx, uint8_t *dst, size_t room, bool *end)
{
	long *n = ctx;
	size_t m = (size_t)*n < room ? (size_t)*n : room;
	memset(dst, 'x', m);
	*n -= (long)m;
	*end = *n == 0;
	return (ssize_t)m;
}

static void answer(struct http_stream *s, char how)
{
	static const struct http_field f = {"content-type", "text/plain"};
	static int next;
	long *n = &left[next++ % 64];
	*n = 3000;
	if (how == 'h' && http_user(s) == (void *)(uintptr_t)1) {
		http_set_user(s, (void *)(uintptr_t)2); /* once a stream */
		static size_t next_hold;
		struct http_hold **h = &holds[next_hold++ % (sizeof holds / sizeof *holds)];
		http_release(*h);
		*h = http_hold(s);
	} else if (how == 'r')
		http_reset(s);
	else if (how == 's')
		http_reply_stream(s, 200, &f, 1, (struct http_source){pull, n});
	else if (how != 'n')
		http_reply(s, how == '4' ? 204 : 200, &f, 1, "hello", how == '4' ? 0 : 5);
}

static void on_request(void *ctx, struct http_stream *s, const struct http_request *r)
{
	(void)ctx;
	n_open++;
	http_set_user(s, (void *)(uintptr_t)1);
	FUZZ_REQUIRE(r->path[0] == '/' || r->path[0] == '*');
	if (r->path[0] == '/' && r->path[1] != 'b')
		answer(s, r->path[1]);
}

static void on_body(void *ctx, struct http_stream *s, const uint8_t *data, size_t n)
{
	(void)ctx;
	FUZZ_REQUIRE(http_user(s) != NULL && !http_answered(s));
	if (n > 0 && data[0] == 'A')
		answer(s, 's');
}

static void on_body_end(void *ctx, struct http_stream *s)
{
	(void)ctx;
	answer(s, http_request(s)->path[0] == '/' && http_request(s)->path[1] != '\0' ? http_request(s)->path[2] : 'x');
}

static void on_close(void *ctx, struct http_stream *s, enum http_close_reason why)
{
	(void)ctx, (void)why;
	FUZZ_REQUIRE(http_user(s) != NULL);
	http_set_user(s, NULL);
	n_open--;
}

static const struct http_app app = {on_request, on_body, on_body_end, on_close, NULL};

static void drink(int fd)
{
	char buf[65536];
	while (recv(fd, buf, sizeof buf, MSG_DONTWAIT) > 0)
		;
}

static void feed(int fd, const uint8_t *data, size_t n, size_t step)
{
	while (n > 0) {
		size_t m = n < step ? n : step;
		ssize_t sent = send(fd, data, m, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent < 0 && errno != EAGAIN)
			return;
		if (sent > 0) {
			data += sent;
			n -= (size_t)sent;
		}
		gw_thread_turn(&thread);
		drink(fd);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct sl_err err;
	int pair[2];
	if (thread.base == NULL) {
		cfg.https.off = cfg.http.off = true;
		log_init("fuzz", LOG_ERROR);
		FUZZ_REQUIRE(gw_thread_init(&thread, 0, &cfg, &err) == 0);
		FUZZ_REQUIRE(transport_create(&thread, &app, NULL, &thread.transport, &err) == 0);
	}
	if (n == 0)
		return 0;
	FUZZ_REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
	conn_accept(thread.transport, pair[0], &(struct listener_options){0}, &(struct net_addr){0});
	if (data[0] & 1)
		feed(pair[1], (const uint8_t *)"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24, 24);
	feed(pair[1], data + 1, n - 1, (size_t)(data[0] >> 1) * 8 + 1);
	shutdown(pair[1], SHUT_WR);
	while (!transport_empty(thread.transport)) {
		gw_thread_turn(&thread);
		drink(pair[1]);
	}
	close(pair[1]);
	for (size_t i = 0; i < sizeof holds / sizeof *holds; i++) {
		http_release(holds[i]);
		holds[i] = NULL;
	}
	FUZZ_REQUIRE(n_open == 0);
	return 0;
}
