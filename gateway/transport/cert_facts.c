/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/transport/cert_facts.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <time.h>

#include "base/file.h"
#include "base/text.h"

enum { CERTIFICATE_MOST = 1 << 20 };

static X509 *parse(const struct sl_buf *text)
{
	BIO *b = text->len > 0 ? BIO_new_mem_buf(buf_data(text), (int)text->len) : NULL;
	static char no_passphrase[] = ""; /* replaces the prompt on the terminal */
	X509 *x = b != NULL ? PEM_read_bio_X509(b, NULL, NULL, no_passphrase) : NULL;
	BIO_free(b);
	ERR_clear_error();
	return x;
}

static void read_names(X509 *x, struct cert_facts *out)
{
	GENERAL_NAMES *all = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);
	size_t n = 0;
	for (int i = 0; all != NULL && i < sk_GENERAL_NAME_num(all) && n < sizeof out->names; i++) {
		const GENERAL_NAME *name = sk_GENERAL_NAME_value(all, i);
		if (name->type == GEN_DNS)
			n += (size_t)snprintf(out->names + n, sizeof out->names - n, "%s%.*s", n > 0 ? " " : "",
					      ASN1_STRING_length(name->d.dNSName),
					      (const char *)ASN1_STRING_get0_data(name->d.dNSName));
	}
	text_one_line(out->names, '?');
	GENERAL_NAMES_free(all);
}

static int read_dates(const X509 *x, struct cert_facts *out, struct sl_err *why)
{
	int seconds = 0;
	struct tm tm;
	const ASN1_TIME *end = X509_get0_notAfter(x);
	if (ASN1_TIME_diff(&out->days_left, &seconds, NULL, end) != 1 || ASN1_TIME_to_tm(end, &tm) != 1 ||
	    strftime(out->end, sizeof out->end, "%Y-%m-%d", &tm) == 0)
		return sl_errf(why, SL_EINVAL, "its dates cannot be read");
	if (seconds < 0)
		out->days_left--;
	out->is_early = X509_cmp_current_time(X509_get0_notBefore(x)) > 0;
	return 0;
}

int cert_facts_read(const char *path, struct cert_facts *out, struct sl_err *why)
{
	struct sl_buf text;
	*out = (struct cert_facts){.days_left = 0};
	int rc = file_read(path, CERTIFICATE_MOST, &text, why);
	X509 *x = rc == 0 ? parse(&text) : NULL;
	if (rc == 0 && x == NULL)
		rc = sl_errf(why, SL_EINVAL, "it holds no certificate");
	if (rc == 0)
		rc = read_dates(x, out, why);
	if (rc == 0)
		read_names(x, out);
	X509_free(x);
	buf_dispose(&text);
	return rc;
}
