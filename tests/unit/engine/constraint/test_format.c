/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/constraint: formats, with examples of their RFCs.
 */
#include <stdio.h>

#include "tests/unit/engine/constraint/accept.h"

static const struct {
	const char *name;
	const char *yes[10], *no[12];
} formats[] = {
    {"date",
     {"2024-02-29", "2000-02-29", "1999-12-31"},
     {"2023-02-29", "1900-02-29", "2024-13-01", "2024-04-31", "24-01-01", "2024-1-1"}},
    {"time",
     {"12:00:00Z", "23:59:60Z", "08:30:06.283185Z", "12:00:00+05:30"},
     {"12:00:00", "24:00:00Z", "12:60:00Z", "12:00:61Z", "12:00Z"}},
    {"date-time",
     {"1985-04-12T23:20:50.52Z", "1996-12-19T16:39:57-08:00", "1990-12-31T23:59:60Z", "2024-01-01t00:00:00z"},
     {"2022-01-01T12:00:00", "2022-01-01 12:00:00Z", "2024-12-31T23:59:61Z", "2022-02-30T00:00:00Z",
      "20220101T12:00:00Z"}},
    {"duration",
     {"P3Y6M4DT12H30M5S", "P23DT23H", "P4Y", "PT0S", "P1W", "PT36H"},
     {"P", "PT", "P1", "4DT12H30M5S", "P1YT", "P2D1Y", "P1W2D"}},
    {"email",
     {"joe.bloggs@example.com", "te~st@example.com", "\"joe bloggs\"@example.com", "a@[127.0.0.1]", "a@[IPv6:::1]"},
     {"2962", "@x", "a@", ".test@example.com", "te..st@example.com", "a b@example.com", "a@-x.com",
      "m4.van.dijk.vu.nl"}},
    {"hostname",
     {"www.example.com", "xn--4gbwdl.xn--wgbh1c", "localhost", "a-b.c"},
     {"-a.com", "a-.com", "a..b", "example.com:8080", "a_b", ""}},
    {"ipv4", {"192.168.0.1", "0.0.0.0", "255.255.255.255"}, {"256.1.1.1", "127.0.0", "127.0.0.01", "1.2.3.4.5"}},
    {"ipv6",
     {"::1", "::", "1:2:3:4:5:6:7:8", "2001:db8::ff00:42:8329", "::ffff:192.168.0.1", "1::8"},
     {"12345::", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1::2::3", "::ffff:1.2.3.256", ":2:3:4:5:6:7:8",
      "fe80::1%eth0"}},
    {"uri",
     {"http://example.com/a?b=c#d", "urn:isbn:0451450523", "mailto:a@b.c", "ftp://[2001:db8::7]/c",
      "tel:+1-816-555-1212", "file:///etc", "a:"},
     {"//example.com", "/abc", "abc", "http://ex ample.com", "http://[::1", "1a:b", "http://a/%zz", "http://a/<b>",
      "invalid_uri"}},
    {"uri-reference", {"/abc", "abc", "//a/b", "#f", "", "http://a", "a/b:c"}, {"\\\\x", "a b", "%z", "1:2"}},
    {"iri", {"http://\xC6\x92\xC3\xB8\xC3\xB8.b\xC3\xA4r/?\xE2\x88\x82"}, {"\xC3\xA4", "http://a b"}},
    {"uri-template", {"http://example.com/{term:1}/{+path,x*}{?q}", ""}, {"http://example.com/{term", "}", "{}"}},
    {"uuid",
     {"2eb8aa08-aa98-11ea-b4aa-73b441d16380", "2EB8AA08-AA98-11EA-B4AA-73B441D16380"},
     {"2eb8aa08aa9811eab4aa73b441d16380", "2eb8aa08-aa98-11ea-b4aa-73b441d1638"}},
    {"regex",
     {"^a*[a-z0-9_]+(b|\\d{2,10})?$", "", "((x)y)*", "\\\\[.]"},
     {"*", "(a", "[a", "a{2", "+", "a)", "\\", "[z-a]"}},
    {"json-pointer", {"", "/a/b~0c~1d", "/"}, {"a", "/a~", "/~2"}},
    {"relative-json-pointer", {"0", "1/a", "2#", "0+1/a"}, {"/a", "01", "-1", "1a"}},
};

static void test_formats(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
		char schema[80], text[200];
		struct sl_err err;
		snprintf(schema, sizeof schema, "{\"type\":\"string\",\"format\":\"%s\"}", formats[i].name);
		struct grammar *g = accept_compile(CONSTRAINT_JSON_SCHEMA, schema, strlen(schema), &err);
		if (g == NULL)
			fail_msg("%s: %s", schema, err.text);
		for (size_t j = 0; j < 22; j++) {
			const char *s = j < 10 ? formats[i].yes[j] : formats[i].no[j - 10];
			if (s == NULL)
				continue;
			size_t n = (size_t)snprintf(text, sizeof text, "\"");
			for (const char *p = s; *p != '\0'; p++)
				n += (size_t)snprintf(text + n, sizeof text - n,
						      *p == '"' || *p == '\\' ? "\\%c" : "%c", *p);
			snprintf(text + n, sizeof text - n, "\"");
			accept_expect(g, schema, text, j < 10);
		}
		grammar_unref(g);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_formats)};
	return cmocka_run_group_tests(tests, accept_open, accept_close);
}
