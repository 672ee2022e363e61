/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/plan/model_steps.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "kernels/kv_type.h"

static int make_rows(struct model_steps *x, int rows, int n_vocab)
{
	x->pages = sl_zalloc_n((size_t)x->n_seqs * (size_t)x->max_pages, sizeof *x->pages);
	x->token = sl_zalloc_n((size_t)rows, sizeof *x->token);
	x->pos = sl_zalloc_n((size_t)rows, sizeof *x->pos);
	x->seq = sl_zalloc_n((size_t)rows, sizeof *x->seq);
	x->want = sl_zalloc_n((size_t)rows, sizeof *x->want);
	x->logits = sl_zalloc_n((size_t)x->n_seqs * (size_t)n_vocab, sizeof *x->logits);
	if (!x->pages || !x->token || !x->pos || !x->seq || !x->want || !x->logits)
		return SL_ENOMEM;
	for (int i = 0; i < x->n_seqs * x->max_pages; i++)
		x->pages[i] = i;
	return 0;
}

int model_steps_open(struct model_steps *x, const char *path, const struct model_how *how, const char *kv,
		     int n_threads, int n_seqs, int context, struct sl_err *err)
{
	struct model_info info;
	*x = (struct model_steps){.n_seqs = n_seqs, .max_pages = (context + STEPS_PAGE - 1) / STEPS_PAGE};
	int rc = model_inspect(path, &info, err);
	if (rc != 0)
		return rc;
	const struct model_arch *a = &info.arch;
	int rows = n_seqs > STEPS_CHUNK ? n_seqs : STEPS_CHUNK;
	struct kn_config kc = {.n_threads = n_threads, .max_rows = rows, .max_width = arch_widest(a), .pad_rows = true};
	x->ops = kn_select("auto", err);
	if (x->ops == NULL)
		return SL_EUNSUPPORTED;
	if ((rc = x->ops->open(&kc, &x->b, err)) != 0 ||
	    (rc = model_load_as(path, how, x->ops, x->b, rows, 0, &x->m, err)) != 0)
		return rc;
	x->kv_type = strcmp(kv, "auto") == 0 ? kn_kv_type_auto(x->ops) : kn_kv_type_from_name(kv);
	struct kn_kv layout = model_kv_layout(a, x->kv_type, STEPS_PAGE, a->n_layers);
	x->kv_bytes = (double)kv_layout_bytes(&layout) / STEPS_PAGE;
	layout.n_pages = n_seqs * x->max_pages;
	if ((rc = kv_pool_make(x->ops, x->b, &layout, &x->pool, err)) != 0)
		return rc;
	if (arch_is_recurrent(a) &&
	    (rc = kv_states_create(x->ops, x->b, arch_state(a), n_seqs, 0, &x->states, err)) != 0)
		return rc;
	rc = make_rows(x, rows, a->n_vocab);
	return rc == 0 ? 0 : sl_errf(err, rc, "out of memory");
}

void model_steps_close(struct model_steps *x)
{
	kv_pool_destroy(x->pool);
	kv_states_destroy(x->states);
	if (x->m != NULL)
		model_free(x->m);
	if (x->b != NULL)
		x->ops->close(x->b);
	void *all[] = {x->pages, x->token, x->pos, x->seq, x->want, x->logits};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		sl_free(all[i]);
	*x = (struct model_steps){0};
}

int model_steps_run(struct model_steps *x, int n_rows, int n_want)
{
	struct kn_step s = {.n_rows = n_rows,
			    .row_token = x->token,
			    .row_pos = x->pos,
			    .row_seq = x->seq,
			    .n_seqs = x->n_seqs,
			    .page_table = x->pages,
			    .max_pages = x->max_pages};
	kv_states_in_step(x->states, &s);
	return model_forward(x->m, &s, kv_pool_layout(x->pool), x->want, n_want, x->logits);
}

static double timed_ns(struct model_steps *x, int n_rows, int n_want)
{
	uint64_t begin = clock_now_ns();
	return model_steps_run(x, n_rows, n_want) == 0 ? (double)(clock_now_ns() - begin) : 0;
}

double model_steps_prompt_ns(struct model_steps *x, int from, int n_rows, bool wants)
{
	for (int i = 0; i < n_rows; i++) {
		x->token[i] = (from + i) * 7919 % model_info(x->m)->arch.n_vocab;
		x->pos[i] = from + i;
		x->seq[i] = 0;
	}
	x->want[0] = n_rows - 1;
	return timed_ns(x, n_rows, wants);
}

double model_steps_answer_ns(struct model_steps *x, int n, int past)
{
	for (int i = 0; i < n; i++) {
		x->token[i] = (past * 31 + i) % model_info(x->m)->arch.n_vocab;
		x->pos[i] = past;
		x->seq[i] = i;
		x->want[i] = i;
	}
	return timed_ns(x, n, n);
}
