/* SPDX-License-Identifier: Apache-2.0
 *
 * TLS 1.2 and 1.3 by OpenSSL over a custom BIO, which reads the bytes just received and writes to the caller's buffer.
 * There is no socket and no buffered copy between iterations, so an idle connection costs only its SSL object
 * (SSL_MODE_RELEASE_BUFFERS frees the record buffers). This takes fewer system calls and less time than
 * bufferevent_openssl, and leaves the order of shutdown to conn.c.
 *
 * A handshake allocates about 48 KB, and any client can start one. So the SSL object is created only when the
 * ClientHello is complete; a partial one is buffered as bytes. A client that sends half of one costs only those bytes.
 *
 * Thread: the connection's. The BIO method is created once and lives as long as the process.
 */
#include "gateway/transport/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "gateway/transport/tls_context.h"

enum { SUBJECT_MAX = 512 };
enum {
	RECORD_HEAD = 5,  /* type, version (two bytes), length (two) */
	MESSAGE_HEAD = 4, /* type, length (three) */
	RECORD_HANDSHAKE = 22,
	MESSAGE_CLIENT_HELLO = 1,
	HELLO_MOST = 16384 + RECORD_HEAD, /* buffered bytes of a ClientHello; a longer one goes to OpenSSL incomplete */
};

struct tls_conn {
	SSL *ssl;                /* NULL until the ClientHello is complete */
	struct tls_context *ctx; /* one reference: the handshake chooses a certificate of it */
	int client_certs;
	struct sl_buf hello; /* the input while ssl is NULL */
	/* Set during one call. */
	const uint8_t *in, *then; /* the input: `in` first */
	size_t n_in, n_then;
	struct sl_buf *out;
	bool done; /* handshake */
	bool broken;
};

/* ---- the BIO ---- */

static int bio_read(BIO *b, char *dst, size_t room, size_t *got)
{
	struct tls_conn *tc = BIO_get_data(b);
	BIO_clear_retry_flags(b);
	if (tc->n_in == 0) {
		tc->in = tc->then;
		tc->n_in = tc->n_then;
		tc->n_then = 0;
	}
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

static BIO_METHOD *method;

static void make_method(void)
{
	method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "sluice");
	if (method == NULL)
		return;
	BIO_meth_set_read_ex(method, bio_read);
	BIO_meth_set_write_ex(method, bio_write);
	BIO_meth_set_ctrl(method, bio_ctrl);
}

__attribute__((destructor)) static void free_method(void) { BIO_meth_free(method); }

/* ---- a connection ---- */

struct tls_conn *tls_conn_create(struct tls_context *ctx, int client_certs)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, make_method);
	struct tls_conn *tc = sl_zalloc(sizeof *tc);
	if (tc == NULL)
		return NULL;
	tc->ctx = tls_context_ref(ctx);
	tc->client_certs = client_certs;
	buf_init(&tc->hello, HELLO_MOST + 1);
	return tc;
}

static int make_ssl(struct tls_conn *tc)
{
	SSL *ssl = tls_context_ssl(tc->ctx, tc->client_certs);
	BIO *b = ssl != NULL && method != NULL ? BIO_new(method) : NULL;
	if (b == NULL) {
		SSL_free(ssl);
		return SL_ENOMEM;
	}
	BIO_set_data(b, tc);
	BIO_set_init(b, 1);
	SSL_set_bio(ssl, b, b);
	tc->ssl = ssl;
	return 0;
}

void tls_conn_destroy(struct tls_conn *tc)
{
	if (tc == NULL)
		return;
	SSL_free(tc->ssl);
	buf_dispose(&tc->hello);
	tls_context_unref(tc->ctx);
	sl_free(tc);
}

/* The result of a failed call: 0 to wait for more input, or SL_EPROTO. */
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

/* Called before each call of OpenSSL, so that the errors after it are its own, and after a failed one. The queue is
 * nearly always empty, and clearing it walks all of it. */
static void clear_errors(void)
{
	if (ERR_peek_error() != 0)
		ERR_clear_error();
}

/* ---- the ClientHello ---- */

/* Can OpenSSL answer without more bytes? True also for input that is not a ClientHello, which OpenSSL rejects. A
 * ClientHello may span records (RFC 8446 5.1). Each piece repeats the check, at one step per record. */
