/* SPDX-License-Identifier: Apache-2.0
 *
 * Features of a request for a linear model: lengths, cue words, and hashes of words and word pairs (the hashing trick:
 * Weinberger et al., 2009).
 *
 * One pass over at most two windows of the last user message; everything else is lengths. A word is a run of ASCII
 * letters, digits, `_` and bytes of other scripts; characters of three bytes (Hangul, CJK) are also hashed in pairs,
 * because words have no spaces between them or have varying endings. Nothing here decodes UTF-8, so invalid text is
 * safe, and no byte beyond a window is read.
 *
 * Hashes, their order and the scales below are part of the format of weights files: a change raises its version
 * (weights.c).
 */
#include <math.h>
#include <string.h>

#include "cascade/cascade.h"
#include "cascade/cues.h"

static const char *const names[CASC_N_FEATURES] = {
    "length", "context", "system", "turns",  "questions", "asks",    "explain", "analyse", "compare", "write",
    "code",   "maths",   "reason", "simple", "fences",    "symbols", "numbers", "lines",   "tools",   "asked",
};

const char *casc_feature_name(int feature) { return feature >= 0 && feature < CASC_N_FEATURES ? names[feature] : NULL; }

int casc_feature_find(const char *name)
{
	for (int i = 0; i < CASC_N_FEATURES; i++)
		if (strcmp(names[i], name) == 0)
			return i;
	return -1;
}

enum { SEED_PAIR = 0x9e3779b9, SEED_CJK = 0x51ed270b, HANGUL_STEMS = 3 };

enum byte_class { OTHER, LETTER, DIGIT, HIGH, SYMBOL };

static const uint8_t classes[256] = {
    ['a' ... 'z'] = LETTER, ['A' ... 'Z'] = LETTER, ['_'] = LETTER,  ['0' ... '9'] = DIGIT, [0x80 ... 0xff] = HIGH,
    ['{'] = SYMBOL,         ['}'] = SYMBOL,         ['['] = SYMBOL,  [']'] = SYMBOL,        ['='] = SYMBOL,
    ['<'] = SYMBOL,         ['>'] = SYMBOL,         [';'] = SYMBOL,  ['+'] = SYMBOL,        ['*'] = SYMBOL,
    ['/'] = SYMBOL,         ['^'] = SYMBOL,         ['\\'] = SYMBOL, ['|'] = SYMBOL,        ['&'] = SYMBOL,
    ['$'] = SYMBOL,         ['#'] = SYMBOL,         ['%'] = SYMBOL,  ['~'] = SYMBOL,
};

struct counts {
	uint32_t questions, fences, symbols, numbers, lines;
	uint32_t cues[CASC_N_FEATURES];
};

static void add_gram(struct casc_features *f, uint32_t hash)
{
	if (f->n_grams < CASC_MAX_GRAMS)
		f->grams[f->n_grams++] = casc_hash_mix(hash);
}

static void add_cue(struct counts *c, uint32_t hash)
{
	int feature = casc_cue_of(hash);
	if (feature >= 0)
		c->cues[feature]++;
}

/* A run of bytes above ASCII: the pairs of its three-byte characters, and cues at its beginning. A lead byte 0xe0..0xef
 * is followed by two more; a shorter rest is ignored. */
static void add_wide(struct casc_features *f, struct counts *c, const uint8_t *s, size_t n)
{
	uint32_t stem = CASC_HASH_SEED, last = 0;
	int n_stem = 0;
	for (size_t i = 0; i + 3 <= n;) {
		if (s[i] < 0xe0 || s[i] > 0xef) {
			last = 0;
			n_stem = HANGUL_STEMS;
			i++;
			continue;
		}
		uint32_t one = (uint32_t)s[i] << 16 | (uint32_t)s[i + 1] << 8 | s[i + 2];
		if (last != 0)
			add_gram(f, (last * 31u + one) ^ SEED_CJK);
		last = one;
		if (n_stem < HANGUL_STEMS) {
			for (int k = 0; k < 3; k++)
				stem = casc_hash_byte(stem, s[i + (size_t)k]);
			add_cue(c, stem);
			n_stem++;
		}
		i += 3;
	}
}

