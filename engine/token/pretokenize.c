/* SPDX-License-Identifier: Apache-2.0
 *
 * Pre-tokenizers by PCRE2 with its just-in-time compiler. The patterns are those of the models' own tokenizer files,
 * written so that a match costs time linear in what it consumes: a run of white space of any length is read a bounded
 * number of times. PCRE2's match limit is the second line of defence.
 *
 * A match sees valid UTF-8 only (checked here once, so PCRE2 need not check at every call): the text is cut at invalid
 * bytes first. Patterns have no back references and no recursion. Thread: a compiled pattern is shared; match data is
 * made for each call of pretok_split.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/token/pretokenize.h"

#include <pcre2.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"

enum { MAX_PATTERNS = 6, MAX_LEVELS = 16, MATCH_LIMIT = 50 * 1000 * 1000 };

#define CONTRACTIONS "'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])"

/* The cased letters that the DeepSeek LLM tokenizer lists. */
#define CASED_LETTERS                                                              \
	"A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}"              \
	"\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}"     \
	"\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}"       \
	"\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}"              \
	"\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}" \
	"\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"                \
	"\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}"                \
	"\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}"                \
	"\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}"        \
	"\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}"       \
	"\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}"                \
	"\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}"                \
	"\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}"        \
	"\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}"        \
	"\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}"       \
	"\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}"        \
	"\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}"                 \
	"\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}"                \
	"\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}"                \
	"\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}"                \
	"\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}"          \
	"\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}"          \
	"\\x{1E900}-\\x{1E943}"

#define GPT2_PATTERN "'(?:s|t|re|ve|m|ll|d)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LLAMA3_PATTERN(digits)                                \
	CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits \
		     "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
/* Capitals before small letters, as tokenizers since GPT-4o cut words. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED_WORDS(before, end) before UPPER "*" LOWER "+" end "|" before UPPER "+" LOWER "*" end
/* The same without Han characters, which Kimi K2's tokenizer subtracts: what is left after all that they are not. */
#define NO_LETTER "\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}"
#define UPPER_NO_HAN "[^\\p{Ll}" NO_LETTER "]"
#define LOWER_NO_HAN "[^\\p{Lu}\\p{Lt}" NO_LETTER "]"
#define KIMI_WORD(letters) "[^\\r\\n\\p{L}\\p{N}]?" letters "(?:" CONTRACTIONS ")?"

