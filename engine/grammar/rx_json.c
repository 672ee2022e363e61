/* SPDX-License-Identifier: Apache-2.0
 *
 * The content of a JSON string (RFC 8259, section 7), as an operation on the language that it decodes to. A node knows
 * the position inside a character's spelling. Its derivative by a byte of the spelling is, once the decoded bytes are
 * known, the derivative by them.
 *
 * A partial spelling is kept only if it can become a permitted character: where only letters are permitted, no text
 * ends in \u00.
 */
#include "engine/grammar/rx_priv.h"

#include "base/utf8.h"

enum { LAST = 0x10FFFF, HIGH = 0xD800, LOW = 0xDC00, AFTER_LOW = 0xE000, BMP_END = 0x10000 };

/* ---- UTF-8: permitted next bytes ---- */

struct utf8_phase {
	uint8_t from, to, next;
};
enum { U_DONE, U_1, U_2, U_3, U_E0, U_ED, U_F0, U_F4 };
static const struct utf8_phase phases[] = {
    [U_1] = {0x80, 0xBF, U_DONE}, [U_2] = {0x80, 0xBF, U_1},  [U_3] = {0x80, 0xBF, U_2},  [U_E0] = {0xA0, 0xBF, U_1},
    [U_ED] = {0x80, 0x9F, U_1},   [U_F0] = {0x90, 0xBF, U_2}, [U_F4] = {0x80, 0x8F, U_2},
};
static const struct utf8_phase leads[] = {
    {0x20, 0x7F, U_DONE}, {0xC2, 0xDF, U_1},  {0xE0, 0xE0, U_E0}, {0xE1, 0xEC, U_2},  {0xED, 0xED, U_ED},
    {0xEE, 0xEF, U_2},    {0xF0, 0xF0, U_F0}, {0xF1, 0xF3, U_3},  {0xF4, 0xF4, U_F4},
};
enum { N_LEADS = sizeof(leads) / sizeof(leads[0]) };

static struct rx_set set_range(unsigned from, unsigned to)
{
	struct rx_set s = {{0}};
	set_add_range(&s, from, to);
	return s;
}

/* ---- is any character of a range permitted? ---- */

/* Of the characters whose remaining n continuation bytes encode from..to. */
static bool feasible_rest(struct rx_pool *p, rx a, uint32_t from, uint32_t to, int n)
{
	if (n == 0 || a == RX_NONE)
		return a != RX_NONE;
	int shift = 6 * (n - 1);
	uint32_t low = ((uint32_t)1 << shift) - 1;
	struct rx_set done = {{0}};
	for (uint32_t d = from >> shift; d <= to >> shift; d++) {
		if (set_has(&done, 0x80 | d))
			continue;
		struct rx_set same;
		rx next = rx_derive_set(p, a, (uint8_t)(0x80 | d), &same);
		uint32_t f = d == from >> shift ? from & low : 0, t = d == to >> shift ? to & low : low;
		if (feasible_rest(p, next, f, t, n - 1))
			return true;
		if (next == RX_NONE || (f == 0 && t == low))
			set_or(&done, &same);
	}
	return false;
}

/* from..to have encodings of n bytes, n at least 2. */
static bool feasible_long(struct rx_pool *p, rx a, uint32_t from, uint32_t to, int n)
{
	static const uint8_t mark[] = {0, 0, 0xC0, 0xE0, 0xF0};
	int shift = 6 * (n - 1);
	uint32_t low = ((uint32_t)1 << shift) - 1;
	struct rx_set done = {{0}};
	for (uint32_t d = from >> shift; d <= to >> shift; d++) {
		if (set_has(&done, mark[n] | d))
			continue;
		struct rx_set same;
		rx next = rx_derive_set(p, a, (uint8_t)(mark[n] | d), &same);
		uint32_t f = d == from >> shift ? from & low : 0, t = d == to >> shift ? to & low : low;
		if (feasible_rest(p, next, f, t, n - 1))
			return true;
		if (next == RX_NONE || (f == 0 && t == low))
			set_or(&done, &same);
	}
	return false;
}

static bool feasible_ascii(struct rx_pool *p, rx a, uint32_t from, uint32_t to)
{
	struct rx_set done = {{0}};
	for (uint32_t b = from; b <= to; b++) {
		struct rx_set same;
		if (set_has(&done, b))
			continue;
		if (rx_derive_set(p, a, (uint8_t)b, &same) != RX_NONE)
			return true;
		set_or(&done, &same);
	}
	return false;
}

