/* SPDX-License-Identifier: Apache-2.0
 *
 * A model from its file to its end; forward.c runs it. Everything that the forward pass needs is looked up by name
 * (layers.c), checked against the shape that the head promises, and given to the backend (tensors.c) before the model
 * is called READY; after that nothing can be missing.
 *
 * Activations live in buffers of the backend, allocated once for max_rows. The file's mapping stays
 * open as long as the model, because a backend may use weights in place.
 */
#include "engine/model/model_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "engine/model/adapters.h"
#include "engine/model/lacks.h"
#include "engine/model/rope.h"
#include "engine/source/model_stamp.h"

/* ---- the head's metadata ---- */

/* What follows "blk.N." in a tensor's name, and N; NULL: it belongs to no layer. */
static const char *in_a_layer(const char *name, long *layer)
{
	char *end;
	if (strncmp(name, "blk.", 4) != 0)
		return NULL;
	*layer = strtol(name + 4, &end, 10);
	return end > name + 4 && *end == '.' ? end + 1 : NULL;
}

/* "blk.3.ffn_up_exps.weight", "blk.3.ffn_up.7.weight" */
static bool is_expert(const char *name)
{
	long layer;
	const char *what = in_a_layer(name, &layer);
	if (what == NULL || strncmp(what, "ffn_", 4) != 0)
		return false;
	const char *dot = strchr(what, '.');
	return strstr(what, "_exps.") != NULL || (dot != NULL && dot[1] >= '0' && dot[1] <= '9');
}

static void read_info(const struct model_file *f, struct model_info *info)
{
	snprintf(info->name, sizeof info->name, "%.63s", model_file_name(f));
	snprintf(info->note, sizeof info->note, "%s", model_file_note(f));
	info->file_bytes = model_file_bytes(f);
	info->n_params = info->expert_bytes = info->n_expert_params = 0;
	const struct model_tensor *embed = model_file_find(f, "token_embd.weight");
	info->embed_bytes = embed != NULL ? embed->bytes : 0;

	int counts[64] = {0};
	for (size_t i = 0; i < model_file_n_tensors(f); i++) {
		const struct model_tensor *t = model_file_tensor_at(f, i);
		uint64_t n = t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
		bool expert = is_expert(t->name);
		info->n_params += n;
		info->n_expert_params += expert ? n : 0;
		info->expert_bytes += expert ? t->bytes : 0;
		if (t->type >= 0 && t->type < 64)
			counts[t->type]++;
	}
	size_t at = 0;
	for (int type = 0; type < 64; type++)
		if (counts[type] > 0 && at < sizeof info->weight_types)
			at += (size_t)snprintf(info->weight_types + at, sizeof info->weight_types - at, "%s%s ×%d",
					       at ? ", " : "", kn_type_name(type), counts[type]);
}

int model_inspect(const char *path, struct model_info *out, struct sl_err *err)
{
	return model_inspect_with(path, NULL, out, err);
}

int model_inspect_with(const char *path, const char *head, struct model_info *out, struct sl_err *err)
{
	struct model_file *f;
	int rc = model_file_open_with(path, head, &f, err);
	if (rc != 0)
		return rc;
	*out = (struct model_info){0};
	read_info(f, out);
	rc = model_file_arch(f, &out->arch, err);
	if (rc == 0 && !draft_head_in(f, &out->arch))
		out->arch.n_drafting = 0; /* none that can be used */
	model_file_close(f);
	return rc;
}

/* ---- loading ---- */

/* The layers after the last that computes the next token are for drafts: one is loaded where drafts are wanted. */
static bool drafts(const struct model *m, const char *name)
{
	const struct model_arch *a = &m->info.arch;
	long layer;
	return in_a_layer(name, &layer) != NULL && layer >= a->n_layers && layer < a->n_layers + a->n_drafting;
}

/* A tensor that this forward pass left out (a bias, for example) would silently change every answer. */
static int check_all_used(const struct model *m, struct sl_err *err)
{
	for (size_t i = 0; i < model_file_n_tensors(m->file); i++)
		if (!m->used[i] && !drafts(m, model_file_tensor_at(m->file, i)->name))
			return sl_errf(err, SL_EUNSUPPORTED, "%s: tensor %s is not supported by this version",
				       model_file_path(m->file), model_file_tensor_at(m->file, i)->name);
	return 0;
}

/* Vectors between the last layer and the logits. */
static int load_output(struct model *m, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	char name[64];
	snprintf(name, sizeof name, "%s.weight", a->norm_name != NULL ? a->norm_name : "output_norm");
	int rc = model_load_vector(m, name, a->n_embd, a->norm_gain_offset, &m->output_norm, err);
	if (rc == 0 && a->norm_biases)
		rc = model_load_vector(m, "output_norm.bias", a->n_embd, 0, &m->output_norm_bias, err);
	if (rc == 0 && a->head_bias)
		rc = model_load_vector(m, "output.bias", a->n_vocab, 0, &m->head_bias, err);
	return rc;
}

