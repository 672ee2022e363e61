/* SPDX-License-Identifier: Apache-2.0
 *
 * A SentencePiece model that nobody has checked: it is read or refused in one line, and what was read encodes.
 */
#include <stdint.h>
#include <string.h>

#include "engine/token/tokenizer.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/charsmap.h"
#include "tests/support/spm_write.h"

static const struct proto_str nothing = {"", 0};

static void encodes(const struct tokenizer *t, const char *text, size_t n)
{
	struct tok_ids ids = {.max = 1 << 20};
	int rc = tokenizer_encode(t, text, n, NULL, &ids);
	FUZZ_REQUIRE(rc == 0 || rc == SL_ELIMIT);
	for (size_t i = 0; i < ids.n; i++)
		FUZZ_REQUIRE(ids.ids[i] >= 0 && ids.ids[i] < tokenizer_n_vocab(t));
	tok_ids_dispose(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const char text[] = "  ab" ODD_SPACE "e" ACCENT "<u> \xEF\xAC\x81\xFF<0x41>aaaa ";
	struct tokenizer *t = NULL;
	struct sl_err err = {0};
	if (tokenizer_create_spm((struct proto_str){(const char *)data, n}, nothing, nothing, &t, &err) != 0) {
		FUZZ_REQUIRE(t == NULL && err.text[0] != '\0' && strchr(err.text, '\n') == NULL);
		return 0;
	}
	encodes(t, text, sizeof text - 1);
	encodes(t, (const char *)data, n < 256 ? n : 256);
	tokenizer_destroy(t);
	return 0;
}

/* Unigram with a table, and BPE with bytes. */
size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	static struct spm_file f;
	static char table[CM_BYTES];
	if (i > 1)
		return 0;
	sw_begin(&f, i == 1);
	sw_piece(&f, "\xE2\x96\x81", -2, TOK_NORMAL);
	sw_piece(&f, "a", -3, TOK_NORMAL);
	sw_piece(&f, "b", -3, TOK_NORMAL);
	sw_piece(&f, "ab", -1, TOK_NORMAL);
	sw_piece(&f, "<u>", 0, TOK_USER);
	if (i == 0)
		sw_piece(&f, "aa", -4, TOK_UNUSED);
	sw_normalizer(&f, table, i == 0 ? cm_make(table) : 0, true, i == 0);
	sw_trainer(&f, i == 0 ? 1 : 2, i == 1);
	size_t n = f.n < max ? f.n : max;
	memcpy(out, f.bytes, n);
	return n;
}
