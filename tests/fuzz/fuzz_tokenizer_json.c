/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.json from a file nobody has checked: it is read or refused, and what was read encodes.
 * The text to encode follows the JSON after a zero byte.
 */
#include <stdint.h>
#include <string.h>

#include "engine/token/tokenizer.h"
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

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	/* Unigram, SentencePiece's BPE, and a pre-tokenizer of each kind; the text after the \f. */
	static const char *const seeds[] = {
	    "{\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true}],"
	    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},{\"type\":\"Lowercase\"}]},"
	    "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"first\"},"
	    "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"_\",-3],[\"a\",-2],[\"ab\",-3.5]]"
	    "}}"
	    "\f ab abx",
	    "{\"added_tokens\":[{\"id\":9,\"content\":\"<t>\",\"rstrip\":true,\"single_word\":true}],"
	    "\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"_\"},\"decoder\":{\"type\":\"Strip\",\"content\":\" "
	    "\",\"start\":1},"
	    "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"fuse_unk\":true,\"unk_token\":\"u\",\"vocab\":{\"u\":"
	    "0,\"_\":1,"
	    "\"a\":2,\"b\":3,\"ab\":4,\"<0x41>\":5,\"\\u0000\":6},\"merges\":[\"a b\"]}}\fab<t> A\xFF",
	    "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":"
	    "true},"
	    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\s+|x\"},\"behavior\":\"MergedWithPrevious\",\"invert\":"
	    "true},"
	    "{\"type\":\"Punctuation\"},{\"type\":\"WhitespaceSplit\"}]},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":"
	    "0},"
	    "\"merges\":[]}}\fa1 x,a",
	};
	if (i >= sizeof(seeds) / sizeof(seeds[0]))
		return 0;
	size_t n = strlen(seeds[i]);
	n = n < max ? n : max;
	memcpy(out, seeds[i], n);
	for (size_t k = 0; k < n; k++)
		out[k] = out[k] == '\f' ? 0 : out[k];
	return n;
}
