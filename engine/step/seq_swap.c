/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/step/seq_swap.h"

static uint32_t page_tokens_of(const struct eng_seq *s) { return (uint32_t)kv_page_tokens(s->model->pool); }

/* Whether swapping n pages from page `first` on, with n_tokens in them, beats computing these tokens again. */
static bool pays(const struct eng_model *m, uint32_t first, uint32_t n, uint32_t n_tokens)
{
	uint32_t before = first * (uint32_t)kv_page_tokens(m->pool);
	return m->e->cfg.swap_fixed || 2 * kv_swap_ns(m->swap, n) < cost_added_ns(&m->cost, 0, before, n_tokens);
}

void seq_swap_out(struct eng_seq *s, uint32_t n_past)
{
	struct eng_model *m = s->model;
	uint32_t page = page_tokens_of(s), most = eng_seq_n_tokens(s) - 1; /* the last token's row must be computed */
	n_past = n_past < most ? n_past : most;
	if (m->swap == NULL || s->embed || is_searching(s) || s->draft_prefix.open || n_past == 0)
		return;
	uint32_t shared = s->path.n_pages - prefix_n_exclusive(&s->path), all = (n_past + page - 1) / page;
	if (all <= shared || !pays(m, shared, all - shared, n_past - shared * page))
		return;
	int rc = kv_swap_out(m->swap, batch_row(m, s->slot) + shared, all - shared, shared, n_past, &s->swapped);
	if (rc == SL_ELIMIT)
		atomic_fetch_add(&m->e->swap_full, 1);
	if (rc == 0)
		atomic_fetch_add(&m->e->swapped_out, all - shared);
}

uint32_t seq_swap_would_have(const struct eng_seq *s, uint32_t n_found)
{
	const struct kv_swapped *w = &s->swapped;
	return w->n_past > n_found && n_found / page_tokens_of(s) >= w->first ? w->n_past : n_found;
}

void seq_swap_in(struct eng_seq *s)
{
	struct eng_model *m = s->model;
	const struct kv_swapped *w = &s->swapped;
	int32_t *row = batch_row(m, s->slot);
	uint32_t page = page_tokens_of(s), i = s->sched.n_past / page, before = i;
	if (seq_swap_would_have(s, s->sched.n_past) > s->sched.n_past) {
		/* The first page may already hold some tokens, in a copy owned by s. */
		for (; i < w->first + w->n_pages; i++) {
			if (i == s->sched.n_pages && prefix_page_alloc(m->prefix, &row[i]) != 0)
				break;
			s->sched.n_pages += i == s->sched.n_pages;
			if (kv_swap_in(m->swap, w, i - w->first, row[i]) != 0)
				break; /* the next step fails */
		}
		uint32_t n = i * page < w->n_past ? i * page : w->n_past;
		s->sched.n_past = n > s->sched.n_past ? n : s->sched.n_past;
		prefix_computed(m->prefix, &s->path, s->tokens, s->sched.n_past, row);
		atomic_fetch_add(&m->e->swapped_in, i - before);
		s->arriving = i > before && m->ops->pages_there != NULL;
	}
	seq_swap_drop(s);
}

bool seq_swap_arriving(struct eng_seq *s)
{
	if (s->arriving && s->model->ops->pages_there(s->model->backend))
		s->arriving = false;
	return s->arriving;
}

void seq_swap_drop(struct eng_seq *s)
{
	if (s->swapped.n_pages > 0)
		kv_swap_drop(s->model->swap, &s->swapped);
}
