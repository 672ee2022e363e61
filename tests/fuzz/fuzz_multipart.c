/* SPDX-License-Identifier: Apache-2.0
 *
 * gateway/files: forms of any bytes. The input is a Content-Type, a line feed and a form. Parts lie within the form,
 * one after the other, and none holds the delimiter; an upload that is accepted is text with a name.
 */
#include <string.h>

#include "base/utf8.h"
#include "gateway/files/upload.h"
#include "tests/fuzz/fuzz.h"

#define TYPE "multipart/form-data; boundary=b\n"

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	static const char *const seeds[] = {
	    TYPE "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nuser_data\r\n"
		 "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a \\\"b\\\".txt\"\r\n"
		 "Content-Type: text/plain; charset=utf-8\r\n\r\nhello\r\n--\r\n\r\n--b--\r\n",
	    TYPE "\r\n--b \t\r\nContent-Disposition: form-data; name=x\r\nContent-Transfer-Encoding: 8bit\r\n\r\n--b--",
	    TYPE "--b\r\nContent-Disposition: form-data; name=\"expires_after[anchor]\"\r\n\r\ncreated_at\r\n"
		 "--b\r\nContent-Disposition: form-data; name=\"expires_after[seconds]\"\r\n\r\n3600\r\n--b--",
	    "multipart/form-data; boundary=\"a b:c\"; x=\"\\\\\"\n--a b:c\r\nContent-Disposition: form-data; name=x; "
	    "filename*=UTF-8''y\r\n\r\n\xff\r\n--a b:c--",
	};
	return fuzz_seed_text(seeds, sizeof seeds / sizeof *seeds, i, out, max);
}

static void check_parts(const char *type, const char *form, size_t n)
{
	struct multipart m;
	struct multipart_part p;
	struct sl_err err = {0};
	const char *from = form;
	unsigned parts = 0;
	int rc = multipart_init(&m, type, form, n, &err);
	FUZZ_REQUIRE(rc == 0 || (rc == SL_EINVAL && err.text[0] != '\0'));
	while (rc == 0 && (rc = multipart_next(&m, &p, &err)) > 0) {
		rc = 0;
		FUZZ_REQUIRE(p.name[0] != '\0' && ++parts <= MULTIPART_MOST_PARTS);
		FUZZ_REQUIRE(p.bytes >= from && p.n <= (size_t)(form + n - p.bytes));
		FUZZ_REQUIRE(memmem(p.bytes, p.n, m.delimiter, m.n_delimiter) == NULL);
		FUZZ_REQUIRE(p.type == NULL || (p.type >= form && p.n_type <= (size_t)(form + n - p.type)));
		from = p.bytes + p.n;
	}
	FUZZ_REQUIRE(rc == 0 || (rc == SL_EINVAL && err.text[0] != '\0'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	char type[256];
	struct upload u;
	struct request_error e;
	const uint8_t *line = n > 0 ? memchr(data, '\n', n) : NULL;
	if (line == NULL || (size_t)(line - data) >= sizeof type)
		return 0;
	memcpy(type, data, (size_t)(line - data));
	type[line - data] = '\0';
	const char *form = (const char *)line + 1;
	size_t n_form = n - (size_t)(form - (const char *)data);
	check_parts(type, form, n_form);
	int rc = upload_read(type, form, n_form, &u, &e);
	FUZZ_REQUIRE(rc == 0 || (rc == SL_EINVAL && e.code != NULL && e.message[0] != '\0'));
	if (rc == 0) {
		FUZZ_REQUIRE(u.file.n > 0 && utf8_valid(u.file.bytes, u.file.n) &&
			     memchr(u.file.bytes, '\0', u.file.n) == NULL);
		FUZZ_REQUIRE(u.file.filename[0] != '\0' && utf8_valid(u.file.filename, strlen(u.file.filename)));
		FUZZ_REQUIRE(u.purpose[0] != '\0');
	}
	return 0;
}
