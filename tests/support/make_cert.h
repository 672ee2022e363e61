/* SPDX-License-Identifier: Apache-2.0
 *
 * Certificates for tests: EC P-256, valid for a day.
 */
#ifndef TESTS_SUPPORT_MAKE_CERT_H
#define TESTS_SUPPORT_MAKE_CERT_H

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>

struct made_cert {
	X509 *cert;
	EVP_PKEY *key;
	char cert_file[160], key_file[160];
};

static void made_add(X509 *cert, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX v3;
	X509V3_set_ctx(&v3, issuer, cert, NULL, NULL, 0);
	X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &v3, nid, value);
	assert_non_null(e);
	assert_int_equal(X509_add_ext(cert, e, -1), 1);
	X509_EXTENSION_free(e);
}

/* DIR/NAME.pem and DIR/NAME.key. names: "DNS:a.example", NULL: none; issuer NULL: self-signed. */
static void made_cert_create(struct made_cert *m, const char *dir, const char *name, const char *names,
			     const struct made_cert *issuer)
{
	static long serial = 1;
	snprintf(m->cert_file, sizeof m->cert_file, "%s/%s.pem", dir, name);
	snprintf(m->key_file, sizeof m->key_file, "%s/%s.key", dir, name);
	m->key = EVP_EC_gen("P-256");
	m->cert = X509_new();
	assert_true(m->key != NULL && m->cert != NULL);
	X509_set_version(m->cert, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(m->cert), serial++);
	X509_gmtime_adj(X509_getm_notBefore(m->cert), -60);
	X509_gmtime_adj(X509_getm_notAfter(m->cert), 86400);
	X509_set_pubkey(m->cert, m->key);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(m->cert), "CN", MBSTRING_UTF8, (const unsigned char *)name, -1,
				   -1, 0);
	X509 *by = issuer != NULL ? issuer->cert : m->cert;
	X509_set_issuer_name(m->cert, X509_get_subject_name(by));
	if (issuer == NULL)
		made_add(m->cert, by, NID_basic_constraints, "critical,CA:TRUE");
	if (names != NULL)
		made_add(m->cert, by, NID_subject_alt_name, names);
	assert_true(X509_sign(m->cert, issuer != NULL ? issuer->key : m->key, EVP_sha256()) > 0);
	FILE *f = fopen(m->cert_file, "w"), *k = fopen(m->key_file, "w");
	assert_true(f != NULL && k != NULL);
	assert_int_equal(PEM_write_X509(f, m->cert), 1);
	assert_int_equal(PEM_write_PrivateKey(k, m->key, NULL, NULL, 0, NULL, NULL), 1);
	fclose(f);
	fclose(k);
}

static void made_cert_dispose(struct made_cert *m)
{
	X509_free(m->cert);
	EVP_PKEY_free(m->key);
	unlink(m->cert_file);
	unlink(m->key_file);
}

#endif
