/* SPDX-License-Identifier: Apache-2.0
 *
 * Loading and running a model. Everything that the forward pass needs is looked up by name, checked
 * against the shape that the head promises, and given to the backend before the model is called
 * READY; after that nothing can be missing.
 *
 * Activations live in buffers of the backend, allocated once for max_rows. The file's mapping stays
 * open as long as the model, because a backend may use weights in place.
 */
#include "engine/model.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "engine/gguf.h"

enum { MAX_LAYERS = 512, MAX_WIDTH = 1 << 18, MAX_VOCAB = 1 << 20, MAX_CTX = 1 << 24 };

struct layer {
	float *attn_norm, *ffn_norm; /* backend memory */
	struct kn_weight q, k, v, o, gate, up, down;
};

struct model {
	const struct kn_ops *ops;
	struct kn_backend *backend;
	struct gguf *file;
	struct model_info info;
	struct tokenizer *tokenizer;
	struct chat_template *template;
	struct layer *layers;
	struct kn_weight embed, head; /* head is embed when tied */
	float *output_norm, *rope_factors;
	bool *used; /* [tensors of the file], until the weights are loaded */
	int max_rows;
	/* Activations: [max_rows][…]. */
	float *x, *normed, *q, *k, *v, *attn, *gate, *up, *logits;
};

/* ---- what the head says ---- */

static int get_int(const struct gguf *g, const char *family, const char *field, int lo, int hi, int *out,
		   struct sl_err *err)
{
	char key[96];
	uint32_t v;
	snprintf(key, sizeof key, "%s.%s", family, field);
	int rc = gguf_get_u32(g, key, &v, err);
	if (rc != 0)
		return rc;
	if (v < (uint32_t)lo || v > (uint32_t)hi)
		return sl_errf(err, SL_EINVAL, "%s: %s is %u, not from %d to %d", gguf_path(g), key, v, lo, hi);
	*out = (int)v;
	return 0;
}

/* As get_int, but an absent key leaves *out as it is. */
static int get_int_or(const struct gguf *g, const char *family, const char *field, int lo, int hi, int *out,
		      struct sl_err *err)
{
	int rc = get_int(g, family, field, lo, hi, out, err);
	return rc == SL_ENOTFOUND ? 0 : rc;
}

static int read_rope(const struct gguf *g, struct model_arch *a, struct sl_err *err)
{
	a->rope = (struct kn_rope){.n_rot = a->head_dim, .freq_base = 10000, .freq_scale = 1};
	int rc = get_int_or(g, a->family, "rope.dimension_count", 2, a->head_dim, &a->rope.n_rot, err);
	if (rc != 0)
		return rc;
	if (a->rope.n_rot % 2 != 0)
		return sl_errf(err, SL_EINVAL, "%s: %s.rope.dimension_count %d is odd", gguf_path(g), a->family,
			       a->rope.n_rot);
	char key[96];
	snprintf(key, sizeof key, "%s.rope.freq_base", a->family);
	rc = gguf_get_f32(g, key, &a->rope.freq_base, err);
	if (rc != 0 && rc != SL_ENOTFOUND)
		return rc;
	if (!(a->rope.freq_base > 1 && a->rope.freq_base < 1e12f))
		return sl_errf(err, SL_EINVAL, "%s: %s is %g", gguf_path(g), key, (double)a->rope.freq_base);

	float old;
	snprintf(key, sizeof key, "%s.rope.scale_linear", a->family);
	if (gguf_get_f32(g, key, &old, err) != SL_ENOTFOUND)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: %s is not supported (supported: rope.scaling.factor)",
			       gguf_path(g), key);

	struct proto_str scaling;
	snprintf(key, sizeof key, "%s.rope.scaling.type", a->family);
	rc = gguf_get_str(g, key, &scaling, err);
	if (rc == SL_ENOTFOUND || (rc == 0 && scaling.n == 4 && memcmp(scaling.at, "none", 4) == 0))
		return 0;
	if (rc != 0)
		return rc;
	if (scaling.n != 6 || memcmp(scaling.at, "linear", 6) != 0)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: rope scaling \"%.*s\" is not supported (supported: linear)",
			       gguf_path(g), (int)(scaling.n > 40 ? 40 : scaling.n), scaling.at);
	float factor;
	snprintf(key, sizeof key, "%s.rope.scaling.factor", a->family);
	rc = gguf_get_f32(g, key, &factor, err);
	if (rc != 0)
		return rc;
	if (!(factor >= 1 && factor <= 1024))
		return sl_errf(err, SL_EINVAL, "%s: %s is %g", gguf_path(g), key, (double)factor);
	a->rope.freq_scale = 1 / factor;
	return 0;
}