static bool feasible(struct rx_pool *p, rx a, uint32_t from, uint32_t to)
{
	static const uint32_t first[] = {0, 0x80, 0x800, AFTER_LOW, BMP_END},
			      last[] = {0x7F, 0x7FF, HIGH - 1, 0xFFFF, LAST};
	static const int length[] = {1, 2, 3, 3, 4};
	for (int i = 0; i < 5; i++) {
		uint32_t f = from > first[i] ? from : first[i], t = to < last[i] ? to : last[i];
		if (f > t)
			continue;
		if (a == RX_ALL || (i == 0 ? feasible_ascii(p, a, f, t) : feasible_long(p, a, f, t, length[i])))
			return true;
	}
	return false;
}

/* A low surrogate of from..to after the high surrogate whose low bits are hi. */
static bool feasible_pair(struct rx_pool *p, rx a, uint32_t hi, uint32_t from, uint32_t to)
{
	uint32_t f = from > LOW ? from : LOW, t = to < AFTER_LOW - 1 ? to : AFTER_LOW - 1;
	uint32_t base = BMP_END + (hi << 10);
	return f <= t && feasible(p, a, base + f - LOW, base + t - LOW);
}

/* A spelling \uXXXX with a value in from..to; it may be the first half of a surrogate pair. */
static bool feasible_hex(struct rx_pool *p, rx a, uint32_t from, uint32_t to)
{
	if (feasible(p, a, from, to))
		return true;
	uint32_t f = from > HIGH ? from : HIGH, t = to < LOW - 1 ? to : LOW - 1;
	return f <= t && feasible(p, a, BMP_END + ((f - HIGH) << 10), BMP_END + ((t - HIGH) << 10) + 0x3FF);
}

/* ---- nodes ---- */

/* Every text: JSON spells only valid UTF-8. */
static bool is_any_text(const struct rx_pool *p, rx a)
{
	const struct rx_node *n = rx_at(p, a);
	return n->op == OP_REPEAT && n->a == p->any_char && n->a != RX_NONE && n->b == 0 && n->c == RX_UNBOUNDED;
}

static rx without_any_text(struct rx_pool *p, rx a)
{
	struct rx_node n = *rx_at(p, a);
	if (is_any_text(p, a))
		return RX_ALL;
	bool has = false;
	for (uint32_t i = 0; n.op == OP_AND && i < n.b; i++)
		has |= is_any_text(p, p->words[n.a + i]);
	if (!has)
		return a;
	size_t base = p->n_scratch;
	for (uint32_t i = 0; i < n.b; i++)
		if (!rx_push(p, without_any_text(p, p->words[n.a + i])))
			return RX_NONE;
	return rx_and_top(p, base);
}

rx rx_json_node(struct rx_pool *p, rx a, enum json_phase phase, uint32_t value)
{
	a = without_any_text(p, a);
	if (a == RX_NONE || (a == RX_EPS && phase == JSON_START))
		return a;
	unsigned flags = RX_UTF8;
	if (phase == JSON_START) {
		flags |= p->nodes[a].flags & RX_NULLABLE;
		if (rx_has(p, a, RX_UTF8))
			flags |= p->nodes[a].flags & (RX_SURE | RX_LIVE);
	}
	return rx_intern(
	    p, (struct rx_node){.op = OP_JSON, .flags = (uint8_t)flags, .kind = (uint16_t)phase, .a = a, .c = value},
	    NULL, 0);
}

static rx derive_char(struct rx_pool *p, rx a, uint32_t cp)
{
	uint8_t at[4];
	int n = utf8_encode(cp, at);
	for (int i = 0; i < n && a != RX_NONE; i++)
		a = rx_derive(p, a, at[i]);
	return rx_json_node(p, a, JSON_START, 0);
}

/* text: valid UTF-8 can complete every string of a (RX_UTF8), so if any string is left, JSON can spell one. */
static rx raw_byte(struct rx_pool *p, rx a, uint8_t byte, struct utf8_phase at, bool text, struct rx_set *set)
{
	struct rx_set range = set_range(at.from, at.to);
	rx d = rx_derive_set(p, a, byte, set);
	set_and(set, &range);
	rx r = rx_json_node(p, d, at.next == U_DONE ? JSON_START : JSON_UTF8, at.next);
	return text && rx_has(p, d, RX_LIVE) ? rx_mark(p, r, RX_LIVE) : r;
}

