/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.json from a file nobody has checked: it is read or refused, and what was read encodes.
 * The text to encode follows the JSON after a zero byte.
 */
#include <stdint.h>
#include <string.h>

#include "engine/tokenizer.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const uint8_t *zero = n > 0 ? memchr(data, 0, n) : NULL;
	size_t n_json = zero != NULL ? (size_t)(zero - data) : n;
	struct tokenizer *t = NULL;
	struct sl_err err = {0};
	if (tokenizer_create_json((const char *)data, n_json, NULL, 0, &t, &err) != 0) {
		FUZZ_REQUIRE(err.text[0] != '\0');
		return 0;
	}
	const char *text = zero != NULL ? (const char *)zero + 1 : "a b";
	size_t n_text = zero != NULL ? n - n_json - 1 : 3;
	struct tok_ids ids = {.max = 1 << 20};
	int rc = tokenizer_encode(t, text, n_text, NULL, &ids);
	FUZZ_REQUIRE(rc == 0 || rc == SL_ELIMIT);
	for (size_t i = 0; i < ids.n; i++)
		FUZZ_REQUIRE(ids.ids[i] >= 0 && ids.ids[i] < tokenizer_n_vocab(t));
	tok_ids_dispose(&ids);
	tokenizer_destroy(t);
	return 0;
}
