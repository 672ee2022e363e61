/* SPDX-License-Identifier: Apache-2.0
 *
 * The forward pass: a decoder's layers and head, and steps of either kind of model, issued and waited for. Everything
 * that it needs has been loaded and checked by model.c, so nothing can be missing here.
 */
#include "engine/model/adapters.h"
#include "engine/model/model_priv.h"

/* m->normed = x + add (NULL: x), which becomes x, normed; add may be m->normed. */
static int norm(struct model *m, const float *add, const float *gain, const float *bias, int n)
{
	const struct model_arch *a = &m->info.arch;
	const struct kn_ops *o = m->ops;
	if (a->layer_norm)
		return o->layernorm(m->backend, m->x, add, gain, bias, a->rms_eps, n, a->n_embd, m->normed);
	return add == NULL ? o->rmsnorm(m->backend, m->x, gain, a->rms_eps, n, a->n_embd, m->normed)
			   : o->add_rmsnorm(m->backend, m->x, add, gain, a->rms_eps, n, a->n_embd, m->normed);
}

/* x += what a half of a layer has made in m->normed, normed itself where the family does so; then m->normed is x
 * normed for what comes next, with that one's gain and bias (gain NULL: it reads x, or nothing comes). */
static int add_back(struct model *m, const float *post_norm, const float *gain, const float *bias, int n)
{
	const struct model_arch *a = &m->info.arch;
	int rc = 0;
	if (post_norm != NULL)
		rc = m->ops->rmsnorm(m->backend, m->normed, post_norm, a->rms_eps, n, a->n_embd, m->normed);
	if (rc == 0 && a->residual_scale != 1)
		rc = m->ops->scale(m->backend, m->normed, a->residual_scale, n, a->n_embd);
	if (rc != 0)
		return rc;
	if (gain == NULL)
		return m->ops->add(m->backend, m->x, m->normed, n, a->n_embd);
	return norm(m, m->normed, gain, bias, n);
}

int model_add_bias(struct model *m, float *x, const float *bias, int n, int width)
{
	return bias != NULL ? m->ops->add_row(m->backend, x, bias, n, width) : 0;
}

/* As model_project, in m->qkv, and on to the pages: one product. */
static int project_joined(struct model *m, const struct layer *l, const float *from, int n, const struct kn_kv *kv,
			  int layer)
{
	const struct model_arch *a = &m->info.arch;
	const struct kn_ops *o = m->ops;
	struct kn_backend *b = m->backend;
	int rc;
	if ((rc = o->matmul(b, &l->qkv, from, n, m->qkv)) != 0 || (rc = adapters_qkv(m, l, from)) != 0)
		return rc;
	if (l->q_bias != NULL && (rc = o->add_row(b, m->qkv, l->q_bias, n, l->qkv.n_out)) != 0)
		return rc;
	if (l->q_norm != NULL && (rc = o->qkv_norm(b, m->qkv, a->n_heads, a->n_kv_heads, a->head_dim, l->q_norm,
						   l->k_norm, a->rms_eps, n)) != 0)
		return rc;
	return o->qkv_rope_write(b, l->rope, m->qkv, a->n_heads, kv, layer);
}

/* Queries, with their gates in m->attn_gate where they have some. */
static int project_queries(struct model *m, const struct layer *l, const float *from, int n)
{
	const struct model_arch *a = &m->info.arch;
	const struct kn_ops *o = m->ops;
	int rc = o->matmul(m->backend, &l->q, from, n, a->attn_gate ? m->q_gated : m->q);
	return rc != 0 || !a->attn_gate
		   ? rc
		   : o->halve(m->backend, m->q_gated, n * a->n_heads, a->head_dim, m->q, m->attn_gate);
}

