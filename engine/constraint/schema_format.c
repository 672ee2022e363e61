/* SPDX-License-Identifier: Apache-2.0
 *
 * Formats: the grammars of their RFCs as regular expressions. An unknown format is an annotation, as the
 * specification says.
 */
#include <string.h>

#include "engine/constraint/regex.h"
#include "engine/constraint/schema.h"

/* RFC 3339, section 5.6, with the days that each month has. */
#define LEAP_YEAR "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
#define DATE                                                                                                         \
	"(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|" \
	"1\\d|"                                                                                                      \
	"2[0-8]))|" LEAP_YEAR "-02-29)"
/* A leap second is the last second of a UTC day; with another offset it is not generated. */
#define TIME                                                                                           \
	"(?:(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d+)?(?:[Zz]|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)|" \
	"23:59:60(?:\\.\\d+)?(?:[Zz]|[+-]00:00))"
/* RFC 3339, appendix A */
#define DUR_TIME "T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S)"
#define DURATION "P(?:(?:\\d+D|\\d+M(?:\\d+D)?|\\d+Y(?:\\d+M(?:\\d+D)?)?)(?:" DUR_TIME ")?|" DUR_TIME "|\\d+W)"

/* RFC 3986 */
#define PCT "%[0-9A-Fa-f]{2}"
#define SUB "!$&'()*+,;="
#define OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 OCTET "(?:\\." OCTET "){3}"
#define H16 "[0-9A-Fa-f]{1,4}"
#define LS32 "(?:" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                                         \
	"(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32 "|"                \
	"(?:(?:" H16 ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16 ")?::(?:" H16 ":){2}" LS32 \
	"|(?:(?:" H16 ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16 ":){0,4}" H16 ")?::" LS32 "|(?:(?:" H16        \
	":){0,5}" H16 ")?::" H16 "|(?:(?:" H16 ":){0,6}" H16 ")?::)"
#define UCS                                                                                                            \
	"\\u{a0}-\\u{d7ff}\\u{f900}-\\u{fdcf}\\u{fdf0}-\\u{ffef}\\u{10000}-\\u{1fffd}\\u{20000}-\\u{2fffd}\\u{30000}-" \
	"\\u{3fffd}\\u{40000}-\\u{efffd}"
#define SCHEME "[A-Za-z][A-Za-z0-9+.-]*"
/* extra: characters that IRIs (RFC 3987) add to the unreserved ones */
#define UNRESERVED(extra) "A-Za-z0-9._~" extra
#define PCHAR(extra) "(?:[" UNRESERVED(extra) SUB ":@-]|" PCT ")"
#define NO_COLON(extra) "(?:[" UNRESERVED(extra) SUB "@-]|" PCT ")"
#define REG_NAME(extra) "(?:[" UNRESERVED(extra) SUB "-]|" PCT ")*"
#define USERINFO(extra) "(?:[" UNRESERVED(extra) SUB ":-]|" PCT ")*@"
#define IP_LITERAL "\\[(?:" IPV6 "|[vV][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]"
#define AUTHORITY(extra) "(?:" USERINFO(extra) ")?(?:" IP_LITERAL "|" REG_NAME(extra) ")(?::\\d*)?"
#define ABEMPTY(extra) "(?:/" PCHAR(extra) "*)*"
#define SEGMENTS(extra) PCHAR(extra) "+" ABEMPTY(extra)
#define ABSOLUTE(extra) "/(?:" SEGMENTS(extra) ")?"
#define TAIL(extra) "(?:\\?(?:" PCHAR(extra) "|[/?])*)?(?:#(?:" PCHAR(extra) "|[/?])*)?"
#define URI(extra) \
	SCHEME ":(?://" AUTHORITY(extra) ABEMPTY(extra) "|" ABSOLUTE(extra) "|" SEGMENTS(extra) "|)" TAIL(extra)
#define RELATIVE(extra)          \
	"(?://" AUTHORITY(extra) \
	    ABEMPTY(extra) "|" ABSOLUTE(extra) "|" NO_COLON(extra) "+" ABEMPTY(extra) "|)" TAIL(extra)