static void scan(struct casc_features *f, struct counts *c, const uint8_t *s, size_t n)
{
	uint32_t last_word = 0;
	for (size_t i = 0; i < n;) {
		uint8_t class = classes[s[i]];
		if (class == OTHER || class == SYMBOL) {
			c->symbols += class == SYMBOL;
			c->lines += s[i] == '\n';
			c->questions += s[i] == '?';
			if (s[i] == '`' && i + 2 < n && s[i + 1] == '`' && s[i + 2] == '`') {
				c->fences++;
				i += 2;
			}
			i++;
			continue;
		}
		size_t from = i, wide_from = n;
		uint32_t h = CASC_HASH_SEED;
		bool digits = true, ascii = true;
		for (; i < n && (class = classes[s[i]]) != OTHER && class != SYMBOL; i++) {
			digits = digits && class == DIGIT;
			if (class == HIGH && ascii) {
				ascii = false;
				wide_from = i;
			}
			h = casc_hash_byte(h, class == LETTER && s[i] != '_' ? s[i] | 0x20 : s[i]);
		}
		if (digits) {
			/* Numbers of the same length are equal. */
			c->numbers++;
			h = CASC_HASH_SEED + (uint32_t)(i - from < 4 ? i - from : 4);
		} else if (ascii) {
			add_cue(c, h);
		}
		add_gram(f, h);
		if (last_word != 0)
			add_gram(f, (last_word * 31u + h) ^ SEED_PAIR);
		last_word = h | 1u;
		if (wide_from < i)
			add_wide(f, c, s + wide_from, i - wide_from);
	}
}

/* 0 for nothing, 1 at about 2^top. */
static float log_scale(size_t n, float top)
{
	float v = log2f(1.0f + (float)n) / top;
	return v < 1.5f ? v : 1.5f;
}

static float count_scale(size_t n, size_t most) { return (float)(n < most ? n : most) / (float)most; }

void casc_features(const struct casc_ask *ask, struct casc_features *out)
{
	struct counts c = {0};
	const struct casc_message *last = NULL;
	size_t total = 0, system = 0, turns = 0;
	out->n_grams = 0;
	for (size_t i = 0; i < ask->n_messages; i++) {
		const struct casc_message *m = &ask->messages[i];
		total += m->n;
		system += m->role == CASC_SYSTEM ? m->n : 0;
		turns += m->role == CASC_USER;
		if (m->role == CASC_USER)
			last = m;
	}
	if (last != NULL && last->n <= 2 * CASC_WINDOW) {
		scan(out, &c, (const uint8_t *)last->text, last->n);
	} else if (last != NULL) {
		scan(out, &c, (const uint8_t *)last->text, CASC_WINDOW);
		scan(out, &c, (const uint8_t *)last->text + last->n - CASC_WINDOW, CASC_WINDOW);
	}
	float *d = out->dense;
	for (int i = CASC_F_ASKS; i <= CASC_F_SIMPLE; i++)
		d[i] = count_scale(c.cues[i], 3);
	d[CASC_F_LENGTH] = log_scale(last != NULL ? last->n : 0, 14);
	d[CASC_F_CONTEXT] = log_scale(total, 18);
	d[CASC_F_SYSTEM] = log_scale(system, 14);
	d[CASC_F_TURNS] = count_scale(turns, 16);
	d[CASC_F_QUESTIONS] = count_scale(c.questions, 4);
	d[CASC_F_FENCES] = count_scale(c.fences, 4);
	d[CASC_F_SYMBOLS] = count_scale(c.symbols, 64);
	d[CASC_F_NUMBERS] = count_scale(c.numbers, 16);
	d[CASC_F_LINES] = count_scale(c.lines, 32);
	d[CASC_F_TOOLS] = count_scale(ask->n_tools, 8);
	d[CASC_F_ASKED] = log_scale(ask->max_tokens, 14);
}
