/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/constraint: the first byte is the kind of the constraint, the rest its text. Whatever it is, translating it
 * ends with rules or with a sentence.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/constraint/constraint.h"
#include "tests/fuzz/fuzz.h"

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	static const char *const seeds[] = {
	    "\x01{\"type\":\"object\",\"properties\":{\"a\":{\"type\":[\"integer\",\"null\"],\"minimum\":1.5,"
	    "\"multipleOf\":0.5},"
	    "\"b\":{\"enum\":[1,\"x\",{\"c\":[]}]}},\"required\":[\"a\"],\"additionalProperties\":{\"$ref\":\"#/$defs/"
	    "d\"},"
	    "\"patternProperties\":{\"^x\":false},\"minProperties\":1,\"$defs\":{\"d\":{\"anyOf\":[{\"$ref\":\"#\"},"
	    "true]}}}",
	    "\x01{\"oneOf\":[{\"required\":[\"a\"]},{\"not\":{\"items\":{\"pattern\":\"^a|b$\"},\"contains\":{"
	    "\"const\":1}}}],"
	    "\"if\":{\"minLength\":2},\"then\":{\"format\":\"uri\"},\"dependencies\":{\"a\":[\"b\"],\"c\":{"
	    "\"maxItems\":2}}}",
	    "\x01{\"$id\":\"http://a/"
	    "b\",\"items\":[{\"$ref\":\"c#d\"}],\"definitions\":{\"x\":{\"$id\":\"c\",\"$anchor\":\"d\"}},"
	    "\"uniqueItems\":true,\"propertyNames\":{\"maxLength\":3},\"prefixItems\":[{\"format\":\"date-time\"}]}",
	    "\x02",
	    "\x03(?:a|[^b-d\\w-.]{2,3}?)+\\bx(?!foo)(?=.*\\d)\\p{Lu}\\u{1F600}$",
	    "\x04root ::= (a | \"b\\x41\" [^c-d]{1,3} .)* # x\na ::= root \"c\"? | \"d\"",
	    "\x05start: a+ | \"x\"i \"a\"..\"z\" /r[e]/i~2..3\n?a: start [B] -> c\nB.1: \"b\"\n%import "
	    "common.WS\n%ignore WS",
	    "\x06[\"a\",\"b\\u00e9\"]",
	    "\x07{\"tokens\":[\"<c>\",\"</c>\"],\"begin\":\"<c>\",\"calls\":[{\"prefix\":\"f\",\"schema\":"
	    "\"{\\\"properties\\\":{\\\"a\\\":{\\\"type\\\":\\\"string\\\"},\\\"b\\\":{\\\"enum\\\":[1,\\\"x\\\",null]}"
	    "},"
	    "\\\"required\\\":[\\\"a\\\"]}\"},{\"prefix\":\"g\",\"schema\":\"{\\\"type\\\":\\\"object\\\"}\"}],"
	    "\"suffix\":\"</"
	    "c>\",\"separator\":\",\",\"end\":\"\",\"several\":true,\"member\":\"<p=%s>\\n\",\"member_end\":"
	    "\"\\n</p>\\n\",\"triggers\":[\"<c>\",\"<d>\"],\"at_will\":true}",
	    "\x07{\"tokens\":[\"<|channel|>\"],\"begin\":\"\",\"calls\":[{\"prefix\":\"<|channel|>f\",\"schema\":\"{}"
	    "\"}],"
	    "\"suffix\":\"\",\"separator\":\"\",\"end\":\"\",\"channels\":true,\"at_will\":true}",
	};
	return fuzz_seed_text(seeds, sizeof seeds / sizeof *seeds, i, out, max);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct rules *rules = NULL;
	struct sl_err err = {0};
	const struct constraint_limits limits = {.max_work = 200000, .rules = {.max_rx_nodes = 200000}};
	if (n == 0)
		return 0;
	/* A copy of its exact length, so that reads beyond it are found. */
	char *text = malloc(n);
	FUZZ_REQUIRE(text != NULL);
	memcpy(text, data + 1, n - 1);
	int rc = constraint_rules((enum constraint_kind)(data[0] % (CONSTRAINT_KINDS + 1)), text, n - 1, &limits,
				  &rules, &err);
	FUZZ_REQUIRE((rc == 0) == (rules != NULL));
	FUZZ_REQUIRE(rc == 0 || (err.code == rc && err.text[0] != '\0'));
	FUZZ_REQUIRE(rc == 0 || rc == SL_EINVAL || rc == SL_EUNSUPPORTED || rc == SL_ELIMIT || rc == SL_ENOMEM);
	if (rules != NULL)
		rules_destroy(rules);
	free(text);
	return 0;
}
