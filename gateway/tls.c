/* SPDX-License-Identifier: Apache-2.0
 *
 * TLS 1.2 and 1.3 by OpenSSL over a BIO of our own that reads from the bytes just received and
 * writes into a buffer of the caller's: no socket, no copy kept between turns, so an idle
 * connection costs the SSL object alone (SSL_MODE_RELEASE_BUFFERS frees its record buffers).
 * Measured against bufferevent_openssl this is fewer system calls and less time, and its ends are
 * ours to order.
 *
 * Renegotiation, compression, early data and tickets that outlive a key are off. ALPN offers h2,
 * then http/1.1; a client that offers only unknown protocols is refused (RFC 7301 3.2).
 *
 * Thread: the context is a thread's, a connection its context's thread's.
 */
#include "gateway/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>

#include "base/alloc.h"

struct tls_context {
	SSL_CTX *ssl_ctx;
	BIO_METHOD *bio;
};

struct tls_conn {
	SSL *ssl;
	/* Set for the length of one call. */
	const uint8_t *in;
	size_t n_in;
	struct sl_buf *out;
	bool done; /* handshake */
	bool broken;
};

/* ---- the BIO ---- */

static int bio_read(BIO *b, char *dst, size_t room, size_t *got)
{
	struct tls_conn *tc = BIO_get_data(b);
	BIO_clear_retry_flags(b);
	size_t n = tc->n_in < room ? tc->n_in : room;
	*got = n;
	if (n == 0) {
		BIO_set_retry_read(b);
		return 0;
	}
	memcpy(dst, tc->in, n);
	tc->in += n;
	tc->n_in -= n;
	return 1;
}

static int bio_write(BIO *b, const char *src, size_t n, size_t *put)
{
	struct tls_conn *tc = BIO_get_data(b);
	BIO_clear_retry_flags(b);
	*put = 0;
	if (tc->out == NULL || buf_append(tc->out, src, n) != 0)
		return 0;
	*put = n;
	return 1;
}

static long bio_ctrl(BIO *b, int cmd, long num, void *ptr)
{
	(void)b, (void)num, (void)ptr;
	return cmd == BIO_CTRL_FLUSH ? 1 : 0;
}

/* ---- context ---- */

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *n_out,
			   const unsigned char *in, unsigned int n_in, void *arg)
{
	(void)ssl, (void)arg;
	static const unsigned char ours[] = "\x02h2\x08http/1.1\x08http/1.0";
	unsigned char *chosen;
	if (SSL_select_next_proto(&chosen, n_out, ours, sizeof ours - 1, in, n_in) !=
	    OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*out = chosen;
	return SSL_TLSEXT_ERR_OK;
}

static const char *ssl_reason(void)
{
	const char *text = ERR_reason_error_string(ERR_peek_error());
	return text != NULL ? text : "unknown reason";
}

static int load_certificate(SSL_CTX *ctx, const char *cert_file, const char *key_file,
			    struct sl_err *err)
{
	int rc = 0;
	ERR_clear_error();
	if (SSL_CTX_use_certificate_chain_file(ctx, cert_file) != 1)
		rc = sl_errf(err, SL_EIO, "%s: no usable certificate: %s", cert_file, ssl_reason());
	else if (SSL_CTX_use_PrivateKey_file(ctx, key_file, SSL_FILETYPE_PEM) != 1)
		rc = sl_errf(err, SL_EIO, "%s: no usable private key: %s", key_file, ssl_reason());
	else if (SSL_CTX_check_private_key(ctx) != 1)
		rc = sl_errf(err, SL_EINVAL, "%s: the key does not belong to %s", key_file,
			     cert_file);
	ERR_clear_error();
	return rc;
}

int tls_context_create(const char *cert_file, const char *key_file, struct tls_context **out,
		       struct sl_err *err)
{
	struct tls_context *ctx = sl_zalloc(sizeof *ctx);
	if (ctx == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for TLS");
	ctx->bio = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "sluice");
	ctx->ssl_ctx = SSL_CTX_new(TLS_server_method());
	if (ctx->bio == NULL || ctx->ssl_ctx == NULL) {
		tls_context_destroy(ctx);
		return sl_errf(err, SL_ENOMEM, "no memory for TLS");
	}
	BIO_meth_set_read_ex(ctx->bio, bio_read);
	BIO_meth_set_write_ex(ctx->bio, bio_write);
	BIO_meth_set_ctrl(ctx->bio, bio_ctrl);
	SSL_CTX *c = ctx->ssl_ctx;
	SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION);
	SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
				   SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA |
				   SSL_OP_NO_TICKET);
	SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_num_tickets(c, 0);
	/* RFC 9113 9.2.2: HTTP/2 over TLS 1.2 wants ephemeral keys and AEAD; nobody needs the rest.
	 */
	SSL_CTX_set_cipher_list(c, "ECDHE+AESGCM:ECDHE+CHACHA20");
	SSL_CTX_set_alpn_select_cb(c, choose_protocol, NULL);
	int rc = load_certificate(c, cert_file, key_file, err);
	if (rc != 0) {
		tls_context_destroy(ctx);
		return rc;
	}
	*out = ctx;
	return 0;
}