/* Queries, keys and values of the rows at `from`, turned, the latter two in their pages. */
int model_project(struct model *m, const struct layer *l, const float *from, int n, const struct kn_kv *kv, int layer)
{
	const struct model_arch *a = &m->info.arch;
	const struct kn_ops *o = m->ops;
	struct kn_backend *b = m->backend;
	int q_width = a->n_heads * a->head_dim, kv_width = a->n_kv_heads * a->head_dim, rc;
	if (l->qkv.data != NULL)
		return project_joined(m, l, from, n, kv, layer);
	if ((rc = project_queries(m, l, from, n)) != 0 || (rc = o->matmul(b, &l->k, from, n, m->k)) != 0 ||
	    (rc = o->matmul(b, &l->v, from, n, m->v)) != 0 || (rc = adapters_qkv(m, l, from)) != 0)
		return rc;
	if (l->q_bias != NULL && ((rc = o->add_row(b, m->q, l->q_bias, n, q_width)) != 0 ||
				  (rc = o->add_row(b, m->k, l->k_bias, n, kv_width)) != 0 ||
				  (rc = o->add_row(b, m->v, l->v_bias, n, kv_width)) != 0))
		return rc;
	/* Each head is a row of its own, or all are one. */
	int q_rows = a->qk_norm_row ? n : n * a->n_heads, k_rows = a->qk_norm_row ? n : n * a->n_kv_heads;
	if (l->q_norm != NULL &&
	    ((rc = o->rmsnorm(b, m->q, l->q_norm, a->rms_eps, q_rows, n * q_width / q_rows, m->q)) != 0 ||
	     (rc = o->rmsnorm(b, m->k, l->k_norm, a->rms_eps, k_rows, n * kv_width / k_rows, m->k)) != 0))
		return rc;
	return o->rope_kv_write(b, l->rope, m->q, a->n_heads, m->k, m->v, kv, layer);
}

/* What goes into the second matrix of the feed-forward half, in m->gate. */
int model_widen(struct model *m, const struct layer *l, const float *from, int n)
{
	const struct model_arch *a = &m->info.arch;
	const struct kn_ops *o = m->ops;
	struct kn_backend *b = m->backend;
	bool gelu = a->act == ARCH_GELU_TANH;
	int rc;
	if (l->gate_up.data != NULL) {
		rc = o->matmul(b, &l->gate_up, from, n, m->gate_up);
		if (rc == 0)
			rc = adapters_gate_up(m, l, from);
		if (o->for_products != NULL && m->adapters == NULL) /* they read it, too */
			o->for_products(b, m->gate);
		return rc != 0 ? rc : o->gate_mul(b, m->gate_up, n, l->n_ff, gelu, m->gate);
	}
	if (l->gate.data == NULL) {
		rc = o->matmul(b, &l->up, from, n, m->gate);
		if (rc == 0)
			rc = adapters_gate_up(m, l, from);
		if (rc == 0)
			rc = model_add_bias(m, m->gate, l->up_bias, n, l->n_ff);
		if (rc != 0)
			return rc;
		return (a->act == ARCH_RELU_SQUARE ? o->relu_square : o->gelu)(b, m->gate, n, l->n_ff);
	}
	if ((rc = o->matmul(b, &l->gate, from, n, m->gate)) != 0 || (rc = o->matmul(b, &l->up, from, n, m->up)) != 0 ||
	    (rc = adapters_gate_up(m, l, from)) != 0)
		return rc;
	return gelu ? o->gelu_mul(b, m->gate, m->up, n, l->n_ff) : o->silu_mul(b, m->gate, m->up, n, l->n_ff);
}

/* The feed-forward half, from the rows at `from` to m->normed. */
static int feed_forward(struct model *m, const struct layer *l, const float *from, int n)
{
	if (l->experts != NULL)
		return experts_run(m, l, n);
	int rc = model_widen(m, l, from, n);
	if (rc == 0)
		rc = m->ops->matmul(m->backend, &l->down, m->gate, n, m->normed);
	if (rc == 0)
		rc = adapters_down(m, l, m->gate, m->normed);
	return rc != 0 ? rc : model_add_bias(m, m->normed, l->down_bias, n, m->info.arch.n_embd);
}

