/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/step/seq_swap.h"

/* Whether swapping these pages, with n_tokens in them, beats computing the tokens again. */
static bool pays(const struct eng_model *m, const struct kv_swapped *w, uint32_t n_tokens)
{
	uint32_t before = w->first * m->kv_groups.page_tokens, n = kv_swap_count(m->swap, w, w->first, w->end);
	return m->e->cfg.swap_fixed || 2 * kv_swap_ns(m->swap, n) < cost_added_ns(&m->cost, 0, before, n_tokens);
}

void seq_swap_out(struct eng_seq *s, uint32_t n_past)
{
	struct eng_model *m = s->model;
	const struct kv_groups *g = &m->kv_groups;
	uint32_t most = eng_seq_n_tokens(s) - 1; /* the last token's row must be computed */
	n_past = n_past < most ? n_past : most;
	if (m->swap == NULL || s->embed || is_searching(s) || s->draft_prefix.open || n_past == 0)
		return;
	struct kv_swapped w = {.first = prefix_n_shared(&s->path),
			       .first_windowed = kv_groups_first(g, n_past),
			       .end = kv_groups_indices(g, n_past),
			       .n_past = n_past};
	if (w.end <= w.first || !pays(m, &w, n_past - w.first * g->page_tokens))
		return;
	s->swapped = w;
	int rc = kv_swap_out(m->swap, batch_row(m, s->slot), m->max_pages, &s->swapped);
	if (rc == SL_ELIMIT)
		atomic_fetch_add(&m->e->swap_full, 1);
	if (rc == 0)
		atomic_fetch_add(&m->e->swapped_out, s->swapped.n_pages);
}

uint32_t seq_swap_would_have(const struct eng_seq *s, uint32_t n_found)
{
	const struct kv_swapped *w = &s->swapped;
	return w->n_past > n_found && n_found / s->model->kv_groups.page_tokens >= w->first ? w->n_past : n_found;
}

/* Allocates and fills the pages of one swapped index. False: no memory, or a fault that the next step reports. */
static bool bring(struct eng_seq *s, uint32_t index)
{
	struct eng_model *m = s->model;
	const struct kv_swapped *w = &s->swapped;
	int32_t *row = batch_row(m, s->slot);
	/* The first page may already hold some tokens, in a copy owned by s. */
	if (index == s->sched.n_pages) {
		if (batch_take_index(m, row, index, kv_swap_groups(m->swap, w, index)) != 0)
			return false;
		s->sched.n_pages++;
	}
	return kv_swap_in(m->swap, w, index, row, m->max_pages) == 0;
}

/* The pages of s are there up to w->n_past: those of windows that its next row no longer sees are not. found: page
 * indices that it had before. */
static void pass_found(struct eng_seq *s, uint32_t found)
{
	const struct eng_model *m = s->model;
	uint32_t first = s->swapped.first_windowed, held = first < found ? first : found;
	if (first <= s->sched.first_page)
		return;
	prefix_pass(m->prefix, &s->path, s->tokens, first);
	if (held > s->sched.first_page)
		batch_pass_row(m, batch_row(m, s->slot), s->sched.first_page, held);
	s->sched.first_page = first;
}

/* Not all of them are there, so windows have a gap: only what s had before counts. */
static void undo(struct eng_seq *s, uint32_t found)
{
	uint32_t first = s->sched.first_page;
	if (s->swapped.first_windowed > first)
		s->sched.first_page = s->swapped.first_windowed;
	batch_cut_pages(s, found);
	s->sched.first_page = first;
}

void seq_swap_in(struct eng_seq *s)
{
	struct eng_model *m = s->model;
	const struct kv_swapped *w = &s->swapped;
	uint32_t page = m->kv_groups.page_tokens, i = s->sched.n_past / page, before = i, found = s->sched.n_pages;
	if (seq_swap_would_have(s, s->sched.n_past) > s->sched.n_past) {
		while (i < w->end && bring(s, i))
			i++;
		uint32_t n = i * page < w->n_past ? i * page : w->n_past;
		if (i == w->end)
			pass_found(s, found);
		else if (m->kv_groups.window > 0)
			undo(s, found);
		if (i == w->end || m->kv_groups.window == 0)
			s->sched.n_past = n > s->sched.n_past ? n : s->sched.n_past;
		prefix_computed(m->prefix, &s->path, s->tokens, s->sched.n_past, batch_row(m, s->slot));
		atomic_fetch_add(&m->e->swapped_in, kv_swap_count(m->swap, w, before, i));
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
