/* SPDX-License-Identifier: Apache-2.0
 *
 * A byte-level BPE vocabulary of any size without a corpus: after the 256 bytes come all strings of two, three and four
 * letters, whose first may be a space. One merge of a shorter string and a letter makes each. So every merge's parts
 * exist, no token occurs twice, and lower-case text needs few tokens.
 */
#include <string.h>

#include "base/utf8.h"
#include "engine/source/random_model.h"

enum { N_BYTES = 256, N_CONTROL = 6, FIRSTS = 27, LETTERS = 26, MAX_TOKEN = 8 };

/* The first four are names that other engines require in a file of the phi3 family. */
static const char *const control[N_CONTROL] = {"<unk>", "<s>", "</s>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"};

static const char chat[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/* A byte in GPT-2's spelling: printable bytes unchanged, the others from U+0100 on, in order. */
static size_t spell_byte(int byte, char *out)
{
	int cp = byte;
	if (byte < 33)
		cp = 256 + byte;
	else if (byte >= 127 && byte < 161)
		cp = 256 + 33 + byte - 127;
	else if (byte == 173)
		cp = 256 + 67;
	return (size_t)utf8_encode((uint32_t)cp, (uint8_t *)out);
}

/* The i-th string of two letters and more; *head is the length of all but its last letter. */
static size_t spell_word(int i, char *out, size_t *head)
{
	int letters = 2, count = FIRSTS * LETTERS;
	while (i >= count) {
		i -= count;
		count *= LETTERS;
		letters++;
	}
	int digits[MAX_TOKEN] = {0};
	for (int k = letters - 1; k > 0; k--) {
		digits[k] = i % LETTERS;
		i /= LETTERS;
	}
	size_t n = i < LETTERS ? 1 : spell_byte(' ', out);
	if (i < LETTERS)
		out[0] = (char)('a' + i);
	for (int k = 1; k < letters; k++) {
		*head = n;
		out[n++] = (char)('a' + digits[k]);
	}
	return n;
}

/* ---- WordPiece ---- */

static const char *const bert_control[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
enum { N_BERT_CONTROL = sizeof bert_control / sizeof *bert_control };

/* Token i after the control tokens: characters that begin a word, letters and digits that continue one, and strings of
 * two or more letters, alternating between both kinds. U+2581 marks the beginning of a word. */
static size_t spell_piece(int i, char *out)
{
	static const char firsts[] = "abcdefghijklmnopqrstuvwxyz0123456789!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
	enum { N_FIRSTS = sizeof firsts - 1, N_NEXT = 36 };
	bool begins = i < N_FIRSTS || (i >= N_FIRSTS + N_NEXT && (i - N_FIRSTS - N_NEXT) % 2 == 0);
	size_t n = begins ? 3 : 0;
	memcpy(out, "\xE2\x96\x81", n);
	if (i < N_FIRSTS + N_NEXT) {
		out[n] = firsts[i < N_FIRSTS ? i : i - N_FIRSTS];
		return n + 1;
	}
	int k = (i - N_FIRSTS - N_NEXT) / 2, letters = 2, count = LETTERS * LETTERS;
	for (; k >= count; k -= count, count *= LETTERS)
		letters++;
	for (int at = letters - 1; at >= 0; at--, k /= LETTERS)
		out[n + (size_t)at] = (char)('a' + k % LETTERS);
	return n + (size_t)letters;
}

static void write_words(struct gguf_writer *w, int n)
{
	char piece[3 + MAX_TOKEN];
	gguf_put_str(w, "tokenizer.ggml.model", "bert", 4);
	gguf_put_array(w, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)n);
	for (int i = 0; i < N_BERT_CONTROL; i++)
		gguf_item_str(w, bert_control[i], strlen(bert_control[i]));
	for (int i = N_BERT_CONTROL; i < n; i++)
		gguf_item_str(w, piece, spell_piece(i - N_BERT_CONTROL, piece));
	gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)n);
	for (int i = 0; i < n; i++) {
		int32_t type = i < N_BERT_CONTROL ? 3 : 1;
		gguf_item_bytes(w, &type, sizeof type);
	}
	static const struct {
		const char *key;
		uint32_t id;
	} ids[] = {{"tokenizer.ggml.padding_token_id", 0}, {"tokenizer.ggml.unknown_token_id", 1},
		   {"tokenizer.ggml.bos_token_id", 2},     {"tokenizer.ggml.cls_token_id", 2},
		   {"tokenizer.ggml.eos_token_id", 3},     {"tokenizer.ggml.seperator_token_id", 3},
		   {"tokenizer.ggml.mask_token_id", 4}};
	for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
		gguf_put_u32(w, ids[i].key, ids[i].id);
}

/* ---- byte pairs ---- */

void random_vocab_write(struct gguf_writer *w, int n, bool words)
{
	char word[2 * MAX_TOKEN];
	size_t head, bytes;
	int n_words = n - N_BYTES - N_CONTROL;
	BUG_IF(n < RANDOM_LEAST_VOCAB || n > RANDOM_MOST_VOCAB, "a vocabulary of %d", n);
	if (words) {
		write_words(w, n);
		return;
	}
	gguf_put_str(w, "tokenizer.ggml.model", "gpt2", 4);
	gguf_put_str(w, "tokenizer.ggml.pre", "gpt-2", 5);
	gguf_put_array(w, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)n);
	for (int i = 0; i < N_BYTES; i++) {
		bytes = spell_byte(i, word);
		gguf_item_str(w, word, bytes);
	}
	for (int i = 0; i < n_words; i++) {
		bytes = spell_word(i, word, &head);
		gguf_item_str(w, word, bytes);
	}
	for (int i = 0; i < N_CONTROL; i++)
		gguf_item_str(w, control[i], strlen(control[i]));
	gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)n);
	for (int i = 0; i < n; i++) {
		int32_t type = i < n - N_CONTROL ? 1 : 3;
		gguf_item_bytes(w, &type, sizeof type);
	}
	gguf_put_array(w, "tokenizer.ggml.merges", GGUF_STRING, (uint64_t)n_words);
	for (int i = 0; i < n_words; i++) {
		char merge[2 * MAX_TOKEN + 1];
		bytes = spell_word(i, word, &head);
		memcpy(merge, word, head);
		merge[head] = ' ';
		memcpy(merge + head + 1, word + head, bytes - head);
		gguf_item_str(w, merge, bytes + 1);
	}
	gguf_put_u32(w, "tokenizer.ggml.bos_token_id", (uint32_t)(n - 5));
	gguf_put_u32(w, "tokenizer.ggml.eos_token_id", (uint32_t)(n - 3));
	gguf_put_u32(w, "tokenizer.ggml.eot_token_id", (uint32_t)(n - 1));
	gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false);
	gguf_put_str(w, "tokenizer.chat_template", chat, sizeof chat - 1);
}