/* RFC 1123, section 2.1; RFC 1034, section 3.1 */
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOSTNAME LABEL "(?:\\." LABEL ")*"
#define IDN_LABEL "[A-Za-z0-9" UCS "](?:[A-Za-z0-9" UCS "-]{0,61}[A-Za-z0-9" UCS "])?"
/* RFC 5321, section 4.1.2 */
#define ATEXT(extra) "[A-Za-z0-9!#$%&'*+/=?^_`{|}~" extra "-]+"
#define LOCAL(extra) "(?:" ATEXT(extra) "(?:\\." ATEXT(extra) ")*|\"(?:[ !#-\\[\\]-~" extra "]|\\\\[ -~])*\")"
#define LITERAL "\\[(?:" IPV4 "|IPv6:" IPV6 ")\\]"
/* RFC 6901; draft-bhutton-relative-json-pointer */
#define POINTER "(?:/(?:[^~/]|~[01])*)*"
/* RFC 6570 */
#define VARCHAR "(?:[A-Za-z0-9_]|" PCT ")"
#define VARSPEC VARCHAR "(?:\\.?" VARCHAR ")*(?::[1-9]\\d{0,3}|\\*)?"
#define TEMPLATE "(?:[!#$&(-;=?-\\[\\]_a-z~" UCS "]|" PCT "|\\{[+#./;?&=,!@|]?" VARSPEC "(?:," VARSPEC ")*\\})*"

/* ECMA-262 22.2.1, in part: groups nested two deep, ranges of letters and digits, no backreferences or lookbehinds. The
 * language of all regular expressions is not regular. */
#define RE_ESCAPE "\\\\(?:[dDsSwWtnrfv.*+?^$()\\[\\]{}|/\\\\]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})"
#define RE_RANGE "a-z|A-Z|0-9|a-f|A-F|1-9|0-1|0-3|0-5|1-5"
#define RE_CLASS "\\[\\^?(?:" RE_RANGE "|[^\\\\\\[\\]^-]|" RE_ESCAPE "|\\\\-)+-?\\]"
#define RE_TIMES "(?:[*+?]|\\{(?:\\d{1,3},?|\\d,[1-9]\\d{1,2}|[01],[1-9])\\})\\??"
#define RE_TERM(group) \
	"(?:(?:[^\\\\^$*+?()\\[\\]{}|]|" RE_ESCAPE "|" RE_CLASS group ")(?:" RE_TIMES ")?|[\\^$]|\\\\[bB])"
#define RE_CHOICE(group) RE_TERM(group) "*(?:\\|" RE_TERM(group) "*)*"
#define RE_GROUP(inside) "|\\((?:\\?:)?" inside "\\)"
#define REGEX RE_CHOICE(RE_GROUP(RE_CHOICE(RE_GROUP(RE_CHOICE("")))))

static const struct {
	const char *name, *expression;
	uint32_t most; /* characters; 0: no limit */
} formats[] = {
    {"date-time", DATE "[Tt]" TIME, 0},
    {"date", DATE, 0},
    {"time", TIME, 0},
    {"duration", DURATION, 0},
    {"email", LOCAL("") "@(?:" HOSTNAME "|" LITERAL ")", 320},
    {"idn-email", LOCAL(UCS) "@(?:" IDN_LABEL "(?:\\." IDN_LABEL ")*|" LITERAL ")", 320},
    {"hostname", HOSTNAME, 253},
    {"idn-hostname", IDN_LABEL "(?:\\." IDN_LABEL ")*", 253},
    {"ipv4", IPV4, 0},
    {"ip-address", IPV4, 0}, /* draft 3 */
    {"ipv6", IPV6, 0},
    {"uri", URI(""), 0},
    {"uri-reference", "(?:" URI("") "|" RELATIVE("") ")", 0},
    {"iri", URI(UCS), 0},
    {"iri-reference", "(?:" URI(UCS) "|" RELATIVE(UCS) ")", 0},
    {"uri-template", TEMPLATE, 0},
    {"uuid", "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", 0},
    {"regex", REGEX, 0}, /* cppcheck-suppress unknownMacro */
    {"json-pointer", POINTER, 0},
    {"relative-json-pointer", "(?:0|[1-9]\\d*)(?:[+-][1-9]\\d*)?(?:#|" POINTER ")", 0},
};

static const size_t n_formats = sizeof formats / sizeof *formats;

static size_t find_format(struct proto_str name)
{
	size_t i = 0;
	while (i < n_formats && !str_equal(name, (struct proto_str){formats[i].name, strlen(formats[i].name)}))
		i++;
	return i;
}

bool schema_knows_format(struct proto_str name) { return find_format(name) < n_formats; }

bool schema_format(struct schema *s, struct proto_str name, rx *out)
{
	struct regex_fault fault;
	size_t i = find_format(name);
	if (i == n_formats)
		return false;
	*out = regex_rx(s->c, formats[i].expression, strlen(formats[i].expression), REGEX_ALL, &fault);
	BUG_IF(fault.code == SL_EINVAL || fault.code == SL_EUNSUPPORTED, "format %s: %s at %zu", formats[i].name,
	       fault.what, fault.at);
	if (formats[i].most > 0)
		*out = rx_and(s->c->pool, *out, rx_repeat(s->c->pool, con_any_char(s->c), 1, formats[i].most));
	return true;
}
