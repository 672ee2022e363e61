/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/grammar/grammar_priv.h"

#include <string.h>

#include "base/alloc.h"
#include "engine/token/tokenizer.h"

enum { DEFAULT_STATES = 1 << 18, DEFAULT_BYTES = 64 << 20, DEFAULT_WORK = 1 << 18, MAX_SEARCH = 1 << 16 };

static void apply_defaults(struct grammar_limits *l)
{
	if (l->max_states == 0)
		l->max_states = DEFAULT_STATES;
	if (l->max_bytes == 0)
		l->max_bytes = DEFAULT_BYTES;
	if (l->max_work == 0)
		l->max_work = DEFAULT_WORK;
}

int grammar_create(struct grammar_vocab *v, struct rules *r, const struct grammar_limits *limits, struct grammar **out,
		   struct sl_err *err)
{
	int rc = rules_fault(r);
	struct grammar *g = rc == 0 ? sl_zalloc(sizeof(*g)) : NULL;
	if (g == NULL) {
		rules_destroy(r);
		return rc != 0 ? rc : SL_ENOMEM;
	}
	if (limits != NULL)
		g->limits = *limits;
	apply_defaults(&g->limits);
	g->next_states = g->limits.max_states;
	g->next_bytes = g->limits.max_bytes;
	struct auto_limits of = {MAX_SEARCH, g->limits.max_work, g->limits.max_bytes};
	rc = auto_init(&g->a, r, &of, err);
	rules_destroy(r);
	if (rc == SL_ELIMIT && err != NULL && err->text[0] == '\0')
		sl_errf(err, rc, "the constraint's automaton takes too many steps to make");
	g->walk = sl_zalloc_n((size_t)v->all.depth + 1, sizeof(*g->walk));
	if (rc == 0 && g->walk == NULL) {
		auto_dispose(&g->a);
		rc = SL_ENOMEM;
	}
	if (rc != 0) {
		sl_free(g->walk);
		sl_free(g);
		return rc;
	}
	g->vocab = grammar_vocab_ref(v);
	g->refs = 1;
	pthread_mutex_init(&g->lock, NULL);
	*out = g;
	return 0;
}

struct grammar *grammar_ref(struct grammar *g)
{
	g->refs++;
	return g;
}

void grammar_unref(struct grammar *g)
{
	if (g == NULL || --g->refs > 0)
		return;
	pthread_mutex_destroy(&g->lock);
	auto_dispose(&g->a);
	masks_dispose(&g->masks);
	grammar_vocab_unref(g->vocab);
	sl_free(g->walk);
	sl_free(g);
}

/* ---- states ---- */

static size_t bytes_of(const struct grammar *g) { return auto_bytes(&g->a) + g->masks.bytes; }

/* Drops caches that exceed the limits. What sequences' states need stays, and the limits then become at least twice
 * that. */
static void drop_caches(struct grammar *g)
{
	size_t most_states = g->next_states, most_bytes = g->next_bytes;
	/* An unfinished mask would have to begin again. */
	if (g->unfinished.config != 0) {
		most_states += most_states / 2;
		most_bytes += most_bytes / 2;
	}
	if (g->a.n_live <= most_states && bytes_of(g) <= most_bytes)
		return;
	if (auto_collect(&g->a) != 0)
		return;
	masks_clear(&g->masks);
	g->unfinished.config = 0;
	memset(g->forced, 0, sizeof(g->forced));
	size_t states = 2 * (size_t)g->a.n_live, bytes = 2 * bytes_of(g);
	g->next_states = states > g->limits.max_states ? states : g->limits.max_states;
	g->next_bytes = bytes > g->limits.max_bytes ? bytes : g->limits.max_bytes;
}

static void lock(struct grammar *g)
{
	pthread_mutex_lock(&g->lock);
	drop_caches(g);
	auto_begin(&g->a);
}

static _Thread_local uint64_t spent;

uint64_t grammar_spent(void) { return spent; }

static void unlock(struct grammar *g)
{
	spent += g->a.work + g->forced_work;
	g->forced_work = 0;
	pthread_mutex_unlock(&g->lock);
}

/* Moves s to another configuration. Locked. */
static void move(struct grammar_state *s, uint32_t to)
{
	s->g->a.configs[to].refs++;
	s->g->a.configs[s->at].refs--;
	s->at = to;
}

int grammar_state_init(struct grammar_state *s, struct grammar *g)
{
	*s = (struct grammar_state){.g = grammar_ref(g)};
	lock(g);
	s->at = g->a.start;
	g->a.configs[s->at].refs++;
	unlock(g);
	return 0;
}

void grammar_state_copy(struct grammar_state *to, const struct grammar_state *from)
{
	*to = *from;
	if (to->g == NULL)
		return;
	grammar_ref(to->g);
	lock(to->g);
	to->g->a.configs[to->at].refs++;
	unlock(to->g);
}

void grammar_state_dispose(struct grammar_state *s)
{
	if (s->g != NULL) {
		lock(s->g);
		s->g->a.configs[s->at].refs--;
		unlock(s->g);
		grammar_unref(s->g);
	}
	*s = (struct grammar_state){0};
}

