/* SPDX-License-Identifier: Apache-2.0
 *
 * One pass over a text, by bytes where it is ASCII. Facts are:
 *
 *   addresses     http://, https://, www. up to a blank
 *   quotations    "…", “…”, «…», 「…」, `…` on one line
 *   numbers       of two or more digits, or with a currency or %: dates, times and prices as a whole
 *   identifiers   words of letters and digits, with an underscore or with inner capitals
 *   names         capitalized words within a sentence, consecutive ones together; also directly after Hangul, kana or
 *                 ideographs
 *
 * A text in capitals has no names. In scripts without capitals, only numbers and words in Latin letters are found:
 * Korean nouns carry particles, and removing those needs a lexicon.
 *
 * A text contains a fact if it contains each of its words as a word, ignoring case and commas within numbers. A
 * particle may follow a word, so only ASCII letters and digits continue one.
 */
#include "gateway/compress/compress_facts.h"

#include <string.h>
#include <utf8proc.h>

#include "base/err.h"
#include "base/utf8.h"

struct reader {
	struct compress_facts *f;
	const char *text;
	size_t n;
	uint32_t weight;
	bool shouts;
};

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
static bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
static bool is_alnum(char c) { return is_digit(c) || is_upper(c) || is_lower(c); }
static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
static char lower(char c) { return is_upper(c) ? (char)(c + 32) : c; }

/* ---- sentences ---- */

/* Does a sentence end at i? */
static bool ends_sentence(const char *s, size_t n, size_t i)
{
	if (s[i] == '\n')
		return true;
	return (s[i] == '.' || s[i] == '!' || s[i] == '?') && (i + 1 == n || is_blank(s[i + 1]));
}

static void find_sentence(const struct reader *r, size_t from, size_t to, struct compress_fact *out)
{
	size_t a = from, b = to;
	while (a > 0 && from - a <= FACT_MAX_SENTENCE && !ends_sentence(r->text, r->n, a - 1))
		a--;
	while (b < r->n && b - to <= FACT_MAX_SENTENCE && !ends_sentence(r->text, r->n, b))
		b++;
	if (b < r->n && r->text[b] != '\n')
		b++;
	while (a < from && is_blank(r->text[a]))
		a++;
	out->sentence = r->text + a;
	out->n_sentence = b - a;
	if (out->n_sentence > FACT_MAX_SENTENCE) {
		out->sentence = out->at;
		out->n_sentence = out->n;
	}
}

/* ---- candidates ---- */

static uint32_t hash_of(const char *s, size_t n)
{
	uint32_t h = 2166136261u; /* FNV-1a */
	for (size_t i = 0; i < n; i++)
		h = (h ^ (uint8_t)lower(s[i])) * 16777619u;
	return h;
}

static bool is_same(const struct compress_fact *a, const struct compress_fact *b)
{
	if (a->hash != b->hash || a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++)
		if (lower(a->at[i]) != lower(b->at[i]))
			return false;
	return true;
}

/* Does a matter more than b? */
static bool is_better(const struct compress_fact *a, const struct compress_fact *b)
{
	return a->weight != b->weight ? a->weight > b->weight : a->last > b->last;
}

static void add(struct reader *r, size_t from, size_t to)
{
	struct compress_facts *f = r->f;
	struct compress_fact fact = {
	    .at = r->text + from, .n = to - from, .weight = r->weight, .last = ++f->clock, .text = f->n_texts};
	if (to <= from || fact.n > FACT_MAX_BYTES)
		return;
	fact.hash = hash_of(fact.at, fact.n);
	size_t worst = 0;
	for (size_t i = 0; i < f->n; i++) {
		if (is_same(&f->at[i], &fact)) {
			f->at[i].weight += f->at[i].text != fact.text ? fact.weight : 0;
			f->at[i].last = fact.last;
			f->at[i].text = fact.text;
			return;
		}
		if (is_better(&f->at[worst], &f->at[i]))
			worst = i;
	}
	find_sentence(r, from, to, &fact);
	f->at[f->n < FACTS_SEEN ? f->n++ : worst] = fact;
}

/* ---- kinds of facts: each function returns the bytes it took, 0: none ---- */

static bool begins(const struct reader *r, size_t i, const char *with)
{
	size_t n = strlen(with);
	return r->n - i >= n && memcmp(r->text + i, with, n) == 0;
}