static const struct pretok_kind {
	const char *names[14];
	bool whole_words, adds_bos;
	const char *patterns[MAX_PATTERNS];
} kinds[] = {
    {
	.names = {"gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4"},
	.patterns = {GPT2_PATTERN},
    },
    {
	.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
	.whole_words = true,
	.adds_bos = true,
	.patterns = {LLAMA3_PATTERN("\\p{N}{1,3}")},
    },
    {
	.names = {"dbrx", "smaug-bpe", "chatglm-bpe", "glm4"},
	.patterns = {LLAMA3_PATTERN("\\p{N}{1,3}")},
    },
    {
	.names = {"qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan", "solar-open"},
	.patterns = {LLAMA3_PATTERN("\\p{N}")},
    },
    {
	.names = {"qwen35"},
	.patterns = {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
				  "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    },
    {
	.names = {"tekken"},
	.whole_words = true,
	.patterns = {CASED_WORDS("[^\\r\\n\\p{L}\\p{N}]?",
				 "") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    },
    {
	.names = {"gpt-4o", "llama4", "kanana2", "minimax-m2"},
	.patterns = {CASED_WORDS("[^\\r\\n\\p{L}\\p{N}]?",
				 "(?:" CONTRACTIONS
				 ")?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    },
    {
	.names = {"default"},
	.patterns = {"[\\p{P}$+<=>^~|]+",
		     "'(?:s|t|re|ve|m|ll|d)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
		     "|\\s+(?!\\S)",
		     "\\p{N}+", "[0-9][0-9][0-9]"},
    },
    {
	.names = {"falcon"},
	.patterns = {"[\\p{P}$+<=>^~|`]+",
		     "'(?:s|t|re|ve|m|ll|d)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
		     "|\\s+(?!\\S)",
		     "[0-9][0-9][0-9]"},
    },
    {
	.names = {"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b"},
	.patterns = {"\\p{N}", GPT2_PATTERN},
    },
    {
	.names = {"deepseek-coder"},
	.patterns = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+",
		     "[\\x{4E00}-\\x{9FA5}\\x{0800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+", "\\p{N}"},
    },
    {
	.names = {"deepseek-v3", "hunyuan-dense", "joyai-llm"},
	.patterns = {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",
		     "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
		     "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*"
		     "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    },
    {
	.names = {"kimi-k2"},
	.patterns = {"\\p{sc:Han}+|" KIMI_WORD(UPPER_NO_HAN "*" LOWER_NO_HAN "+") "|" KIMI_WORD(
	    UPPER_NO_HAN "+" LOWER_NO_HAN
			 "*") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    },
    {
	.names = {"deepseek-llm"},
	.patterns = {"[\\r\\n]", "\\s?[" CASED_LETTERS "]+",
		     "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}"
		     "\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
		     /* The tokenizer's \s+$, kept from trying each place inside of a run. */
		     "(?<!\\s)\\s++\\z", "[\\x{4E00}-\\x{9FA5}\\x{0800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+", "\\p{N}+"},
    },
};

enum level_kind { LEVEL_SPLIT, LEVEL_METASPACE, LEVEL_PREFIX_SPACE };

struct level {
	enum level_kind kind;
	enum pretok_behavior behavior;
	bool invert;
	pcre2_code *code;
	/* LEVEL_METASPACE */
	enum pretok_prepend prepend;
	char mark[8];
	size_t n_mark;
};

struct pretok {
	bool whole_words, adds_bos;
	int n;
	struct level levels[MAX_LEVELS];
	pcre2_general_context *memory;
	pcre2_match_context *limits;
};

static void *pcre_alloc(size_t n, void *arg)
{
	(void)arg;
	return sl_alloc(n);
}

static void pcre_release(void *p, void *arg)
{
	(void)arg;
	sl_free(p);
}

static const struct pretok_kind *find_kind(struct proto_str name)
{
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
		for (const char *const *at = kinds[k].names; *at != NULL; at++)
			if (strlen(*at) == name.n && memcmp(*at, name.at, name.n) == 0)
				return &kinds[k];
	return NULL;
}

static int add_level(struct pretok *p, struct level level, struct sl_err *err)
{
	if (p->n == MAX_LEVELS) {
		pcre2_code_free(level.code);
		return sl_errf(err, SL_ELIMIT, "more than %d pre-tokenizers", MAX_LEVELS);
	}
	p->levels[p->n++] = level;
	return 0;
}

/* Patterns are written for other libraries, to which \s is Unicode's White_Space; PCRE2's own has
 * one character more (U+180E). To be freed. */
static char *translate_pattern(struct proto_str p, size_t *n)
{
	static const char white[] = "\\p{White_Space}", other[] = "\\P{White_Space}";
	char *text = sl_alloc(p.n * sizeof white), *at = text;
	for (size_t i = 0; i < p.n && text != NULL; i++) {
		if (p.at[i] != '\\' || i + 1 == p.n) {
			*at++ = p.at[i];
			continue;
		}
		char c = p.at[++i];
		const char *with = c == 's' ? white : c == 'S' ? other : NULL;
		if (with != NULL) {
			memcpy(at, with, sizeof white - 1);
			at += sizeof white - 1;
		} else {
			*at++ = '\\';
			*at++ = c;
		}
	}
	*n = (size_t)(at - text);
	return text;
}

int pretok_add_split(struct pretok *p, struct proto_str pattern, bool literal, bool invert,
		     enum pretok_behavior behavior, struct sl_err *err)
{
	if (pattern.n == 0)
		return sl_errf(err, SL_EINVAL, "a pre-tokenizer's pattern is empty");
	char *translated = NULL;
	if (!literal) {
		translated = translate_pattern(pattern, &pattern.n);
		if (translated == NULL)
			return sl_errf(err, SL_ENOMEM, "no memory for the pre-tokenizer");
		pattern.at = translated;
	}
	int code;
	PCRE2_SIZE at;
	uint32_t options = PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP);
	pcre2_compile_context *cc = pcre2_compile_context_create(p->memory);
	pcre2_code *re = cc == NULL ? NULL : pcre2_compile((PCRE2_SPTR)pattern.at, pattern.n, options, &code, &at, cc);
	pcre2_compile_context_free(cc);
	int rc = 0;
	if (re == NULL && (cc == NULL || code == PCRE2_ERROR_HEAP_FAILED))
		rc = sl_errf(err, SL_ENOMEM, "no memory for the pre-tokenizer");
	else if (re == NULL)
		rc = sl_errf(err, SL_EINVAL, "a pre-tokenizer's pattern is malformed at its byte %zu: %.*s", (size_t)at,
			     pattern.n < 80 ? (int)pattern.n : 80, pattern.at);
	sl_free(translated);
	if (rc != 0)
		return rc;
	/* Without a just-in-time compiler the interpreter does the same, only slower. */
	(void)pcre2_jit_compile(re, PCRE2_JIT_COMPLETE);
	return add_level(p, (struct level){.kind = LEVEL_SPLIT, .behavior = behavior, .invert = invert, .code = re},
			 err);
}

int pretok_add_metaspace(struct pretok *p, struct proto_str replacement, enum pretok_prepend prepend, bool split,
			 struct sl_err *err)
{
	struct level level = {.kind = LEVEL_METASPACE, .prepend = prepend, .n_mark = replacement.n};
	if (replacement.n == 0 || replacement.n > sizeof level.mark)
		return sl_errf(err, SL_EINVAL, "a pre-tokenizer's replacement has %zu bytes", replacement.n);
	memcpy(level.mark, replacement.at, replacement.n);
	int rc = add_level(p, level, err);
	if (rc == 0 && split)
		rc = pretok_add_split(p, replacement, true, false, PRETOK_MERGED_NEXT, err);
	return rc;
}

int pretok_add_byte_level(struct pretok *p, bool prefix_space, bool pattern, struct sl_err *err)
{
	int rc = 0;
	if (prefix_space)
		rc = add_level(p, (struct level){.kind = LEVEL_PREFIX_SPACE}, err);
	if (rc == 0 && pattern) {
		struct proto_str gpt2 = {GPT2_PATTERN, sizeof GPT2_PATTERN - 1};
		rc = pretok_add_split(p, gpt2, false, false, PRETOK_ISOLATED, err);
	}
	return rc;
}

void pretok_set_whole_words(struct pretok *p, bool whole) { p->whole_words = whole; }

int pretok_create_empty(struct pretok **out)
{
	struct pretok *p = sl_zalloc(sizeof(*p));
	if (p == NULL)
		return SL_ENOMEM;
	p->memory = pcre2_general_context_create(pcre_alloc, pcre_release, NULL);
	p->limits = p->memory ? pcre2_match_context_create(p->memory) : NULL;
	if (p->limits == NULL) {
		pretok_destroy(p);
		return SL_ENOMEM;
	}
	pcre2_set_match_limit(p->limits, MATCH_LIMIT);
	*out = p;
	return 0;
}

int pretok_create(struct proto_str name, struct pretok **out, struct sl_err *err)
{
	const struct pretok_kind *kind = find_kind(name);
	if (kind == NULL)
		return sl_errf(err, SL_EUNSUPPORTED, "pre-tokenizer \"%.*s\" is not supported",
			       name.n < 64 ? (int)name.n : 64, name.at);
	struct pretok *p;
	if (pretok_create_empty(&p) != 0)
		return sl_errf(err, SL_ENOMEM, "no memory for the pre-tokenizer");
	p->whole_words = kind->whole_words;
	p->adds_bos = kind->adds_bos;
	for (int i = 0; i < MAX_PATTERNS && kind->patterns[i] != NULL; i++) {
		struct proto_str pattern = {kind->patterns[i], strlen(kind->patterns[i])};
		int rc = pretok_add_split(p, pattern, false, false, PRETOK_ISOLATED, err);
		if (rc != 0) {
			pretok_destroy(p);
			return rc;
		}
	}
	*out = p;
	return 0;
}

void pretok_destroy(struct pretok *p)
{
	if (p == NULL)
		return;
	for (int i = 0; i < p->n; i++)
		pcre2_code_free(p->levels[i].code);
	pcre2_match_context_free(p->limits);
	pcre2_general_context_free(p->memory);
	sl_free(p);
}

bool pretok_whole_words(const struct pretok *p) { return p->whole_words; }

bool pretok_adds_bos(const struct pretok *p) { return p->adds_bos; }

struct split {
	const struct pretok *p;
	pcre2_match_data *match;
	pretok_fn fn;
	void *arg;
};

static int split_piece(struct split *s, int level, const char *text, size_t n, bool first);

/* The next range of a level's cut: a match, or what lies before one. 1, 0 at the end, or an error. */
struct ranges {
	const char *text;
	size_t n, at;      /* reported up to here */
	size_t begin, end; /* a match not reported yet; begin == n: there is none */
	bool searched;
};

struct range {
	size_t begin, end;
	bool match;
};

static int next_range(const struct split *s, const struct level *l, struct ranges *r, struct range *out)
{
	if (r->at >= r->n)
		return 0;
	if (!r->searched) {
		size_t from = r->at;
		r->begin = r->end = r->n;
		while (from < r->n) {
			int m = pcre2_match(l->code, (PCRE2_SPTR)r->text, r->n, from, PCRE2_NO_UTF_CHECK, s->match,
					    s->p->limits);
			if (m == PCRE2_ERROR_NOMATCH)
				break;
			if (m < 0)
				return m == PCRE2_ERROR_NOMEMORY ? SL_ENOMEM : SL_ELIMIT;
			const PCRE2_SIZE *at = pcre2_get_ovector_pointer(s->match);
			if (at[1] > at[0] && at[0] >= from) {
				r->begin = at[0];
				r->end = at[1];
				break;
			}
			/* An empty match: on by a character. */
			from = (at[0] > from ? at[0] : from) + 1;
			while (from < r->n && ((uint8_t)r->text[from] & 0xC0) == 0x80)
				from++;
		}
		r->searched = true;
	}
	bool gap = r->at < r->begin;
	*out = (struct range){r->at, gap ? r->begin : r->end, !gap};
	r->at = out->end;
	r->searched = gap;
	out->match ^= l->invert;
	return 1;
}

/* Cuts by a pattern; a piece is reported as soon as its end is certain. */
static int split_by_pattern(struct split *s, int level, const char *text, size_t n, bool first)
{
	const struct level *l = &s->p->levels[level];
	struct ranges r = {.text = text, .n = n};
	struct range it, held = {0}; /* held: begun, not reported yet */
	bool holding = false;
	int rc;
	while ((rc = next_range(s, l, &r, &it)) > 0) {
		if (l->behavior == PRETOK_REMOVED && it.match)
			continue;
		bool joins = holding && ((l->behavior == PRETOK_CONTIGUOUS && it.match == held.match) ||
					 (l->behavior == PRETOK_MERGED_PREV && it.match && !held.match) ||
					 (l->behavior == PRETOK_MERGED_NEXT && held.match && !it.match));
		if (joins) {
			held.end = it.end;
			/* A joined piece accepts no further range of that kind. */
			held.match = l->behavior == PRETOK_MERGED_PREV   ? true
				     : l->behavior == PRETOK_MERGED_NEXT ? false
									 : held.match;
			continue;
		}
		if (holding)
			rc = split_piece(s, level + 1, text + held.begin, held.end - held.begin,
					 first && held.begin == 0);
		if (rc < 0)
			return rc;
		held = it;
		holding = true;
	}
	if (rc == 0 && holding)
		rc = split_piece(s, level + 1, text + held.begin, held.end - held.begin, first && held.begin == 0);
	return rc;
}

/* Levels that change the text make a copy of the piece. */
static int split_changed(struct split *s, int level, const char *text, size_t n, bool first)
{
	const struct level *l = &s->p->levels[level];
	const char *mark = l->kind == LEVEL_METASPACE ? l->mark : " ";
	size_t n_mark = l->kind == LEVEL_METASPACE ? l->n_mark : 1, n_spaces = 0, size;
	for (size_t i = 0; i < n && l->kind == LEVEL_METASPACE; i++)
		n_spaces += text[i] == ' ';
	bool begins = (n >= n_mark && memcmp(text, mark, n_mark) == 0) || text[0] == ' ';
	bool prepend = !begins && (l->kind == LEVEL_PREFIX_SPACE || l->prepend == PRETOK_ALWAYS ||
				   (l->prepend == PRETOK_FIRST && first));
	if (n_spaces == 0 && !prepend)
		return split_piece(s, level + 1, text, n, first);
	if (__builtin_mul_overflow(n_spaces + 1, n_mark, &size) || __builtin_add_overflow(size, n, &size))
		return SL_ELIMIT;
	char *copy = sl_alloc(size), *at = copy;
	if (copy == NULL)
		return SL_ENOMEM;
	if (prepend) {
		memcpy(at, mark, n_mark);
		at += n_mark;
	}
	for (size_t i = 0; i < n; i++) {
		if (l->kind == LEVEL_METASPACE && text[i] == ' ') {
			memcpy(at, mark, n_mark);
			at += n_mark;
		} else {
			*at++ = text[i];
		}
	}
	int rc = split_piece(s, level + 1, copy, (size_t)(at - copy), first);
	sl_free(copy);
	return rc;
}

/* Cuts a piece of valid UTF-8 by the levels from this one on. Recursion is as deep as their list. */
static int split_piece(struct split *s, int level, const char *text, size_t n, bool first)
{
	if (n == 0)
		return 0;
	if (level == s->p->n)
		return s->fn(s->arg, text, n);
	if (s->p->levels[level].kind == LEVEL_SPLIT)
		return split_by_pattern(s, level, text, n, first);
	return split_changed(s, level, text, n, first);
}

int pretok_split(const struct pretok *p, const char *text, size_t n, bool first, pretok_fn fn, void *arg)
{
	struct split s = {.p = p, .fn = fn, .arg = arg};
	s.match = pcre2_match_data_create(1, p->memory);
	if (s.match == NULL)
		return SL_ENOMEM;
	int rc = 0;
	size_t begin = 0, i = 0;
	while (i < n && rc == 0) {
		uint32_t cp;
		int len = utf8_decode((const uint8_t *)text + i, n - i, &cp);
		if (len > 0) {
			i += (size_t)len;
			continue;
		}
		rc = split_piece(&s, 0, text + begin, i - begin, first && begin == 0);
		if (rc == 0)
			rc = fn(arg, text + i, 1);
		begin = ++i;
	}
	if (rc == 0)
		rc = split_piece(&s, 0, text + begin, n - begin, first && begin == 0);
	pcre2_match_data_free(s.match);
	return rc;
}