/* The forced token, or -1. Locked. */
static int32_t forced_one(struct grammar_state *s)
{
	int32_t id;
	return forced_find(s, &id, 1) == 1 ? id : -1;
}

/* Locked. */
static int make_mask(struct grammar_state *s, uint32_t *mask)
{
	int32_t id = forced_one(s);
	int rc = auto_fault(&s->g->a);
	if (id >= 0) {
		memset(mask, 0, s->g->vocab->words * sizeof(*mask));
		mask[(uint32_t)id / 32] |= (uint32_t)1 << ((uint32_t)id % 32);
	} else if (rc == 0) {
		rc = mask_write(s->g, s->at, mask);
	}
	return rc;
}

int grammar_mask(struct grammar_state *s, uint32_t *mask)
{
	int rc;
	do /* again if only a mask that others left unfinished failed */
		rc = grammar_mask_within(s, mask, UINT64_MAX);
	while (rc == SL_EAGAIN);
	return rc;
}

int grammar_mask_within(struct grammar_state *s, uint32_t *mask, uint64_t work)
{
	lock(s->g);
	auto_allow(&s->g->a, GRAMMAR_MASK_WORK * s->g->limits.max_work);
	auto_pause_after(&s->g->a, work);
	int rc = make_mask(s, mask);
	unlock(s->g);
	return rc;
}

uint32_t grammar_follow(struct grammar *g, uint32_t at, const char *text, size_t n)
{
	for (size_t i = 0; i < n && at != AUTO_DEAD && at != AUTO_FAIL; i++)
		at = auto_step(&g->a, at, (uint8_t)text[i]);
	return at;
}

uint32_t grammar_follow_token(struct grammar *g, uint32_t at, int32_t id)
{
	static const char mark[] = {(char)VOCAB_MARK};
	const struct tokenizer *t = g->vocab->tok;
	struct proto_str b = tokenizer_bytes(t, id);
	if (!vocab_is_mark(t, id))
		return grammar_follow(g, at, b.at, b.n);
	at = grammar_follow(g, at, mark, 1);
	at = grammar_follow(g, at, b.at, b.n);
	return grammar_follow(g, at, mark, 1);
}

/* The configuration after a token; AUTO_DEAD: not permitted. Locked. */
static uint32_t by_token(struct grammar_state *s, int32_t id)
{
	const struct tokenizer *t = s->g->vocab->tok;
	if (id < 0 || id >= tokenizer_n_vocab(t) || (!vocab_is_text(t, id) && !vocab_is_mark(t, id)))
		return AUTO_DEAD;
	int32_t forced = forced_one(s);
	if (auto_fault(&s->g->a) != 0)
		return AUTO_FAIL;
	return forced >= 0 && forced != id ? AUTO_DEAD : grammar_follow_token(s->g, s->at, id);
}

bool grammar_permits(struct grammar_state *s, int32_t id)
{
	lock(s->g);
	uint32_t to = by_token(s, id);
	unlock(s->g);
	return to != AUTO_DEAD && to != AUTO_FAIL;
}

/* Advances s by text. Locked. */
static int go(struct grammar_state *s, uint32_t to, const char *text, size_t n)
{
	if (to == AUTO_FAIL)
		return auto_fault(&s->g->a);
	if (to == AUTO_DEAD)
		return SL_EINVAL;
	move(s, to);
	forced_note(s, text, n);
	return 0;
}

int grammar_accept_bytes(struct grammar_state *s, const char *text, size_t n)
{
	lock(s->g);
	int rc = go(s, grammar_follow(s->g, s->at, text, n), text, n);
	unlock(s->g);
	return rc;
}

int grammar_accept(struct grammar_state *s, int32_t id) { return grammar_accept_within(s, id, UINT64_MAX); }

int grammar_accept_within(struct grammar_state *s, int32_t id, uint64_t work)
{
	lock(s->g);
	auto_pause_after(&s->g->a, work);
	uint32_t to = by_token(s, id);
	struct proto_str b = {0};
	if (to != AUTO_DEAD)
		b = tokenizer_bytes(s->g->vocab->tok, id);
	int rc = go(s, to, b.at, b.n);
	if (rc == 0 && vocab_is_mark(s->g->vocab->tok, id))
		forced_note_mark(s);
	unlock(s->g);
	return rc;
}

bool grammar_may_end(struct grammar_state *s)
{
	lock(s->g);
	bool may = s->g->a.configs[s->at].may_end;
	unlock(s->g);
	return may;
}

bool grammar_must_end(struct grammar_state *s)
{
	lock(s->g);
	struct automaton *a = &s->g->a;
	bool must = a->configs[s->at].may_end && auto_expand(a, s->at) && set_empty(&a->configs[s->at].alive);
	unlock(s->g);
	return must;
}

size_t grammar_forced(struct grammar_state *s, int32_t *ids, size_t max)
{
	return grammar_forced_within(s, ids, max, UINT64_MAX);
}

size_t grammar_forced_within(struct grammar_state *s, int32_t *ids, size_t max, uint64_t work)
{
	if (max == 0)
		return 0;
	lock(s->g);
	auto_pause_after(&s->g->a, work);
	size_t n = forced_find(s, ids, max);
	unlock(s->g);
	return n;
}
