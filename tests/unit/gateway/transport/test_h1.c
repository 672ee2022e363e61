/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP/1.1 connections: framing, keep-alive, pipelining, errors, deadlines, clients that leave.
 */
#include "tests/support/transport_rig.h"

#include "base/fault.h"

#define HOST "Host: localhost\r\n"

static struct rig rig;
static struct sl_buf in;

static int setup(void **state)
{
	(void)state;
	rig_config(&rig);
	buf_init(&in, 64 << 20);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fault_disarm_all();
	rig_stop(&rig);
	buf_dispose(&in);
	return 0;
}

static int count(const char *needle)
{
	int n = 0;
	const char *at = buf_cstr(&in);
	while ((at = strstr(at, needle)) != NULL) {
		n++;
		at++;
	}
	return n;
}

/* Sends one request and reads to the end of the connection. */
static void ask(const char *text, size_t n)
{
	int fd = rig_connect(&rig);
	buf_clear(&in, SIZE_MAX);
	rig_send(&rig, fd, text, n);
	rig_read_end(&rig, fd, &in);
	close(fd);
}

static void expect_body(const char *want)
{
	const char *text = buf_cstr(&in), *body = strstr(text, "\r\n\r\n");
	assert_non_null(body);
	assert_string_equal(body + 4, want);
}

#define CLOSE "Connection: close\r\n"

static void answers_have_length_date_and_one_close(void **state)
{
	(void)state;
	rig_start(&rig);
	static const char q[] = "GET /small HTTP/1.1\r\n" HOST CLOSE "\r\n";
	ask(q, sizeof q - 1);
	assert_int_equal(strncmp(buf_cstr(&in), "HTTP/1.1 200 OK\r\n", 17), 0);
	assert_int_equal(count("\r\ncontent-length: 6\r\n"), 1);
	assert_int_equal(count("\r\ndate: "), 1);
	assert_int_equal(count("\r\nconnection: close\r\n"), 1);
	expect_body("hello\n");
	assert_int_equal(rig.closed[HTTP_CLOSE_DONE], 1);
}

static void head_and_204_have_no_body(void **state)
{
	(void)state;
	rig_start(&rig);
	static const char q[] = "HEAD /small HTTP/1.1\r\n" HOST CLOSE "\r\n";
	ask(q, sizeof q - 1);
	assert_int_equal(count("content-length: 6"), 1);
	expect_body("");
	static const char e[] = "GET /empty HTTP/1.1\r\n" HOST CLOSE "\r\n";
	ask(e, sizeof e - 1);
	assert_int_equal(count("content-length"), 0);
	expect_body("");
	static const char s[] = "HEAD /big?5 HTTP/1.1\r\n" HOST CLOSE "\r\n";
	ask(s, sizeof s - 1);
	expect_body("");
}

static void one_byte_at_a_time(void **state)
{
	(void)state;
	rig_start(&rig);
	static const char q[] = "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n" CLOSE
				"\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: u\r\n\r\n";
	int fd = rig_connect(&rig);
	for (size_t i = 0; i < sizeof q - 1; i++) {
		assert_true(rig_send(&rig, fd, q + i, 1));
		rig_turn(&rig);
	}
	rig_read_end(&rig, fd, &in);
	expect_body("abcde");
	assert_int_equal(rig.n_body_ends, 1);
	close(fd);
}

static void pipelined_requests_are_answered_in_order(void **state)
{
	(void)state;
	rig_start(&rig);
	static const char q[] = "GET /small HTTP/1.1\r\n" HOST "\r\n"
				"POST /echo HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc"
				"GET /big?5 HTTP/1.1\r\n" HOST "\r\n"
				"GET /nothing HTTP/1.1\r\n" HOST CLOSE "\r\n";
	ask(q, sizeof q - 1);
	assert_int_equal(count("HTTP/1.1 200"), 3);
	assert_int_equal(count("HTTP/1.1 404"), 1);
	const char *t = buf_cstr(&in);
	assert_true(strstr(t, "hello") < strstr(t, "abc"));
	assert_true(strstr(t, "abc") < strstr(t, "0005\r\nxxxxx\r\n0\r\n\r\n"));
	assert_int_equal(rig.closed[HTTP_CLOSE_DONE], 4);
}