static int read_arch(const struct gguf *g, struct model_arch *a, struct sl_err *err)
{
	struct proto_str family;
	int rc = gguf_get_str(g, "general.architecture", &family, err);
	if (rc != 0)
		return rc;
	if (family.n != 5 || memcmp(family.at, "llama", 5) != 0)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: architecture \"%.*s\" is not supported (supported: llama)",
			       gguf_path(g), (int)(family.n > 40 ? 40 : family.n), family.at);
	snprintf(a->family, sizeof a->family, "llama");

	int n_experts = 0;
	if ((rc = get_int(g, a->family, "block_count", 1, MAX_LAYERS, &a->n_layers, err)) != 0 ||
	    (rc = get_int(g, a->family, "embedding_length", 1, MAX_WIDTH, &a->n_embd, err)) != 0 ||
	    (rc = get_int(g, a->family, "attention.head_count", 1, a->n_embd, &a->n_heads, err)) != 0 ||
	    (rc = get_int(g, a->family, "feed_forward_length", 1, MAX_WIDTH, &a->n_ff, err)) != 0 ||
	    (rc = get_int(g, a->family, "context_length", 1, MAX_CTX, &a->n_ctx, err)) != 0 ||
	    (rc = get_int_or(g, a->family, "expert_count", 0, 1 << 16, &n_experts, err)) != 0)
		return rc;
	if (n_experts > 0)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: models of experts (%d) are not supported", gguf_path(g),
			       n_experts);
	a->n_kv_heads = a->n_heads;
	a->head_dim = a->n_embd / a->n_heads;
	if ((rc = get_int_or(g, a->family, "attention.head_count_kv", 1, a->n_heads, &a->n_kv_heads, err)) != 0 ||
	    (rc = get_int_or(g, a->family, "attention.key_length", 1, 1024, &a->head_dim, err)) != 0)
		return rc;
	int value_dim = a->head_dim;
	if ((rc = get_int_or(g, a->family, "attention.value_length", 1, 1024, &value_dim, err)) != 0)
		return rc;
	if (a->n_heads % a->n_kv_heads != 0 || value_dim != a->head_dim || a->head_dim > 1024 || a->head_dim % 2 != 0)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: %d heads, %d KV heads, keys of %d and values of %d",
			       gguf_path(g), a->n_heads, a->n_kv_heads, a->head_dim, value_dim);

	char key[96];
	snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", a->family);
	rc = gguf_get_f32(g, key, &a->rms_eps, err);
	if (rc != 0)
		return rc;
	if (!(a->rms_eps > 0 && a->rms_eps < 1))
		return sl_errf(err, SL_EINVAL, "%s: %s is %g", gguf_path(g), key, (double)a->rms_eps);

	const struct gguf_tensor *embed = gguf_find_tensor(g, "token_embd.weight");
	if (embed == NULL || embed->n_dims != 2 || embed->dims[1] > MAX_VOCAB)
		return sl_errf(err, SL_EINVAL, "%s: no proper tensor token_embd.weight", gguf_path(g));
	a->n_vocab = (int)embed->dims[1];
	a->tied_embeddings = gguf_find_tensor(g, "output.weight") == NULL;
	return read_rope(g, a, err);
}

