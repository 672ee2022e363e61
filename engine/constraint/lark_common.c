/* SPDX-License-Identifier: Apache-2.0
 *
 * The terminals that Lark's documentation lists for its library `common`.
 */
#include <string.h>

#include "engine/constraint/lark.h"

#define DECIMAL "(?:[0-9]+\\.[0-9]*|\\.[0-9]+)"
#define EXPONENT "(?:[eE][+-]?[0-9]+)"
#define FLOAT "(?:[0-9]+" EXPONENT "|" DECIMAL EXPONENT "?)"

static const struct {
	const char *name, *expression;
} terminals[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9A-Fa-f]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"DECIMAL", DECIMAL},
    {"_EXP", EXPONENT},
    {"FLOAT", FLOAT},
    {"SIGNED_FLOAT", "[+-]?" FLOAT},
    {"NUMBER", "(?:" FLOAT "|[0-9]+)"},
    {"SIGNED_NUMBER", "[+-]?(?:" FLOAT "|[0-9]+)"},
    {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[A-Za-z]"},
    {"WORD", "[A-Za-z]+"},
    {"CNAME", "[A-Za-z_][A-Za-z_0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(?:\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
    {"SQL_COMMENT", "--[^\\n]*"},
    {"C_COMMENT", "/\\*(?:[^*]|\\*+[^*/])*\\*+/"},
};

const char *lark_common(struct proto_str name)
{
	for (size_t i = 0; i < sizeof terminals / sizeof *terminals; i++)
		if (strlen(terminals[i].name) == name.n && memcmp(terminals[i].name, name.at, name.n) == 0)
			return terminals[i].expression;
	return NULL;
}
