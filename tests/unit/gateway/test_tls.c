/* SPDX-License-Identifier: Apache-2.0
 *
 * TLS on connections with the development certificate: protocols, ALPN, records in pieces, ends.
 */
#include "tests/support/tls_client.h"

#include <openssl/x509v3.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "gateway/tls_context.h"

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

static const char request[] =
    "GET /big?100000 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

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

static void not_tls_at_all(void **state)
{
	(void)state;
	rig_start(&rig);
	struct sl_buf in;
	buf_init(&in, 1 << 20);
	int fd = rig_connect_to(&rig, true, 0);
	rig_send(&rig, fd, request, sizeof request - 1);
	rig_read_end(&rig, fd, &in);
	assert_int_equal(rig.n_requests, 0);
	close(fd);
	buf_dispose(&in);
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
	    T(versions_and_certificate),   T(alpn_chooses),
	    T(h2_begins_with_settings),    T(records_in_pieces),
	    T(large_records_cut_badly),    T(not_tls_at_all),
	    T(a_handshake_has_a_deadline), T(close_notify_ends),
	    T(every_fault_is_survived),    T(the_pair_is_kept_while_valid),
	    T(errors_name_the_file),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
