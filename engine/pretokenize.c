/* SPDX-License-Identifier: Apache-2.0
 *
 * Pre-tokenizers by PCRE2 with its just-in-time compiler. The patterns are those that the models'
 * own tokenizer files state, written so that a match costs time linear in what it consumes: a run
 * of white space of any length is looked at a bounded number of times. PCRE2's match limit stays
 * on as the second line.
 *
 * A match sees valid UTF-8 only (checked here once, so PCRE2 need not check at every call): the
 * text is cut at invalid bytes first. Patterns have no back references and no recursion. Thread: a
 * compiled pattern is shared; match data is made for each call of pretok_split.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/pretokenize.h"

#include <pcre2.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"

enum { MAX_PATTERNS = 6, MATCH_LIMIT = 50 * 1000 * 1000 };

#define CONTRACTIONS "'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])"

/* The cased letters that the DeepSeek LLM tokenizer lists. */
#define CASED_LETTERS \
	"A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}" \
	"\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}" \
	"\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}" \
	"\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}" \
	"\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}" \
	"\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}" \
	"\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}" \
	"\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}" \
	"\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}" \
	"\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}" \
	"\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}" \
	"\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}" \
	"\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}" \
	"\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}" \
	"\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}" \
	"\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}" \
	"\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}" \
	"\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}" \
	"\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}" \
	"\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}" \
	"\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}" \
	"\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}" \
	"\\x{1E900}-\\x{1E943}"

static const struct pretok_kind {
	const char *names[6];
	bool whole_words, adds_bos;
	const char *patterns[MAX_PATTERNS];
} kinds[] = {
    {
	.names = {"gpt-2", "phi-2"},
	.patterns = {"'(?:s|t|re|ve|m|ll|d)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
		     "|\\s+(?!\\S)|\\s+"},
    },
    {
	.names = {"llama-bpe", "llama3", "llama-v3"},
	.whole_words = true,
	.adds_bos = true,
	.patterns = {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
				  "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
				  "|\\s+(?!\\S)|\\s+"},
    },
    {
	.names = {"qwen2", "deepseek-r1-qwen"},
	.patterns = {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
				  "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
				  "|\\s+(?!\\S)|\\s+"},
    },
    {
	.names = {"default"},
	.patterns = {"[\\p{P}$+<=>^~|]+",
		     "'(?:s|t|re|ve|m|ll|d)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
		     "|\\s+(?!\\S)",
		     "\\p{N}+", "[0-9][0-9][0-9]"},
    },
    {
	.names = {"deepseek-llm"},
	.patterns = {"[\\r\\n]", "\\s?[" CASED_LETTERS "]+",
		     "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}"
		     "\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
		     /* The tokenizer's \s+$, kept from trying each place inside of a run. */
		     "(?<!\\s)\\s++\\z",
		     "[\\x{4E00}-\\x{9FA5}\\x{0800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+", "\\p{N}+"},
    },
};

struct pretok {
	const struct pretok_kind *kind;
	int n;
	pcre2_code *codes[MAX_PATTERNS];
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

static int compile_patterns(struct pretok *p, struct sl_err *err)
{
	pcre2_compile_context *cc = pcre2_compile_context_create(p->memory);
	if (cc == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the pre-tokenizer");
	int rc = 0;
	while (p->n < MAX_PATTERNS && p->kind->patterns[p->n] != NULL) {
		const char *pattern = p->kind->patterns[p->n];
		int code;
		PCRE2_SIZE at;
		pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
					       PCRE2_UTF | PCRE2_UCP, &code, &at, cc);
		if (re == NULL) {
			BUG_IF(code != PCRE2_ERROR_HEAP_FAILED, "pre-tokenizer %s, pattern %d: error %d at %zu",
			       p->kind->names[0], p->n, code, at);
			rc = sl_errf(err, SL_ENOMEM, "no memory for the pre-tokenizer");
			break;
		}
		p->codes[p->n++] = re;
		/* Without a just-in-time compiler the interpreter does the same, only slower. */
		(void)pcre2_jit_compile(re, PCRE2_JIT_COMPLETE);
	}
	pcre2_compile_context_free(cc);
	return rc;
}

int pretok_create(struct proto_str name, struct pretok **out, struct sl_err *err)
{
	const struct pretok_kind *kind = find_kind(name);
	if (kind == NULL)
		return sl_errf(err, SL_EUNSUPPORTED, "pre-tokenizer \"%.*s\" is not supported",
			       name.n < 64 ? (int)name.n : 64, name.at);
	struct pretok *p = sl_zalloc(sizeof(*p));
	if (p == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the pre-tokenizer");
	p->kind = kind;
	p->memory = pcre2_general_context_create(pcre_alloc, pcre_release, NULL);
	p->limits = p->memory ? pcre2_match_context_create(p->memory) : NULL;
	int rc = p->limits ? compile_patterns(p, err)
			   : sl_errf(err, SL_ENOMEM, "no memory for the pre-tokenizer");
	if (rc != 0) {
		pretok_destroy(p);
		return rc;
	}
	pcre2_set_match_limit(p->limits, MATCH_LIMIT);
	*out = p;
	return 0;
}

void pretok_destroy(struct pretok *p)
{
	if (p == NULL)
		return;
	for (int i = 0; i < p->n; i++)
		pcre2_code_free(p->codes[i]);
	pcre2_match_context_free(p->limits);
	pcre2_general_context_free(p->memory);
	sl_free(p);
}

bool pretok_whole_words(const struct pretok *p)
{
	return p->kind->whole_words;
}

bool pretok_adds_bos(const struct pretok *p)
{
	return p->kind->adds_bos;
}

struct split {
	const struct pretok *p;
	pcre2_match_data *match;
	pretok_fn fn;
	void *arg;
};

/* Cuts a piece of valid UTF-8 by the patterns from the level-th on. Recursion is as deep as the
 * list of patterns. */
static int split_piece(struct split *s, int level, const char *text, size_t n)
{
	if (n == 0)
		return 0;
	if (level == s->p->n)
		return s->fn(s->arg, text, n);
	size_t done = 0, from = 0;
	while (from < n) {
		int m = pcre2_match(s->p->codes[level], (PCRE2_SPTR)text, n, from,
				    PCRE2_NO_UTF_CHECK, s->match, s->p->limits);
		if (m == PCRE2_ERROR_NOMATCH)
			break;
		if (m < 0)
			return m == PCRE2_ERROR_NOMEMORY ? SL_ENOMEM : SL_ELIMIT;
		/* Read before the recursion below reuses the match data. */
		const PCRE2_SIZE *at = pcre2_get_ovector_pointer(s->match);
		size_t begin = at[0], end = at[1];
		BUG_IF(end <= begin || begin < from, "a pre-tokenizer pattern matched nothing");
		int rc = split_piece(s, level + 1, text + done, begin - done);
		if (rc == 0)
			rc = split_piece(s, level + 1, text + begin, end - begin);
		if (rc != 0)
			return rc;
		done = from = end;
	}
	return split_piece(s, level + 1, text + done, n - done);
}

int pretok_split(const struct pretok *p, const char *text, size_t n, pretok_fn fn, void *arg)
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
		rc = split_piece(&s, 0, text + begin, i - begin);
		if (rc == 0)
			rc = fn(arg, text + i, 1);
		begin = ++i;
	}
	if (rc == 0)
		rc = split_piece(&s, 0, text + begin, n - begin);
	pcre2_match_data_free(s.match);
	return rc;
}
