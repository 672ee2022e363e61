/* SPDX-License-Identifier: Apache-2.0
 *
 * What TLS connections share: certificates by name, read again while serving, sessions resumed
 * across threads and not across rules, clients' certificates, and handshakes that wait their turn.
 */
#include "tests/support/tls_client.h"

#include "gateway/transport/tls_context.h"
#include "gateway/transport/tls_tickets.h"
#include "tests/support/make_cert.h"

enum { ROTATION_MS = 60000 };

static struct rig rig;
static char dir[64];
static struct made_cert first, second, wild, authority, alice, mallory_ca, mallory;
static struct gw_cert_config more[2];
static uint64_t now;

static const char request[] = "GET /small HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

static void configure(struct rig *r)
{
	rig_config(r);
	r->cfg.https = r->cfg.http;
	r->cfg.http.off = true;
	r->cfg.https.off = false;
	r->cfg.cert_file = first.cert_file;
	r->cfg.key_file = first.key_file;
	r->cfg.ticket_ms = ROTATION_MS;
}

static int setup(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/sluice-test-XXXXXX");
	assert_non_null(mkdtemp(dir));
	made_cert_create(&first, dir, "first", "DNS:localhost", NULL);
	made_cert_create(&second, dir, "second", "DNS:a.example,DNS:second.example", NULL);
	made_cert_create(&wild, dir, "wild", "DNS:*.b.example", NULL);
	made_cert_create(&authority, dir, "authority", NULL, NULL);
	made_cert_create(&alice, dir, "alice", NULL, &authority);
	made_cert_create(&mallory_ca, dir, "authority2", NULL, NULL);
	made_cert_create(&mallory, dir, "mallory", NULL, &mallory_ca);
	more[0] = (struct gw_cert_config){(char[]){"s"}, second.cert_file, second.key_file};
	more[1] = (struct gw_cert_config){(char[]){"w"}, wild.cert_file, wild.key_file};
	configure(&rig);
	tls_tickets_forget();
	now = clock_now_ns();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	struct made_cert *const all[] = {&first, &second, &wild, &authority, &alice, &mallory_ca, &mallory};
	rig_stop(&rig);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		made_cert_dispose(all[i]);
	rmdir(dir);
	return 0;
}

/* The common name of the server's certificate. */
static void served_name(struct rig *r, const char *sni, char out[64])
{
	struct client c;
	client_open(r, "", &c, NULL, 0, TLS1_3_VERSION);
	if (sni != NULL)
		SSL_set_tlsext_host_name(c.ssl, sni);
	assert_true(client_handshake(&c, SIZE_MAX));
	X509_NAME_get_text_by_NID(X509_get_subject_name(SSL_get0_peer_certificate(c.ssl)), NID_commonName, out, 64);
	client_ask(&c, request, SIZE_MAX);
	assert_non_null(strstr((const char *)buf_data(&c.text), "hello"));
	client_close(&c);
}

static void a_name_has_its_certificate(void **state)
{
	(void)state;
	static const struct {
		const char *sni, *name;
	} cases[] = {{NULL, "first"},         {"localhost", "first"},       {"a.example", "second"},
		     {"A.Example", "second"}, {"second.example", "second"}, {"x.b.example", "wild"},
		     {"b.example", "first"},  {"x.y.b.example", "first"},   {"nobody.example", "first"}};
	rig.cfg.certificates = (struct conf_list){more, 2};
	rig_start(&rig);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char name[64] = "";
		served_name(&rig, cases[i].sni, name);
		assert_string_equal(name, cases[i].name);
	}
}

static void without_a_first_one_the_list_begins(void **state)
{
	(void)state;
	char name[64] = "";
	rig.cfg.cert_file = rig.cfg.key_file = (char[]){""};
	rig.cfg.certificates = (struct conf_list){more, 2};
	rig_start(&rig);
	served_name(&rig, "nobody.example", name);
	assert_string_equal(name, "second");
}

static void copy_file(const char *from, const char *to)
{
	char buf[8192];
	FILE *f = fopen(from, "r"), *t = fopen(to, "w");
	assert_true(f != NULL && t != NULL);
	size_t n = fread(buf, 1, sizeof buf, f);
	assert_int_equal(fwrite(buf, 1, n, t), n);
	fclose(f);
	fclose(t);
}

static void certificates_are_read_again(void **state)
{
	(void)state;
	char name[64] = "";
	struct gw_thread *threads[] = {&rig.t};
	struct sl_err err = {0};
	struct client old;
	rig_start(&rig);
	client_open(&rig, "", &old, NULL, 0, TLS1_3_VERSION);
	assert_true(client_handshake(&old, SIZE_MAX));
	copy_file(second.cert_file, first.cert_file);
	/* The key is not its own yet: nothing changes. */
	assert_int_equal(tls_reload(&rig.cfg, threads, 1, &err), SL_EINVAL);
	assert_non_null(strstr(err.text, first.key_file));
	assert_non_null(strstr(err.text, "does not match"));
	rig_turn(&rig);
	served_name(&rig, NULL, name);
	assert_string_equal(name, "first");
	copy_file(second.key_file, first.key_file);
	assert_int_equal(tls_reload(&rig.cfg, threads, 1, &err), 0);
	served_name(&rig, NULL, name);
	assert_string_equal(name, "second");
	client_ask(&old, request, SIZE_MAX);
	assert_non_null(strstr((const char *)buf_data(&old.text), "hello"));
	client_close(&old);
}

