/* SPDX-License-Identifier: Apache-2.0
 *
 * TLS on connections with the development certificate: protocols, ALPN, records in pieces, ends.
 */
#include "tests/support/tls_client.h"

#include <malloc.h>

#include <openssl/x509v3.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "gateway/server/dev_cert.h"
#include "gateway/transport/tls_context.h"

static struct rig rig;
static char dir[64], cert[96], key[96];

static int setup(void **state)
{
	(void)state;
	struct sl_err err = {0};
	strcpy(dir, "/tmp/sluice-test-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(cert, sizeof cert, "%s/tls/cert.pem", dir);
	snprintf(key, sizeof key, "%s/tls/key.pem", dir);
	rig_config(&rig);
	assert_int_equal(gw_dev_cert_ensure(dir, &err), 0);
	rig.cfg.https = rig.cfg.http;
	rig.cfg.http.off = true;
	rig.cfg.https.off = false;
	rig.cfg.cert_file = cert;
	rig.cfg.key_file = key;
	return 0;
}

static void remove_files(void)
{
	char path[128];
	unlink(cert);
	unlink(key);
	snprintf(path, sizeof path, "%s/tls", dir);
	rmdir(path);
	rmdir(dir);
}

static int teardown(void **state)
{
	(void)state;
	fault_disarm_all();
	rig_stop(&rig);
	remove_files();
	return 0;
}

static const char request[] = "GET /big?100000 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

static void versions_and_certificate(void **state)
{
	(void)state;
	rig_start(&rig);
	static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
	for (int i = 0; i < 2; i++) {
		struct client c;
		client_open(&rig, cert, &c, NULL, 0, versions[i]);
		assert_true(client_handshake(&c, SIZE_MAX));
		assert_int_equal(SSL_version(c.ssl), versions[i]);
		assert_int_equal(SSL_get_verify_result(c.ssl), X509_V_OK);
		client_ask(&c, request, SIZE_MAX);
		assert_true(c.text.len > 100000);
		assert_true(c.notified); /* close_notify before the end */
		client_close(&c);
	}
	struct client old;
	client_open(&rig, cert, &old, NULL, 0, TLS1_1_VERSION);
	assert_false(client_handshake(&old, SIZE_MAX));
	client_close(&old);
	RIG_UNTIL(&rig, transport_empty(rig.tr));
}

static void alpn_chooses(void **state)
{
	(void)state;
	rig_start(&rig);
	static const struct {
		const char *offer, *chosen;
	} cases[] = {{"\x02h2\x08http/1.1", "h2"},
		     {"\x08http/1.1\x02h2", "h2"},
		     {"\x08http/1.1", "http/1.1"},
		     {"\x03"
		      "foo\x08http/1.1",
		      "http/1.1"},
		     {"\x03"
		      "foo",
		      NULL}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct client c;
		client_open(&rig, cert, &c, cases[i].offer, strlen(cases[i].offer), TLS1_3_VERSION);
		bool ok = client_handshake(&c, SIZE_MAX);
		assert_int_equal(ok, cases[i].chosen != NULL);
		if (ok) {
			const unsigned char *name;
			unsigned n;
			SSL_get0_alpn_selected(c.ssl, &name, &n);
			assert_int_equal(n, strlen(cases[i].chosen));
			assert_memory_equal(name, cases[i].chosen, n);
		}
		client_close(&c);
	}
}

static void h2_begins_with_settings(void **state)
{
	(void)state;
	rig_start(&rig);
	struct client c;
	client_open(&rig, cert, &c, "\x02h2", 3, TLS1_3_VERSION);
	assert_true(client_handshake(&c, SIZE_MAX));
	time_t end = rig_now() + RIG_PATIENCE_S;
	while (c.text.len < 9 && rig_now() < end) {
		client_pump(&c, SIZE_MAX);
		rig_turn(&rig);
	}
	assert_true(c.text.len >= 9);
	assert_int_equal(buf_data(&c.text)[3], 4);
	/* HTTP/1.1 on a connection that chose h2 is an error, not a request. */
	client_ask(&c, request, SIZE_MAX);
	assert_int_equal(rig.n_requests, 0);
	client_close(&c);
}

/* Records that arrive a byte at a time, the handshake's too. */
static void records_in_pieces(void **state)
{
	(void)state;
	rig_start(&rig);
	struct client c;
	client_open(&rig, cert, &c, NULL, 0, TLS1_3_VERSION);
	assert_true(client_handshake(&c, 1));
	client_ask(&c, request, 1);
	assert_true(c.text.len > 100000);
	assert_int_equal(rig.closed[HTTP_CLOSE_DONE], 1);
	client_close(&c);
}

/* Large records, cut so that most of one is inside the library when the rest comes. */
static void large_records_cut_badly(void **state)
{
	(void)state;
	rig_start(&rig);
	struct client c;
	client_open(&rig, cert, &c, NULL, 0, TLS1_3_VERSION);
	assert_true(client_handshake(&c, SIZE_MAX));
	static char text[300000];
	int n = snprintf(text, sizeof text,
			 "POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
			 "Content-Length: 200000\r\n\r\n%200000s",
			 "");
	assert_true(n > 0);
	client_ask(&c, text, 16380);
	assert_int_equal(rig.body_bytes, 200000);
	assert_true(c.text.len > 200000);
	client_close(&c);
}

/* A ClientHello as a client sends it. */
static size_t client_hello(uint8_t *out, size_t room)
{
	struct client k;
	client_open(&rig, "", &k, "\x02h2\x08http/1.1", 12, TLS1_3_VERSION);
	SSL_set_tlsext_host_name(k.ssl, "localhost");
	assert_int_equal(SSL_do_handshake(k.ssl), -1);
	int n = BIO_read(k.out, out, (int)room);
	assert_true(n > 200 && (size_t)n < room);
	client_close(&k);
	return (size_t)n;
}

/* What comes back to bytes on a new connection, up to its end or the first `enough` bytes. step: how many at a time. */
static void tell(const void *bytes, size_t n, size_t step, size_t enough, struct sl_buf *in)
{
	int fd = rig_connect_to(&rig, true, 0);
	time_t end = rig_now() + RIG_PATIENCE_S;
	bool open = true;
	buf_init(in, 1 << 20);
	for (size_t at = 0; at < n; at += step) {
		rig_send(&rig, fd, (const uint8_t *)bytes + at, n - at < step ? n - at : step);
		rig_turn(&rig);
	}
	while (open && in->len < enough) {
		uint8_t piece[4096];
		assert_true(rig_now() < end);
		ssize_t m = recv(fd, piece, sizeof piece, MSG_DONTWAIT);
		open = m > 0 || (m < 0 && errno == EAGAIN);
		if (m > 0)
			assert_int_equal(buf_append(in, piece, (size_t)m), 0);
		else
			rig_turn(&rig);
	}
	close(fd);
	assert_int_equal(buf_append(in, "", 1), 0);
}

static void http_in_cleartext_is_told_where_https_is(void **state)
{
	(void)state;
	static const struct {
		const char *text, *says;
	} cases[] = {
	    {"GET /path?q HTTP/1.1\r\nHost: example.com:8443\r\n\r\n", "https://example.com:8443/\n"},
	    {"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello",
	     "https://localhost/\n"},
	    {"GET http://other.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", "https://other.example/\n"},
	    {"GET / HTTP/1.0\r\n\r\n", "came without TLS.\n"},
	    {"GET / HTTP/1.1\r\nHost: user@evil\r\n\r\n", "came without TLS.\n"},
	    {"GET / HTTP/1.1\nHost: a\n\n", "came without TLS.\n"},
	    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "came without TLS.\n"},
	};
	rig_start(&rig);
	for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
		struct sl_buf in;
		const char *text = cases[i / 2].text;
		tell(text, strlen(text), i % 2 ? 1 : SIZE_MAX, SIZE_MAX, &in);
		const char *got = (const char *)buf_data(&in);
		if (strncmp(got, "HTTP/1.1 400 ", 13) != 0 || strstr(got, "This port speaks HTTPS") == NULL ||
		    strstr(got, cases[i / 2].says) == NULL || strstr(got, "content-type: text/plain") == NULL ||
		    strstr(got, "connection: close") == NULL || strstr(got + 13, "HTTP/1.1") != NULL)
			fail_msg("%s -> %s", text, got);
		buf_dispose(&in);
	}
	assert_int_equal(rig.n_requests, 0);
}

