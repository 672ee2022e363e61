/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps run one after another between two buffers. Canonical and compatibility forms come from utf8proc, run by run
 * of valid text; everything else is here. Definitions: the tokenizers library's documentation of its normalizers, and
 * the SentencePiece paper (Kudo, Richardson 2018) for the precompiled table. The two read that table differently:
 * SentencePiece replaces the longest entry at each place, the tokenizers library a whole grapheme by the shortest entry
 * that it begins with, so that a mark behind an odd space is lost. Models are trained with one of them.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/token/normalize.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/alloc.h"
#include "base/utf8.h"

enum { MAX_STEPS = 32, MATCH_LIMIT = 50 * 1000 * 1000, RUN = 4096 };

struct step {
	enum norm_kind kind;
	char *text, *with; /* owned */
	size_t n_text, n_with;
	pcre2_code *code;
	/* NORM_CHARSMAP: in text. */
	const uint8_t *units, *strings;
	size_t n_units, n_strings;
	struct proto_str *kept; /* words that pass: by first byte, then longest first; owned with kept_text */
	char *kept_text;
	uint32_t kept_from[257];
};

struct norm {
	struct step steps[MAX_STEPS];
	int n;
};

int norm_create(struct norm **out)
{
	*out = sl_zalloc(sizeof **out);
	return *out != NULL ? 0 : SL_ENOMEM;
}

void norm_destroy(struct norm *m)
{
	if (m == NULL)
		return;
	for (int i = 0; i < m->n; i++) {
		sl_free(m->steps[i].text);
		sl_free(m->steps[i].with);
		sl_free(m->steps[i].kept);
		sl_free(m->steps[i].kept_text);
		pcre2_code_free(m->steps[i].code);
	}
	sl_free(m);
}

bool norm_is_empty(const struct norm *m) { return m == NULL || m->n == 0; }

