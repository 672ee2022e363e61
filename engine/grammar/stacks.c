/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/grammar/stacks.h"

#include <string.h>

#include "base/alloc.h"
#include "base/err.h"

enum { FIRST = 64, FIRST_TABLE = 256, MEMO = 256, MAX_DEPTH = 2000, MAX_FRAMES = 1 << 28 };

static uint32_t fail(struct stacks *s, int code)
{
	if (s->fault == 0)
		s->fault = code;
	return STACKS_FAIL;
}

static uint32_t hash_of(const struct stack_frame *f, uint32_t n)
{
	uint64_t h = n;
	for (uint32_t i = 0; i < n; i++) {
		h = (h ^ ((uint64_t)f[i].pos << 32 | f[i].count)) * 0x9E3779B97F4A7C15u;
		h = ((h ^ h >> 31) ^ f[i].below) * 0xBF58476D1CE4E5B9u;
		h ^= h >> 29;
	}
	return (uint32_t)(h >> 32);
}

static void rehash(struct stacks *s)
{
	for (uint32_t i = 1; i < s->n_sets; i++) {
		uint32_t at = hash_of(s->frames + s->sets[i].from, s->sets[i].n) & s->table_mask;
		while (s->table[at] != 0)
			at = (at + 1) & s->table_mask;
		s->table[at] = i;
	}
}

static bool grow_table(struct stacks *s)
{
	uint32_t mask = 2 * s->table_mask + 1;
	uint32_t *t = sl_zalloc_n((size_t)mask + 1, sizeof(*t));
	if (t == NULL)
		return false;
	sl_free(s->table);
	s->table = t;
	s->table_mask = mask;
	rehash(s);
	return true;
}

static bool make_room(struct stacks *s, uint32_t n)
{
	if (s->n_sets == s->cap_sets) {
		struct stack_set *more = sl_realloc_n(s->sets, 2 * (size_t)s->cap_sets, sizeof(*more));
		if (more == NULL)
			return false;
		s->sets = more;
		s->cap_sets *= 2;
	}
	if (s->n_frames + n > s->cap_frames) {
		size_t cap = 2 * s->cap_frames + n;
		struct stack_frame *more = sl_realloc_n(s->frames, cap, sizeof(*more));
		if (more == NULL)
			return false;
		s->frames = more;
		s->cap_frames = cap;
	}
	return 2 * s->n_sets <= s->table_mask || grow_table(s);
}

/* Interns the set of the last n frames, which were just appended; removes them again if the set exists. */
static uint32_t intern_last(struct stacks *s, uint32_t n)
{
	size_t from = s->n_frames - n;
	const struct stack_frame *f = s->frames + from;
	uint32_t hash = hash_of(f, n);
	uint32_t at = hash & s->table_mask;
	for (; s->table[at] != 0; at = (at + 1) & s->table_mask) {
		const struct stack_set *o = &s->sets[s->table[at]];
		if (o->n == n && memcmp(s->frames + o->from, f, n * sizeof(*f)) == 0) {
			s->n_frames = from;
			return s->table[at];
		}
	}
	uint32_t mask = s->table_mask;
	if (s->n_frames > MAX_FRAMES)
		return fail(s, SL_ELIMIT);
	if (!make_room(s, 0))
		return fail(s, SL_ENOMEM);
	if (mask != s->table_mask)
		for (at = hash & s->table_mask; s->table[at] != 0;)
			at = (at + 1) & s->table_mask;
	s->sets[s->n_sets] = (struct stack_set){.from = (uint32_t)from, .n = n};
	s->table[at] = s->n_sets;
	return s->n_sets++;
}

uint32_t stacks_push(struct stacks *s, uint32_t pos, uint32_t count, uint32_t below)
{
	if (s->fault != 0 || below == STACKS_FAIL)
		return STACKS_FAIL;
	if (!make_room(s, 1))
		return fail(s, SL_ENOMEM);
	++*s->work;
	s->frames[s->n_frames++] = (struct stack_frame){pos, count, below};
	return intern_last(s, 1);
}

