/* SPDX-License-Identifier: Apache-2.0
 *
 * One SSL_CTX per certificate, with the same settings. The first is the default, for clients that name no server or one
 * that no certificate matches. Otherwise the server name that the client sends (RFC 6066 section 3) is compared with
 * the names in the certificates, so the configuration has no names that could contradict them.
 *
 * Defaults: TLS 1.2 and 1.3; ephemeral keys over X25519, P-256 or P-384, and AEAD only (RFC 9113 9.2.2 requires that
 * for HTTP/2, and no client needs more); no renegotiation, no compression, no early data (a request must not be
 * replayed). ALPN offers h2, then http/1.1. A client that offers only unknown protocols is refused (RFC 7301 3.2).
 *
 * A resumed session carries the client's certificate of its first handshake. So the session id context consists of the
 * listener's mode and the digest of the authorities' file. If either differs, the handshake is a full one.
 *
 * Thread: any creates it; immutable afterwards.
 */
#include "gateway/transport/tls_context.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/metrics.h"
#include "gateway/loop/thread.h"
#include "gateway/transport/tls_files.h"
#include "gateway/transport/tls_tickets.h"
#include "gateway/transport/transport.h"

struct tls_context {
	atomic_int refs;
	SSL_CTX **certs; /* n, the default first */
	size_t n;
	/* The session id context without the listener's mode: the digest of the authorities' file. */
	uint8_t scope[TLS_FILES_DIGEST];
};

#define RELOADS(result) \
	METRIC_OF(METRIC_COUNTER, "sluice_tls_reloads_total", "result=\"" result "\"", "Reloads of the certificates.")