static int load_weights(struct model *m, bool with_drafts, struct sl_err *err)
{
	struct model_arch *a = &m->info.arch;
	const char *lacks = model_backend_lacks(a, m->ops);
	if (lacks != NULL)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: the backend %s has no %s", model_file_path(m->file),
			       m->ops->name, lacks);
	m->used = sl_zalloc_n(model_file_n_tensors(m->file), sizeof *m->used);
	if (m->used == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", model_file_path(m->file));
	int rc = model_load_matrix(m, "token_embd.weight", a->n_vocab, a->n_embd, &m->embed, err);
	if (rc == 0 && a->tied_embeddings)
		m->head = m->embed;
	else if (rc == 0)
		rc = model_load_matrix(m, "output.weight", a->n_vocab, a->n_embd, &m->head, err);
	if (rc == 0)
		rc = a->encoder ? encoder_load(m, err) : load_output(m, err);
	if (rc == 0)
		rc = pooling_load(m, err);
	/* The head's reader has these in arch.rope. */
	static const char *const ropes[] = {"rope_freqs.weight", "rope_factors_long.weight",
					    "rope_factors_short.weight"};
	for (size_t i = 0; i < sizeof ropes / sizeof *ropes && rc == 0; i++)
		if (model_file_find(m->file, ropes[i]) != NULL)
			model_take_tensor(m, ropes[i], err);
	if (rc == 0 && with_drafts && draft_head_in(m->file, a))
		rc = draft_head_load(m, err);
	if (rc == 0)
		rc = layers_load(m, err);
	return rc != 0 ? rc : check_all_used(m, err);
}

static int alloc_activations(struct model *m, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	size_t q_width = (size_t)arch_query_width(a), v_width = (size_t)arch_value_width(a);
	size_t heads = (size_t)a->n_heads, latent = (size_t)a->latent.n;
	size_t kv_width = (size_t)a->n_kv_heads * (size_t)a->head_dim, ff = 0, work = 0;
	size_t channels = (size_t)arch_channels(a), v_heads = (size_t)a->recurrent.v_heads;
	bool recurrent = arch_is_recurrent(a), heads_keep = recurrent && a->recurrent.kind != ARCH_SHORT_CONV;
	bool three = false, qkv = false, two = false, gate_up = false; /* some layer has them */
	for (int i = 0; i < model_n_layers(m); i++) {
		const struct layer *l = &m->layers[i];
		if (arch_attends(a, i))
			*(l->qkv.data != NULL ? &qkv : &three) = true;
		*(l->gate_up.data != NULL ? &gate_up : &two) = true;
		ff = (size_t)l->n_ff > ff ? (size_t)l->n_ff : ff;
		if (l->experts != NULL)
			work = kn_experts_work(&l->experts->op);
	}
	const struct {
		float **out;
		size_t width;
		bool has;
	} buffers[] = {
	    {&m->x, (size_t)a->n_embd, true},
	    {&m->normed, (size_t)a->n_embd, true},
	    {&m->attn, v_width, true},
	    {&m->beside, (size_t)a->n_embd, a->parallel != ARCH_PARALLEL_NONE},
	    {&m->q, q_width, three},
	    {&m->k, kv_width, three},
	    {&m->v, kv_width, three && latent == 0},
	    {&m->q_low, (size_t)a->latent.n_query, a->latent.n_query > 0},
	    {&m->q_latent, heads * kv_width, latent > 0},
	    {&m->out_latent, heads * latent, latent > 0},
	    {&m->heads_work, latent_work(a), latent > 0},
	    {&m->gate, ff, ff > 0},
	    {&m->up, ff, two && ff > 0 && !a->ungated},
	    {&m->logits, (size_t)a->n_vocab, !a->encoder},
	    {&m->sums, (size_t)a->n_embd, a->pooling == ARCH_POOL_MEAN},
	    {&m->gate_up, 2 * ff, gate_up},
	    {&m->routed, (size_t)a->experts.n, work > 0},
	    {&m->work, work, work > 0},
	    {&m->latent_rows, (size_t)a->experts.n_latent, a->experts.n_latent > 0},
	    {&m->shared, (size_t)a->n_embd, a->experts.n_ff_shared > 0},
	    {&m->shared_gate, 1, a->experts.shared_gate},
	    {&m->qkv, q_width + 2 * kv_width, qkv},
	    {&m->conv_in, heads_keep ? channels : 3 * channels, recurrent},
	    {&m->conv_out, channels, recurrent},
	    {&m->delta, v_heads * (size_t)(a->recurrent.v_dim > 2 ? a->recurrent.v_dim : 2), heads_keep},
	    {&m->delta_gate, v_heads * (size_t)a->recurrent.v_dim, heads_keep},
	    {&m->beta, v_heads, a->recurrent.kind == ARCH_DELTA},
	    {&m->alpha, v_heads, heads_keep},
	    {&m->q_gated, 2 * q_width, a->attn_gate},
	    {&m->attn_gate, q_width, a->attn_gate},
	};
	for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
		void *p;
		size_t rows = (size_t)(buffers[i].out == &m->logits ? m->logit_rows : m->max_rows);
		size_t bytes = buffers[i].width * rows * sizeof(float);
		if (!buffers[i].has)
			continue;
		if (m->ops->mem_alloc(m->backend, bytes, &p) != 0)
			return sl_errf(err, SL_ENOMEM,
				       "%s: no memory for steps of %d rows: %zu bytes for %zu floats of each",
				       model_file_path(m->file), m->max_rows, bytes, buffers[i].width);
		*buffers[i].out = p;
	}
	return 0;
}