/* Attention, or what the layer has in its place, from the rows at `from`, to out. */
static int attend(struct model *m, int i, const float *from, int n, const struct kn_kv *all, float *out)
{
	const struct model_arch *a = &m->info.arch;
	const struct kn_ops *o = m->ops;
	struct layer *l = &m->layers[i];
	struct kn_kv kv = *all;
	bool joined = l->qkv.data != NULL;
	if (l->recurrent != NULL)
		return recurrent_run(m, l, from, n, out);
	int rc, at = all->places != NULL ? all->places[i].layer : i;
	kv.group = all->places != NULL ? all->places[i].group : 0;
	if (l->latent != NULL)
		rc = latent_attend(m, l, from, n, &kv, at);
	else if ((rc = model_project(m, l, from, n, &kv, at)) == 0)
		rc = o->attention(m->backend, joined ? m->qkv : m->q, a->n_heads, &kv, at, &l->attn, m->attn);
	if (rc == 0 && a->attn_gate)
		rc = o->sigmoid_mul(m->backend, m->attn, m->attn_gate, n, a->n_heads * a->head_dim);
	if (rc != 0 || (rc = o->matmul(m->backend, &l->o, m->attn, n, out)) != 0 ||
	    (rc = adapters_o(m, l, m->attn, out)) != 0)
		return rc;
	return model_add_bias(m, out, l->o_bias, n, a->n_embd);
}

/* Both halves of a layer, from m->normed; what they add, together, in m->normed. */
static int run_beside(struct model *m, int i, int n, const struct kn_kv *kv)
{
	const struct layer *l = &m->layers[i];
	int rc = attend(m, i, m->normed, n, kv, m->beside);
	if (rc == 0 && l->ffn_norm != NULL)
		rc = norm(m, NULL, l->ffn_norm, l->ffn_norm_bias, n);
	if (rc == 0)
		rc = feed_forward(m, l, m->normed, n);
	return rc != 0 ? rc : m->ops->add(m->backend, m->normed, m->beside, n, m->info.arch.n_embd);
}

/* One half after the other; what the second adds in m->normed. */
static int run_in_turn(struct model *m, int i, int n, const struct kn_kv *kv)
{
	const struct layer *l = &m->layers[i];
	int rc = attend(m, i, l->attn_norm != NULL ? m->normed : m->x, n, kv, m->normed);
	if (rc == 0)
		rc = add_back(m, l->post_attn_norm, l->ffn_norm, l->ffn_norm_bias, n);
	return rc != 0 ? rc : feed_forward(m, l, l->ffn_norm != NULL ? m->normed : m->x, n);
}

/* The only half of a layer; what it adds in m->normed. */
static int run_half(struct model *m, int i, int n, const struct kn_kv *kv)
{
	return arch_has_ff(&m->info.arch, i) ? feed_forward(m, &m->layers[i], m->normed, n)
					     : attend(m, i, m->normed, n, kv, m->normed);
}

/* Takes x normed in m->normed, and leaves it there for the next layer; x itself is enough for layers without a norm. */
static int forward_layer(struct model *m, int i, int n, const struct kn_kv *kv)
{
	const struct layer *l = &m->layers[i], *next = i + 1 < m->info.arch.n_layers ? l + 1 : NULL;
	const struct model_arch *a = &m->info.arch;
	int rc = a->one_half                         ? run_half(m, i, n, kv)
		 : a->parallel != ARCH_PARALLEL_NONE ? run_beside(m, i, n, kv)
						     : run_in_turn(m, i, n, kv);
	if (rc != 0)
		return rc;
	return add_back(m, l->post_ffn_norm, next != NULL ? next->attn_norm : NULL,
			next != NULL ? next->attn_norm_bias : NULL, n);
}