static void read_info(const struct gguf *g, struct model_info *info)
{
	struct sl_err ignored;
	struct proto_str name;
	if (gguf_get_str(g, "general.name", &name, &ignored) == 0)
		snprintf(info->name, sizeof info->name, "%.*s", (int)(name.n > 63 ? 63 : name.n), name.at);
	info->file_bytes = gguf_file_bytes(g);

	int counts[64] = {0};
	for (size_t i = 0; i < gguf_n_tensors(g); i++) {
		const struct gguf_tensor *t = gguf_tensor_at(g, i);
		info->n_params += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
		if (t->type >= 0 && t->type < 64)
			counts[t->type]++;
	}
	size_t n = 0;
	for (int type = 0; type < 64; type++)
		if (counts[type] > 0 && n < sizeof info->weight_types)
			n += (size_t)snprintf(info->weight_types + n, sizeof info->weight_types - n, "%s%s ×%d",
					      n ? ", " : "", kn_type_name(type), counts[type]);
}

int model_inspect(const char *path, struct model_info *out, struct sl_err *err)
{
	struct gguf *g;
	int rc = gguf_open(path, &g, err);
	if (rc != 0)
		return rc;
	*out = (struct model_info){0};
	read_info(g, out);
	rc = read_arch(g, &out->arch, err);
	gguf_close(g);
	return rc;
}

/* ---- loading ---- */

static int unknown_type(const struct model *m, const struct gguf_tensor *t, struct sl_err *err)
{
	return sl_errf(err, SL_EUNSUPPORTED, "%s: tensor %s has type %s, which is not supported",
		       gguf_path(m->file), t->name, kn_type_name(t->type));
}

/* The tensor of that name, marked as used; NULL with *err when there is none. */
static const struct gguf_tensor *take_tensor(struct model *m, const char *name, struct sl_err *err)
{
	const struct gguf_tensor *t = gguf_find_tensor(m->file, name);
	if (t == NULL)
		sl_errf(err, SL_EINVAL, "%s: tensor %s is missing", gguf_path(m->file), name);
	else
		m->used[t - gguf_tensor_at(m->file, 0)] = true;
	return t;
}

/* A tensor that this forward pass would leave out (a bias, say) would change every answer in silence. */
static int check_all_used(const struct model *m, struct sl_err *err)
{
	for (size_t i = 0; i < gguf_n_tensors(m->file); i++)
		if (!m->used[i])
			return sl_errf(err, SL_EUNSUPPORTED, "%s: tensor %s is not supported by this version",
				       gguf_path(m->file), gguf_tensor_at(m->file, i)->name);
	return 0;
}

static int load_matrix(struct model *m, const char *name, int n_out, int n_in, struct kn_weight *out,
		       struct sl_err *err)
{
	const struct gguf_tensor *t = take_tensor(m, name, err);
	if (t == NULL)
		return SL_EINVAL;
	if (kn_type_block(t->type) == 0)
		return unknown_type(m, t, err);
	if (t->n_dims != 2 || t->dims[0] != (uint64_t)n_in || t->dims[1] != (uint64_t)n_out)
		return sl_errf(err, SL_EINVAL, "%s: tensor %s is %llu × %llu, not %d × %d", gguf_path(m->file),
			       name, (unsigned long long)t->dims[0], (unsigned long long)t->dims[1], n_in, n_out);
	return m->ops->weight_load(m->backend, t->data, t->type, n_out, n_in, out, err);
}

/* A vector of floats, copied to the backend. On the CPU backends its memory is the host's. */
static int load_vector(struct model *m, const char *name, int n, float **out, struct sl_err *err)
{
	const struct gguf_tensor *t = take_tensor(m, name, err);
	if (t == NULL)
		return SL_EINVAL;
	if (t->type != KN_F32 || t->n_dims != 1 || t->dims[0] != (uint64_t)n)
		return sl_errf(err, SL_EINVAL, "%s: tensor %s is not a vector of %d F32", gguf_path(m->file), name, n);
	void *p;
	if (m->ops->mem_alloc(m->backend, (size_t)n * sizeof(float), &p) != 0)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", gguf_path(m->file));
	memcpy(p, t->data, (size_t)n * sizeof(float));
	*out = p;
	return 0;
}

