/* SPDX-License-Identifier: Apache-2.0
 *
 * Classes of characters: ranges of the Unicode Character Database, normalisation from utf8proc.
 */
#include <utf8proc.h>

#include "base/utf8.h"
#include "gateway/cleanse/cleanse_priv.h"

struct range {
	uint32_t lo, hi;
};

static bool in(uint32_t cp, const struct range *r, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (cp >= r[i].lo && cp <= r[i].hi)
			return true;
	return false;
}

#define IN(cp, ranges) in(cp, ranges, sizeof(ranges) / sizeof *(ranges))

uint32_t cleanse_cp_at(const char *text, size_t n, size_t at, size_t *bytes)
{
	uint32_t cp = 0;
	*bytes = 0;
	if (at >= n)
		return 0;
	int len = utf8_decode((const uint8_t *)text + at, n - at, &cp);
	*bytes = len > 0 ? (size_t)len : 1;
	return len > 0 ? cp : 0xfffd;
}

uint32_t cleanse_cp_before(const char *text, size_t at)
{
	size_t from = at, bytes;
	while (from > 0 && at - from < 4) {
		from--;
		if (((unsigned char)text[from] & 0xc0) != 0x80)
			break;
	}
	return cleanse_cp_at(text, at, from, &bytes);
}

/* Characters that combine with the one before them although their combining class is 0 (NFC_Quick_Check is Maybe). */
static const struct range joins_before[] = {
    {0x9be, 0x9be},     {0x9d7, 0x9d7},     {0xb3e, 0xb3e},     {0xb56, 0xb57},     {0xbbe, 0xbbe},
    {0xbd7, 0xbd7},     {0xcc2, 0xcc2},     {0xcd5, 0xcd6},     {0xd3e, 0xd3e},     {0xd57, 0xd57},
    {0xdcf, 0xdcf},     {0xddf, 0xddf},     {0x102e, 0x102e},   {0x1161, 0x1175},   {0x11a8, 0x11c2},
    {0x1b35, 0x1b35},   {0x1133e, 0x1133e}, {0x11357, 0x11357}, {0x114b0, 0x114b0}, {0x114ba, 0x114ba},
    {0x114bd, 0x114bd}, {0x115af, 0x115af}, {0x11930, 0x11930},
};

static const struct range removable[] = {
    {0x00, 0x08},     {0x0b, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},     {0x180e, 0x180e}, {0x200b, 0x200f},
    {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfe00, 0xfe0f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffc}, {0xe0000, 0xe01ef},
};

/* Does NFC change the character on its own? */
static bool unstable(uint32_t cp)
{
	utf8proc_int32_t made[8];
	int last = 0;
	utf8proc_ssize_t n =
	    utf8proc_decompose_char((utf8proc_int32_t)cp, made, 8, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &last);
	if (n <= 0 || (n == 1 && (uint32_t)made[0] == cp))
		return false;
	n = utf8proc_normalize_utf32(made, n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
	return n != 1 || (uint32_t)made[0] != cp;
}

bool cleanse_cp_light(uint32_t cp)
{
	if (IN(cp, removable))
		return true;
	if (cp < 0x300)
		return false;
	return utf8proc_get_property((utf8proc_int32_t)cp)->combining_class != 0 || IN(cp, joins_before) ||
	       unstable(cp);
}

bool cleanse_cp_typographic(uint32_t cp)
{
	static const struct range typographic[] = {
	    {0xa0, 0xa0},     {0x2000, 0x200a}, {0x2010, 0x2015}, {0x2018, 0x201f}, {0x2022, 0x2023}, {0x2026, 0x2026},
	    {0x202f, 0x202f}, {0x2043, 0x2043}, {0x205f, 0x205f}, {0x25aa, 0x25ab}, {0x25cf, 0x25cf}, {0x25e6, 0x25e6},
	};
	return IN(cp, typographic);
}

/* Arabic and related scripts, Mongolian, and the scripts derived from Brahmi. */
bool cleanse_cp_joins(uint32_t cp)
{
	static const struct range joining[] = {
	    {0x600, 0x8ff},     {0x900, 0xdff},     {0x1000, 0x109f},   {0x1780, 0x17ff},   {0x1800, 0x18af},
	    {0x1900, 0x1aaf},   {0x1b00, 0x1c4f},   {0x1cd0, 0x1cff},   {0xa800, 0xa82f},   {0xa840, 0xa87f},
	    {0xa880, 0xa8ff},   {0xa930, 0xa9ff},   {0xaa00, 0xaa5f},   {0xabc0, 0xabff},   {0xfb50, 0xfdff},
	    {0xfe70, 0xfefe},   {0x10a00, 0x10aff}, {0x10d00, 0x10d3f}, {0x10f00, 0x10fff}, {0x11000, 0x11fff},
	    {0x1e900, 0x1e95f},
	};
	return IN(cp, joining);
}

bool cleanse_cp_emoji(uint32_t cp)
{
	if (cp == 0xfe0f || (cp >= 0x1f3fb && cp <= 0x1f3ff) || cp == 0x20e3 || (cp >= 0xe0020 && cp <= 0xe007f))
		return true;
	return utf8proc_get_property((utf8proc_int32_t)cp)->boundclass == UTF8PROC_BOUNDCLASS_EXTENDED_PICTOGRAPHIC;
}

bool cleanse_cp_rtl(uint32_t cp)
{
	static const struct range rtl[] = {
	    {0x590, 0x8ff}, {0xfb1d, 0xfdff}, {0xfe70, 0xfefe}, {0x10800, 0x10fff}, {0x1e800, 0x1efff}};
	return IN(cp, rtl);
}

bool cleanse_cp_unspaced(uint32_t cp)
{
	static const struct range unspaced[] = {
	    {0xe00, 0xfff}, {0x1000, 0x109f}, {0x1780, 0x17ff}, {0x1950, 0x19ff}, {0x1a20, 0x1aaf}};
	return IN(cp, unspaced);
}

bool cleanse_cp_cjk(uint32_t cp)
{
	static const struct range cjk[] = {
	    {0x1100, 0x11ff}, {0x2e80, 0x9fff}, {0xa960, 0xa97f},   {0xac00, 0xd7ff},   {0xf900, 0xfaff},
	    {0xfe30, 0xfe4f}, {0xff01, 0xffef}, {0x1b000, 0x1b16f}, {0x20000, 0x3ffff},
	};
	return IN(cp, cjk);
}