static rx at_start(struct rx_pool *p, rx a, uint8_t byte, struct rx_set *set)
{
	struct rx_set bad = {{0}};
	set_add_range(&bad, 0, 0x1F);
	set_add(&bad, '"');
	set_add_range(&bad, 0x80, 0xC1);
	set_add_range(&bad, 0xF5, 0xFF);
	if (byte == '\\') {
		*set = set_range(byte, byte);
		return feasible(p, a, 0, LAST) ? rx_json_node(p, a, JSON_ESC, 0) : RX_NONE;
	}
	for (int i = 0; i < N_LEADS && byte != '"'; i++) {
		if (byte < leads[i].from || byte > leads[i].to)
			continue;
		rx r = raw_byte(p, a, byte, leads[i], rx_has(p, a, RX_UTF8), set);
		set_remove(set, '"');
		set_remove(set, '\\');
		return r;
	}
	*set = bad;
	return RX_NONE;
}

static rx in_char(struct rx_pool *p, struct rx_node n, uint8_t byte, struct rx_set *set)
{
	struct utf8_phase at = phases[n.c];
	if (byte >= at.from && byte <= at.to)
		return raw_byte(p, n.a, byte, at, (n.flags & RX_LIVE) != 0, set);
	*set = set_range(at.from, at.to);
	set_not(set);
	return RX_NONE;
}

static rx after_backslash(struct rx_pool *p, rx a, uint8_t byte, struct rx_set *set)
{
	static const char from[] = "\"\\/bfnrtu", to[] = "\"\\/\b\f\n\r\t";
	for (int i = 0; from[i] != '\0'; i++) {
		if (byte != (uint8_t)from[i])
			continue;
		*set = set_range(byte, byte);
		if (byte != 'u')
			return derive_char(p, a, (uint8_t)to[i]);
		return feasible_hex(p, a, 0, 0xFFFF) ? rx_json_node(p, a, JSON_HEX, 0) : RX_NONE;
	}
	*set = (struct rx_set){{0}};
	for (int i = 0; from[i] != '\0'; i++)
		set_add(set, (uint8_t)from[i]);
	set_not(set);
	return RX_NONE;
}

/* The digit's value, or -1; *set: the digit in both cases, or all bytes that are not digits. */
static int hex_digit(uint8_t byte, struct rx_set *set)
{
	*set = set_range(byte, byte);
	if (byte >= '0' && byte <= '9')
		return byte - '0';
	uint8_t lower = byte | 0x20;
	if (lower >= 'a' && lower <= 'f') {
		set_add(set, lower);
		set_add(set, (unsigned)lower - 0x20);
		return lower - 'a' + 10;
	}
	*set = (struct rx_set){{0}};
	set_add_range(set, '0', '9');
	set_add_range(set, 'a', 'f');
	set_add_range(set, 'A', 'F');
	set_not(set);
	return -1;
}

static rx in_hex(struct rx_pool *p, rx a, uint32_t value, uint8_t byte, struct rx_set *set)
{
	int digit = hex_digit(byte, set);
	if (digit < 0)
		return RX_NONE;
	uint32_t n = (value >> 16) + 1, v = (value & 0xFFFF) << 4 | (uint32_t)digit, shift = 4 * (4 - n);
	if (n < 4) {
		bool ok = feasible_hex(p, a, v << shift, (v << shift) + (1u << shift) - 1);
		return ok ? rx_json_node(p, a, JSON_HEX, n << 16 | v) : RX_NONE;
	}
	if (v < HIGH || v >= AFTER_LOW)
		return derive_char(p, a, v);
	bool ok = v < LOW && feasible_pair(p, a, v - HIGH, LOW, AFTER_LOW - 1);
	return ok ? rx_json_node(p, a, JSON_HI, v - HIGH) : RX_NONE;
}

static rx in_low_hex(struct rx_pool *p, rx a, uint32_t value, uint8_t byte, struct rx_set *set)
{
	int digit = hex_digit(byte, set);
	if (digit < 0)
		return RX_NONE;
	uint32_t hi = value >> 20, n = (value >> 16 & 0xF) + 1, v = (value & 0xFFFF) << 4 | (uint32_t)digit;
	uint32_t shift = 4 * (4 - n);
	if (!feasible_pair(p, a, hi, v << shift, (v << shift) + (1u << shift) - 1))
		return RX_NONE;
	if (n < 4)
		return rx_json_node(p, a, JSON_HI_HEX, hi << 20 | n << 16 | v);
	return derive_char(p, a, BMP_END + (hi << 10) + v - LOW);
}

static rx expect(struct rx_pool *p, struct rx_node n, uint8_t byte, uint8_t want, struct rx_set *set)
{
	*set = set_range(want, want);
	if (byte == want)
		return want == 'u' ? rx_json_node(p, n.a, JSON_HI_HEX, n.c << 20)
				   : rx_json_node(p, n.a, JSON_HI_ESC, n.c);
	set_not(set);
	return RX_NONE;
}

