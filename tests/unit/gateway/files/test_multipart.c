/* SPDX-License-Identifier: Apache-2.0
 *
 * Forms: what is read of well-formed ones as clients write them, what is refused of others, the bounds to the byte, and
 * every way to cut one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/files/upload.h"

#define TYPE "multipart/form-data; boundary=b"
#define NAME(name) "Content-Disposition: form-data; name=\"" name "\"\r\n\r\n"
#define FILE_NAME(file) "Content-Disposition: form-data; name=\"file\"; filename=\"" file "\"\r\n"
#define A_FILE FILE_NAME("a.txt") "Content-Type: text/plain\r\n\r\nhello\r\n"
#define PURPOSE NAME("purpose") "user_data\r\n"

/* "NAME[/FILENAME][:TYPE]=BYTES;…", or "!" and the reason. */
static void describe(const char *type, const char *bytes, size_t n, char *out, size_t room)
{
	/* Of the exact size, so that a read beyond it is found. */
	char *copy = malloc(n > 0 ? n : 1);
	struct multipart m;
	struct multipart_part p;
	struct sl_err err = {0};
	size_t at = 0;
	memcpy(copy, bytes, n);
	out[0] = '\0';
	int rc = multipart_init(&m, type, copy, n, &err);
	while (rc == 0 && (rc = multipart_next(&m, &p, &err)) > 0) {
		rc = 0;
		at += (size_t)snprintf(out + at, room - at, "%s%s%s%s%.*s=%.*s;", p.name, p.has_filename ? "/" : "",
				       p.filename, p.type != NULL ? ":" : "", (int)p.n_type,
				       p.type != NULL ? p.type : "", (int)p.n, p.bytes);
		assert_true(at < room);
	}
	if (rc < 0)
		snprintf(out, room, "!%s", err.text);
	free(copy);
}

static void expect(const char *type, const char *form, const char *want)
{
	char got[4096];
	describe(type, form, strlen(form), got, sizeof got);
	if (strncmp(got, want, want[0] == '!' ? strlen(want) : sizeof got) != 0)
		fail_msg("%s\n gives %s\n not %s", form, got, want);
}

static void forms_are_read(void **state)
{
	(void)state;
	expect(TYPE, "--b\r\n" A_FILE "--b\r\n" PURPOSE "--b--\r\n", "file/a.txt:text/plain=hello;purpose=user_data;");
	expect(TYPE, "\r\n--b \t\r\n" PURPOSE "--b-- and more", "purpose=user_data;");
	expect(TYPE, "--b\r\n" NAME("empty") "\r\n--b--", "empty=;");
	/* The line break before the delimiter is the delimiter's, also where a part has no bytes at all. */
	expect(TYPE, "--b\r\n" NAME("none") "--b--", "none=;");
	expect(TYPE, "--b\r\n" NAME("x") "\r\n--\r\n-b\r\n\r\n--b--", "x=\r\n--\r\n-b\r\n;");
	expect("multipart/form-data; charset=utf-8; BOUNDARY=\"a b:c\"", "--a b:c\r\n" NAME("x") "1\r\n--a b:c--",
	       "x=1;");
	expect(TYPE,
	       "--b\r\ncontent-DISPOSITION:form-data ;NAME=x; filename*=UTF-8''y;\r\nX-Other: 1\r\n\r\n1\r\n--b--",
	       "x=1;");
	expect(TYPE, "--b\r\n" FILE_NAME("C:\\\\dir\\a \\\"q\\\".txt") "\r\n1\r\n--b--",
	       "file/C:\\dir\\a \"q\".txt=1;");
	expect(TYPE, "--b\r\nContent-Transfer-Encoding: binary\r\n" NAME("x") "1\r\n--b--", "x=1;");
}