static int load_layer(struct model *m, int i, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	struct layer *l = &m->layers[i];
	int q_width = a->n_heads * a->head_dim, kv_width = a->n_kv_heads * a->head_dim;
	const struct {
		const char *name;
		int n_out, n_in;
		struct kn_weight *out;
	} matrices[] = {
	    {"attn_q", q_width, a->n_embd, &l->q},      {"attn_k", kv_width, a->n_embd, &l->k},
	    {"attn_v", kv_width, a->n_embd, &l->v},     {"attn_output", a->n_embd, q_width, &l->o},
	    {"ffn_gate", a->n_ff, a->n_embd, &l->gate}, {"ffn_up", a->n_ff, a->n_embd, &l->up},
	    {"ffn_down", a->n_embd, a->n_ff, &l->down},
	};
	char name[64];
	int rc = 0;
	for (size_t k = 0; k < sizeof matrices / sizeof matrices[0] && rc == 0; k++) {
		snprintf(name, sizeof name, "blk.%d.%s.weight", i, matrices[k].name);
		rc = load_matrix(m, name, matrices[k].n_out, matrices[k].n_in, matrices[k].out, err);
	}
	if (rc == 0) {
		snprintf(name, sizeof name, "blk.%d.attn_norm.weight", i);
		rc = load_vector(m, name, a->n_embd, &l->attn_norm, err);
	}
	if (rc == 0) {
		snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", i);
		rc = load_vector(m, name, a->n_embd, &l->ffn_norm, err);
	}
	return rc;
}

static int load_weights(struct model *m, struct sl_err *err)
{
	struct model_arch *a = &m->info.arch;
	m->layers = sl_zalloc_n((size_t)a->n_layers, sizeof *m->layers);
	m->used = sl_zalloc_n(gguf_n_tensors(m->file), sizeof *m->used);
	if (m->layers == NULL || m->used == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", gguf_path(m->file));
	int rc = load_matrix(m, "token_embd.weight", a->n_vocab, a->n_embd, &m->embed, err);
	if (rc == 0 && a->tied_embeddings)
		m->head = m->embed;
	else if (rc == 0)
		rc = load_matrix(m, "output.weight", a->n_vocab, a->n_embd, &m->head, err);
	if (rc == 0)
		rc = load_vector(m, "output_norm.weight", a->n_embd, &m->output_norm, err);
	if (rc == 0 && gguf_find_tensor(m->file, "rope_freqs.weight") != NULL) {
		rc = load_vector(m, "rope_freqs.weight", a->rope.n_rot / 2, &m->rope_factors, err);
		a->rope.factors = m->rope_factors;
	}
	for (int i = 0; i < a->n_layers && rc == 0; i++)
		rc = load_layer(m, i, err);
	return rc != 0 ? rc : check_all_used(m, err);
}

static int alloc_activations(struct model *m, struct sl_err *err)
{
	const struct model_arch *a = &m->info.arch;
	size_t q_width = (size_t)a->n_heads * (size_t)a->head_dim;
	size_t kv_width = (size_t)a->n_kv_heads * (size_t)a->head_dim;
	const struct {
		float **out;
		size_t width;
	} buffers[] = {
	    {&m->x, (size_t)a->n_embd}, {&m->normed, (size_t)a->n_embd}, {&m->q, q_width},
	    {&m->k, kv_width},          {&m->v, kv_width},               {&m->attn, q_width},
	    {&m->gate, (size_t)a->n_ff}, {&m->up, (size_t)a->n_ff},      {&m->logits, (size_t)a->n_vocab},
	};
	for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
		void *p;
		if (m->ops->mem_alloc(m->backend, buffers[i].width * (size_t)m->max_rows * sizeof(float), &p) != 0)
			return sl_errf(err, SL_ENOMEM, "%s: no memory for steps of %d rows", gguf_path(m->file),
				       m->max_rows);
		*buffers[i].out = p;
	}
	return 0;
}

