/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/compress/compress_extract.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "gateway/compress/compress_facts.h"

enum {
	LEAST_PARAGRAPHS = 6,
	MOST_PARAGRAPHS = 4096,
	MOST_TERMS = 64,      /* of the question */
	LEAST_TERM = 3,       /* bytes; shorter words join, they mean nothing */
	QUESTION_MOST = 2000, /* bytes of a paragraph that are read for what is asked */
	WEIGHT_ASKED = 8,     /* of facts in the question, relative to others */
};
static const double k1 = 1.2, b = 0.75; /* BM25's usual parameters */
static const double of_fact = 0.5;      /* of a paragraph's score, for each of its facts */
static const char gap[] = "[…]";

struct paragraph {
	const char *at;
	size_t n;
	uint32_t n_words;
	double score;
	bool kept;
};

struct extraction {
	const char *text;
	size_t n;
	struct paragraph *all;
	size_t n_all;
	uint32_t terms[MOST_TERMS]; /* hashes of the question's words */
	uint32_t in[MOST_TERMS];    /* paragraphs that have it */
	size_t n_terms;
	double mean_words;
};

/* ---- paragraphs ---- */

static bool is_blank_line(const char *s, const char *end)
{
	while (s < end && (*s == ' ' || *s == '\t' || *s == '\r'))
		s++;
	return s == end;
}

static bool is_fence(const char *s, const char *end)
{
	while (s < end && *s == ' ')
		s++;
	return end - s >= 3 && (memcmp(s, "```", 3) == 0 || memcmp(s, "~~~", 3) == 0);
}

static void add_paragraph(struct extraction *e, const char *from, const char *to)
{
	while (to > from && (to[-1] == '\n' || to[-1] == '\r'))
		to--;
	if (to > from && e->n_all < MOST_PARAGRAPHS)
		e->all[e->n_all++] = (struct paragraph){.at = from, .n = (size_t)(to - from)};
}

/* by_line: each line is one. */
static void split(struct extraction *e, bool by_line)
{
	const char *end = e->text + e->n, *begin = NULL;
	bool fenced = false;
	e->n_all = 0;
	for (const char *line = e->text; line < end;) {
		const char *stop = memchr(line, '\n', (size_t)(end - line));
		const char *next = stop != NULL ? stop + 1 : end;
		bool fence = is_fence(line, stop != NULL ? stop : end);
		bool blank = !fenced && is_blank_line(line, stop != NULL ? stop : end);
		if (begin != NULL && (blank || (by_line && !fenced))) {
			add_paragraph(e, begin, line);
			begin = NULL;
		}
		begin = begin == NULL && !blank ? line : begin;
		fenced = fenced != fence;
		line = next;
	}
	if (begin != NULL)
		add_paragraph(e, begin, end);
}

/* ---- words ---- */

static bool is_letter(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c >= 0x80;
}

/* The next word from *at on, as a hash in lower case; 0: there is none. */
static uint32_t next_word(const char **at, const char *end)
{
	const char *s = *at;
	for (;;) {
		while (s < end && !is_letter((unsigned char)*s))
			s++;
		const char *from = s;
		uint32_t h = 2166136261u; /* FNV-1a */
		for (; s < end && is_letter((unsigned char)*s); s++)
			h = (h ^ (uint8_t)(*s >= 'A' && *s <= 'Z' ? *s + 32 : *s)) * 16777619u;
		*at = s;
		if (s == from)
			return 0;
		if (s - from >= LEAST_TERM)
			return h != 0 ? h : 1;
	}
}

/* Words that say nothing of what is asked. */
static bool is_common(uint32_t word)
{
	static const char words[] =
	    "the and for with from that this these those what which who whom whose how why when where does "
	    "did has have had was were are can could will would should may you your our their there here "
	    "please tell about into some any all not";
	const char *at = words;
	for (uint32_t common; (common = next_word(&at, words + sizeof words - 1)) != 0;)
		if (common == word)
			return true;
	return false;
}