int stacks_init(struct stacks *s, uint64_t *work)
{
	*s = (struct stacks){.cap_sets = FIRST, .cap_frames = FIRST, .table_mask = FIRST_TABLE - 1, .work = work};
	s->sets = sl_zalloc_n(FIRST, sizeof(*s->sets));
	s->frames = sl_zalloc_n(FIRST, sizeof(*s->frames));
	s->table = sl_zalloc_n(FIRST_TABLE, sizeof(*s->table));
	s->memo = sl_zalloc_n(MEMO, sizeof(*s->memo));
	s->n_sets = 1;
	if (s->sets == NULL || s->frames == NULL || s->table == NULL || s->memo == NULL ||
	    stacks_push(s, 0, 0, STACKS_NONE) != STACKS_BOTTOM) {
		stacks_dispose(s);
		return SL_ENOMEM;
	}
	return 0;
}

void stacks_dispose(struct stacks *s)
{
	sl_free(s->sets);
	sl_free(s->frames);
	sl_free(s->table);
	sl_free(s->memo);
	*s = (struct stacks){0};
}

size_t stacks_bytes(const struct stacks *s)
{
	return s->n_sets * (sizeof(*s->sets) + 2 * sizeof(*s->table)) + s->n_frames * sizeof(*s->frames);
}

/* ---- unions ---- */

static uint32_t unite(struct stacks *s, uint32_t a, uint32_t b, unsigned depth);

static bool before(struct stack_frame a, struct stack_frame b)
{
	return a.pos != b.pos ? a.pos < b.pos : a.count < b.count;
}

/* First the sets below common frames, which must be written before; then the frames. */
static uint32_t merge(struct stacks *s, uint32_t a, uint32_t b, unsigned depth)
{
	struct stack_set x = s->sets[a], y = s->sets[b];
	struct stack_frame few[16], *to = few;
	if (x.n + y.n > 16 && (to = sl_alloc((x.n + y.n) * sizeof(*to))) == NULL)
		return fail(s, SL_ENOMEM);
	uint32_t i = 0, k = 0, n = 0;
	while (i < x.n && k < y.n) {
		struct stack_frame f = s->frames[x.from + i], g = s->frames[y.from + k];
		bool first = !before(g, f), second = !before(f, g);
		if (first && second)
			f.below = unite(s, f.below, g.below, depth + 1);
		to[n++] = first ? f : g;
		i += first;
		k += second;
	}
	for (; i < x.n; i++)
		to[n++] = s->frames[x.from + i];
	for (; k < y.n; k++)
		to[n++] = s->frames[y.from + k];
	*s->work += n;
	uint32_t r = STACKS_FAIL;
	if (s->fault == 0 && !make_room(s, n))
		fail(s, SL_ENOMEM);
	if (s->fault == 0) {
		memcpy(s->frames + s->n_frames, to, n * sizeof(*to));
		s->n_frames += n;
		r = intern_last(s, n);
	}
	if (to != few)
		sl_free(to);
	return r;
}

static uint32_t unite(struct stacks *s, uint32_t a, uint32_t b, unsigned depth)
{
	if (s->fault != 0 || a == STACKS_FAIL || b == STACKS_FAIL)
		return STACKS_FAIL;
	if (a == b || b == STACKS_NONE)
		return a;
	if (a == STACKS_NONE)
		return b;
	if (depth > MAX_DEPTH)
		return fail(s, SL_ELIMIT);
	if (a > b) {
		uint32_t t = a;
		a = b;
		b = t;
	}
	struct stack_memo *m = &s->memo[(a * 31 + b) % MEMO];
	if (m->a == a && m->b == b)
		return m->is;
	uint32_t r = merge(s, a, b, depth);
	if (r != STACKS_FAIL)
		*m = (struct stack_memo){a, b, r};
	return r;
}

uint32_t stacks_union(struct stacks *s, uint32_t a, uint32_t b) { return unite(s, a, b, 0); }

void stacks_pack(struct stacks *s, const uint32_t *ids)
{
	uint32_t to = 0;
	size_t frames = 0;
	for (uint32_t i = 0; i < s->n_sets; i++) {
		struct stack_set set = s->sets[i];
		if (ids[i] == UINT32_MAX)
			continue;
		memmove(s->frames + frames, s->frames + set.from, set.n * sizeof(*s->frames));
		for (uint32_t k = 0; k < set.n; k++)
			s->frames[frames + k].below = ids[s->frames[frames + k].below];
		set.from = (uint32_t)frames;
		frames += set.n;
		s->sets[to++] = set;
	}
	s->n_sets = to;
	s->n_frames = frames;
	memset(s->memo, 0, MEMO * sizeof(*s->memo));
	memset(s->table, 0, ((size_t)s->table_mask + 1) * sizeof(*s->table));
	rehash(s);
}