static uint32_t read_u32(const uint8_t *at)
{
	return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* A length, a double-array trie of so many bytes, and the strings that its values point to. */
static int read_charsmap(struct step *s, struct sl_err *err)
{
	const uint8_t *at = (const uint8_t *)s->text;
	size_t n_trie = s->n_text >= 4 ? read_u32(at) : 0;
	if (s->n_text < 5 || n_trie % 4 != 0 || n_trie > s->n_text - 4 || at[s->n_text - 1] != 0)
		return sl_errf(err, SL_EINVAL, "the precompiled normalizer's table is malformed");
	s->units = at + 4;
	s->n_units = n_trie / 4;
	s->strings = at + 4 + n_trie;
	s->n_strings = s->n_text - 4 - n_trie;
	return 0;
}

int norm_add(struct norm *m, enum norm_kind kind, struct proto_str text, struct proto_str with, struct sl_err *err)
{
	if (m->n == MAX_STEPS)
		return sl_errf(err, SL_ELIMIT, "more than %d normalizers", MAX_STEPS);
	struct step *s = &m->steps[m->n];
	*s = (struct step){.kind = kind, .n_text = text.n, .n_with = with.n};
	s->text = sl_strndup(text.n > 0 ? text.at : "", text.n);
	s->with = sl_strndup(with.n > 0 ? with.at : "", with.n);
	m->n++;
	if (s->text == NULL || s->with == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the normalizer");
	if (kind == NORM_CHARSMAP || kind == NORM_CHARSMAP_GRAPHEMES)
		return read_charsmap(s, err);
	if ((kind == NORM_REPLACE || kind == NORM_CUT_TAIL) && text.n == 0)
		return sl_errf(err, SL_EINVAL, "a normalizer replaces the empty text");
	if (kind != NORM_REPLACE_REGEX)
		return 0;
	int code;
	PCRE2_SIZE at;
	s->code = pcre2_compile((PCRE2_SPTR)s->text, text.n, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
	if (s->code == NULL)
		return sl_errf(err, SL_EINVAL, "a normalizer's pattern is malformed at its byte %zu", (size_t)at);
	(void)pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE);
	return 0;
}

static int by_first_then_longest(const void *a, const void *b)
{
	const struct proto_str *x = a, *y = b;
	if (x->at[0] != y->at[0])
		return (uint8_t)x->at[0] < (uint8_t)y->at[0] ? -1 : 1;
	return (x->n < y->n) - (x->n > y->n);
}

int norm_keep(struct norm *m, const struct proto_str *words, size_t n, struct sl_err *err)
{
	struct step *s = &m->steps[m->n - 1];
	size_t bytes = 0, k = 0;
	for (size_t i = 0; i < n; i++)
		bytes += words[i].n;
	s->kept = sl_zalloc_n(n + 1, sizeof *s->kept);
	s->kept_text = sl_alloc(bytes + 1);
	if (s->kept == NULL || s->kept_text == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the normalizer");
	char *to = s->kept_text;
	for (size_t i = 0; i < n; i++) {
		memcpy(to, words[i].at, words[i].n);
		s->kept[i] = (struct proto_str){to, words[i].n};
		to += words[i].n;
	}
	qsort(s->kept, n, sizeof *s->kept, by_first_then_longest);
	for (unsigned first = 0; first < 256; first++) {
		while (k < n && (uint8_t)s->kept[k].at[0] < first)
			k++;
		s->kept_from[first] = (uint32_t)k;
	}
	s->kept_from[256] = (uint32_t)n;
	return 0;
}

/* The bytes of the longest kept word at the beginning of text; 0: none. */
static size_t kept_bytes(const struct step *s, const char *text, size_t n)
{
	if (s->kept == NULL)
		return 0;
	for (uint32_t i = s->kept_from[(uint8_t)text[0]]; i < s->kept_from[(uint8_t)text[0] + 1]; i++)
		if (s->kept[i].n <= n && memcmp(s->kept[i].at, text, s->kept[i].n) == 0)
			return s->kept[i].n;
	return 0;
}

/* ---- steps ---- */

static int replace_all(const struct step *s, const char *at, size_t n, struct sl_buf *out)
{
	int rc = 0;
	while (rc == 0 && n > 0) {
		const char *hit = memmem(at, n, s->text, s->n_text);
		size_t before = hit != NULL ? (size_t)(hit - at) : n;
		rc = buf_append(out, at, before);
		if (rc == 0 && hit != NULL)
			rc = buf_append(out, s->with, s->n_with);
		size_t used = hit != NULL ? before + s->n_text : n;
		at += used;
		n -= used;
	}
	return rc;
}

/* The valid run at the beginning of the text; 0: its first byte is not valid. */
static size_t valid_run(const char *at, size_t n)
{
	size_t i = 0;
	while (i < n) {
		uint32_t cp;
		int len = utf8_decode((const uint8_t *)at + i, n - i, &cp);
		if (len <= 0)
			break;
		i += (size_t)len;
	}
	return i;
}

/* Gives a step the valid runs of a text; bytes between them pass unchanged. */
static int by_runs(int (*apply)(void *, const char *, size_t, struct sl_buf *), void *arg, const char *at, size_t n,
		   struct sl_buf *out)
{
	int rc = 0;
	while (n > 0 && rc == 0) {
		size_t run = valid_run(at, n), used = run > 0 ? run : 1;
		rc = run > 0 ? apply(arg, at, run, out) : buf_append(out, at, 1);
		at += used;
		n -= used;
	}
	return rc;
}

struct matching {
	const struct step *step;
	pcre2_match_data *match;
	pcre2_match_context *limits;
};

static int replace_in_run(void *arg, const char *at, size_t n, struct sl_buf *out)
{
	const struct matching *m = arg;
	const PCRE2_SIZE *v = pcre2_get_ovector_pointer(m->match);
	size_t done = 0, from = 0;
	int rc = 0;
	while (rc == 0 && from < n) {
		int got = pcre2_match(m->step->code, (PCRE2_SPTR)at, n, from, PCRE2_NO_UTF_CHECK, m->match, m->limits);
		if (got == PCRE2_ERROR_NOMATCH)
			break;
		if (got < 0)
			return got == PCRE2_ERROR_NOMEMORY ? SL_ENOMEM : SL_ELIMIT;
		if (v[1] <= v[0]) { /* an empty match: on by a character */
			uint32_t cp;
			from = v[0] + (size_t)(v[0] < n ? utf8_decode((const uint8_t *)at + v[0], n - v[0], &cp) : 1);
			continue;
		}
		rc = buf_append(out, at + done, v[0] - done);
		if (rc == 0)
			rc = buf_append(out, m->step->with, m->step->n_with);
		done = from = v[1];
	}
	return rc == 0 ? buf_append(out, at + done, n - done) : rc;
}

static int replace_matches(const struct step *s, const char *at, size_t n, struct sl_buf *out)
{
	struct matching m = {s, pcre2_match_data_create(1, NULL), pcre2_match_context_create(NULL)};
	int rc = m.match != NULL && m.limits != NULL ? 0 : SL_ENOMEM;
	if (rc == 0) {
		pcre2_set_match_limit(m.limits, MATCH_LIMIT);
		rc = by_runs(replace_in_run, &m, at, n, out);
	}
	pcre2_match_data_free(m.match);
	pcre2_match_context_free(m.limits);
	return rc;
}

static int normal_form(void *arg, const char *at, size_t n, struct sl_buf *out)
{
	enum norm_kind kind = *(const enum norm_kind *)arg;
	int options = UTF8PROC_STABLE | (kind == NORM_NFC || kind == NORM_NFKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
	if (kind == NORM_NFKC || kind == NORM_NFKD)
		options |= UTF8PROC_COMPAT;
	utf8proc_uint8_t *made = NULL;
	utf8proc_ssize_t got =
	    utf8proc_map((const utf8proc_uint8_t *)at, (utf8proc_ssize_t)n, &made, (utf8proc_option_t)options);
	int rc = got < 0 ? SL_ENOMEM : buf_append(out, made, (size_t)got);
	free(made);
	return rc;
}

static bool is_white(uint32_t cp)
{
	if (cp == ' ' || (cp >= 9 && cp <= 13) || cp == 0x85)
		return true;
	utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
	return c == UTF8PROC_CATEGORY_ZS || c == UTF8PROC_CATEGORY_ZL || c == UTF8PROC_CATEGORY_ZP;
}

static bool is_ideograph(uint32_t cp)
{
	return (cp >= 0x4E00 && cp <= 0x9FFF) || (cp >= 0x3400 && cp <= 0x4DBF) || (cp >= 0x20000 && cp <= 0x2CEAF) ||
	       (cp >= 0xF900 && cp <= 0xFAFF) || (cp >= 0x2F800 && cp <= 0x2FA1F);
}

static bool nmt_drops(uint32_t cp)
{
	return (cp >= 1 && cp <= 8) || cp == 11 || (cp >= 14 && cp <= 31) || cp == 0x7F || cp == 0x8F || cp == 0x9F;
}

static bool nmt_spaces(uint32_t cp)
{
	return cp == 9 || cp == 10 || cp == 12 || cp == 13 || cp == 0x1680 || (cp >= 0x200B && cp <= 0x200F) ||
	       cp == 0x2028 || cp == 0x2029 || cp == 0x2581 || cp == 0xFEFF || cp == 0xFFFD;
}

/* What becomes of one character: at most 4 code points, n of them. */
static int map_char(enum norm_kind kind, uint32_t cp, uint32_t to[4])
{
	to[0] = cp;
	utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
	switch (kind) {
	case NORM_LOWERCASE:
		if (cp == 0x130) { /* the one whose small form is two characters */
			to[0] = 'i';
			to[1] = 0x307;
			return 2;
		}
		to[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
		return 1;
	case NORM_STRIP_ACCENTS: return c != UTF8PROC_CATEGORY_MN;
	case NORM_CLEAN:
		if (cp == '\t' || cp == '\n' || cp == '\r' || (c != UTF8PROC_CATEGORY_CC && is_white(cp))) {
			to[0] = ' ';
			return 1;
		}
		return !(cp == 0 || cp == 0xFFFD || c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF ||
			 c == UTF8PROC_CATEGORY_CO);
	case NORM_SPACE_CJK:
		if (!is_ideograph(cp))
			return 1;
		to[0] = to[2] = ' ';
		to[1] = cp;
		return 3;
	case NORM_NMT:
		if (nmt_spaces(cp))
			to[0] = ' ';
		return !nmt_drops(cp);
	default: return 1;
	}
}

static int map_chars(enum norm_kind kind, const char *at, size_t n, struct sl_buf *out)
{
	for (size_t i = 0; i < n;) {
		uint32_t cp, to[4];
		int len = utf8_decode((const uint8_t *)at + i, n - i, &cp), rc = 0;
		if (len <= 0) {
			rc = buf_append(out, at + i, 1);
			len = 1;
		} else {
			int made = map_char(kind, cp, to);
			for (int k = 0; k < made && rc == 0; k++) {
				uint8_t bytes[4];
				rc = buf_append(out, bytes, (size_t)utf8_encode(to[k], bytes));
			}
		}
		if (rc != 0)
			return rc;
		i += (size_t)len;
	}
	return 0;
}

/* Strips white space at one end. */
static int strip(enum norm_kind kind, const char *at, size_t n, struct sl_buf *out)
{
	uint32_t cp;
	if (kind == NORM_STRIP_LEFT) {
		int len;
		while (n > 0 && (len = utf8_decode((const uint8_t *)at, n, &cp)) > 0 && is_white(cp)) {
			at += len;
			n -= (size_t)len;
		}
		return buf_append(out, at, n);
	}
	while (n > 0) {
		size_t from = n - 1;
		while (from > 0 && n - from < 4 && ((uint8_t)at[from] & 0xC0) == 0x80)
			from--;
		if (utf8_decode((const uint8_t *)at + from, n - from, &cp) != (int)(n - from) || !is_white(cp))
			break;
		n = from;
	}
	return buf_append(out, at, n);
}

static int strip_spaces(const char *at, size_t n, struct sl_buf *out)
{
	while (n > 0 && at[n - 1] == ' ')
		n--;
	while (n > 0 && *at == ' ') {
		at++;
		n--;
	}
	return buf_append(out, at, n);
}

/* ---- the precompiled table: a double-array trie (Aoe 1989) in Darts' layout ---- */

static uint32_t unit_at(const struct step *s, size_t i) { return i < s->n_units ? read_u32(s->units + 4 * i) : 0; }

static size_t unit_offset(uint32_t unit) { return (size_t)(unit >> 10) << ((unit & (1u << 9)) >> 6); }

/* An entry at the beginning of text, the longest or the shortest: its length (0: none), and where its string begins. */
static size_t find_entry(const struct step *s, const char *text, size_t n, bool shortest, size_t *string)
{
	size_t at = unit_offset(unit_at(s, 0)), found = 0;
	for (size_t i = 0; i < n && (found == 0 || !shortest); i++) {
		uint8_t c = (uint8_t)text[i];
		at ^= c;
		uint32_t unit = unit_at(s, at);
		if ((unit & ((1u << 31) | 0xFF)) != c || at >= s->n_units)
			break;
		at ^= unit_offset(unit);
		if ((unit >> 8 & 1) == 1) {
			found = i + 1;
			*string = unit_at(s, at) & ((1u << 31) - 1);
		}
	}
	return *string < s->n_strings ? found : 0;
}

static int apply_charsmap(const struct step *s, const char *at, size_t n, struct sl_buf *out)
{
	int rc = 0;
	for (size_t i = 0; i < n && rc == 0;) {
		size_t kept = kept_bytes(s, at + i, n - i);
		if (kept > 0) {
			rc = buf_append(out, at + i, kept);
			i += kept;
			continue;
		}
		size_t string = 0, len = find_entry(s, at + i, n - i < 64 ? n - i : 64, false, &string);
		if (len > 0) {
			const char *with = (const char *)s->strings + string;
			rc = buf_append(out, with, strlen(with)); /* the table ends with a zero */
			i += len;
			continue;
		}
		uint32_t cp;
		int one = utf8_decode((const uint8_t *)at + i, n - i, &cp);
		rc = buf_append(out, at + i, one > 0 ? (size_t)one : 1);
		i += one > 0 ? (size_t)one : 1;
	}
	return rc;
}

enum { MAX_GRAPHEME = 6 }; /* bytes: longer ones are replaced character by character */

/* The bytes of the grapheme that begins at a valid text. */
static size_t grapheme_bytes(const char *at, size_t n)
{
	uint32_t cp, next;
	utf8proc_int32_t state = 0;
	size_t len = (size_t)utf8_decode((const uint8_t *)at, n, &cp);
	while (len < n) {
		int more = utf8_decode((const uint8_t *)at + len, n - len, &next);
		if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)cp, (utf8proc_int32_t)next, &state))
			break;
		len += (size_t)more;
		cp = next;
	}
	return len;
}

/* Replaces n bytes as a whole; *replaced: whether there is an entry. */
static int replace_whole(const struct step *s, const char *at, size_t n, struct sl_buf *out, bool *replaced)
{
	size_t string = 0;
	*replaced = find_entry(s, at, n, true, &string) > 0;
	const char *with = (const char *)s->strings + string;
	return *replaced ? buf_append(out, with, strlen(with)) : 0;
}

static int replace_graphemes(void *arg, const char *at, size_t n, struct sl_buf *out)
{
	const struct step *s = arg;
	int rc = 0;
	while (n > 0 && rc == 0) {
		size_t len = grapheme_bytes(at, n);
		bool done = false;
		if (len < MAX_GRAPHEME)
			rc = replace_whole(s, at, len, out, &done);
		for (size_t i = 0, one; i < len && rc == 0 && !done; i += one) {
			uint32_t cp;
			bool replaced;
			one = (size_t)utf8_decode((const uint8_t *)at + i, len - i, &cp);
			rc = replace_whole(s, at + i, one, out, &replaced);
			if (rc == 0 && !replaced)
				rc = buf_append(out, at + i, one);
		}
		at += len;
		n -= len;
	}
	return rc;
}

/* ---- all of them ---- */

static int run_step(const struct step *s, const char *at, size_t n, struct sl_buf *out)
{
	switch (s->kind) {
	case NORM_PREPEND: {
		int rc = n > 0 ? buf_append(out, s->text, s->n_text) : 0;
		return rc != 0 ? rc : buf_append(out, at, n);
	}
	case NORM_REPLACE: return replace_all(s, at, n, out);
	case NORM_REPLACE_REGEX: return replace_matches(s, at, n, out);
	case NORM_NFC:
	case NORM_NFD:
	case NORM_NFKC:
	case NORM_NFKD: {
		enum norm_kind kind = s->kind;
		return by_runs(normal_form, &kind, at, n, out);
	}
	case NORM_STRIP_LEFT:
	case NORM_STRIP_RIGHT: return strip(s->kind, at, n, out);
	case NORM_CUT_TAIL:
		while (n >= s->n_text && memcmp(at + n - s->n_text, s->text, s->n_text) == 0)
			n -= s->n_text;
		return buf_append(out, at, n);
	case NORM_STRIP_SPACES: return strip_spaces(at, n, out);
	case NORM_CHARSMAP: return apply_charsmap(s, at, n, out);
	case NORM_CHARSMAP_GRAPHEMES: return by_runs(replace_graphemes, (void *)(uintptr_t)s, at, n, out);
	default: return map_chars(s->kind, at, n, out);
	}
}

int norm_apply(const struct norm *m, const char *text, size_t n, struct sl_buf *out)
{
	struct sl_buf from; /* the step's input, which out was */
	int rc = 0;
	buf_init(&from, out->max);
	buf_clear(out, out->max);
	if (norm_is_empty(m))
		rc = buf_append(out, text, n);
	for (int i = 0; m != NULL && i < m->n && rc == 0; i++) {
		struct sl_buf to = from;
		from = *out;
		*out = to;
		buf_clear(out, from.max);
		if (i > 0) {
			text = (const char *)buf_data(&from);
			n = from.len;
		}
		rc = run_step(&m->steps[i], text, n, out);
	}
	buf_dispose(&from);
	return rc;
}