static int load_text(struct model *m, struct sl_err *err)
{
	int rc = model_file_tokenizer(m->file, &m->tokenizer, err);
	if (rc != 0)
		return rc;
	/* Files often have more rows than tokens, never fewer. */
	int n_vocab = m->info.arch.n_vocab;
	if (tokenizer_n_vocab(m->tokenizer) < n_vocab && tokenizer_pad(m->tokenizer, (size_t)n_vocab) != 0)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", model_file_path(m->file));
	if (tokenizer_n_vocab(m->tokenizer) != n_vocab)
		return sl_errf(err, SL_EINVAL, "%s: the tokenizer has %d tokens, token_embd.weight %d rows",
			       model_file_path(m->file), tokenizer_n_vocab(m->tokenizer), m->info.arch.n_vocab);
	m->info.text = model_file_text(m->file);
	struct proto_str source;
	rc = model_file_template(m->file, &source, err);
	if (rc == SL_ENOTFOUND)
		return 0;
	return rc != 0 ? rc : chat_template_compile(source.at, source.n, &m->template, err);
}

static int check_size(const struct model *m, uint64_t max_bytes, struct sl_err *err)
{
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
	uint64_t memory = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX;
	bool by_config = max_bytes > 0 && max_bytes < memory;
	uint64_t most = by_config ? max_bytes : memory;
	if (m->info.file_bytes <= most ||
	    (!by_config && model_file_is_random(m->file))) /* it needs the device's alone */
		return 0;
	return sl_errf(err, SL_ELIMIT, "%s: too big: the file has %llu MiB, %s %llu MiB", model_file_path(m->file),
		       (unsigned long long)(m->info.file_bytes >> 20),
		       by_config ? "engine.max_model_memory allows" : "this machine has",
		       (unsigned long long)(most >> 20));
}

static int check_types(const struct model *m, struct sl_err *err)
{
	for (size_t i = 0; i < model_file_n_tensors(m->file); i++) {
		const struct model_tensor *t = model_file_tensor_at(m->file, i);
		if (kn_type_block(t->type) == 0)
			return model_unknown_type(m, t, err);
	}
	return 0;
}

/* All that comes before the weights. */
static int open_model(struct model *m, const char *path, const char *head, uint64_t max_bytes, struct sl_err *err)
{
	int rc = model_file_open_with(path, head, &m->file, err);
	if (rc != 0)
		return rc;
	read_info(m->file, &m->info);
	if ((rc = check_size(m, max_bytes, err)) != 0 || (rc = model_file_arch(m->file, &m->info.arch, err)) != 0 ||
	    (rc = check_types(m, err)) != 0)
		return rc;
	return load_text(m, err);
}

static struct kn_rope make_rope(const struct arch_rope *r, int n_ctx, double *inv_freq)
{
	rope_frequencies(r, inv_freq);
	return (struct kn_rope){.n_rot = r->n_rot,
				.halves = r->halves,
				.inv_freq = inv_freq,
				.magnitude = (float)rope_magnitude(r, n_ctx),
				.grow = r->grow,
				.grow_every = r->grow_every,
				.grow_from = r->grow_from};
}

static void set_rope(struct model *m)
{
	const struct model_arch *a = &m->info.arch;
	m->rope = make_rope(&a->rope, a->n_ctx, m->inv_freq[0]);
	m->rope_windowed = make_rope(&a->rope_windowed, a->n_ctx, m->inv_freq[1]);
	/* An angle of zero is the identity, bit for bit. */
	m->no_rope = (struct kn_rope){.n_rot = a->rope.n_rot,
				      .halves = a->rope.halves,
				      .magnitude = 1,
				      .inv_freq = m->no_freq,
				      .grow = a->still_grow,
				      .grow_every = a->still_grow_every,
				      .grow_from = 1};
}