/* What begins a record is never answered in HTTP, however it goes on. */
static void tls_is_answered_in_tls(void **state)
{
	(void)state;
	static const struct {
		const char *what, *bytes;
		size_t n;
	} cases[] = {{"another record", "\x17\x03\x03\0\5hello", 10},
		     {"an alert", "\x15\x03\x01\0\2\2\x28", 7},
		     {"another message", "\x16\x03\x01\0\4\x14\0\0\0", 9},
		     {"a strange version", "\x16\x09\x09\0\4\1\0\0\0", 9},
		     {"an empty record", "\x16\x03\x01\0\0\x16\x03\x01\0\0", 10},
		     {"an over-long record", "\x16\x03\x01\xff\xff\1\xff\xff\xff", 9},
		     {"an empty hello", "\x16\x03\x01\0\4\1\0\0\0", 9},
		     {"SSL 2", "\x80\x2e\1\0\2\0\x15\0\0\0\x10", 11},
		     {"lower case", "get / HTTP/1.1\r\n\r\n", 18}};
	rig_start(&rig);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct sl_buf in;
		int fd = rig_connect_to(&rig, true, 0);
		buf_init(&in, 1 << 20);
		rig_send(&rig, fd, cases[i].bytes, cases[i].n);
		rig_turn(&rig);
		shutdown(fd, SHUT_WR);
		rig_read_end(&rig, fd, &in);
		if (in.len > 0 && buf_data(&in)[0] != 0x15)
			fail_msg("%s is answered with %u", cases[i].what, buf_data(&in)[0]);
		close(fd);
		buf_dispose(&in);
	}
	assert_int_equal(rig.n_requests, 0);
}