static struct metric reloads[] = {RELOADS("done"), RELOADS("failed")};
METRICS(reloads);
GAUGE(certificate_ends, "sluice_tls_certificate_end_timestamp_seconds",
      "When the first of the certificates in use expires, in seconds since 1970; 0: there is no TLS");

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *n_out, const unsigned char *in,
			   unsigned int n_in, void *arg)
{
	(void)ssl, (void)arg;
	static const unsigned char ours[] = "\x02h2\x08http/1.1\x08http/1.0";
	unsigned char *chosen;
	if (SSL_select_next_proto(&chosen, n_out, ours, sizeof ours - 1, in, n_in) != OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*out = chosen;
	return SSL_TLSEXT_ERR_OK;
}

/* The connection's own settings (verification, session id context) do not change. */
static int choose_certificate(SSL *ssl, int *alert, void *arg)
{
	(void)alert;
	struct tls_context *ctx = arg;
	const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
	for (size_t i = 0; name != NULL && i < ctx->n; i++) {
		X509 *cert = SSL_CTX_get0_certificate(ctx->certs[i]);
		if (X509_check_host(cert, name, strlen(name), 0, NULL) == 1)
			return SSL_set_SSL_CTX(ssl, ctx->certs[i]) != NULL ? SSL_TLSEXT_ERR_OK
									   : SSL_TLSEXT_ERR_ALERT_FATAL;
	}
	return SSL_TLSEXT_ERR_OK;
}

static const char *ssl_reason(void)
{
	const char *text = ERR_reason_error_string(ERR_peek_error());
	return text != NULL ? text : "unknown reason";
}

static const char *client_ca(const struct gw_config *cfg) { return cfg->client_ca != NULL ? cfg->client_ca : ""; }

/* The file is read for the first certificate; the other contexts share its contents. */
static int set_client_ca(struct tls_context *ctx, SSL_CTX *c, const struct gw_config *cfg, struct sl_err *err)
{
	const struct tls_file file = {cfg->client_ca, "gateway.client_ca", "", ""};
	SSL_CTX *first = ctx->certs[0];
	if (c == first)
		return tls_files_authorities(c, &file, ctx->scope, err);
	STACK_OF(X509_NAME) *names = SSL_dup_CA_list(SSL_CTX_get_client_CA_list(first));
	if (names == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for TLS");
	SSL_CTX_set1_cert_store(c, SSL_CTX_get_cert_store(first));
	SSL_CTX_set_client_CA_list(c, names); /* takes them */
	return 0;
}

static int make_one(struct tls_context *ctx, const struct gw_config *cfg, const struct tls_file *cert,
		    const struct tls_file *key, struct sl_err *err)
{
	SSL_CTX *c = SSL_CTX_new(TLS_server_method());
	if (c == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for TLS");
	ctx->certs[ctx->n++] = c;
	SSL_CTX_set_min_proto_version(c, cfg->tls_min == GW_TLS_1_3 ? TLS1_3_VERSION : TLS1_2_VERSION);
	SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE |
				   SSL_OP_PRIORITIZE_CHACHA);
	SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_cipher_list(c, "ECDHE+AESGCM:ECDHE+CHACHA20");
	SSL_CTX_set1_groups_list(c, "X25519:P-256:P-384");
	SSL_CTX_set_alpn_select_cb(c, choose_protocol, NULL);
	SSL_CTX_set_tlsext_servername_callback(c, choose_certificate);
	SSL_CTX_set_tlsext_servername_arg(c, ctx);
	if (cfg->ticket_ms == 0) {
		SSL_CTX_set_options(c, SSL_OP_NO_TICKET);
		SSL_CTX_set_num_tickets(c, 0);
	} else if (tls_tickets_enable(c, cfg->ticket_ms) != 0) {
		return sl_errf(err, SL_EIO, "TLS: can't enable session tickets: %s", ssl_reason());
	}
	int rc = tls_files_certificate(c, cert, key, err);
	return rc == 0 && client_ca(cfg)[0] != '\0' ? set_client_ca(ctx, c, cfg, err) : rc;
}

static int make_all(struct tls_context *ctx, const struct gw_config *cfg, struct sl_err *err)
{
	const struct gw_cert_config *more = cfg->certificates.items;
	const struct tls_file cert = {cfg->cert_file, "gateway.cert", "", ""},
			      key = {cfg->key_file, "gateway.key", "", ""};
	ctx->certs = sl_zalloc_n(cfg->certificates.n + 1, sizeof *ctx->certs);
	if (ctx->certs == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for TLS");
	int rc = cert.path != NULL && cert.path[0] != '\0' ? make_one(ctx, cfg, &cert, &key, err) : 0;
	for (size_t i = 0; rc == 0 && i < cfg->certificates.n; i++)
		rc = make_one(ctx, cfg,
			      &(struct tls_file){more[i].cert_file, "gateway.certificates.", more[i].name, ".cert"},
			      &(struct tls_file){more[i].key_file, "gateway.certificates.", more[i].name, ".key"}, err);
	BUG_IF(rc == 0 && ctx->n == 0, "TLS without a certificate");
	return rc;
}

static void tell_end(const struct tls_context *ctx)
{
	int64_t first = 0;
	for (size_t i = 0; i < ctx->n; i++) {
		const X509 *cert = SSL_CTX_get0_certificate(ctx->certs[i]);
		struct tm tm;
		if (cert == NULL || ASN1_TIME_to_tm(X509_get0_notAfter(cert), &tm) != 1)
			continue;
		int64_t end = timegm(&tm);
		first = first == 0 || end < first ? end : first;
	}
	metric_set(&certificate_ends, first);
}

int tls_context_create(const struct gw_config *cfg, struct tls_context **out, struct sl_err *err)
{
	struct tls_context *ctx = sl_zalloc(sizeof *ctx);
	if (ctx == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for TLS");
	atomic_init(&ctx->refs, 1);
	ERR_clear_error();
	int rc = make_all(ctx, cfg, err);
	ERR_clear_error();
	if (rc != 0) {
		tls_context_unref(ctx);
		return rc;
	}
	tell_end(ctx);
	*out = ctx;
	return 0;
}

struct tls_context *tls_context_ref(struct tls_context *ctx)
{
	atomic_fetch_add_explicit(&ctx->refs, 1, memory_order_relaxed);
	return ctx;
}

void tls_context_unref(struct tls_context *ctx)
{
	if (ctx == NULL || atomic_fetch_sub_explicit(&ctx->refs, 1, memory_order_acq_rel) > 1)
		return;
	for (size_t i = 0; i < ctx->n; i++)
		SSL_CTX_free(ctx->certs[i]);
	sl_free(ctx->certs);
	sl_free(ctx);
}

SSL *tls_context_ssl(struct tls_context *ctx, int client_certs)
{
	static const int verify[] = {
	    [GW_CLIENT_CERTS_NONE] = SSL_VERIFY_NONE,
	    [GW_CLIENT_CERTS_OPTIONAL] = SSL_VERIFY_PEER,
	    [GW_CLIENT_CERTS_REQUIRED] = SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
	};
	uint8_t scope[sizeof ctx->scope];
	SSL *ssl = SSL_new(ctx->certs[0]);
	if (ssl == NULL)
		return NULL;
	memcpy(scope, ctx->scope, sizeof scope);
	scope[0] ^= (uint8_t)client_certs;
	SSL_set_verify(ssl, verify[client_certs], NULL);
	if (SSL_set_session_id_context(ssl, scope, sizeof scope) != 1) {
		SSL_free(ssl);
		return NULL;
	}
	SSL_set_accept_state(ssl);
	return ssl;
}

/* ---- reload ---- */

struct reload_message {
	struct gw_message m;
	struct tls_context *ctx; /* one reference */
};

static void take_over(struct gw_thread *t, struct gw_message *m)
{
	struct reload_message *r = list_entry(m, struct reload_message, m);
	/* A thread that has not started, or has ended, has no transport. */
	if (t->transport != NULL)
		transport_set_tls(t->transport, r->ctx);
	else
		tls_context_unref(r->ctx);
	sl_free(r);
}

int tls_reload(const struct gw_config *cfg, struct gw_thread *const *threads, size_t n, struct sl_err *err)
{
	struct tls_context *ctx = NULL;
	struct reload_message **all = sl_zalloc_n(n, sizeof *all);
	int rc = all != NULL ? 0 : sl_errf(err, SL_ENOMEM, "no memory for TLS");
	/* All messages are allocated first, so that either every thread gets the new certificates or none. */
	for (size_t i = 0; rc == 0 && i < n; i++) {
		all[i] = sl_zalloc(sizeof *all[i]);
		if (all[i] == NULL)
			rc = sl_errf(err, SL_ENOMEM, "no memory for TLS");
	}
	if (rc == 0)
		rc = tls_context_create(cfg, &ctx, err);
	for (size_t i = 0; all != NULL && i < n; i++) {
		if (rc != 0) {
			sl_free(all[i]);
			continue;
		}
		all[i]->m.run = take_over;
		all[i]->ctx = tls_context_ref(ctx);
		gw_post(threads[i], &all[i]->m);
	}
	tls_context_unref(ctx);
	sl_free(all);
	metric_add(&reloads[rc != 0], 1);
	return rc;
}
