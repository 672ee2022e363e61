/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/step/embed.h"

#include <math.h>

static uint8_t refuse(struct sl_err *err, const char *why)
{
	sl_errf(err, SL_EINVAL, "%s", why);
	return PROTO_ERR_BAD_REQUEST;
}

uint8_t embed_accept(struct eng_seq *s, const struct eng_model *m, struct sl_err *err)
{
	unsigned does = model_does(&m->info.arch);
	bool pair = s->text.prompt_kind == PROTO_PROMPT_PAIR;
	if (!s->embed)
		return (does & PROTO_DOES_GENERATE) != 0 ? 0 : refuse(err, "This model does not generate text.");
	if (pair && (does & PROTO_DOES_RANK) == 0)
		return refuse(err, "This model does not score pairs of texts.");
	if (!pair && (does & PROTO_DOES_EMBED) == 0)
		return refuse(err, "This model does not make embeddings.");
	s->unshared = m->info.arch.encoder || m->info.arch.pooling != ARCH_POOL_LAST;
	return 0;
}

void embed_rows(struct step *st, struct batch *b, struct eng_seq *s, uint32_t n)
{
	bool ends = s->sched.n_left == 0;
	if (n == 0 || (!ends && s->model->info.arch.pooling != ARCH_POOL_MEAN))
		return;
	st->text_seqs[b->n_texts] = s;
	st->texts[b->n_texts++] = (struct model_text){
	    .at = {.row = b->n_rows - (int)n, .n_rows = (int)n, .slot = s->slot, .begins = s->sched.n_past == n},
	    .ends = ends};
}

static bool all_finite(const float *v, int n)
{
	for (int i = 0; i < n; i++)
		if (!isfinite(v[i]))
			return false;
	return true;
}

/* A sum becomes the mean. */
static void divide(float *v, int n, uint32_t by)
{
	for (int i = 0; i < n; i++)
		v[i] = (float)((double)v[i] / by);
}

static void report(struct step *st, struct eng_seq *s, float *v, int n)
{
	if (s->model->info.arch.pooling == ARCH_POOL_MEAN)
		divide(v, n, s->n_prompt);
	if (!all_finite(v, n)) {
		step_fail(st, s, PROTO_ERR_INTERNAL);
		return;
	}
	struct eng_event ev = {
	    .kind = ENG_EMBEDDING, .id = s->node.key, .u.embedding = {.n = (uint16_t)n, .values = v}};
	st->e->on_event(st->e->on_event_ctx, &ev);
	step_finish(st, s, PROTO_FINISH_STOP, 0, "");
}

void embed_serve(struct step *st, struct eng_model *m, const struct step_in_flight *f)
{
	int width = model_pooled_width(m->model);
	for (int i = 0; i < f->b.n_texts; i++)
		if (f->texts[i].s != NULL)
			report(st, f->texts[i].s, f->pooled + (size_t)i * (size_t)width, width);
}