int model_run_layer(struct model *m, int i, int n, const struct kn_kv *kv)
{
	const struct layer *l = &m->layers[i];
	int rc = l->attn_norm != NULL ? norm(m, NULL, l->attn_norm, l->attn_norm_bias, n) : 0;
	return rc != 0 ? rc : forward_layer(m, i, n, kv);
}

/* m->normed of n rows, normed for the head. */
static int output_norm(struct model *m, int n)
{
	const struct model_arch *a = &m->info.arch;
	if (a->layer_norm)
		return m->ops->layernorm(m->backend, m->normed, NULL, m->output_norm, m->output_norm_bias, a->rms_eps,
					 n, a->n_embd, m->normed);
	return m->ops->rmsnorm(m->backend, m->normed, m->output_norm, a->rms_eps, n, a->n_embd, m->normed);
}

int model_logits(struct model *m, const struct kn_weight *head, const int32_t *want, int n)
{
	const struct model_arch *a = &m->info.arch;
	const struct kn_ops *o = m->ops;
	struct kn_backend *b = m->backend;
	int rc;
	if ((rc = o->matmul(b, head, m->normed, n, m->logits)) != 0 ||
	    (want != NULL && (rc = adapters_head(m, want, n)) != 0) ||
	    (rc = model_add_bias(m, m->logits, m->head_bias, n, a->n_vocab)) != 0)
		return rc;
	if (a->logit_scale != 1 && (rc = o->scale(b, m->logits, a->logit_scale, n, a->n_vocab)) != 0)
		return rc;
	return a->final_softcap > 0 ? o->softcap(b, m->logits, a->final_softcap, n, a->n_vocab) : 0;
}

/* Logits of the rows that are wanted. */
static int forward_head(struct model *m, const int32_t *want, int n_want)
{
	int rc = m->ops->gather(m->backend, m->x, want, n_want, m->info.arch.n_embd, m->normed);
	if (rc == 0)
		rc = output_norm(m, n_want);
	return rc != 0 ? rc : model_logits(m, &m->head, want, n_want);
}

bool model_can_draw(const struct model *m)
{
	return m->ops->sample != NULL && m->info.arch.n_vocab <= KN_MAX_SAMPLED_VOCAB;
}

/* To the host: the logits of those rows that are not drawn from on the device. */
static int read_logits(struct model *m, int n_want, float *logits, const bool *taken)
{
	size_t n_vocab = (size_t)m->info.arch.n_vocab;
	int rc = 0;
	for (int i = 0, n; i < n_want && rc == 0; i += n) {
		bool skip = taken != NULL && taken[i];
		for (n = 1; i + n < n_want && (taken != NULL && taken[i + n]) == skip; n++)
			;
		if (!skip)
			rc = m->ops->read_back(m->backend, m->logits + (size_t)i * n_vocab, (size_t)n * n_vocab,
					       logits + (size_t)i * n_vocab);
	}
	return rc;
}

bool model_ahead(const struct model *m) { return m->ops->ahead; }
int model_wait(struct model *m) { return m->ops->step_wait(m->backend); }
bool model_ready(const struct model *m) { return m->ops->step_ready(m->backend); }

static int decoder_begin(struct model *m, int n)
{
	const struct model_arch *a = &m->info.arch;
	int rc = a->embed_scale != 1 ? m->ops->scale(m->backend, m->x, a->embed_scale, n, a->n_embd) : 0;
	const struct layer *first = &m->layers[0];
	return rc != 0 || first->attn_norm == NULL ? rc : norm(m, NULL, first->attn_norm, first->attn_norm_bias, n);
}