static size_t term_of(const struct extraction *e, uint32_t word)
{
	size_t i = 0;
	while (i < e->n_terms && e->terms[i] != word)
		i++;
	return i;
}

static void read_question(struct extraction *e, const struct paragraph *p)
{
	const char *at = p->at, *end = p->at + (p->n < QUESTION_MOST ? p->n : QUESTION_MOST);
	for (uint32_t word; (word = next_word(&at, end)) != 0;)
		if (term_of(e, word) == e->n_terms && e->n_terms < MOST_TERMS && !is_common(word))
			e->terms[e->n_terms++] = word;
}

/* How often p has each term. */
static void count_terms(const struct extraction *e, struct paragraph *p, uint32_t of[MOST_TERMS])
{
	const char *at = p->at;
	memset(of, 0, MOST_TERMS * sizeof *of);
	p->n_words = 0;
	for (uint32_t word; (word = next_word(&at, p->at + p->n)) != 0; p->n_words++) {
		size_t i = term_of(e, word);
		if (i < e->n_terms)
			of[i]++;
	}
}

/* ---- scores ---- */

static void survey(struct extraction *e)
{
	uint32_t of[MOST_TERMS];
	double words = 0;
	for (size_t i = 0; i < e->n_all; i++) {
		count_terms(e, &e->all[i], of);
		words += e->all[i].n_words;
		for (size_t k = 0; k < e->n_terms; k++)
			e->in[k] += of[k] > 0;
	}
	e->mean_words = words / (double)e->n_all + 1;
}

static double bm25(const struct extraction *e, struct paragraph *p)
{
	uint32_t of[MOST_TERMS];
	double score = 0;
	count_terms(e, p, of);
	for (size_t k = 0; k < e->n_terms; k++) {
		double idf = log(1 + ((double)e->n_all - e->in[k] + 0.5) / (e->in[k] + 0.5)), tf = of[k];
		score += idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * p->n_words / e->mean_words));
	}
	return score;
}

static bool has_fact(const struct paragraph *p, const struct compress_fact *f)
{
	return f->at >= p->at && f->at < p->at + p->n;
}

static void score(struct extraction *e, const struct compress_facts *facts)
{
	for (size_t i = 0; i < e->n_all; i++) {
		e->all[i].score = bm25(e, &e->all[i]);
		for (size_t k = 0; k < facts->n; k++)
			e->all[i].score += has_fact(&e->all[i], &facts->at[k]) ? of_fact : 0;
	}
}

static void find_facts(const struct extraction *e, struct compress_facts *facts)
{
	facts->n = 0;
	facts->clock = facts->n_texts = 0;
	for (size_t i = 0; i < e->n_all; i++)
		compress_facts_read(facts, e->all[i].at, e->all[i].n, i == 0 || i + 1 == e->n_all ? WEIGHT_ASKED : 1);
}

/* ---- choice ---- */

static int by_score(const void *x, const void *y)
{
	const struct paragraph *p = *(struct paragraph *const *)x, *q = *(struct paragraph *const *)y;
	if (p->score != q->score) /* NOLINT: equal scores are equal */
		return p->score > q->score ? -1 : 1;
	return p->at < q->at ? -1 : p->at > q->at;
}

static int choose(struct extraction *e, size_t max_bytes)
{
	struct paragraph **order = sl_zalloc_n(e->n_all, sizeof *order);
	size_t used = 0;
	if (order == NULL)
		return SL_ENOMEM;
	for (size_t i = 0; i < e->n_all; i++) {
		order[i] = &e->all[i];
		e->all[i].kept = i == 0 || i + 1 == e->n_all;
		used += e->all[i].kept ? e->all[i].n : 0;
	}
	qsort(order, e->n_all, sizeof *order, by_score);
	for (size_t i = 0; i < e->n_all; i++) {
		struct paragraph *p = order[i];
		if (p->kept || p->score <= 0 || used + p->n + sizeof gap + 3 > max_bytes)
			continue;
		p->kept = true;
		used += p->n + sizeof gap + 3;
	}
	sl_free(order);
	return 0;
}