/* ---- sessions ---- */

/* Connects with a session, if any, and asks. Was it resumed? *next: the newest session. */
static bool resume(struct rig *r, int version, SSL_SESSION *with, SSL_SESSION **next)
{
	struct client c;
	client_open(r, "", &c, NULL, 0, version);
	if (with != NULL)
		SSL_set_session(c.ssl, with);
	assert_true(client_handshake(&c, SIZE_MAX));
	bool reused = SSL_session_reused(c.ssl);
	time_t end = rig_now() + RIG_PATIENCE_S;
	assert_true(SSL_write(c.ssl, request, (int)strlen(request)) > 0);
	while (!c.eof && rig_now() < end) {
		client_pump(&c, SIZE_MAX);
		if (!c.eof) {
			rig_turn(r);
		}
	}
	/* A copy: with the client context its sessions stop being good. */
	*next = SSL_SESSION_dup(SSL_get_session(c.ssl));
	client_close(&c);
	return reused;
}

static void a_session_goes_on_on_any_thread(void **state)
{
	(void)state;
	static struct rig other;
	rig_start(&rig);
	configure(&other);
	rig_start(&other);
	static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
	for (int i = 0; i < 2; i++) {
		SSL_SESSION *a, *b, *c;
		assert_false(resume(&rig, versions[i], NULL, &a));
		assert_true(resume(&rig, versions[i], a, &b));
		assert_true(resume(&other, versions[i], b, &c));
		SSL_SESSION_free(a);
		SSL_SESSION_free(b);
		SSL_SESSION_free(c);
	}
	rig_stop(&other);
}

static void keys_of_tickets_change(void **state)
{
	(void)state;
	SSL_SESSION *a, *b, *c;
	clock_fake(&now);
	rig_start(&rig);
	assert_false(resume(&rig, TLS1_3_VERSION, NULL, &a));
	now += (uint64_t)ROTATION_MS * 3 / 2 * NS_PER_MS;
	/* By the key before: taken, and renewed. */
	assert_true(resume(&rig, TLS1_3_VERSION, a, &b));
	now += (uint64_t)ROTATION_MS * NS_PER_MS;
	assert_true(resume(&rig, TLS1_3_VERSION, b, &c));
	SSL_SESSION_free(b);
	/* Two keys later its own is forgotten. */
	assert_false(resume(&rig, TLS1_3_VERSION, a, &b));
	SSL_SESSION_free(a);
	SSL_SESSION_free(b);
	SSL_SESSION_free(c);
}

static void no_tickets_when_off(void **state)
{
	(void)state;
	SSL_SESSION *a, *b;
	rig.cfg.ticket_ms = 0;
	rig_start(&rig);
	static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
	for (int i = 0; i < 2; i++) {
		assert_false(resume(&rig, versions[i], NULL, &a));
		assert_false(resume(&rig, versions[i], a, &b));
		SSL_SESSION_free(a);
		SSL_SESSION_free(b);
	}
}

/* ---- clients' certificates ---- */

/* Connects with a certificate or none and asks. Was it answered? */
static bool ask_as(struct rig *r, const struct made_cert *who, int version)
{
	struct client c;
	client_open(r, "", &c, NULL, 0, version);
	if (who != NULL) {
		assert_int_equal(SSL_use_certificate(c.ssl, who->cert), 1);
		assert_int_equal(SSL_use_PrivateKey(c.ssl, who->key), 1);
	}
	bool ok = client_handshake(&c, SIZE_MAX);
	/* With TLS 1.3 the client has done its part before it is refused. */
	if (ok)
		client_ask(&c, request, SIZE_MAX);
	ok = ok && c.text.len > 0 && strncmp((const char *)buf_data(&c.text), "HTTP/1.1 200", 12) == 0;
	client_close(&c);
	return ok;
}

static void clients_show_certificates(void **state)
{
	(void)state;
	static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
	for (int required = 0; required < 2; required++) {
		struct rig own = {0}, *r = required ? &own : &rig;
		configure(r);
		r->cfg.client_ca = authority.cert_file;
		r->cfg.client_certs = required ? GW_CLIENT_CERTS_REQUIRED : GW_CLIENT_CERTS_OPTIONAL;
		rig_start(r);
		for (int i = 0; i < 2; i++) {
			int asked = r->n_requests;
			assert_int_equal(ask_as(r, NULL, versions[i]), !required);
			assert_int_equal(r->n_requests, asked + !required);
			if (!required)
				assert_string_equal(r->ex[asked]->subject, "-");
			assert_false(ask_as(r, &mallory, versions[i]));
			assert_int_equal(r->n_requests, asked + !required);
			assert_true(ask_as(r, &alice, versions[i]));
			assert_string_equal(r->ex[r->n_requests - 1]->subject, "CN=alice");
		}
		if (required)
			rig_stop(r);
	}
}