static bool hello_is_whole(const uint8_t *p, size_t n)
{
	uint8_t head[MESSAGE_HEAD];
	size_t have = 0, want = MESSAGE_HEAD;
	if (n > HELLO_MOST || (n > 0 && p[0] != RECORD_HANDSHAKE) || (n > 1 && p[1] != 3))
		return true;
	while (n >= RECORD_HEAD) {
		size_t len = (size_t)p[3] << 8 | p[4], there = n - RECORD_HEAD < len ? n - RECORD_HEAD : len;
		if (p[0] != RECORD_HANDSHAKE || len == 0 || len > TLS_RECORD_BYTES)
			return true;
		for (size_t i = 0; i < there && have + i < MESSAGE_HEAD; i++)
			head[have + i] = p[RECORD_HEAD + i];
		have += there;
		if (have >= MESSAGE_HEAD) {
			want = MESSAGE_HEAD + ((size_t)head[1] << 16 | (size_t)head[2] << 8 | head[3]);
			if (head[0] != MESSAGE_CLIENT_HELLO || have >= want)
				return true;
		}
		p += RECORD_HEAD + there;
		n -= RECORD_HEAD + there;
	}
	return false;
}

/* Buffers the bytes while the ClientHello is incomplete (*more). Otherwise creates the SSL object and passes all of
 * them to it. */
static int take_hello(struct tls_conn *tc, const uint8_t *data, size_t n, bool *more)
{
	int rc = 0;
	*more = false;
	if (tc->hello.len > 0 || !hello_is_whole(data, n)) {
		/* One byte above HELLO_MOST marks it as too long to buffer. OpenSSL reads the remaining bytes after it.
		 */
		size_t room = HELLO_MOST + 1 - tc->hello.len, held = n < room ? n : room;
		rc = buf_append(&tc->hello, data, held);
		if (rc != 0)
			return rc;
		*more = !hello_is_whole(buf_data(&tc->hello), tc->hello.len);
		if (*more)
			return 0;
		tc->in = buf_data(&tc->hello);
		tc->n_in = tc->hello.len;
		tc->then = data + held;
		tc->n_then = n - held;
	}
	return make_ssl(tc);
}

bool tls_is_untouched(const struct tls_conn *tc) { return tc->ssl == NULL && tc->hello.len == 0; }

int tls_input(struct tls_conn *tc, const uint8_t *data, size_t n, uint8_t *text, size_t room, size_t *n_text, bool *eof,
	      struct sl_buf *wire)
{
	BUG_IF(room < n + TLS_RECORD_BYTES, "no room for a record");
	int rc = 0;
	*n_text = 0;
	tc->in = data;
	tc->n_in = n;
	tc->n_then = 0;
	if (tc->ssl == NULL) {
		bool more;
		rc = take_hello(tc, data, n, &more);
		if (rc != 0 || more)
			return rc;
	}
	tc->out = wire;
	clear_errors();
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
		/* Another call would only report that it wants to read. */
		if (tc->n_in + tc->n_then == 0 && SSL_has_pending(tc->ssl) == 0)
			break;
	}
	if (rc != 0)
		clear_errors();
	buf_dispose(&tc->hello);
	tc->in = NULL;
	tc->n_in = 0;
	tc->out = NULL;
	return rc;
}

bool tls_handshake_done(const struct tls_conn *tc) { return tc->done; }

bool tls_resumed(const struct tls_conn *tc) { return SSL_session_reused(tc->ssl) == 1; }

bool tls_chose_h2(const struct tls_conn *tc)
{
	const unsigned char *name;
	unsigned int n;
	SSL_get0_alpn_selected(tc->ssl, &name, &n);
	return n == 2 && memcmp(name, "h2", 2) == 0;
}

char *tls_peer_subject(const struct tls_conn *tc)
{
	X509 *cert = SSL_get0_peer_certificate(tc->ssl);
	BIO *b = cert != NULL ? BIO_new(BIO_s_mem()) : NULL;
	char *text, *out = NULL;
	if (b == NULL)
		return NULL;
	/* All characters except visible ASCII are escaped. */
	if (X509_NAME_print_ex(b, X509_get_subject_name(cert), 0, XN_FLAG_RFC2253) >= 0) {
		long n = BIO_get_mem_data(b, &text);
		out = n > 0 ? sl_strndup(text, (size_t)n < SUBJECT_MAX ? (size_t)n : SUBJECT_MAX) : sl_strdup("");
	}
	BIO_free(b);
	return out;
}

int tls_output(struct tls_conn *tc, const uint8_t *text, size_t n, struct sl_buf *wire)
{
	size_t put = 0;
	tc->out = wire;
	clear_errors();
	int r = n > 0 ? SSL_write_ex(tc->ssl, text, n, &put) : 1;
	tc->out = NULL;
	if (r == 1 && put == n)
		return 0;
	clear_errors();
	tc->broken = true;
	return SL_EPROTO;
}

void tls_shutdown(struct tls_conn *tc, struct sl_buf *wire)
{
	if (!tc->done || tc->broken)
		return;
	tc->out = wire;
	clear_errors();
	SSL_shutdown(tc->ssl);
	clear_errors();
	tc->out = NULL;
}