/* RFC 8446 5.1: a message may be spread over records. */
static void a_hello_in_many_records(void **state)
{
	(void)state;
	static const size_t pieces[] = {1, 2, 3, 5, 50, 199};
	uint8_t hello[4096];
	rig_start(&rig);
	size_t n = client_hello(hello, sizeof hello);
	for (size_t i = 0; i < 2 * (sizeof pieces / sizeof *pieces); i++) {
		static uint8_t split[32768];
		size_t piece = pieces[i / 2], m = 0;
		for (size_t at = 5; at < n; at += piece) {
			size_t len = n - at < piece ? n - at : piece;
			memcpy(split + m, "\x16\x03\x01\0", 4);
			split[m + 4] = (uint8_t)len;
			memcpy(split + m + 5, hello + at, len);
			m += 5 + len;
		}
		struct sl_buf in;
		tell(split, m, i % 2 ? 1 : SIZE_MAX, 1, &in);
		assert_int_equal(buf_data(&in)[0], 0x16); /* ServerHello */
		buf_dispose(&in);
	}
}

/* A client that sends half of a ClientHello, and no more, costs its connection and those bytes. */
static void half_a_hello_holds_little(void **state)
{
	(void)state;
	enum { CONNECTIONS = 200, EACH = 4096 };
	uint8_t hello[4096];
	int fds[CONNECTIONS];
	rig_start(&rig);
	size_t n = client_hello(hello, sizeof hello);
	RIG_UNTIL(&rig, transport_empty(rig.tr));
	size_t before = mallinfo2().uordblks;
	for (int i = 0; i < CONNECTIONS; i++) {
		fds[i] = rig_connect_to(&rig, true, 0);
		rig_send(&rig, fds[i], hello, n / 2);
		rig_turn(&rig);
	}
	for (int i = 0; i < 20; i++)
		rig_turn(&rig);
	size_t held = mallinfo2().uordblks - before;
	assert_int_equal(rig.tr->n_conns, CONNECTIONS);
	assert_true(held <= (size_t)CONNECTIONS * EACH);
	/* The rest of it, and the handshake goes on. */
	uint8_t answer[64];
	rig_send(&rig, fds[7], hello + n / 2, n - n / 2);
	RIG_UNTIL(&rig, recv(fds[7], answer, sizeof answer, MSG_DONTWAIT | MSG_PEEK) > 0);
	assert_int_equal(recv(fds[7], answer, sizeof answer, 0) > 0 ? answer[0] : 0, 0x16);
	for (int i = 0; i < CONNECTIONS; i++)
		close(fds[i]);
	RIG_UNTIL(&rig, transport_empty(rig.tr));
}

static void a_handshake_has_a_deadline(void **state)
{
	(void)state;
	uint64_t now = clock_now_ns();
	rig_start(&rig);
	clock_fake(&now);
	struct sl_buf in;
	buf_init(&in, 1 << 20);
	int fd = rig_connect_to(&rig, true, 0);
	rig_send(&rig, fd, "\x16\x03\x01", 3);
	RIG_UNTIL(&rig, !transport_empty(rig.tr));
	now += 9 * NS_PER_S;
	rig_turn(&rig);
	rig_turn(&rig);
	assert_false(transport_empty(rig.tr));
	now += 2 * NS_PER_S;
	rig_read_end(&rig, fd, &in);
	close(fd);
	buf_dispose(&in);
}

