/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/generation/hot_prompts.h"

#include <math.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/clock.h"

static uint64_t key_of(const struct proto_submit *req)
{
	size_t n = req->prompt.n < HOT_KEY_BYTES ? req->prompt.n : HOT_KEY_BYTES;
	const uint64_t whose[] = {req->tenant, req->cache_salt, req->model, req->prompt_kind,
				  req->flags & PROTO_SUBMIT_SHARED_PREFIX};
	uint64_t key = XXH3_64bits_withSeed(req->prompt.at, n, XXH3_64bits(whose, sizeof whose));
	return key != 0 ? key : 1;
}

static double heat_at(const struct hot_prompt *p, uint64_t now_ns)
{
	double ms = now_ns > p->used_ns ? (double)(now_ns - p->used_ns) / NS_PER_MS : 0;
	return p->key != 0 ? p->heat * exp2(-ms / HOT_HALF_LIFE_MS) : -1;
}

static void drop_text(struct hot_prompts *h, struct hot_prompt *p)
{
	h->n_bytes -= p->text.len;
	buf_dispose(&p->text);
}

static void forget(struct hot_prompts *h, struct hot_prompt *p)
{
	drop_text(h, p);
	*p = (struct hot_prompt){0};
}

static struct hot_prompt *find(struct hot_prompts *h, uint64_t key)
{
	for (int i = 0; i < HOT_PROMPTS; i++)
		if (h->of[i].key == key)
			return &h->of[i];
	return NULL;
}

/* with_text: of those that have one, except `but`; NULL: none has. */
static struct hot_prompt *coldest(struct hot_prompts *h, uint64_t now_ns, bool with_text, const struct hot_prompt *but)
{
	struct hot_prompt *least = NULL;
	for (int i = 0; i < HOT_PROMPTS; i++) {
		struct hot_prompt *p = &h->of[i];
		if (p == but || (with_text && p->text.len == 0))
			continue;
		if (least == NULL || heat_at(p, now_ns) < heat_at(least, now_ns))
			least = p;
	}
	return least;
}

static void keep_text(struct hot_prompts *h, struct hot_prompt *p, struct proto_str text, uint64_t now_ns)
{
	struct hot_prompt *other;
	drop_text(h, p);
	if (text.n > HOT_ONE_BYTES)
		return;
	while (h->n_bytes + text.n > HOT_TEXT_BYTES && (other = coldest(h, now_ns, true, p)) != NULL) {
		if (heat_at(other, now_ns) >= p->heat)
			return;
		drop_text(h, other);
	}
	buf_init(&p->text, HOT_ONE_BYTES);
	if (buf_append(&p->text, text.at, text.n) != 0)
		buf_dispose(&p->text);
	h->n_bytes += p->text.len;
	p->text_ns = now_ns;
}

static void drop_old(struct hot_prompts *h, uint64_t now_ns)
{
	for (int i = 0; i < HOT_PROMPTS; i++)
		if (h->of[i].key != 0 && now_ns - h->of[i].used_ns >= HOT_KEPT_MS * NS_PER_MS)
			forget(h, &h->of[i]);
	h->swept_ns = now_ns;
}

void hot_prompts_note(struct hot_prompts *h, const struct proto_submit *req, uint64_t now_ns)
{
	if (now_ns - h->swept_ns >= HOT_RENEW_MS * NS_PER_MS)
		drop_old(h, now_ns);
	if (req->prompt.n < HOT_LEAST_BYTES || (req->flags & PROTO_SUBMIT_EMBED) != 0 || req->model >= PROTO_MAX_MODELS)
		return;
	uint64_t key = key_of(req);
	struct hot_prompt *p = find(h, key);
	if (p == NULL) {
		p = coldest(h, now_ns, false, NULL);
		double least = heat_at(p, now_ns);
		forget(h, p);
		*p = (struct hot_prompt){.key = key,
					 .heat = (least > 0 ? least : 0) + 1,
					 .used_ns = now_ns,
					 .model = req->model,
					 .kind = req->prompt_kind,
					 .shared = req->flags & PROTO_SUBMIT_SHARED_PREFIX,
					 .tenant = req->tenant,
					 .cache_salt = req->cache_salt};
		return;
	}
	p->heat = heat_at(p, now_ns) + 1;
	p->used_ns = now_ns;
	if (p->text.len == 0 || now_ns - p->text_ns >= HOT_RENEW_MS * NS_PER_MS)
		keep_text(h, p, req->prompt, now_ns);
}

struct ranked {
	double heat;
	const struct hot_prompt *p;
};

static int hotter(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;
	return x->heat > y->heat ? -1 : x->heat < y->heat;
}

int hot_prompts_hottest(struct hot_prompts *h, uint64_t now_ns, const struct hot_prompt **out, int most)
{
	struct ranked all[HOT_PROMPTS];
	int n = 0;
	drop_old(h, now_ns);
	for (int i = 0; i < HOT_PROMPTS; i++) {
		struct hot_prompt *p = &h->of[i];
		if (p->text.len > 0)
			all[n++] = (struct ranked){heat_at(p, now_ns), p};
	}
	qsort(all, (size_t)n, sizeof *all, hotter);
	n = n < most ? n : most;
	for (int i = 0; i < n; i++)
		out[i] = all[i].p;
	return n;
}

void hot_prompts_erase(struct hot_prompts *h, uint64_t tenant)
{
	for (int i = 0; i < HOT_PROMPTS; i++)
		if (h->of[i].key != 0 && h->of[i].tenant == tenant)
			forget(h, &h->of[i]);
}

void hot_prompts_dispose(struct hot_prompts *h)
{
	for (int i = 0; i < HOT_PROMPTS; i++)
		forget(h, &h->of[i]);
}