static size_t take_address(struct reader *r, size_t i)
{
	if (!begins(r, i, "http://") && !begins(r, i, "https://") && !begins(r, i, "www."))
		return 0;
	size_t end = i;
	while (end < r->n && !is_blank(r->text[end]) && strchr("<>\"`", r->text[end]) == NULL)
		end++;
	size_t all = end;
	while (end > i && strchr(".,;:!?)]'", r->text[end - 1]) != NULL)
		end--;
	add(r, i, end);
	return all - i;
}

static size_t take_quotation(struct reader *r, size_t i)
{
	static const struct {
		const char *open, *close;
	} marks[] = {{"\"", "\""}, {"`", "`"}, {"“", "”"}, {"«", "»"}, {"「", "」"}};
	for (size_t k = 0; k < sizeof marks / sizeof *marks; k++) {
		if (!begins(r, i, marks[k].open))
			continue;
		size_t from = i + strlen(marks[k].open), end = from;
		while (end < r->n && end - from <= FACT_MAX_BYTES && r->text[end] != '\n' &&
		       !begins(r, end, marks[k].close))
			end++;
		if (end - from < 2 || end >= r->n || !begins(r, end, marks[k].close))
			return 0;
		add(r, from, end);
		return end - i + strlen(marks[k].close);
	}
	return 0;
}

static bool is_word_byte(const struct reader *r, size_t i)
{
	return i < r->n && (is_alnum(r->text[i]) || r->text[i] == '_');
}

/* A run of letters, digits and joining characters: a number, an identifier, or no fact. */
static size_t take_token(struct reader *r, size_t i)
{
	size_t end = i, digits = 0, letters = 0, joints = 0;
	bool inner = false;
	if (!is_word_byte(r, i))
		return 0;
	while (end < r->n) {
		char c = r->text[end];
		bool joins = strchr(".,:/-", c) != NULL && is_word_byte(r, end + 1) && end > i &&
			     (is_digit(r->text[end - 1]) || is_digit(r->text[end + 1]));
		if (!is_word_byte(r, end) && !joins)
			break;
		digits += is_digit(c);
		letters += is_upper(c) || is_lower(c);
		joints += c == '_';
		inner = inner || (is_upper(c) && end > i && is_lower(r->text[end - 1]));
		end++;
	}
	bool sign = (i > 0 && r->text[i - 1] == '$') ||
		    (i > 2 && (memcmp(r->text + i - 3, "€", 3) == 0 || memcmp(r->text + i - 3, "₩", 3) == 0));
	bool number = digits > 0 && letters == 0 && (digits > 1 || sign || (end < r->n && r->text[end] == '%'));
	if (!number && !(digits > 0 && letters > 0) && !(letters > 1 && (joints > 0 || inner)))
		return 0;
	add(r, i, end);
	return end - i;
}

/* The length and category of the character at i; an invalid byte has no category. */
static size_t letter_at(const struct reader *r, size_t i, utf8proc_category_t *what)
{
	uint32_t cp;
	int len = utf8_decode((const uint8_t *)r->text + i, r->n - i, &cp);
	*what = len > 0 ? utf8proc_category((utf8proc_int32_t)cp) : UTF8PROC_CATEGORY_CN;
	return len > 0 ? (size_t)len : 1;
}

static bool is_letter(utf8proc_category_t what) { return what >= UTF8PROC_CATEGORY_LU && what <= UTF8PROC_CATEGORY_MN; }

/* The end of the word at i; *capital: its first letter is one. An apostrophe ends a word. */
static size_t word_end(const struct reader *r, size_t i, bool *capital)
{
	utf8proc_category_t what;
	size_t len = letter_at(r, i, &what), end = i;
	*capital = what == UTF8PROC_CATEGORY_LU;
	/* A letter of a script without capitals ends a capitalized word: it begins a particle. */
	while (end < r->n && is_letter(what) && (what != UTF8PROC_CATEGORY_LO || !*capital)) {
		end += len;
		len = end < r->n ? letter_at(r, end, &what) : 0;
	}
	return end;
}