/* A client that says close_notify has ended its side. */
static void close_notify_ends(void **state)
{
	(void)state;
	rig_start(&rig);
	struct client c;
	client_open(&rig, cert, &c, NULL, 0, TLS1_3_VERSION);
	assert_true(client_handshake(&c, SIZE_MAX));
	static const char q[] = "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n";
	SSL_write(c.ssl, q, sizeof q - 1);
	client_pump(&c, SIZE_MAX);
	RIG_UNTIL(&rig, rig.n_requests == 1);
	SSL_shutdown(c.ssl);
	client_pump(&c, SIZE_MAX);
	RIG_UNTIL(&rig, rig.closed[HTTP_CLOSE_PEER] == 1);
	client_close(&c);
}

static void every_fault_is_survived(void **state)
{
	(void)state;
	rig_start(&rig);
	static const enum fault_point points[] = {FAULT_ALLOC, FAULT_READ, FAULT_WRITE};
	for (size_t p = 0; p < 3; p++) {
		long passed = 0;
		for (long nth = 1; nth < 60 && passed == 0; nth++) {
			struct client c;
			int done = rig.closed[HTTP_CLOSE_DONE];
			client_open(&rig, cert, &c, NULL, 0, TLS1_3_VERSION);
			uint8_t *at;
			assert_int_equal(buf_reserve(&c.text, 1 << 20, &at), 0);
			fault_arm(points[p], nth, 1);
			if (client_handshake(&c, SIZE_MAX))
				client_ask(&c, request, SIZE_MAX);
			fault_disarm_all();
			client_close(&c);
			RIG_UNTIL(&rig, transport_empty(rig.tr));
			assert_int_equal(rig.n_closed, rig.n_requests);
			passed = rig.closed[HTTP_CLOSE_DONE] > done && nth > 1;
		}
		assert_true(passed);
	}
}

/* ---- the certificate ---- */

static void the_pair_is_kept_while_valid(void **state)
{
	(void)state;
	struct stat before, after, k, d;
	struct sl_err err = {0};
	rig_start(&rig);
	assert_int_equal(stat(cert, &before), 0);
	assert_int_equal(stat(key, &k), 0);
	assert_int_equal(k.st_mode & 0777, 0600);
	assert_int_equal(before.st_mode & 0777, 0600);
	char path[128];
	snprintf(path, sizeof path, "%s/tls", dir);
	assert_int_equal(stat(path, &d), 0);
	assert_int_equal(d.st_mode & 0777, 0700);
	assert_int_equal(gw_dev_cert_ensure(dir, &err), 0);
	assert_int_equal(stat(cert, &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	/* A key that is not its own makes a new pair. */
	FILE *f = fopen(key, "w");
	assert_non_null(f);
	fputs("nonsense", f);
	fclose(f);
	assert_int_equal(gw_dev_cert_ensure(dir, &err), 0);
	struct tls_context *ctx = NULL;
	rig.cfg.cert_file = cert;
	assert_int_equal(tls_context_create(&rig.cfg, &ctx, &err), 0);
	tls_context_unref(ctx);
}

static void errors_name_the_file(void **state)
{
	(void)state;
	rig_start(&rig);
	struct sl_err err = {0};
	struct tls_context *ctx;
	rig.cfg.cert_file = (char[]){"/nonexistent/c.pem"};
	assert_int_equal(tls_context_create(&rig.cfg, &ctx, &err), SL_EIO);
	assert_non_null(strstr(err.text, "/nonexistent/c.pem"));
	assert_int_equal(gw_dev_cert_ensure("/proc/nowhere", &err), SL_EIO);
	assert_non_null(strstr(err.text, "/proc/nowhere"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	    T(versions_and_certificate),
	    T(alpn_chooses),
	    T(h2_begins_with_settings),
	    T(records_in_pieces),
	    T(large_records_cut_badly),
	    T(http_in_cleartext_is_told_where_https_is),
	    T(tls_is_answered_in_tls),
	    T(a_hello_in_many_records),
	    T(half_a_hello_holds_little),
	    T(a_handshake_has_a_deadline),
	    T(close_notify_ends),
	    T(every_fault_is_survived),
	    T(the_pair_is_kept_while_valid),
	    T(errors_name_the_file),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