static void a_session_does_not_carry_over_rules(void **state)
{
	(void)state;
	static struct rig strict;
	SSL_SESSION *a;
	rig.cfg.client_ca = authority.cert_file;
	rig_start(&rig);
	configure(&strict);
	strict.cfg.client_ca = authority.cert_file;
	strict.cfg.client_certs = GW_CLIENT_CERTS_REQUIRED;
	rig_start(&strict);
	assert_false(resume(&rig, TLS1_3_VERSION, NULL, &a));
	struct client c;
	client_open(&strict, "", &c, NULL, 0, TLS1_3_VERSION);
	SSL_set_session(c.ssl, a);
	if (client_handshake(&c, SIZE_MAX)) {
		assert_false(SSL_session_reused(c.ssl));
		client_ask(&c, request, SIZE_MAX);
	}
	assert_int_equal(c.text.len, 0);
	assert_int_equal(strict.n_requests, 0);
	client_close(&c);
	SSL_SESSION_free(a);
	rig_stop(&strict);
}

static void the_oldest_version_is_configured(void **state)
{
	(void)state;
	struct client c;
	rig.cfg.tls_min = GW_TLS_1_3;
	rig_start(&rig);
	client_open(&rig, "", &c, NULL, 0, TLS1_2_VERSION);
	assert_false(client_handshake(&c, SIZE_MAX));
	client_close(&c);
	client_open(&rig, "", &c, NULL, 0, TLS1_3_VERSION);
	assert_true(client_handshake(&c, SIZE_MAX));
	client_close(&c);
}

/* ---- a flood of handshakes ---- */

enum { FLOOD = 40, EACH_TURN = 3 };

static void handshakes_wait_their_turn(void **state)
{
	(void)state;
	static struct client flood[FLOOD];
	bool answered[FLOOD] = {false};
	rig.cfg.limits.handshakes_per_turn = EACH_TURN;
	rig_start(&rig);
	for (int i = 0; i < FLOOD; i++)
		client_open(&rig, "", &flood[i], NULL, 0, TLS1_3_VERSION);
	RIG_UNTIL(&rig, rig.tr->n_conns == FLOOD);
	for (int i = 0; i < FLOOD; i++) {
		SSL_do_handshake(flood[i].ssl);
		client_pump(&flood[i], SIZE_MAX);
	}
	int n = 0;
	time_t end = rig_now() + RIG_PATIENCE_S;
	while (n < FLOOD && rig_now() < end) {
		char byte;
		int before = n;
		rig_turn(&rig);
		for (int i = 0; i < FLOOD; i++) {
			if (!answered[i] && recv(flood[i].fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1) {
				answered[i] = true;
				n++;
			}
		}
		/* Those of this turn's line, and newcomers as far as it has not been used up. */
		assert_true(n - before <= 2 * EACH_TURN);
	}
	assert_int_equal(n, FLOOD);
	for (int i = 0; i < FLOOD; i++) {
		assert_true(client_handshake(&flood[i], SIZE_MAX));
		client_close(&flood[i]);
	}
	RIG_UNTIL(&rig, transport_empty(rig.tr));
}

static void a_handshake_in_line_can_end(void **state)
{
	(void)state;
	static struct client flood[FLOOD];
	rig.cfg.limits.handshakes_per_turn = 1;
	rig_start(&rig);
	for (int i = 0; i < FLOOD; i++) {
		client_open(&rig, "", &flood[i], NULL, 0, TLS1_3_VERSION);
		SSL_do_handshake(flood[i].ssl);
		client_pump(&flood[i], SIZE_MAX);
		client_close(&flood[i]);
	}
	RIG_UNTIL(&rig, transport_empty(rig.tr) && list_empty(&rig.tr->shaking));
	/* And with the transport. */
	for (int i = 0; i < FLOOD; i++) {
		client_open(&rig, "", &flood[i], NULL, 0, TLS1_3_VERSION);
		SSL_do_handshake(flood[i].ssl);
		client_pump(&flood[i], SIZE_MAX);
	}
	RIG_UNTIL(&rig, !list_empty(&rig.tr->shaking));
	for (int i = 0; i < FLOOD; i++)
		client_close(&flood[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	    T(a_name_has_its_certificate),       T(without_a_first_one_the_list_begins),
	    T(certificates_are_read_again),      T(a_session_goes_on_on_any_thread),
	    T(keys_of_tickets_change),           T(no_tickets_when_off),
	    T(clients_show_certificates),        T(a_session_does_not_carry_over_rules),
	    T(the_oldest_version_is_configured), T(handshakes_wait_their_turn),
	    T(a_handshake_in_line_can_end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