static size_t take_name(struct reader *r, size_t i, bool within, size_t *word)
{
	bool capital, another;
	size_t end = word_end(r, i, &capital);
	*word = end - i;
	if (!capital || !within || r->shouts || end - i < 2)
		return 0;
	while (end + 1 < r->n && r->text[end] == ' ') {
		size_t next = word_end(r, end + 1, &another);
		if (!another || next - end < 3)
			break;
		end = next;
	}
	add(r, i, end);
	return end - i;
}

/* Is most of it capitals, and more than a name? */
static bool does_shout(const char *s, size_t n)
{
	size_t upper = 0, small = 0;
	for (size_t i = 0; i < n; i++) {
		upper += is_upper(s[i]);
		small += is_lower(s[i]);
	}
	return upper > 8 && upper > small;
}

void compress_facts_read(struct compress_facts *f, const char *text, size_t n, uint32_t weight)
{
	struct reader r = {.f = f, .text = text, .n = n, .weight = weight, .shouts = does_shout(text, n)};
	bool within = false; /* a word of the sentence has been read */
	f->n_texts++;
	for (size_t i = 0; i < n;) {
		size_t took, word = 0;
		utf8proc_category_t what;
		if (ends_sentence(text, n, i)) {
			within = false;
			i++;
			continue;
		}
		if ((took = take_address(&r, i)) == 0 && (took = take_quotation(&r, i)) == 0 &&
		    (took = take_token(&r, i)) == 0)
			took = take_name(&r, i, within, &word);
		if (took == 0)
			took = word;
		within = within || took > 0;
		i += took > 0 ? took : letter_at(&r, i, &what);
	}
}

void compress_facts_choose(struct compress_facts *f, uint32_t least)
{
	size_t n = 0;
	for (size_t i = 0; i < f->n; i++) {
		if (f->at[i].weight < least)
			continue;
		struct compress_fact fact = f->at[i];
		size_t k = n < FACTS_MOST ? n++ : FACTS_MOST;
		/* Insertion into the best so far. */
		for (; k > 0 && is_better(&fact, &f->at[k - 1]); k--)
			if (k < FACTS_MOST)
				f->at[k] = f->at[k - 1];
		if (k < FACTS_MOST)
			f->at[k] = fact;
	}
	f->n = n;
}

/* ---- check ---- */

/* The form in which texts are compared: lower case, no commas within numbers. out: room for n bytes. Returns the bytes
 * used. */
static size_t plain(const char *s, size_t n, char *out)
{
	size_t k = 0;
	for (size_t i = 0; i < n; i++)
		if (s[i] != ',' || i == 0 || i + 1 == n || !is_digit(s[i - 1]) || !is_digit(s[i + 1]))
			out[k++] = lower(s[i]);
	return k;
}

static bool has_word(const char *text, size_t n, const char *word, size_t n_word)
{
	for (size_t i = 0; i + n_word <= n; i++) {
		const char *at = memchr(text + i, word[0], n - n_word - i + 1);
		if (at == NULL)
			return false;
		i = (size_t)(at - text);
		if (memcmp(at, word, n_word) == 0 && (i == 0 || !is_alnum(at[-1]) || !is_alnum(word[0])) &&
		    (i + n_word == n || !is_alnum(at[n_word]) || !is_alnum(word[n_word - 1])))
			return true;
	}
	return false;
}

static bool has_fact(const char *text, size_t n, const struct compress_fact *fact)
{
	char words[FACT_MAX_BYTES];
	size_t n_words = plain(fact->at, fact->n, words);
	for (size_t i = 0; i < n_words;) {
		size_t end = i;
		while (end < n_words && words[end] != ' ')
			end++;
		if (end > i && !has_word(text, n, words + i, end - i))
			return false;
		i = end + 1;
	}
	return true;
}

int compress_facts_check(struct compress_facts *f, const char *text, size_t n, size_t *n_found)
{
	struct sl_buf buf;
	uint8_t *at = NULL;
	*n_found = 0;
	buf_init(&buf, n + 1);
	if (buf_reserve(&buf, n + 1, &at) != 0)
		return SL_ENOMEM;
	size_t n_text = plain(text, n, (char *)at);
	for (size_t i = 0; i < f->n; i++) {
		f->at[i].found = has_fact((const char *)at, n_text, &f->at[i]);
		*n_found += f->at[i].found;
	}
	buf_dispose(&buf);
	return 0;
}