int model_check(const char *path, const char *head, uint64_t max_bytes, struct sl_err *err)
{
	struct model *m = sl_zalloc(sizeof *m);
	if (m == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", path);
	int rc = open_model(m, path, head, max_bytes, err);
	model_free(m);
	return rc;
}

int model_load(const char *path, const struct kn_ops *ops, struct kn_backend *backend, int max_rows, uint64_t max_bytes,
	       struct model **out, struct sl_err *err)
{
	const struct model_how how = {0};
	return model_load_as(path, &how, ops, backend, max_rows, max_bytes, out, err);
}

/* Converted weights do not match the file's stamp: they are not cached. */
static int open_store(struct model *m, const struct model_how *how, struct sl_err *err)
{
	const struct weight_cache_config *cache = how->quantize == NULL ? how->cache : NULL;
	if (how->rearranging != NULL)
		how->rearranging->total = m->info.file_bytes;
	return weight_store_open(m->ops, m->backend, m->file, cache, how->rearranging, &m->store, err);
}

int model_load_as(const char *path, const struct model_how *how, const struct kn_ops *ops, struct kn_backend *backend,
		  int max_rows, uint64_t max_bytes, struct model **out, struct sl_err *err)
{
	const struct model_quantize *q = how->quantize;
	struct model *m = sl_zalloc(sizeof *m);
	if (m == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", path);
	m->ops = ops;
	m->backend = backend;
	m->max_rows = max_rows;
	/* Twice, because a backend may fill up the rows to a power of two. */
	m->logit_rows = how->max_want > 0 && 2 * how->max_want < max_rows ? 2 * how->max_want : max_rows;
	int rc = open_model(m, path, how->head, max_bytes, err);
	if (rc == 0)
		rc = model_set_pooling(&m->info.arch, how->pooling, err);
	if (rc == 0 && q != NULL && (rc = model_file_quantize(m->file, q->type, q->n_threads, q->progress, err)) == 0)
		read_info(m->file, &m->info);
	if (rc == 0)
		rc = open_store(m, how, err);
	if (rc == 0)
		set_rope(m);
	if (rc == 0)
		rc = load_weights(m, how->drafts, err);
	if (rc == 0)
		rc = alloc_activations(m, err);
	if (rc != 0) {
		model_free(m);
		return rc;
	}
	weight_store_loaded(m->store);
	*out = m;
	return 0;
}

void model_free(struct model *m)
{
	if (m == NULL)
		return;
	weight_store_close(m->store);
	adapters_free(m);
	layers_free(m);
	draft_head_free(m);
	if (!m->info.arch.tied_embeddings)
		model_free_weight(m, &m->head);
	model_free_weight(m, &m->embed);
	model_free_weight(m, &m->rank_dense);
	model_free_weight(m, &m->rank_out);
	sl_free(m->picks);
	sl_free(m->runs);
	float *memory[] = {m->positions,
			   m->types,
			   m->embed_norm,
			   m->embed_norm_bias,
			   m->rank_dense_bias,
			   m->rank_out_bias,
			   m->sums,
			   m->output_norm,
			   m->output_norm_bias,
			   m->head_bias,
			   m->beside,
			   m->x,
			   m->normed,
			   m->q,
			   m->k,
			   m->v,
			   m->attn,
			   m->gate,
			   m->up,
			   m->routed,
			   m->work,
			   m->latent_rows,
			   m->shared,
			   m->shared_gate,
			   m->logits,
			   m->qkv,
			   m->gate_up,
			   m->q_low,
			   m->q_latent,
			   m->out_latent,
			   m->heads_work,
			   m->conv_in,
			   m->conv_out,
			   m->delta,
			   m->delta_gate,
			   m->beta,
			   m->alpha,
			   m->q_gated,
			   m->attn_gate};
	for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
		model_free_floats(m, memory[i]);
	sl_free(m->used);
	chat_template_free(m->template);
	tokenizer_destroy(m->tokenizer);
	model_file_close(m->file);
	sl_free(m);
}

const struct model_info *model_info(const struct model *m) { return &m->info; }
const struct residence *model_residence(const struct model *m) { return weight_store_residence(m->store); }
bool model_keep_weights(struct model *m) { return weight_store_finish(m->store); }
bool model_stamp(const struct model *m, uint64_t digest[2])
{
	struct model_stamp stamp;
	if (!model_stamp_of(m->file, &stamp))
		return false;
	digest[0] = stamp.digest[0];
	digest[1] = stamp.digest[1];
	return true;
}

bool model_was_kept(const struct model *m) { return weight_store_was_kept(m->store); }
const struct tokenizer *model_tokenizer(const struct model *m) { return m->tokenizer; }
const struct chat_template *model_template(const struct model *m) { return m->template; }