void tls_context_destroy(struct tls_context *ctx)
{
	if (ctx == NULL)
		return;
	SSL_CTX_free(ctx->ssl_ctx);
	BIO_meth_free(ctx->bio);
	sl_free(ctx);
}

/* ---- a connection ---- */

struct tls_conn *tls_conn_create(struct tls_context *ctx)
{
	struct tls_conn *tc = sl_zalloc(sizeof *tc);
	if (tc == NULL)
		return NULL;
	tc->ssl = SSL_new(ctx->ssl_ctx);
	BIO *b = tc->ssl != NULL ? BIO_new(ctx->bio) : NULL;
	if (b == NULL) {
		SSL_free(tc->ssl);
		sl_free(tc);
		return NULL;
	}
	BIO_set_data(b, tc);
	BIO_set_init(b, 1);
	SSL_set_bio(tc->ssl, b, b);
	SSL_set_accept_state(tc->ssl);
	return tc;
}

void tls_conn_destroy(struct tls_conn *tc)
{
	if (tc == NULL)
		return;
	SSL_free(tc->ssl);
	sl_free(tc);
}

/* What a failed call means: 0 to wait for more input, or SL_EPROTO. */
static int judge(struct tls_conn *tc, int ret, bool *eof)
{
	int e = SSL_get_error(tc->ssl, ret);
	if (e == SSL_ERROR_WANT_READ || e == SSL_ERROR_WANT_WRITE)
		return 0;
	if (e == SSL_ERROR_ZERO_RETURN) {
		*eof = true;
		return 0;
	}
	tc->broken = true;
	return SL_EPROTO;
}

int tls_input(struct tls_conn *tc, const uint8_t *data, size_t n, uint8_t *text, size_t room,
	      size_t *n_text, bool *eof, struct sl_buf *wire)
{
	BUG_IF(room < n + TLS_RECORD_BYTES, "no room for a record");
	int rc = 0;
	*n_text = 0;
	tc->in = data;
	tc->n_in = n;
	tc->out = wire;
	ERR_clear_error();
	if (!tc->done) {
		int r = SSL_do_handshake(tc->ssl);
		tc->done = r == 1;
		if (r != 1)
			rc = judge(tc, r, eof);
	}
	while (rc == 0 && tc->done && !*eof && *n_text < room) {
		size_t got = 0;
		int r = SSL_read_ex(tc->ssl, text + *n_text, room - *n_text, &got);
		*n_text += got;
		if (r != 1) {
			rc = judge(tc, r, eof);
			break;
		}
	}
	ERR_clear_error();
	tc->in = NULL;
	tc->n_in = 0;
	tc->out = NULL;
	return rc;
}

bool tls_handshake_done(const struct tls_conn *tc) { return tc->done; }

bool tls_chose_h2(const struct tls_conn *tc)
{
	const unsigned char *name;
	unsigned int n;
	SSL_get0_alpn_selected(tc->ssl, &name, &n);
	return n == 2 && memcmp(name, "h2", 2) == 0;
}

int tls_output(struct tls_conn *tc, const uint8_t *text, size_t n, struct sl_buf *wire)
{
	size_t put = 0;
	tc->out = wire;
	ERR_clear_error();
	int r = n > 0 ? SSL_write_ex(tc->ssl, text, n, &put) : 1;
	ERR_clear_error();
	tc->out = NULL;
	if (r == 1 && put == n)
		return 0;
	tc->broken = true;
	return SL_EPROTO;
}

void tls_shutdown(struct tls_conn *tc, struct sl_buf *wire)
{
	if (!tc->done || tc->broken)
		return;
	tc->out = wire;
	ERR_clear_error();
	SSL_shutdown(tc->ssl);
	ERR_clear_error();
	tc->out = NULL;
}
