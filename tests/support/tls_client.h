/* SPDX-License-Identifier: Apache-2.0
 *
 * A TLS client of a transport_rig.h, on memory BIOs: its output can be split anywhere.
 */
#ifndef TESTS_SUPPORT_TLS_CLIENT_H
#define TESTS_SUPPORT_TLS_CLIENT_H

#include "tests/support/transport_rig.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

struct client {
	struct rig *rig;
	int fd;
	SSL_CTX *ctx;
	SSL *ssl;
	BIO *in, *out; /* owned by ssl */
	struct sl_buf text;
	bool eof, notified;
};

/* ca: the trusted certificate; "": any. */
RIG_UNUSED static void client_open(struct rig *r, const char *ca, struct client *c, const char *alpn, size_t n_alpn,
				   int max_version)
{
	*c = (struct client){.fd = rig_connect_to(r, transport_port(r->tr, true) != 0, 0), .rig = r};
	c->ctx = SSL_CTX_new(TLS_client_method());
	assert_non_null(c->ctx);
	if (ca[0] != '\0') {
		assert_int_equal(SSL_CTX_load_verify_locations(c->ctx, ca, NULL), 1);
		SSL_CTX_set_verify(c->ctx, SSL_VERIFY_PEER, NULL);
	}
	SSL_CTX_set_min_proto_version(c->ctx, TLS1_VERSION);
	SSL_CTX_set_max_proto_version(c->ctx, max_version);
	SSL_CTX_set_security_level(c->ctx, 0);
	c->ssl = SSL_new(c->ctx);
	c->in = BIO_new(BIO_s_mem());
	c->out = BIO_new(BIO_s_mem());
	SSL_set_bio(c->ssl, c->in, c->out);
	if (ca[0] != '\0')
		SSL_set1_host(c->ssl, "localhost");
	if (n_alpn > 0)
		SSL_set_alpn_protos(c->ssl, (const unsigned char *)alpn, (unsigned)n_alpn);
	SSL_set_connect_state(c->ssl);
	buf_init(&c->text, 64 << 20);
}

RIG_UNUSED static void client_close(struct client *c)
{
	close(c->fd);
	SSL_free(c->ssl);
	SSL_CTX_free(c->ctx);
	buf_dispose(&c->text);
	ERR_clear_error();
}

/* Sends the pending TLS output, `step` bytes at a time, and feeds received bytes to TLS. */
RIG_UNUSED static void client_pump(struct client *c, size_t step)
{
	char buf[16384];
	int n;
	size_t room = step < sizeof buf ? step : sizeof buf;
	while ((n = BIO_read(c->out, buf, (int)room)) > 0) {
		rig_send(c->rig, c->fd, buf, (size_t)n);
		if (step < 100)
			rig_turn(c->rig);
	}
	ssize_t m;
	while ((m = recv(c->fd, buf, sizeof buf, MSG_DONTWAIT)) > 0)
		BIO_write(c->in, buf, (int)m);
	c->eof = c->eof || m == 0 || (m < 0 && errno != EAGAIN);
	if (SSL_is_init_finished(c->ssl)) {
		while ((n = SSL_read(c->ssl, buf, sizeof buf)) > 0)
			assert_int_equal(buf_append(&c->text, buf, (size_t)n), 0);
		c->notified = c->notified || SSL_get_error(c->ssl, n) == SSL_ERROR_ZERO_RETURN;
	}
}

/* True when the handshake succeeds. */
RIG_UNUSED static bool client_handshake(struct client *c, size_t step)
{
	time_t end = rig_now() + RIG_PATIENCE_S;
	while (rig_now() < end) {
		ERR_clear_error();
		int r = SSL_do_handshake(c->ssl);
		int e = SSL_get_error(c->ssl, r);
		client_pump(c, step);
		if (r == 1)
			return true;
		if ((e != SSL_ERROR_WANT_READ && e != SSL_ERROR_WANT_WRITE) || (c->eof && BIO_pending(c->in) == 0))
			return false;
		rig_turn(c->rig);
	}
	fail_msg("the handshake does not end");
	return false;
}

RIG_UNUSED static void client_ask(struct client *c, const char *text, size_t step)
{
	assert_int_equal(SSL_write(c->ssl, text, (int)strlen(text)), (int)strlen(text));
	time_t end = rig_now() + RIG_PATIENCE_S;
	while (!c->eof) {
		assert_true(rig_now() < end);
		client_pump(c, step);
		if (!c->eof)
			rig_turn(c->rig);
	}
}

#endif