static int load_text(struct model *m, struct sl_err *err)
{
	int rc = tokenizer_create(m->file, &m->tokenizer, err);
	if (rc != 0)
		return rc;
	if (tokenizer_n_vocab(m->tokenizer) != m->info.arch.n_vocab)
		return sl_errf(err, SL_EINVAL, "%s: the tokenizer has %d tokens, token_embd.weight %d rows",
			       gguf_path(m->file), tokenizer_n_vocab(m->tokenizer), m->info.arch.n_vocab);
	struct proto_str source;
	rc = gguf_get_str(m->file, "tokenizer.chat_template", &source, err);
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
	if (m->info.file_bytes <= most)
		return 0;
	return sl_errf(err, SL_ELIMIT, "%s: too big: the file has %llu MiB, %s %llu MiB", gguf_path(m->file),
		       (unsigned long long)(m->info.file_bytes >> 20),
		       by_config ? "engine.max_model_memory allows" : "this machine has",
		       (unsigned long long)(most >> 20));
}

static int check_types(const struct model *m, struct sl_err *err)
{
	for (size_t i = 0; i < gguf_n_tensors(m->file); i++) {
		const struct gguf_tensor *t = gguf_tensor_at(m->file, i);
		if (kn_type_block(t->type) == 0)
			return unknown_type(m, t, err);
	}
	return 0;
}

/* All that comes before the weights. */
static int open_model(struct model *m, const char *path, uint64_t max_bytes, struct sl_err *err)
{
	int rc = gguf_open(path, &m->file, err);
	if (rc != 0)
		return rc;
	read_info(m->file, &m->info);
	if ((rc = check_size(m, max_bytes, err)) != 0 || (rc = read_arch(m->file, &m->info.arch, err)) != 0 ||
	    (rc = check_types(m, err)) != 0)
		return rc;
	return load_text(m, err);
}

