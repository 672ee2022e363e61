/* SPDX-License-Identifier: Apache-2.0
 *
 * Files are written under temporary names and renamed, so an interrupted start never leaves a partial file. Both are
 * 0600.
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "gateway/server/dev_cert.h"
#include "gateway/config/gw_config.h"

enum { VALID_DAYS = 397, DAY_S = 86400, PATH_BYTES = 4096, PEM_MOST = 64 << 10 };

struct paths {
	char dir[PATH_BYTES], cert[PATH_BYTES], key[PATH_BYTES];
};

static int make_paths(const char *state_dir, struct paths *p, struct sl_err *err)
{
	int n = snprintf(p->dir, sizeof p->dir, "%s/tls", state_dir);
	int c = snprintf(p->cert, sizeof p->cert, "%s/tls/cert.pem", state_dir);
	int k = snprintf(p->key, sizeof p->key, "%s/tls/key.pem", state_dir);
	/* Room for a temporary suffix. */
	int most = PATH_BYTES - 8;
	return n > 0 && c > 0 && k > 0 && c < most && k < most
		   ? 0
		   : sl_errf(err, SL_ERANGE, "%s: the path is too long", state_dir);
}

static int make_dir(const char *path, struct sl_err *err)
{
	if (mkdir(path, 0700) == 0 || errno == EEXIST)
		return 0;
	return sl_errf(err, SL_EIO, "%s: %s", path, strerror(errno));
}

static BIO *open_pem(const char *path, struct sl_buf *bytes)
{
	return file_read(path, PEM_MOST, bytes, NULL) == 0 && bytes->len > 0
		   ? BIO_new_mem_buf(buf_data(bytes), (int)bytes->len)
		   : NULL;
}

/* Do certificate and key match, and stay valid for a day? */
static bool usable(const struct paths *p)
{
	bool ok = false;
	X509 *cert = NULL;
	EVP_PKEY *key = NULL;
	time_t tomorrow = time(NULL) + DAY_S;
	struct sl_buf certs, keys;
	BIO *b = open_pem(p->cert, &certs);
	if (b != NULL)
		cert = PEM_read_bio_X509(b, NULL, NULL, NULL);
	BIO_free(b);
	b = open_pem(p->key, &keys);
	if (b != NULL)
		key = PEM_read_bio_PrivateKey(b, NULL, NULL, NULL);
	BIO_free(b);
	buf_dispose(&certs);
	buf_dispose(&keys);
	if (cert != NULL && key != NULL)
		ok = X509_check_private_key(cert, key) == 1 && X509_cmp_time(X509_get0_notAfter(cert), &tomorrow) > 0 &&
		     X509_check_host(cert, "localhost", 0, 0, NULL) == 1;
	X509_free(cert);
	EVP_PKEY_free(key);
	ERR_clear_error();
	return ok;
}

static bool add_extension(X509 *cert, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509V3_set_ctx_nodb(&ctx);
	X509V3_set_ctx(&ctx, cert, cert, NULL, NULL, 0);
	X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	bool ok = e != NULL && X509_add_ext(cert, e, -1) == 1;
	X509_EXTENSION_free(e);
	return ok;
}

static bool set_serial(X509 *cert)
{
	unsigned char bytes[16];
	if (RAND_bytes(bytes, sizeof bytes) != 1)
		return false;
	bytes[0] &= 0x7f;
	bytes[0] |= 0x40;
	BIGNUM *n = BN_bin2bn(bytes, sizeof bytes, NULL);
	bool ok = n != NULL && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(cert)) != NULL;
	BN_free(n);
	return ok;
}

/* Not a CA: a client that trusts it trusts no other certificate. */
static X509 *make_certificate(EVP_PKEY *key)
{
	X509 *cert = X509_new();
	if (cert == NULL)
		return NULL;
	X509_NAME *name = X509_get_subject_name(cert);
	bool ok = X509_set_version(cert, X509_VERSION_3) == 1 && set_serial(cert) &&
		  X509_gmtime_adj(X509_getm_notBefore(cert), -DAY_S) != NULL &&
		  X509_gmtime_adj(X509_getm_notAfter(cert), (long)VALID_DAYS * DAY_S) != NULL &&
		  X509_set_pubkey(cert, key) == 1 &&
		  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"Sluice development", -1,
					     -1, 0) == 1 &&
		  X509_set_issuer_name(cert, name) == 1 &&
		  add_extension(cert, NID_basic_constraints, "critical,CA:FALSE") &&
		  add_extension(cert, NID_key_usage, "critical,digitalSignature") &&
		  add_extension(cert, NID_ext_key_usage, "serverAuth") &&
		  add_extension(cert, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1,IP:::1") &&
		  X509_sign(cert, key, EVP_sha256()) != 0;
	if (!ok) {
		X509_free(cert);
		return NULL;
	}
	return cert;
}

/* Opens path.new, 0600; the caller renames it. */
static FILE *open_new(const char *path, char *tmp, size_t size)
{
	snprintf(tmp, size, "%s.new", path);
	unlink(tmp);
	int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
	if (f == NULL && fd >= 0)
		close(fd);
	return f;
}

static bool close_new(FILE *f)
{
	bool ok = fflush(f) == 0 && fsync(fileno(f)) == 0;
	return fclose(f) == 0 && ok;
}

static int write_pair(const struct paths *p, X509 *cert, EVP_PKEY *key, struct sl_err *err)
{
	char cert_tmp[PATH_BYTES], key_tmp[PATH_BYTES];
	FILE *fc = open_new(p->cert, cert_tmp, sizeof cert_tmp);
	FILE *fk = open_new(p->key, key_tmp, sizeof key_tmp);
	bool ok = fc != NULL && fk != NULL && PEM_write_X509(fc, cert) == 1 &&
		  PEM_write_PrivateKey(fk, key, NULL, NULL, 0, NULL, NULL) == 1;
	int e = errno;
	if (fc != NULL)
		ok = close_new(fc) && ok;
	if (fk != NULL)
		ok = close_new(fk) && ok;
	/* After a crash between the renames the pair does not match, and the next start makes a new one. */
	if (ok && rename(key_tmp, p->key) == 0 && rename(cert_tmp, p->cert) == 0)
		return 0;
	unlink(cert_tmp);
	unlink(key_tmp);
	return sl_errf(err, SL_EIO, "%s: the development certificate cannot be written: %s", p->dir, strerror(e));
}

int gw_dev_cert_ensure(const char *state_dir, struct sl_err *err)
{
	struct paths p = {0};
	int rc = make_paths(state_dir, &p, err);
	if (rc == 0)
		rc = make_dir(state_dir, err);
	if (rc == 0)
		rc = make_dir(p.dir, err);
	if (rc != 0 || usable(&p))
		return rc;
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *cert = key != NULL ? make_certificate(key) : NULL;
	rc = cert != NULL ? write_pair(&p, cert, key, err) : sl_errf(err, SL_EIO, "OpenSSL cannot make a certificate");
	X509_free(cert);
	EVP_PKEY_free(key);
	ERR_clear_error();
	return rc;
}