/* ---- the result ---- */

static int put(struct sl_buf *out, const char *s, size_t n, const char *between, size_t start)
{
	int rc = out->len > start ? buf_append_str(out, between) : 0;
	return rc == 0 ? buf_append(out, s, n) : rc;
}

/* Sentences of facts that the result lacks stand for their paragraph. */
static int put_sentences(const struct paragraph *p, const struct compress_facts *facts, struct sl_buf *out,
			 size_t start, bool *any)
{
	const char *last = NULL;
	int rc = 0;
	for (size_t k = 0; rc == 0 && k < facts->n; k++) {
		const struct compress_fact *f = &facts->at[k];
		if (f->found || !has_fact(p, f) || f->sentence == last)
			continue;
		rc = put(out, gap, sizeof gap - 1, "\n\n", start);
		if (rc == 0)
			rc = put(out, f->sentence, f->n_sentence, " ", start);
		last = f->sentence;
		*any = true;
	}
	return rc;
}

static int write_all(const struct extraction *e, const struct compress_facts *facts, struct sl_buf *out)
{
	size_t start = out->len;
	bool gapped = false;
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < e->n_all; i++) {
		const struct paragraph *p = &e->all[i];
		if (p->kept) {
			rc = put(out, p->at, p->n, "\n\n", start);
			gapped = false;
			continue;
		}
		bool any = false;
		if (facts != NULL)
			rc = put_sentences(p, facts, out, start, &any);
		if (rc == 0 && !any && !gapped)
			rc = put(out, gap, sizeof gap - 1, "\n\n", start);
		gapped = true;
	}
	return rc;
}

static int extract(struct extraction *e, size_t max_bytes, struct compress_facts *facts, struct sl_buf *out,
		   struct compress_extract *r)
{
	size_t start = out->len, n_found = 0;
	read_question(e, &e->all[e->n_all - 1]);
	read_question(e, &e->all[0]);
	survey(e);
	find_facts(e, facts);
	score(e, facts);
	int rc = choose(e, max_bytes);
	if (rc == 0)
		rc = write_all(e, NULL, out);
	compress_facts_choose(facts, 1);
	if (rc == 0)
		rc = compress_facts_check(facts, (const char *)buf_data(out) + start, out->len - start, &n_found);
	if (rc == 0 && n_found < facts->n) {
		buf_cut(out, start);
		rc = write_all(e, facts, out);
		if (rc == 0)
			rc = compress_facts_check(facts, (const char *)buf_data(out) + start, out->len - start,
						  &n_found);
	}
	*r = (struct compress_extract){.n_paragraphs = e->n_all, .n_facts = facts->n, .n_found = rc == 0 ? n_found : 0};
	for (size_t i = 0; i < e->n_all; i++)
		r->n_kept += e->all[i].kept;
	return rc;
}

int compress_extract(const char *text, size_t n, size_t max_bytes, struct sl_buf *out, struct compress_extract *r)
{
	struct extraction e = {.text = text, .n = n, .all = sl_zalloc_n(MOST_PARAGRAPHS, sizeof *e.all)};
	struct compress_facts *facts = sl_zalloc(sizeof *facts);
	int rc = e.all != NULL && facts != NULL ? 0 : SL_ENOMEM;
	if (rc == 0) {
		split(&e, false);
		if (e.n_all < LEAST_PARAGRAPHS)
			split(&e, true);
		/* Of a text with more, the last paragraph would be lost. */
		rc = e.n_all < LEAST_PARAGRAPHS || e.n_all == MOST_PARAGRAPHS ? SL_ENOTFOUND
									      : extract(&e, max_bytes, facts, out, r);
	}
	sl_free(e.all);
	sl_free(facts);
	return rc;
}
