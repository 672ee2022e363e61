/* SPDX-License-Identifier: Apache-2.0
 *
 * Decides whether a text needs cleansing. Most texts do not, and are only scanned: 16 bytes at a time, for bytes and
 * pairs that a pass might change. A block with one of them is read byte by byte, and its non-ASCII characters are
 * looked up in a bitmap of code points.
 *
 * The result may be DIRTY for a text that the passes do not change, but is never CLEAN for one that they would change
 * (tests compare). The bitmaps are built once, from the predicates of the passes.
 */
#include <pthread.h>
#include <string.h>

#include "base/utf8.h"
#include "gateway/cleanse/cleanse_priv.h"

enum { BLOCK = 16, BMP = 0x10000 };

typedef uint8_t block __attribute__((vector_size(BLOCK)));
typedef uint64_t words __attribute__((vector_size(BLOCK)));

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t light_bits[BMP / 64], full_bits[BMP / 64];

static void build(void)
{
	for (uint32_t cp = 0; cp < BMP; cp++) {
		if (cp >= 0xd800 && cp <= 0xdfff)
			continue;
		uint64_t bit = UINT64_C(1) << (cp % 64);
		if (cleanse_cp_light(cp))
			light_bits[cp / 64] |= bit;
		if (cleanse_cp_light(cp) || cleanse_cp_typographic(cp))
			full_bits[cp / 64] |= bit;
	}
}

void cleanse_prepare(void) { pthread_once(&once, build); }

static bool suspicious(enum cleanse_level level, uint32_t cp)
{
	if (cp < BMP)
		return ((level == CLEANSE_FULL ? full_bits : light_bits)[cp / 64] >> (cp % 64) & 1) != 0;
	/* A shortcut: emoji and ideographs are common, and no pass changes them. */
	if ((cp >= 0x1f000 && cp <= 0x1faff) || (cp >= 0x20000 && cp < 0x2f800))
		return false;
	return cleanse_cp_light(cp);
}

bool cleanse_scan_light(uint32_t cp) { return suspicious(CLEANSE_LIGHT, cp); }

struct scan {
	enum cleanse_level level;
	const char *t;
	size_t n;
};

/* The byte 16 times. A macro, because the calling convention of functions that return vectors is not portable. */
#define splat(c) ((block){0} + (uint8_t)(c))

/* Does one of the 16 bytes at t, or a pair that begins there, need a closer look? Reads 17 bytes. */
static bool interesting(const char *t, bool full)
{
	block a, b;
	memcpy(&a, t, BLOCK);
	memcpy(&b, t + 1, BLOCK);
	block control = (block)((a < splat(' ')) & (a != splat('\n')));
	block found = control | (block)(a >= splat(0x7f));
	block blank = (block)(a == splat(' ')), line = (block)(a == splat('\n'));
	found |= blank & (block)((b == splat(' ')) | (b == splat('\n')));
	found |= line & (block)(b == splat('\n'));
	if (full) {
		found |= (block)((a == splat('<')) | (a == splat('*')) | (a == splat('_')) | (a == splat('#')));
		block same = (block)(a == b);
		block mark = (block)((a == splat('!')) | (a == splat('?')) | (a == splat('.')) | (a == splat('-')) |
				     (a == splat('=')) | (a == splat('~')));
		found |= same & mark;
		found |= (block)((a == splat('!')) & ((b == splat('[')) | (b == splat('?'))));
		found |= (block)((a == splat('?')) & (b == splat('!')));
	}
	words w = (words)found;
	return (w[0] | w[1]) != 0;
}

static bool light_byte(const struct scan *s, size_t i)
{
	char c = s->t[i], next = i + 1 < s->n ? s->t[i + 1] : '\n';
	if (c == ' ' || c == '\t') {
		if (next == '\n')
			return true;
		/* Two spaces within a line. At its beginning they stay. */
		return c == ' ' && next == ' ' && i > 0 && s->t[i - 1] != '\n' && !cleanse_blank(s->t[i - 1]);
	}
	if (c == '\n')
		return next == '\n' && (i + 2 >= s->n || s->t[i + 2] == '\n');
	return (unsigned char)c < ' ' || c == 0x7f;
}

static bool full_byte(const struct scan *s, size_t i)
{
	char c = s->t[i], next = i + 1 < s->n ? s->t[i + 1] : '\n', third = i + 2 < s->n ? s->t[i + 2] : '\n';
	switch (c) {
	case '<': return cleanse_letter(next) || next == '/' || next == '!';
	case '*':
	case '_': return next != ' ' && next != '\n' && (c == '*' || i == 0 || !cleanse_alnum(s->t[i - 1]));
	case '#': return i == 0 || s->t[i - 1] == '\n' || cleanse_blank(s->t[i - 1]);
	case '!': return next == '[' || ((next == '!' || next == '?') && (third == '!' || third == '?'));
	case '?': return (next == '!' || next == '?') && (third == '!' || third == '?');
	case '.': return next == '.' && third == '.' && i + 3 < s->n && s->t[i + 3] == '.';
	case '-':
	case '=':
	case '~': return next == c && third == c;
	default: return false;
	}
}

static bool continues(char c) { return ((unsigned char)c & 0xc0) == 0x80; }

/* utf8_decode with a fast path for the common lengths, two and three bytes. */
static int decode(const char *t, size_t n, uint32_t *cp)
{
	unsigned char a = (unsigned char)t[0];
	if (n >= 3 && a > 0xe0 && a < 0xf0 && a != 0xed && continues(t[1]) && continues(t[2])) {
		*cp = (a & 0xfu) << 12 | ((unsigned char)t[1] & 0x3fu) << 6 | ((unsigned char)t[2] & 0x3fu);
		return 3;
	}
	if (n >= 2 && a >= 0xc2 && a < 0xe0 && continues(t[1])) {
		*cp = (a & 0x1fu) << 6 | ((unsigned char)t[1] & 0x3fu);
		return 2;
	}
	return utf8_decode((const uint8_t *)t, n, cp);
}

enum cleanse_found cleanse_scan(enum cleanse_level level, const char *text, size_t n)
{
	struct scan s = {level, text, n};
	bool full = level == CLEANSE_FULL;
	bool dirty = n > 0 && (text[0] == '\n' || text[n - 1] == '\n' ||
			       (cleanse_blank(text[0]) && memchr(text, '\n', n) == NULL));
	size_t i = 0;
	cleanse_prepare();
	while (i < n) {
		/* Once dirty, only validity matters. */
		if (n - i > BLOCK && !interesting(text + i, full && !dirty)) {
			i += BLOCK;
			continue;
		}
		size_t end = n - i > BLOCK ? i + BLOCK : n;
		while (i < end) {
			if ((unsigned char)text[i] < 0x80) {
				dirty = dirty || light_byte(&s, i) || (full && full_byte(&s, i));
				i++;
				continue;
			}
			uint32_t cp;
			int len = decode(text + i, n - i, &cp);
			if (len <= 0)
				return CLEANSE_INVALID;
			dirty = dirty || suspicious(level, cp);
			i += (size_t)len;
		}
	}
	return dirty ? CLEANSE_DIRTY : CLEANSE_CLEAN;
}