static void a_second_request_waits_for_the_first(void **state)
{
	(void)state;
	rig_start(&rig);
	int fd = rig_connect(&rig);
	static const char q[] = "GET /wait HTTP/1.1\r\n" HOST "\r\nGET /small HTTP/1.1\r\n" HOST CLOSE "\r\n";
	rig_send(&rig, fd, q, sizeof q - 1);
	RIG_UNTIL(&rig, rig.n_requests == 1);
	rig_turn(&rig);
	assert_int_equal(rig.n_requests, 1);
	rig_give(rig.ex[0], "one", true);
	rig_read_end(&rig, fd, &in);
	assert_int_equal(rig.n_requests, 2);
	assert_int_equal(count("0003\r\none\r\n0\r\n\r\nHTTP/1.1 200"), 1);
	close(fd);
}

static void pipelining_is_bounded(void **state)
{
	(void)state;
	rig_start(&rig);
	int fd = rig_connect(&rig);
	static const char q[] = "GET /never HTTP/1.1\r\n" HOST "\r\n";
	rig_send(&rig, fd, q, sizeof q - 1);
	static char junk[200000];
	memset(junk, 'G', sizeof junk);
	rig_send(&rig, fd, junk, sizeof junk);
	rig_read_end(&rig, fd, &in);
	assert_int_equal(rig.closed[HTTP_CLOSE_ERROR], 1);
	close(fd);
}

static void http_1_0_ends_by_closing(void **state)
{
	(void)state;
	rig_start(&rig);
	static const char q[] = "GET /big?7 HTTP/1.0\r\n\r\n";
	ask(q, sizeof q - 1);
	assert_int_equal(count("transfer-encoding"), 0);
	expect_body("xxxxxxx");
}

static void expect_100_continue(void **state)
{
	(void)state;
	rig_start(&rig);
	int fd = rig_connect(&rig);
	static const char q[] =
	    "POST /echo HTTP/1.1\r\n" HOST CLOSE "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n";
	static const char cont[] = "HTTP/1.1 100 Continue\r\n\r\n";
	rig_send(&rig, fd, q, sizeof q - 1);
	assert_true(rig_read(&rig, fd, &in, sizeof cont - 1));
	assert_string_equal(buf_cstr(&in), cont);
	buf_clear(&in, SIZE_MAX);
	rig_send(&rig, fd, "ok", 2);
	rig_read_end(&rig, fd, &in);
	expect_body("ok");
	close(fd);
	/* Answered without the body: no interim answer, and the connection ends. */
	static const char no[] = "POST /none HTTP/1.1\r\n" HOST "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n";
	ask(no, sizeof no - 1);
	assert_int_equal(count("HTTP/1.1 100"), 0);
	assert_int_equal(count("HTTP/1.1 404"), 1);
}

struct refusal {
	const char *text;
	int status;
};