static int issue(struct model *m, const struct kn_step *s, const struct kn_kv *kv, int n_layers, const int32_t *want,
		 int n_want, float *logits, const struct model_draws *draws, const struct model_pooling *pooling)
{
	const struct model_arch *a = &m->info.arch;
	const struct kn_ops *o = m->ops;
	struct kn_backend *b = m->backend;
	BUG_IF(s->n_rows < 1 || s->n_rows > m->max_rows || n_want > s->n_rows || n_want > m->logit_rows,
	       "a step of %d rows, %d wanted", s->n_rows, n_want);
	if (a->encoder && n_want > 0)
		return SL_EUNSUPPORTED; /* it has no head */
	BUG_IF(arch_is_recurrent(a) && (s->states == NULL || s->state_floats < arch_state(a)),
	       "a step of a recurrent model without states");
	struct kn_step step = *s;
	step.page_tokens = kv->page_tokens;
	step.n_groups = kv->n_groups;
	step.adapters = adapters_begin(m, s);
	int rc = o->step_begin(b, &step);
	if (rc != 0)
		return rc;
	rc = o->embed(b, &m->embed, m->x);
	if (rc == 0)
		rc = adapters_embed(m);
	if (rc == 0)
		rc = a->encoder ? encoder_begin(m, s->n_rows) : decoder_begin(m, s->n_rows);
	for (int i = 0; i < n_layers && rc == 0; i++)
		rc = a->encoder ? encoder_layer(m, i, s->n_rows, kv) : forward_layer(m, i, s->n_rows, kv);
	if (rc == 0 && pooling != NULL && pooling->n > 0)
		rc = pooling_run(m, pooling, s->n_rows);
	if (rc == 0 && n_want > 0)
		rc = forward_head(m, want, n_want);
	if (rc == 0 && draws != NULL && draws->n > 0)
		rc = o->sample(b, m->logits, a->n_vocab, draws->draws, draws->n, draws->drawn);
	if (rc == 0)
		rc = read_logits(m, n_want, logits, draws != NULL ? draws->taken : NULL);
	int end = o->step_issue(b);
	if (rc != 0 && end == 0)
		(void)o->step_wait(b); /* it will not be read */
	return rc != 0 ? rc : end;
}

int model_issue(struct model *m, const struct kn_step *s, const struct kn_kv *kv, const int32_t *want, int n_want,
		float *logits, const struct model_draws *draws, const struct model_pooling *pooling)
{
	return issue(m, s, kv, m->info.arch.n_layers, want, n_want, logits, draws, pooling);
}

static int forward(struct model *m, const struct kn_step *s, const struct kn_kv *kv, int n_layers, const int32_t *want,
		   int n_want, float *logits, const struct model_draws *draws)
{
	int rc = issue(m, s, kv, n_layers, want, n_want, logits, draws, NULL);
	return rc != 0 ? rc : model_wait(m);
}

int model_forward(struct model *m, const struct kn_step *s, const struct kn_kv *kv, const int32_t *want, int n_want,
		  float *logits)
{
	return forward(m, s, kv, m->info.arch.n_layers, want, n_want, logits, NULL);
}

int model_forward_part(struct model *m, const struct kn_step *s, const struct kn_kv *kv, int n_layers,
		       const int32_t *want, int n_want, float *logits)
{
	BUG_IF(n_layers < 1 || n_layers > m->info.arch.n_layers, "a step of %d layers", n_layers);
	return forward(m, s, kv, n_layers, want, n_want, logits, NULL);
}

int model_forward_draw(struct model *m, const struct kn_step *s, const struct kn_kv *kv, const int32_t *want,
		       int n_want, float *logits, const struct model_draws *draws)
{
	return forward(m, s, kv, m->info.arch.n_layers, want, n_want, logits, draws);
}

int model_forward_pool(struct model *m, const struct kn_step *s, const struct kn_kv *kv,
		       const struct model_pooling *pooling)
{
	int rc = issue(m, s, kv, m->info.arch.n_layers, NULL, 0, NULL, NULL, pooling);
	return rc != 0 ? rc : model_wait(m);
}