rx rx_json_derive(struct rx_pool *p, rx a, uint8_t byte, struct rx_set *set)
{
	struct rx_node n = *rx_at(p, a);
	switch ((enum json_phase)n.kind) {
	case JSON_START: return at_start(p, n.a, byte, set);
	case JSON_UTF8: return in_char(p, n, byte, set);
	case JSON_ESC: return after_backslash(p, n.a, byte, set);
	case JSON_HEX: return in_hex(p, n.a, n.c, byte, set);
	case JSON_HI: return expect(p, n, byte, '\\', set);
	case JSON_HI_ESC: return expect(p, n, byte, 'u', set);
	default: return in_low_hex(p, n.a, n.c, byte, set);
	}
}

/* ---- the remaining decoded texts of a node ---- */

static rx any_char(struct rx_pool *p) { return p->any_char != RX_NONE ? p->any_char : rx_chars_except(p, NULL, 0); }
static rx any_text(struct rx_pool *p) { return rx_repeat(p, any_char(p), 0, RX_UNBOUNDED); }

static rx rest_of_char(struct rx_pool *p, uint32_t phase)
{
	rx r = RX_EPS;
	for (; phase != U_DONE; phase = phases[phase].next) {
		struct rx_set s = set_range(phases[phase].from, phases[phase].to);
		r = rx_cat(p, r, rx_bytes(p, &s));
	}
	return r;
}

/* Characters whose spelling begins with the digits so far. */
static rx hex_chars(struct rx_pool *p, uint32_t digits, uint32_t value)
{
	uint32_t shift = 4 * (4 - digits), from = value << shift, to = from + (1u << shift) - 1;
	struct rx_range of[2] = {{from, to}, {1, 0}};
	uint32_t f = from > HIGH ? from : HIGH, t = to < LOW - 1 ? to : LOW - 1;
	if (f <= t)
		of[1] = (struct rx_range){BMP_END + ((f - HIGH) << 10), BMP_END + ((t - HIGH) << 10) + 0x3FF};
	return rx_chars(p, of, f <= t ? 2 : 1);
}

static rx pair_chars(struct rx_pool *p, uint32_t hi, uint32_t digits, uint32_t value)
{
	uint32_t shift = 4 * (4 - digits), from = value << shift, to = from + (1u << shift) - 1;
	uint32_t f = from > LOW ? from : LOW, t = to < AFTER_LOW - 1 ? to : AFTER_LOW - 1, base = BMP_END + (hi << 10);
	return f > t ? RX_NONE : rx_chars(p, &(struct rx_range){base + f - LOW, base + t - LOW}, 1);
}

static rx rest_of_spelling(struct rx_pool *p, const struct rx_node *n)
{
	switch ((enum json_phase)n->kind) {
	case JSON_START: return RX_EPS;
	case JSON_UTF8: return rest_of_char(p, n->c);
	case JSON_ESC: return any_char(p);
	case JSON_HEX: return hex_chars(p, n->c >> 16, n->c & 0xFFFF);
	case JSON_HI:
	case JSON_HI_ESC: return pair_chars(p, n->c, 0, 0);
	default: return pair_chars(p, n->c >> 20, n->c >> 16 & 0xF, n->c & 0xFFFF);
	}
}

rx rx_json_text(struct rx_pool *p, rx a)
{
	struct rx_node n = *rx_at(p, a);
	return rx_and(p, n.a, rx_cat(p, rest_of_spelling(p, &n), any_text(p)));
}

/* ---- one continuation ---- */

static rx after_char(struct rx_pool *p, rx a, uint32_t phase)
{
	for (; phase != U_DONE && a != RX_NONE; phase = phases[phase].next)
		a = rx_derive(p, a, phases[phase].from);
	return rx_json_node(p, a, JSON_START, 0);
}

/* A letter if the digits so far allow one, as most patterns permit letters; otherwise their lowest character. */
static rx after_hex(struct rx_pool *p, rx a, uint32_t digits, uint32_t value)
{
	uint32_t shift = 4 * (4 - digits), from = value << shift;
	if ((uint32_t)'a' >> shift == value)
		return derive_char(p, a, 'a');
	return from < HIGH || from >= AFTER_LOW ? derive_char(p, a, from) : RX_NONE;
}

rx rx_json_sample(struct rx_pool *p, rx a)
{
	struct rx_node n = *rx_at(p, a);
	switch ((enum json_phase)n.kind) {
	case JSON_UTF8: return after_char(p, n.a, n.c);
	case JSON_ESC: return derive_char(p, n.a, 'a');
	case JSON_HEX: return after_hex(p, n.a, n.c >> 16, n.c & 0xFFFF);
	default: return RX_NONE;
	}
}