static void malformed_requests_get_one_answer_and_an_end(void **state)
{
	(void)state;
	rig_start(&rig);
	static const char next[] = "GET /small HTTP/1.1\r\n" HOST "\r\n";
	static const struct refusal cases[] = {
	    {"POST /echo HTTP/1.1\r\n" HOST "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
	    {"POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n", 400},
	    /* Answered already, but nothing has left: the answer is taken back. */
	    {"POST /small HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n", 400},
	    {"GET /small HTTP/1.1\n" HOST "\n", 400},
	    {"GET /small HTTP/1.1\r\n\r\n", 400},
	    {"GET /small HTTP/3.0\r\n" HOST "\r\n", 505},
	    {"CONNECT a:1 HTTP/1.1\r\n" HOST "\r\n", 501},
	    {"POST /echo HTTP/1.1\r\n" HOST "Content-Length: 1048577\r\n\r\n", 413},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char text[4096], want[32];
		snprintf(text, sizeof text, "%s%s", cases[i].text, next);
		snprintf(want, sizeof want, "HTTP/1.1 %d ", cases[i].status);
		ask(text, strlen(text));
		if (strncmp(buf_cstr(&in), want, strlen(want)) != 0 || count("HTTP/1.1 ") != 1)
			fail_msg("%s -> %s", cases[i].text, buf_cstr(&in));
		assert_int_equal(count("connection: close"), 1);
	}
}

/* What is neither HTTP/1's target nor its version gets no answer in HTTP/1; once a peer has sent a
 * request it does. */
static void who_speaks_no_http_gets_no_answer(void **state)
{
	(void)state;
	rig_start(&rig);
	static const char alien[] = "INVALID CONNECTION PREFACE\r\n\r\n";
	ask(alien, sizeof alien - 1);
	assert_int_equal(in.len, 0);
	static const char late[] = "GET /small HTTP/1.1\r\n" HOST "\r\nINVALID CONNECTION PREFACE\r\n\r\n";
	ask(late, sizeof late - 1);
	assert_int_equal(count("HTTP/1.1 200"), 1);
	assert_int_equal(count("HTTP/1.1 400"), 1);
	static const char *const close_to_it[] = {"GET /small FTP/1.1\r\n\r\n", "GET /small\r\n\r\n",
						  "GET small HTTP/1.1\r\n\r\n", "GET http://a/ HTTQ/1.1\r\n\r\n",
						  "\x16\x03\x01"};
	for (size_t i = 0; i < sizeof close_to_it / sizeof *close_to_it; i++) {
		ask(close_to_it[i], strlen(close_to_it[i]));
		if (count("HTTP/1.1 400") != 1)
			fail_msg("%s -> %s", close_to_it[i], buf_cstr(&in));
	}
}

static void heads_are_bounded(void **state)
{
	(void)state;
	rig_start(&rig);
	size_t n = 1 << 20;
	char *big = malloc(n);
	assert_non_null(big);
	memset(big, 'a', n);
	static const char head[] = "GET /small HTTP/1.1\r\n" HOST "X: ";
	memcpy(big, head, sizeof head - 1);
	ask(big, n);
	assert_int_equal(count("HTTP/1.1 431"), 1);
	memcpy(big, "GET /", 5);
	for (const char *p = head + 5; *p != '\0'; p++)
		big[p - head] = 'a';
	ask(big, n);
	assert_int_equal(count("HTTP/1.1 414"), 1);
	memcpy(big, head, sizeof head - 1);
	/* By accounting, not by bytes on the wire: 99 short fields of 32 each fit, one long does
	 * not. */
	memcpy(big + 16400, "\r\n\r\n", 4);
	ask(big, 16404);
	assert_int_equal(count("HTTP/1.1 431"), 1);
	free(big);
	assert_int_equal(rig.n_requests, 0);
}

static void chunked_body_over_the_limit_is_413(void **state)
{
	(void)state;
	rig.cfg.limits.body_bytes = 1000;
	rig_start(&rig);
	char text[4096];
	int n = snprintf(text, sizeof text,
			 "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3e9\r\n%1001s\r\n"
			 "0\r\n\r\n",
			 "");
	ask(text, (size_t)n);
	assert_int_equal(count("HTTP/1.1 413"), 1);
	assert_int_equal(count("HTTP/1.1 "), 1);
	assert_int_equal(rig.closed[HTTP_CLOSE_ERROR], 1);
	assert_int_equal(rig.n_body_ends, 0);
}

static void early_answer_discards_the_rest(void **state)
{
	(void)state;
	rig_start(&rig);
	char text[8192];
	int n = snprintf(text, sizeof text,
			 "POST /small HTTP/1.1\r\n" HOST "Content-Length: 4000\r\n\r\n%4000s"
			 "GET /small HTTP/1.1\r\n" HOST CLOSE "\r\n",
			 "");
	ask(text, (size_t)n);
	assert_int_equal(count("HTTP/1.1 200"), 2);
	assert_int_equal(rig.body_bytes, 0);
	/* Up to a bound. */
	static char big[600000];
	memset(big, 'b', sizeof big);
	int fd = rig_connect(&rig);
	static const char q[] = "POST /small HTTP/1.1\r\n" HOST "Content-Length: 1000000\r\n\r\n";
	buf_clear(&in, SIZE_MAX);
	rig_send(&rig, fd, q, sizeof q - 1);
	rig_send(&rig, fd, big, sizeof big);
	rig_read_end(&rig, fd, &in);
	assert_int_equal(count("HTTP/1.1 200"), 1);
	close(fd);
}

static void a_client_that_leaves_is_noticed(void **state)
{
	(void)state;
	rig_start(&rig);
	static const char *const paths[] = {"never", "wait", "echo"};
	for (int i = 0; i < 3; i++) {
		char q[128];
		int fd = rig_connect(&rig);
		int n = snprintf(q, sizeof q, "POST /%s HTTP/1.1\r\n" HOST "Content-Length: %d\r\n\r\n", paths[i],
				 i == 2 ? 5 : 0);
		rig_send(&rig, fd, q, (size_t)n);
		RIG_UNTIL(&rig, rig.n_requests == i + 1);
		close(fd);
		RIG_UNTIL(&rig, rig.closed[HTTP_CLOSE_PEER] == i + 1);
	}
}

static void half_close_counts_as_gone(void **state)
{
	(void)state;
	rig_start(&rig);
	int fd = rig_connect(&rig);
	static const char q[] = "GET /wait HTTP/1.1\r\n" HOST "\r\n";
	rig_send(&rig, fd, q, sizeof q - 1);
	RIG_UNTIL(&rig, rig.n_requests == 1);
	shutdown(fd, SHUT_WR);
	RIG_UNTIL(&rig, rig.closed[HTTP_CLOSE_PEER] == 1);
	close(fd);
	/* What can be answered at once is. */
	fd = rig_connect(&rig);
	static const char s[] = "GET /small HTTP/1.1\r\n" HOST "\r\n";
	rig_send(&rig, fd, s, sizeof s - 1);
	shutdown(fd, SHUT_WR);
	buf_clear(&in, SIZE_MAX);
	rig_read_end(&rig, fd, &in);
	assert_int_equal(count("HTTP/1.1 200"), 1);
	close(fd);
}

static void reset_and_failing_source_close(void **state)
{
	(void)state;
	rig_start(&rig);
	static const char r[] = "GET /reset HTTP/1.1\r\n" HOST "\r\n";
	ask(r, sizeof r - 1);
	assert_int_equal(in.len, 0);
	static const char f[] = "GET /fail HTTP/1.1\r\n" HOST "\r\n";
	ask(f, sizeof f - 1);
	assert_int_equal(count("0\r\n\r\n"), 0); /* no proper end of the chunks */
	static const char p[] = "GET /split HTTP/1.1\r\n" HOST "\r\n";
	ask(p, sizeof p - 1);
	assert_int_equal(in.len, 0);
	assert_int_equal(rig.closed[HTTP_CLOSE_ERROR], 3);
}

static void a_slow_reader_is_not_buffered_for(void **state)
{
	(void)state;
	uint64_t now = clock_now_ns();
	rig_start(&rig);
	clock_fake(&now);
	int fd = rig_connect_to(&rig, false, 4096);
	static const char q[] = "GET /big?100000000 HTTP/1.1\r\n" HOST "\r\n";
	rig_send(&rig, fd, q, sizeof q - 1);
	RIG_UNTIL(&rig, rig.pulled > 0);
	size_t before;
	do {
		before = rig.pulled;
		rig_turn(&rig);
	} while (rig.pulled != before);
	assert_true(rig.pulled < 8 << 20); /* kernel buffers and one flush */
	/* Nothing moves: after stall_ms it ends. */
	now += 29 * NS_PER_S;
	rig_turn(&rig);
	rig_turn(&rig);
	assert_int_equal(rig.n_closed, 0);
	now += 2 * NS_PER_S;
	RIG_UNTIL(&rig, rig.closed[HTTP_CLOSE_TIMEOUT] == 1);
	close(fd);
}

/* However often a connection's output goes out in a turn: it is no more than once, so none holds up the others. */
static void a_turn_has_a_budget(void **state)
{
	static const char get[] = "GET /big?100000000 HTTP/1.1\r\n" HOST "\r\n";
	enum { TURN_BYTES = 65536, TURNS = 5 };
	(void)state;
	rig_start(&rig);
	int fd = rig_connect(&rig);
	assert_true(rig_send(&rig, fd, get, sizeof get - 1));
	RIG_UNTIL(&rig, rig.n_requests == 1);
	for (int turn = 0; turn < TURNS; turn++) {
		size_t before = rig.pulled;
		if (turn > 0)
			rig_turn(&rig);
		/* The reader has taken all of it, the source has more. */
		for (int i = 0; i < 4; i++) {
			buf_clear(&in, SIZE_MAX);
			assert_true(rig_recv(fd, &in));
			http_body_ready(rig.ex[0]->s);
			gw_run_output(&rig.t);
		}
		assert_in_range(rig.pulled - before, turn > 0, TURN_BYTES);
	}
	/* The next one goes on where this has stopped. */
	size_t before = rig.pulled;
	RIG_UNTIL(&rig, (buf_clear(&in, SIZE_MAX), rig_recv(fd, &in)) && rig.pulled > before + 10 * TURN_BYTES);
	close(fd);
}

static void deadlines(void **state)
{
	(void)state;
	uint64_t now = clock_now_ns();
	rig_start(&rig);
	clock_fake(&now);
	/* Nothing sent: closed without a word. */
	int fd = rig_connect(&rig);
	RIG_UNTIL(&rig, !transport_empty(rig.tr));
	now += 11 * NS_PER_S;
	rig_read_end(&rig, fd, &in);
	assert_int_equal(in.len, 0);
	close(fd);
	/* Half a head, a byte now and then: the deadline is absolute. */
	fd = rig_connect(&rig);
	rig_send(&rig, fd, "GET /small HT", 13);
	for (int i = 0; i < 12; i++) {
		RIG_UNTIL(&rig, !transport_empty(rig.tr));
		now += NS_PER_S;
		rig_send(&rig, fd, "T", 1);
		rig_turn(&rig);
	}
	rig_read_end(&rig, fd, &in);
	assert_int_equal(count("HTTP/1.1 408"), 1);
	close(fd);
	/* A body that does not come. */
	buf_clear(&in, SIZE_MAX);
	fd = rig_connect(&rig);
	static const char q[] = "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nab";
	rig_send(&rig, fd, q, sizeof q - 1);
	RIG_UNTIL(&rig, rig.n_requests == 1);
	now += 31 * NS_PER_S;
	rig_read_end(&rig, fd, &in);
	assert_int_equal(count("HTTP/1.1 408"), 1);
	assert_int_equal(rig.closed[HTTP_CLOSE_TIMEOUT], 1);
	close(fd);
	/* Idle after an answer. */
	buf_clear(&in, SIZE_MAX);
	fd = rig_connect(&rig);
	static const char s[] = "GET /small HTTP/1.1\r\n" HOST "\r\n";
	rig_send(&rig, fd, s, sizeof s - 1);
	RIG_UNTIL(&rig, rig.closed[HTTP_CLOSE_DONE] == 1);
	now += 61 * NS_PER_S;
	rig_read_end(&rig, fd, &in);
	assert_int_equal(count("HTTP/1.1 "), 1);
	close(fd);
}

static void a_waiting_source_is_not_a_stall(void **state)
{
	(void)state;
	uint64_t now = clock_now_ns();
	rig_start(&rig);
	clock_fake(&now);
	int fd = rig_connect(&rig);
	static const char q[] = "GET /wait HTTP/1.1\r\n" HOST CLOSE "\r\n";
	rig_send(&rig, fd, q, sizeof q - 1);
	RIG_UNTIL(&rig, rig.n_requests == 1);
	rig_give(rig.ex[0], "a", false);
	for (int i = 0; i < 4; i++) {
		now += 20 * NS_PER_S;
		rig_turn(&rig);
		rig_turn(&rig);
	}
	rig_give(rig.ex[0], "b", true);
	rig_read_end(&rig, fd, &in);
	assert_int_equal(count("0001\r\na\r\n0001\r\nb\r\n0\r\n\r\n"), 1);
	close(fd);
}

static void drain_finishes_what_runs(void **state)
{
	(void)state;
	rig_start(&rig);
	int idle = rig_connect(&rig), busy = rig_connect(&rig);
	static const char q[] = "GET /wait HTTP/1.1\r\n" HOST "\r\n";
	static const char s[] = "GET /small HTTP/1.1\r\n" HOST "\r\n";
	rig_send(&rig, idle, s, sizeof s - 1);
	rig_send(&rig, busy, q, sizeof q - 1);
	RIG_UNTIL(&rig, rig.n_requests == 2 && rig.n_closed == 1);
	struct rig_exchange *x = rig.ex[0]->s != NULL ? rig.ex[0] : rig.ex[1];
	transport_drain(rig.tr, false);
	rig_read_end(&rig, idle, &in);
	rig_give(x, "end", true);
	buf_clear(&in, SIZE_MAX);
	rig_read_end(&rig, busy, &in);
	assert_int_equal(count("0003\r\nend\r\n0\r\n\r\n"), 1);
	close(idle);
	close(busy);
	RIG_UNTIL(&rig, transport_empty(rig.tr));
}

static void destroy_tells_shutdown(void **state)
{
	(void)state;
	rig_start(&rig);
	int fd = rig_connect(&rig);
	static const char q[] = "GET /never HTTP/1.1\r\n" HOST "\r\n";
	rig_send(&rig, fd, q, sizeof q - 1);
	RIG_UNTIL(&rig, rig.n_requests == 1);
	struct gw_transport *tr = rig.tr;
	transport_destroy(tr);
	assert_int_equal(rig.closed[HTTP_CLOSE_SHUTDOWN], 1);
	struct sl_err err = {0};
	assert_int_equal(transport_create(&rig.t, &rig_app, &rig, &rig.tr, &err), 0);
	close(fd);
}

static void accept_survives_a_lack_of_descriptors(void **state)
{
	(void)state;
	uint64_t now = clock_now_ns();
	rig_start(&rig);
	clock_fake(&now);
	fault_arm(FAULT_ACCEPT, 1, 1);
	int first = rig_connect(&rig);
	rig_read_end(&rig, first, &in); /* the reserve was given up to turn it away */
	close(first);
	int fd = rig_connect(&rig);
	static const char q[] = "GET /small HTTP/1.1\r\n" HOST CLOSE "\r\n";
	rig_send(&rig, fd, q, sizeof q - 1);
	rig_turn(&rig);
	assert_int_equal(rig.n_requests, 0); /* accepting is paused */
	now += NS_PER_S;
	rig_read_end(&rig, fd, &in);
	assert_int_equal(count("HTTP/1.1 200"), 1);
	close(fd);
}

static void connections_are_capped(void **state)
{
	(void)state;
	rig.cfg.limits.connections = 2;
	rig_start(&rig);
	int a = rig_connect(&rig), b = rig_connect(&rig), c = rig_connect(&rig);
	rig_read_end(&rig, c, &in);
	close(c);
	close(a);
	RIG_UNTIL(&rig, rig.tr->n_conns == 1);
	a = rig_connect(&rig);
	static const char q[] = "GET /small HTTP/1.1\r\n" HOST CLOSE "\r\n";
	rig_send(&rig, a, q, sizeof q - 1);
	rig_read_end(&rig, a, &in);
	assert_int_equal(count("HTTP/1.1 200"), 1);
	close(a);
	close(b);
}

/* Whatever allocation, read or write fails: no crash, every exchange ends once, nothing leaks. */
static void every_fault_is_survived(void **state)
{
	(void)state;
	rig_start(&rig);
	static const char q[] = "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
				"3\r\nabc\r\n0\r\n\r\nGET /big?70000 HTTP/1.1\r\n" HOST CLOSE "\r\n";
	static const enum fault_point points[] = {FAULT_ALLOC, FAULT_READ, FAULT_WRITE};
	for (size_t p = 0; p < 3; p++) {
		bool whole = false;
		for (long nth = 1; nth < 200 && !whole; nth++) {
			int fd = rig_connect(&rig);
			buf_clear(&in, SIZE_MAX);
			rig_send(&rig, fd, q, sizeof q - 1);
			RIG_UNTIL(&rig, true);
			/* The client's own buffer must not be hit. */
			uint8_t *at;
			assert_int_equal(buf_reserve(&in, 1 << 20, &at), 0);
			fault_arm(points[p], nth, 1);
			time_t end = rig_now() + RIG_PATIENCE_S;
			ssize_t n = 0;
			while (rig_now() < end) {
				n = recv(fd, at, 1 << 18, MSG_DONTWAIT);
				if (n > 0) {
					buf_commit(&in, (size_t)n);
					at += n;
				} else if (n == 0 || errno != EAGAIN) {
					break;
				} else {
					rig_turn(&rig);
				}
			}
			fault_disarm_all();
			assert_true(rig_now() < end);
			whole = count("\r\n0\r\n\r\n") == 1 && count("HTTP/1.1 200") == 2;
			close(fd);
			RIG_UNTIL(&rig, transport_empty(rig.tr));
			assert_int_equal(rig.n_closed, rig.n_requests);
		}
		assert_true(whole); /* at last nothing was left to fail */
	}
}

/* One exchange of whatever kind while the nth pass of a point fails. How much came back; false when
 * the run passed the point less often than that. */
static bool run_with_fault(const char *text, size_t n, enum fault_point point, long nth, size_t *got)
{
	uint8_t *at;
	buf_clear(&in, SIZE_MAX);
	assert_int_equal(buf_reserve(&in, 1 << 20, &at), 0); /* not the server's to miss */
	fault_arm(point, nth, 1);
	long before = fault_passes(point);
	int fd = rig_connect(&rig);
	size_t sent = 0;
	time_t end = rig_now() + RIG_PATIENCE_S;
	for (;;) {
		assert_true(rig_now() < end);
		ssize_t m = sent < n ? send(fd, text + sent, n - sent, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
		sent += m > 0 ? (size_t)m : 0;
		m = recv(fd, at + in.len, (1 << 20) - in.len, MSG_DONTWAIT);
		if (m > 0)
			buf_commit(&in, (size_t)m);
		else if (m == 0 || errno != EAGAIN)
			break;
		else
			rig_turn(&rig);
	}
	bool hit = fault_passes(point) - before >= nth;
	fault_disarm_all();
	close(fd);
	RIG_UNTIL(&rig, transport_empty(rig.tr));
	assert_int_equal(rig.n_closed, rig.n_requests);
	for (int i = 0; i < rig.n_requests; i++) {
		buf_dispose(&rig.ex[i]->body);
		buf_dispose(&rig.ex[i]->give);
		free(rig.ex[i]);
	}
	rig.n_requests = rig.n_closed = 0;
	*got = in.len;
	return hit;
}

static void every_fault_of_every_kind_of_request(void **state)
{
	(void)state;
	rig.cfg.limits.body_bytes = 100000;
	static const enum fault_point points[] = {FAULT_ALLOC, FAULT_READ, FAULT_WRITE};
	static char upload[90200], chunks[70200], over[120200], fields[8000];
	int n_fields = snprintf(fields, sizeof fields, "GET /small HTTP/1.1\r\n" HOST CLOSE);
	for (int i = 0; i < 90; i++)
		n_fields += snprintf(fields + n_fields, sizeof fields - (size_t)n_fields, "x-%d: %50d\r\n", i, i);
	snprintf(fields + n_fields, sizeof fields - (size_t)n_fields, "\r\n");
	snprintf(upload, sizeof upload, "POST /echo HTTP/1.1\r\n" HOST CLOSE "Content-Length: 90000\r\n\r\n%90000s",
		 "");
	snprintf(chunks, sizeof chunks,
		 "POST /echo HTTP/1.1\r\n" HOST CLOSE "Transfer-Encoding: chunked\r\n\r\n"
		 "7530\r\n%30000s\r\n9C40;e=x\r\n%40000s\r\n0\r\nt: u\r\n\r\n",
		 "", "");
	snprintf(over, sizeof over,
		 "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
		 "1d4c0\r\n%120000s",
		 "");
	const struct {
		const char *text, *answer;
	} kinds[] = {
	    {"GET /small HTTP/1.1\r\n" HOST "\r\nGET /big?90000 HTTP/1.1\r\n" HOST "\r\n"
	     "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc"
	     "HEAD /small HTTP/1.1\r\n" HOST "\r\nGET /empty HTTP/1.1\r\n" HOST CLOSE "\r\n",
	     "HTTP/1.1 204"},
	    {upload, "HTTP/1.1 200"},
	    {chunks, "HTTP/1.1 200"},
	    {over, "HTTP/1.1 413"},
	    {fields, "HTTP/1.1 200"},
	    {"GET /small HTTP/1.1\r\n" HOST "\r\nGET /small HTTP/9.1\r\n" HOST "\r\n", "HTTP/1.1 505"},
	    {"GET /reset HTTP/1.1\r\n" HOST "\r\n", ""},
	    {"GET /fail HTTP/1.1\r\n" HOST "\r\n", "HTTP/1.1 200"},
	};
	rig_start(&rig);
	for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
		for (size_t p = 0; p < 3; p++) {
			size_t n = strlen(kinds[k].text), got;
			long nth = 1;
			while (run_with_fault(kinds[k].text, n, points[p], nth, &got) && nth < 400)
				nth++;
			assert_true(nth < 400);
			/* The last one missed nothing. */
			if (strstr(buf_cstr(&in), kinds[k].answer) == NULL)
				fail_msg("%.40s: %s", kinds[k].text, buf_cstr(&in));
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	    T(answers_have_length_date_and_one_close),
	    T(head_and_204_have_no_body),
	    T(one_byte_at_a_time),
	    T(pipelined_requests_are_answered_in_order),
	    T(a_second_request_waits_for_the_first),
	    T(pipelining_is_bounded),
	    T(http_1_0_ends_by_closing),
	    T(expect_100_continue),
	    T(malformed_requests_get_one_answer_and_an_end),
	    T(who_speaks_no_http_gets_no_answer),
	    T(heads_are_bounded),
	    T(chunked_body_over_the_limit_is_413),
	    T(early_answer_discards_the_rest),
	    T(a_client_that_leaves_is_noticed),
	    T(half_close_counts_as_gone),
	    T(reset_and_failing_source_close),
	    T(a_slow_reader_is_not_buffered_for),
	    T(a_turn_has_a_budget),
	    T(deadlines),
	    T(a_waiting_source_is_not_a_stall),
	    T(drain_finishes_what_runs),
	    T(destroy_tells_shutdown),
	    T(accept_survives_a_lack_of_descriptors),
	    T(connections_are_capped),
	    T(every_fault_is_survived),
	    T(every_fault_of_every_kind_of_request),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
