/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/transport/tls_files.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdbool.h>

#include "base/file.h"

enum { PEM_MOST = 4 << 20 }; /* the whole bundle of a system's authorities has a quarter of a MiB */

/* what: the expected contents. */
static int refuse(const struct tls_file *f, const char *what, const char *reason, struct sl_err *err)
{
	return sl_errf(err, SL_EIO, "%s%s%s: %s: no usable %s: %s", f->key, f->of, f->end, f->path, what, reason);
}

/* The error in OpenSSL's queue as text. */
static const char *library_reason(void)
{
	unsigned long first = ERR_peek_error();
	int reason = ERR_GET_REASON(first);
	if ((ERR_GET_LIB(first) == ERR_LIB_PEM && reason == PEM_R_NO_START_LINE) || reason == ERR_R_UNSUPPORTED)
		return "the file has none in PEM format";
	if (reason == ERR_R_INTERRUPTED_OR_CANCELLED || reason == PEM_R_BAD_PASSWORD_READ)
		return "it is encrypted, and a passphrase is not supported";
	const char *text = ERR_reason_error_string(first);
	return text != NULL ? text : "unknown reason";
}

/* A BIO over the file's bytes. It borrows `bytes`, which the caller disposes of. NULL: the reason is in *err. */
static BIO *open_file(const struct tls_file *f, const char *what, struct sl_buf *bytes, struct sl_err *err)
{
	struct sl_err why = {0};
	BIO *b = NULL;
	if (file_read(f->path, PEM_MOST, bytes, &why) != 0)
		refuse(f, what, why.text, err);
	else if (bytes->len == 0)
		refuse(f, what, "the file is empty", err);
	else if ((b = BIO_new_mem_buf(buf_data(bytes), (int)bytes->len)) == NULL)
		refuse(f, what, "no memory", err);
	return b;
}

static void close_file(BIO *b, struct sl_buf *bytes)
{
	BIO_free(b);
	if (bytes->len > 0)
		OPENSSL_cleanse(buf_data(bytes), bytes->len);
	buf_dispose(bytes);
}

/* Replaces the prompt on the terminal. */
static int no_passphrase(char *out, int room, int writing, void *ctx)
{
	(void)out, (void)room, (void)writing, (void)ctx;
	return -1;
}

/* Reads the certificates after the first one: those that signed it. OpenSSL reports the end of the file as an error. */
static bool read_chain(SSL_CTX *c, BIO *b)
{
	X509 *x;
	while ((x = PEM_read_bio_X509(b, NULL, no_passphrase, NULL)) != NULL) {
		if (SSL_CTX_add0_chain_cert(c, x) != 1) {
			X509_free(x);
			return false;
		}
	}
	unsigned long last = ERR_peek_last_error();
	bool ended = ERR_GET_LIB(last) == ERR_LIB_PEM && ERR_GET_REASON(last) == PEM_R_NO_START_LINE;
	if (ended)
		ERR_clear_error();
	return ended;
}

static bool use_chain(SSL_CTX *c, BIO *b)
{
	X509 *first = PEM_read_bio_X509_AUX(b, NULL, no_passphrase, NULL);
	bool ok = first != NULL && SSL_CTX_use_certificate(c, first) == 1 && read_chain(c, b);
	X509_free(first);
	return ok;
}

/* Accepts the key of another certificate; tls_files_certificate checks the pair. */
static bool use_key(SSL_CTX *c, BIO *b)
{
	EVP_PKEY *key = PEM_read_bio_PrivateKey(b, NULL, no_passphrase, NULL);
	bool ok = key != NULL && (SSL_CTX_use_PrivateKey(c, key) == 1 ||
				  ERR_GET_REASON(ERR_peek_error()) == X509_R_KEY_VALUES_MISMATCH);
	EVP_PKEY_free(key);
	return ok;
}

static int load(SSL_CTX *c, const struct tls_file *f, const char *what, bool (*use)(SSL_CTX *, BIO *),
		struct sl_err *err)
{
	struct sl_buf bytes;
	BIO *b = open_file(f, what, &bytes, err);
	int rc = b == NULL ? SL_EIO : use(c, b) ? 0 : refuse(f, what, library_reason(), err);
	close_file(b, &bytes);
	return rc;
}

int tls_files_certificate(SSL_CTX *c, const struct tls_file *cert, const struct tls_file *key, struct sl_err *err)
{
	int rc = load(c, cert, "certificate", use_chain, err);
	if (rc == 0)
		rc = load(c, key, "private key", use_key, err);
	if (rc == 0 && SSL_CTX_check_private_key(c) != 1)
		rc = sl_errf(err, SL_EINVAL, "%s%s%s: %s: the key does not match %s", key->key, key->of, key->end,
			     key->path, cert->path);
	return rc;
}

static int compare_names(const X509_NAME *const *a, const X509_NAME *const *b) { return X509_NAME_cmp(*a, *b); }

/* Adds a copy of the certificate's subject unless it is present. */
static bool add_name(STACK_OF(X509_NAME) * names, const X509 *x)
{
	X509_NAME *name = X509_get_subject_name(x);
	if (sk_X509_NAME_find(names, name) >= 0)
		return true;
	X509_NAME *own = X509_NAME_dup(name);
	if (own != NULL && sk_X509_NAME_push(names, own) > 0)
		return true;
	X509_NAME_free(own);
	return false;
}

/* Adds certificates and revocation lists. False: the reason is in OpenSSL's queue. */
static bool add_all(X509_STORE *store, STACK_OF(X509_NAME) * names, STACK_OF(X509_INFO) * all, int *n_certs)
{
	for (int i = 0; i < sk_X509_INFO_num(all); i++) {
		const X509_INFO *info = sk_X509_INFO_value(all, i);
		if (info->x509 != NULL && (X509_STORE_add_cert(store, info->x509) != 1 || !add_name(names, info->x509)))
			return false;
		if (info->crl != NULL && X509_STORE_add_crl(store, info->crl) != 1)
			return false;
		*n_certs += info->x509 != NULL;
	}
	return true;
}

int tls_files_authorities(SSL_CTX *c, const struct tls_file *f, uint8_t digest[TLS_FILES_DIGEST], struct sl_err *err)
{
	struct sl_buf bytes;
	BIO *b = open_file(f, "certificates", &bytes, err);
	if (b == NULL) {
		buf_dispose(&bytes);
		return SL_EIO;
	}
	int n = 0;
	STACK_OF(X509_INFO) *all = PEM_X509_INFO_read_bio(b, NULL, no_passphrase, NULL);
	STACK_OF(X509_NAME) *names = sk_X509_NAME_new(compare_names);
	bool ok = all != NULL && names != NULL && add_all(SSL_CTX_get_cert_store(c), names, all, &n) && n > 0 &&
		  EVP_Digest(buf_data(&bytes), bytes.len, digest, NULL, EVP_sha256(), NULL) == 1;
	int rc = ok ? 0
		    : refuse(f, "certificates",
			     all != NULL && n == 0 ? "the file has none in PEM format" : library_reason(), err);
	sk_X509_INFO_pop_free(all, X509_INFO_free);
	if (ok)
		SSL_CTX_set_client_CA_list(c, names); /* takes them */
	else
		sk_X509_NAME_pop_free(names, X509_NAME_free);
	close_file(b, &bytes);
	return rc;
}