static void others_are_refused(void **state)
{
	(void)state;
	static const struct {
		const char *type, *form, *why;
	} bad[] = {
	    {"multipart/form-data", "--b\r\n" PURPOSE "--b--", "!its Content-Type has no boundary"},
	    {"multipart/form-data; boundary=", "--\r\n" PURPOSE "----", "!its Content-Type has no boundary"},
	    {"multipart/form-data; boundary=b; boundary=c", "--b\r\n" PURPOSE "--b--", "!its Content-Type"},
	    {"multipart/form-data; boundary=\"b", "--b\r\n" PURPOSE "--b--", "!its Content-Type"},
	    {"multipart/form-data; boundary=\"b\x01\"", "--b\x01\r\n" PURPOSE "--b\x01--", "!its Content-Type"},
	    {"multipart/form-data; boundary=\"b \"", "--b \r\n" PURPOSE "--b --", "!its Content-Type"},
	    {TYPE, "", "!it does not begin with its boundary"},
	    {TYPE, "--c\r\n" PURPOSE "--c--", "!it does not begin with its boundary"},
	    {TYPE, "preamble\r\n--b\r\n" PURPOSE "--b--", "!it does not begin with its boundary"},
	    {TYPE, "--bc\r\n" PURPOSE "--b--", "!it is cut, or a boundary is no line"},
	    {TYPE, "--b\n" PURPOSE "--b--", "!it is cut, or a boundary is no line"},
	    {TYPE, "--b", "!it is cut"},
	    {TYPE, "--b\r\n" PURPOSE, "!it is cut: no boundary ends"},
	    {TYPE, "--b\r\n" PURPOSE "--b", "!it is cut"},
	    {TYPE, "--b\r\n\r\nx\r\n--b--", "!a part has no Content-Disposition"},
	    {TYPE, "--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--", "!a part has no name"},
	    {TYPE, "--b\r\nContent-Disposition: form-data; name=\"\"\r\n\r\nx\r\n--b--", "!a part has no name"},
	    {TYPE, "--b\r\nContent-Disposition: attachment; name=\"x\"\r\n\r\nx\r\n--b--", "!a part is not form-data"},
	    {TYPE, "--b\r\nContent-Disposition: form-data; name=\"x\"; name=\"y\"\r\n\r\nx\r\n--b--",
	     "!a part has two names"},
	    {TYPE, "--b\r\nContent-Disposition: form-data; name=\"x\"; filename=a; filename=b\r\n\r\nx\r\n--b--",
	     "!a part has two file names"},
	    {TYPE, "--b\r\nContent-Disposition: form-data; name=\"x\r\n\r\nx\r\n--b--", "!the Content-Disposition"},
	    {TYPE, "--b\r\nContent-Disposition: form-data name=x\r\n\r\nx\r\n--b--", "!the Content-Disposition"},
	    {TYPE,
	     "--b\r\nContent-Disposition: form-data; name=x\r\nContent-Disposition: form-data; name=y\r\n\r\n--b--",
	     "!a part has two Content-Dispositions"},
	    {TYPE, "--b\r\nno header\r\n\r\nx\r\n--b--", "!a header of a part is malformed"},
	    {TYPE, "--b\r\n: x\r\n\r\nx\r\n--b--", "!a header of a part is malformed"},
	    {TYPE, "--b\r\nContent-Transfer-Encoding: base64\r\n" NAME("x") "eA==\r\n--b--",
	     "!a part has a Content-Transfer-Encoding"},
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		expect(bad[i].type, bad[i].form, bad[i].why);
}

/* The last that fits, and one more. */
static void bounds_hold(void **state)
{
	(void)state;
	static char form[20000], type[2000], name[MULTIPART_LINE_BYTES + 8];
	for (int over = 0; over < 2; over++) {
		memset(name, 'x', sizeof name);
		name[MULTIPART_BOUNDARY_BYTES - 1 + over] = '\0';
		snprintf(type, sizeof type, "multipart/form-data; boundary=%s", name);
		snprintf(form, sizeof form, "--%s\r\n" NAME("a") "1\r\n--%s--", name, name);
		expect(type, form, over ? "!its Content-Type" : "a=1;");

		memset(name, 'x', sizeof name);
		name[MULTIPART_NAME_BYTES - 1 + over] = '\0';
		snprintf(form, sizeof form, "--b\r\nContent-Disposition: form-data; name=%s\r\n\r\n1\r\n--b--", name);
		expect(TYPE, form, over ? "!a part has two names, or one of more than 63 bytes" : strcat(name, "=1;"));

		memset(name, 'x', sizeof name);
		name[MULTIPART_LINE_BYTES - 2 - 3 + over] = '\0';
		snprintf(form, sizeof form, "--b\r\nX: %s\r\n" NAME("a") "1\r\n--b--", name);
		expect(TYPE, form, over ? "!a header of a part is unfinished, or has more than 1022 bytes" : "a=1;");

		size_t n = (size_t)snprintf(form, sizeof form, "--b\r\n");
		for (int i = 0; i < MULTIPART_MOST_HEADERS - 1 + over; i++)
			n += (size_t)snprintf(form + n, sizeof form - n, "X: 1\r\n");
		snprintf(form + n, sizeof form - n, NAME("a") "1\r\n--b--");
		expect(TYPE, form, over ? "!a part has more than 8 headers" : "a=1;");

		char want[200] = "";
		n = 0;
		for (int i = 0; i < MULTIPART_MOST_PARTS + over; i++) {
			n += (size_t)snprintf(form + n, sizeof form - n, "--b\r\n" NAME("a") "1\r\n");
			strcat(want, "a=1;");
		}
		snprintf(form + n, sizeof form - n, "--b--");
		expect(TYPE, form, over ? "!it has more than 16 parts" : want);
	}
	memset(name, 'x', sizeof name);
	name[MULTIPART_FILENAME_BYTES] = '\0';
	snprintf(form, sizeof form, "--b\r\nContent-Disposition: form-data; name=a; filename=\"%s\"\r\n\r\n1\r\n--b--",
		 name);
	expect(TYPE, form, "!a part has two file names, or one of more than 511 bytes");
}

/* ---- the fields of an upload ---- */

static void refused(const char *form, const char *code, const char *param)
{
	struct upload u;
	struct request_error e;
	assert_int_equal(upload_read(TYPE, form, strlen(form), &u, &e), SL_EINVAL);
	if (strcmp(e.code, code) != 0 || strcmp(e.param, param) != 0)
		fail_msg("%s: %s, %s: %s", form, e.code, e.param, e.message);
}

#define FORM(parts) "--b\r\n" parts "--b--\r\n"
#define NEXT "--b\r\n"

static void uploads_are_checked(void **state)
{
	static const char whole[] = FORM(PURPOSE NEXT A_FILE NEXT NAME(
	    "expires_after[anchor]") "created_at\r\n" NEXT NAME("expires_after[seconds]") "3600\r\n");
	struct upload u;
	struct request_error e;
	(void)state;
	assert_int_equal(upload_read(TYPE, whole, sizeof whole - 1, &u, &e), 0);
	assert_string_equal(u.file.filename, "a.txt");
	assert_string_equal(u.purpose, "user_data");
	assert_true(u.file.n == 5 && memcmp(u.file.bytes, "hello", 5) == 0 && u.keep_s == 3600);

	assert_int_equal(upload_read(NULL, whole, sizeof whole - 1, &u, &e), SL_EINVAL);
	refused(FORM(PURPOSE), "missing_required_parameter", "file");
	refused(FORM(A_FILE), "missing_required_parameter", "purpose");
	refused(FORM(A_FILE NEXT A_FILE NEXT PURPOSE), "invalid_value", "file");
	refused(FORM(A_FILE NEXT PURPOSE NEXT PURPOSE), "invalid_value", "purpose");
	refused(FORM(A_FILE NEXT NAME("purpose") "fine-tune\r\n"), "unsupported_value", "purpose");
	refused(FORM(A_FILE NEXT PURPOSE NEXT NAME("mask") "1\r\n"), "unknown_parameter", "");
	refused(FORM(NAME("file") "hello\r\n" NEXT PURPOSE), "invalid_value", "file");
	refused(FORM(FILE_NAME("") "\r\nx\r\n" NEXT PURPOSE), "invalid_value", "file");
	refused(FORM(FILE_NAME("a\tb") "\r\nx\r\n" NEXT PURPOSE), "invalid_value", "file");
	refused(FORM(FILE_NAME("a\xff") "\r\nx\r\n" NEXT PURPOSE), "invalid_value", "file");
	refused(FORM(FILE_NAME("a.txt") "\r\n\r\n" NEXT PURPOSE), "invalid_value", "file");
	refused(FORM(FILE_NAME("a.txt") "\r\n\xff\xfe\r\n" NEXT PURPOSE), "invalid_value", "file");
	refused(FORM(FILE_NAME("a.txt") "\r\n%PDF-1.7\r\n" NEXT PURPOSE), "unsupported_value", "file");
	refused(FORM(FILE_NAME("a.png") "Content-Type: image/png\r\n\r\nx\r\n" NEXT PURPOSE), "unsupported_value",
		"file");
	refused(FORM(A_FILE NEXT PURPOSE NEXT NAME("expires_after[seconds]") "3600\r\n"), "missing_required_parameter",
		"expires_after[anchor]");
#define SECONDS(n)                                                                              \
	FORM(A_FILE NEXT PURPOSE NEXT NAME("expires_after[anchor]") "created_at\r\n" NEXT NAME( \
	    "expires_after[seconds]") n "\r\n")
	refused(SECONDS("3599"), "invalid_value", "expires_after[seconds]");
	refused(SECONDS("2592001"), "invalid_value", "expires_after[seconds]");
	refused(SECONDS("99999999999999999999999"), "invalid_value", "expires_after[seconds]");
	refused(SECONDS("36e2"), "invalid_value", "expires_after[seconds]");
	refused(SECONDS(""), "invalid_value", "expires_after[seconds]");
	refused(FORM(A_FILE NEXT PURPOSE NEXT NAME("expires_after[anchor]") "now\r\n"), "invalid_value",
		"expires_after[anchor]");
}

/* Each beginning of a form is refused and read no further than its end. */
static void cuts_are_refused(void **state)
{
	static const char whole[] = FORM(PURPOSE NEXT A_FILE);
	struct upload u;
	struct request_error e;
	(void)state;
	for (size_t n = 0; n < sizeof whole - 3; n++) {
		char *cut = malloc(n > 0 ? n : 1);
		memcpy(cut, whole, n);
		if (upload_read(TYPE, cut, n, &u, &e) != SL_EINVAL)
			fail_msg("%zu bytes", n);
		free(cut);
	}
	assert_int_equal(upload_read(TYPE, whole, sizeof whole - 3, &u, &e), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(forms_are_read),      cmocka_unit_test(others_are_refused), cmocka_unit_test(bounds_hold),
	    cmocka_unit_test(uploads_are_checked), cmocka_unit_test(cuts_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