int model_check(const char *path, uint64_t max_bytes, struct sl_err *err)
{
	struct model *m = sl_zalloc(sizeof *m);
	if (m == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", path);
	int rc = open_model(m, path, max_bytes, err);
	model_free(m);
	return rc;
}

int model_load(const char *path, const struct kn_ops *ops, struct kn_backend *backend, int max_rows,
	       uint64_t max_bytes, struct model **out, struct sl_err *err)
{
	struct model *m = sl_zalloc(sizeof *m);
	if (m == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", path);
	m->ops = ops;
	m->backend = backend;
	m->max_rows = max_rows;
	int rc = open_model(m, path, max_bytes, err);
	if (rc == 0)
		rc = load_weights(m, err);
	if (rc == 0)
		rc = alloc_activations(m, err);
	if (rc != 0) {
		model_free(m);
		return rc;
	}
	*out = m;
	return 0;
}

static void free_weight(struct model *m, struct kn_weight *w)
{
	if (w->data != NULL)
		m->ops->weight_free(m->backend, w);
}

static void free_memory(struct model *m, float *p)
{
	if (p != NULL)
		m->ops->mem_free(m->backend, p);
}

void model_free(struct model *m)
{
	if (m == NULL)
		return;
	for (int i = 0; m->layers != NULL && i < m->info.arch.n_layers; i++) {
		struct layer *l = &m->layers[i];
		struct kn_weight *weights[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
		for (size_t k = 0; k < sizeof weights / sizeof weights[0]; k++)
			free_weight(m, weights[k]);
		free_memory(m, l->attn_norm);
		free_memory(m, l->ffn_norm);
	}
	if (!m->info.arch.tied_embeddings)
		free_weight(m, &m->head);
	free_weight(m, &m->embed);
	float *memory[] = {m->output_norm, m->rope_factors, m->x, m->normed, m->q, m->k, m->v, m->attn, m->gate,
			   m->up, m->logits};
	for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
		free_memory(m, memory[i]);
	sl_free(m->layers);
	sl_free(m->used);
	chat_template_free(m->template);
	tokenizer_destroy(m->tokenizer);
	gguf_close(m->file);
	sl_free(m);
}

const struct model_info *model_info(const struct model *m) { return &m->info; }
const struct tokenizer *model_tokenizer(const struct model *m) { return m->tokenizer; }
const struct chat_template *model_template(const struct model *m) { return m->template; }

/* ---- the forward pass ---- */

static int forward_layer(struct model *m, int i, int n, const struct kn_kv *kv, float scale)
{
	const struct model_arch *a = &m->info.arch;
	const struct kn_ops *o = m->ops;
	struct kn_backend *b = m->backend;
	struct layer *l = &m->layers[i];
	int rc;
	if ((rc = o->rmsnorm(b, m->x, l->attn_norm, a->rms_eps, n, a->n_embd, m->normed)) != 0 ||
	    (rc = o->matmul(b, &l->q, m->normed, n, m->q)) != 0 ||
	    (rc = o->matmul(b, &l->k, m->normed, n, m->k)) != 0 ||
	    (rc = o->matmul(b, &l->v, m->normed, n, m->v)) != 0 ||
	    (rc = o->rope_kv_write(b, &a->rope, m->q, a->n_heads, m->k, m->v, kv, i)) != 0 ||
	    (rc = o->attention(b, m->q, a->n_heads, kv, i, scale, m->attn)) != 0 ||
	    (rc = o->matmul(b, &l->o, m->attn, n, m->normed)) != 0 ||
	    (rc = o->add(b, m->x, m->normed, n, a->n_embd)) != 0 ||
	    (rc = o->rmsnorm(b, m->x, l->ffn_norm, a->rms_eps, n, a->n_embd, m->normed)) != 0 ||
	    (rc = o->matmul(b, &l->gate, m->normed, n, m->gate)) != 0 ||
	    (rc = o->matmul(b, &l->up, m->normed, n, m->up)) != 0 ||
	    (rc = o->silu_mul(b, m->gate, m->up, n, a->n_ff)) != 0 ||
	    (rc = o->matmul(b, &l->down, m->gate, n, m->normed)) != 0)
		return rc;
	return o->add(b, m->x, m->normed, n, a->n_embd);
}

int model_forward(struct model *m, const struct kn_step *s, const struct kn_kv *kv,
		  const int32_t *want, int n_want, float *logits)
{
	const struct model_arch *a = &m->info.arch;
	const struct kn_ops *o = m->ops;
	struct kn_backend *b = m->backend;
	BUG_IF(s->n_rows < 1 || s->n_rows > m->max_rows || n_want > s->n_rows, "a step of %d rows, %d wanted",
	       s->n_rows, n_want);
	/* 1/sqrt(head_dim), as the pass of every family here has it. */
	float scale = 1.0f / __builtin_sqrtf((float)a->head_dim);
	int rc = o->step_begin(b, s);
	if (rc != 0)
		return rc;
	rc = o->embed(b, &m->embed, m->x);
	for (int i = 0; i < a->n_layers && rc == 0; i++)
		rc = forward_layer(m, i, s->n_rows, kv, scale);
	if (rc == 0 && n_want > 0 &&
	    (rc = o->gather(b, m->x, want, n_want, a->n_embd, m->normed)) == 0 &&
	    (rc = o->rmsnorm(b, m->normed, m->output_norm, a->rms_eps, n_want, a->n_embd, m->normed)) == 0 &&
	    (rc = o->matmul(b, &m->head, m->normed, n_want, m->logits)) == 0)
		rc = o->read_back(b, m->logits, (size_t)n_want * (size_t)a->n_vocab, logits);
	int end = o->step_end(b);
	return rc != 0 ? rc : end;
}
