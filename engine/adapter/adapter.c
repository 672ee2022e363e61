/* SPDX-License-Identifier: Apache-2.0
 *
 * What both forms share: each half finds its place by its matrix's name, and once all are there, ranks, shapes and
 * numbers are checked.
 */
#include "engine/adapter/adapter_priv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/file.h"
#include "engine/source/arch_family.h"
#include "engine/source/arch_read.h"
#include "kernels/quantize.h"

static const struct {
	const char *name, *tensor;
} targets[ADAPTER_TARGETS] = {
    [ADAPTER_Q] = {"q", "attn_q.weight"},         [ADAPTER_K] = {"k", "attn_k.weight"},
    [ADAPTER_V] = {"v", "attn_v.weight"},         [ADAPTER_O] = {"o", "attn_output.weight"},
    [ADAPTER_GATE] = {"gate", "ffn_gate.weight"}, [ADAPTER_UP] = {"up", "ffn_up.weight"},
    [ADAPTER_DOWN] = {"down", "ffn_down.weight"},
};

const char *adapter_target_name(enum adapter_target t) { return targets[t].name; }
const char *adapter_target_tensor(enum adapter_target t) { return targets[t].tensor; }

bool adapter_target_find(const char *tensor, int *layer, enum adapter_target *out)
{
	char *end;
	if (strncmp(tensor, "blk.", 4) != 0 || tensor[4] < '0' || tensor[4] > '9')
		return false;
	long n = strtol(tensor + 4, &end, 10);
	if (*end != '.' || n >= ARCH_MAX_LAYERS)
		return false;
	for (int t = 0; t < ADAPTER_TARGETS; t++)
		if (strcmp(targets[t].tensor, end + 1) == 0) {
			*layer = (int)n;
			*out = (enum adapter_target)t;
			return true;
		}
	return false;
}

void adapter_target_shape(const struct model_arch *arch, enum adapter_target t, int *n_out, int *n_in)
{
	int q = arch->n_heads * arch->head_dim, kv = arch->n_kv_heads * arch->head_dim;
	const int shapes[ADAPTER_TARGETS][2] = {
	    [ADAPTER_Q] = {q, arch->n_embd},
	    [ADAPTER_K] = {kv, arch->n_embd},
	    [ADAPTER_V] = {kv, arch->n_embd},
	    [ADAPTER_O] = {arch->n_embd, q},
	    [ADAPTER_GATE] = {arch->n_ff, arch->n_embd},
	    [ADAPTER_UP] = {arch->n_ff, arch->n_embd},
	    [ADAPTER_DOWN] = {arch->n_embd, arch->n_ff},
	};
	*n_out = shapes[t][0];
	*n_in = shapes[t][1];
}

bool adapter_turns_rows(const struct model_arch *arch, enum adapter_target t)
{
	const struct arch_family *f = arch_family_find(arch->family, strlen(arch->family));
	return (t == ADAPTER_Q || t == ADAPTER_K) && f != NULL && !f->halves && !f->hf_pairs;
}

/* ---- rows ---- */

static void half_row(const struct adapter_half *h, uint64_t row, float *out)
{
	size_t width = (size_t)h->width;
	kn_dequantize(h->type, (const uint8_t *)h->data + row * kn_row_bytes(h->type, width), width, out);
}

void adapter_a_row(const struct adapter_matrix *m, int row, float *out) { half_row(&m->a, (uint64_t)row, out); }

void adapter_b_row(const struct adapter_matrix *m, int row, float *out)
{
	int d = m->head_dim, half = d / 2, from = row;
	if (half > 0 && m->apart) /* the base has halves, B has pairs */
		from = row / d * d + row % d % half * 2 + row % d / half;
	else if (half > 0)
		from = row / d * d + row % 2 * half + row % d / 2;
	half_row(&m->b, (uint64_t)from, out);
}

/* ---- putting halves ---- */

static int check_matrix(const struct adapter *a, const struct adapter_part *p, int layer, enum adapter_target t,
			struct sl_err *err)
{
	int n_out, n_in;
	if (layer >= a->most_layers)
		return sl_errf(err, SL_EINVAL, "%s: tensor %s is of layer %d, but the base has %d layers", a->path,
			       p->name, layer, a->most_layers);
	if (a->base == NULL)
		return 0;
	const struct model_tensor *base = model_file_find(a->base, p->matrix);
	if (base == NULL)
		return sl_errf(err, SL_EINVAL, "%s: tensor %s changes %s, which the base does not have", a->path,
			       p->name, p->matrix);
	adapter_target_shape(a->arch, t, &n_out, &n_in);
	if (base->n_dims != 2 || base->dims[0] != (uint64_t)n_in || base->dims[1] != (uint64_t)n_out)
		return sl_errf(err, SL_EUNSUPPORTED,
			       "%s: tensor %s changes %s, which the base has joined with others: not supported by this "
			       "version",
			       a->path, p->name, p->matrix);
	uint64_t has = p->is_b ? p->half.n_rows : p->half.width, wants = (uint64_t)(p->is_b ? n_out : n_in);
	if (has != wants)
		return sl_errf(err, SL_EINVAL, "%s: tensor %s is for %llu %s, but the base's %s has %llu", a->path,
			       p->name, (unsigned long long)has, p->is_b ? "outputs" : "inputs", p->matrix,
			       (unsigned long long)wants);
	return 0;
}

static int check_part(const struct adapter *a, const struct adapter_part *p, struct sl_err *err)
{
	uint64_t rank = p->is_b ? p->half.width : p->half.n_rows;
	int block = kn_type_block(p->half.type);
	if (block == 0 || !kn_type_in_files(p->half.type) || p->half.width % (uint64_t)block != 0)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: tensor %s has type %s, which adapters don't support", a->path,
			       p->name, kn_type_name(p->half.type));
	if (rank < 1 || rank > ADAPTER_MAX_RANK)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: tensor %s has rank %llu; 1 to %d are supported", a->path,
			       p->name, (unsigned long long)rank, ADAPTER_MAX_RANK);
	if (p->half.width > ARCH_MAX_VOCAB || p->half.n_rows > ARCH_MAX_VOCAB ||
	    p->bytes != p->half.n_rows * kn_row_bytes(p->half.type, (size_t)p->half.width))
		return sl_errf(err, SL_EINVAL, "%s: tensor %s has %llu bytes, which do not make its shape", a->path,
			       p->name, (unsigned long long)p->bytes);
	if (p->want_rank > 0 && rank != (uint64_t)p->want_rank)
		return sl_errf(err, SL_EINVAL, "%s: tensor %s has rank %llu, but adapter_config.json says %d", a->path,
			       p->name, (unsigned long long)rank, p->want_rank);
	return 0;
}

int adapter_put(struct adapter *a, const struct adapter_part *p, struct sl_err *err)
{
	enum adapter_target t;
	int layer, rc;
	if (!adapter_target_find(p->matrix, &layer, &t))
		return sl_errf(
		    err, SL_EUNSUPPORTED,
		    "%s: tensor %s: adapters of %.100s are not supported by this version (only of q, k, v, o, "
		    "gate, up, down)",
		    a->path, p->name, p->matrix);
	if ((rc = check_part(a, p, err)) != 0 || (rc = check_matrix(a, p, layer, t, err)) != 0)
		return rc;
	struct adapter_slot *s = &a->slots[layer * ADAPTER_TARGETS + (int)t];
	struct adapter_half *half = p->is_b ? &s->m.b : &s->m.a;
	if (half->data != NULL)
		return sl_errf(err, SL_EINVAL, "%s: tensor %s: another one is the same half of %s", a->path, p->name,
			       p->matrix);
	*half = p->half;
	s->alpha = p->alpha;
	s->by_root = p->by_root;
	snprintf(s->name, sizeof s->name, "%s", p->name);
	a->bytes += p->bytes;
	a->n_layers = layer >= a->n_layers ? layer + 1 : a->n_layers;
	return 0;
}

/* ---- once all are there ---- */

static int check_numbers(const struct adapter *a, const struct adapter_half *h, const char *of, bool is_b,
			 struct sl_err *err)
{
	size_t width = (size_t)h->width;
	float *row = sl_alloc(width * sizeof *row);
	if (row == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", a->path);
	int rc = 0;
	for (uint64_t i = 0; i < h->n_rows && rc == 0; i++) {
		half_row(h, i, row);
		for (size_t k = 0; k < width && rc == 0; k++)
			if (!isfinite(row[k]))
				rc = sl_errf(err, SL_EINVAL,
					     "%s: half %c of tensor %s: row %llu has a value that is "
					     "not finite",
					     a->path, is_b ? 'B' : 'A', of, (unsigned long long)i);
	}
	sl_free(row);
	return rc;
}

/* How its rows of queries and keys lie, against the base's. */
static int set_order(const struct adapter *a, struct adapter_matrix *m, const char *name, enum adapter_target t,
		     struct sl_err *err)
{
	if (a->base == NULL || !adapter_turns_rows(a->arch, t))
		return 0;
	bool base_apart = model_file_folder(a->base) != NULL, apart = a->gguf == NULL;
	if (base_apart == apart)
		return 0;
	if (a->arch->rope.n_rot != a->arch->head_dim)
		return sl_errf(err, SL_EUNSUPPORTED,
			       "%s: tensor %s: its base is in another form, whose heads turn in part: not supported by "
			       "this version",
			       a->path, name);
	m->head_dim = a->arch->head_dim;
	m->apart = base_apart;
	return 0;
}

static int finish_slot(const struct adapter *a, struct adapter_slot *s, enum adapter_target t, struct sl_err *err)
{
	struct adapter_matrix *m = &s->m;
	if (m->a.data == NULL && m->b.data == NULL)
		return 0;
	if (m->a.data == NULL || m->b.data == NULL)
		return sl_errf(err, SL_EINVAL, "%s: tensor %s: its other half, %c, is missing", a->path, s->name,
			       m->a.data == NULL ? 'A' : 'B');
	if (m->a.n_rows != m->b.width)
		return sl_errf(err, SL_EINVAL, "%s: tensor %s: A has rank %llu, B has rank %llu", a->path, s->name,
			       (unsigned long long)m->a.n_rows, (unsigned long long)m->b.width);
	m->rank = (int)m->a.n_rows;
	m->n_in = (int)m->a.width;
	m->n_out = (int)m->b.n_rows;
	m->scale = (float)(s->alpha / (s->by_root ? sqrt(m->rank) : (double)m->rank));
	if (!isfinite(m->scale) || m->scale == 0)
		return sl_errf(err, SL_EINVAL, "%s: tensor %s: alpha %g makes a scale of %g", a->path, s->name,
			       s->alpha, (double)m->scale);
	int rc = set_order(a, m, s->name, t, err);
	if (rc == 0)
		rc = check_numbers(a, &m->a, s->name, false, err);
	return rc == 0 ? check_numbers(a, &m->b, s->name, true, err) : rc;
}

static int finish(struct adapter *a, struct sl_err *err)
{
	int rc = a->n_layers > 0 ? 0 : sl_errf(err, SL_EINVAL, "%s: the adapter changes no matrix", a->path);
	for (int i = 0; i < a->n_layers * ADAPTER_TARGETS && rc == 0; i++)
		rc = finish_slot(a, &a->slots[i], (enum adapter_target)(i % ADAPTER_TARGETS), err);
	if (a->base != NULL)
		a->n_layers = a->most_layers;
	a->base = NULL;
	a->arch = NULL;
	return rc;
}

/* ---- what it is ---- */

uint64_t adapter_digest(const struct adapter *a)
{
	uint64_t sum = 0;
	for (int i = 0; i < a->n_layers * ADAPTER_TARGETS; i++) {
		const struct adapter_matrix *m = &a->slots[i].m;
		if (m->rank == 0)
			continue;
		const struct {
			int64_t at, rank, n_in, n_out, head_dim, apart, types;
			double scale;
		} head = {i,
			  m->rank,
			  m->n_in,
			  m->n_out,
			  m->head_dim,
			  m->apart,
			  ((int64_t)m->a.type << 32) | m->b.type,
			  (double)m->scale};
		const struct adapter_half *halves[] = {&m->a, &m->b};
		sum = XXH3_64bits_withSeed(&head, sizeof head, sum);
		for (int k = 0; k < 2; k++) {
			size_t bytes =
			    (size_t)halves[k]->n_rows * kn_row_bytes(halves[k]->type, (size_t)halves[k]->width);
			sum = XXH3_64bits_withSeed(halves[k]->data, bytes, sum);
		}
	}
	return sum;
}

/* ---- life ---- */

int adapter_open(const char *path, const struct model_file *base, const struct model_arch *arch, struct adapter **out,
		 struct sl_err *err)
{
	struct stat st;
	if (arch != NULL && arch->encoder)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: encoders take no adapters in this version", path);
	if (arch != NULL && (arch->latent.n > 0 || arch_is_recurrent(arch)))
		return sl_errf(err, SL_EUNSUPPORTED, "%s: bases with %s take no adapters in this version", path,
			       arch->latent.n > 0 ? "latent attention" : "layers that keep a state");
	struct adapter *a = sl_zalloc(sizeof *a);
	if (a == NULL || (a->path = sl_strdup(path)) == NULL) {
		sl_free(a);
		return sl_errf(err, SL_ENOMEM, "%s: no memory", path);
	}
	a->base = base;
	a->arch = arch;
	a->most_layers = arch != NULL ? arch->n_layers : ARCH_MAX_LAYERS;
	snprintf(a->family, sizeof a->family, "%s", arch != NULL ? arch->family : "llama");
	a->slots = sl_zalloc_n((size_t)a->most_layers * ADAPTER_TARGETS, sizeof *a->slots);
	int rc = a->slots == NULL                                   ? sl_errf(err, SL_ENOMEM, "%s: no memory", path)
		 : file_stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? adapter_read_peft(a, err)
								    : adapter_read_gguf(a, err);
	if (rc == 0)
		rc = finish(a, err);
	if (rc != 0) {
		adapter_close(a);
		return rc;
	}
	*out = a;
	return 0;
}

static int check_tokens(const struct adapter *a, const struct model_file *base, struct sl_err *err)
{
	struct tokenizer *t;
	int rc = adapter_has_tokens(a) ? model_file_tokenizer(base, &t, err) : SL_ENOTFOUND;
	if (rc != 0)
		return rc == SL_ENOTFOUND ? 0 : rc;
	rc = adapter_check_tokens(a, t, err);
	tokenizer_destroy(t);
	return rc;
}

int adapter_open_with(const char *path, const char *base, struct adapter **out, struct sl_err *err)
{
	struct model_file *f;
	struct model_arch arch;
	if (base == NULL)
		return adapter_open(path, NULL, NULL, out, err);
	int rc = model_file_open(base, &f, err);
	if (rc != 0)
		return rc;
	rc = model_file_arch(f, &arch, err);
	if (rc == 0)
		rc = adapter_open(path, f, &arch, out, err);
	if (rc == 0 && (rc = check_tokens(*out, f, err)) != 0) {
		adapter_close(*out);
		*out = NULL;
	}
	model_file_close(f);
	return rc;
}

void adapter_close(struct adapter *a)
{
	if (a == NULL)
		return;
	gguf_close(a->gguf);
	safetensors_close(a->tensors);
	sl_free(a->slots);
	sl_free(a->path);
	sl_free(a);
}

const char *adapter_path(const struct adapter *a) { return a->path; }
const char *adapter_form(const struct adapter *a) { return a->form; }
const char *adapter_base_name(const struct adapter *a) { return a->base_name; }
uint64_t adapter_bytes(const struct adapter *a) { return a->bytes; }
int adapter_n_layers(const struct adapter *a) { return a->n_layers; }

const struct adapter_matrix *adapter_at(const struct adapter *a, int layer, enum adapter_target t)
{
	BUG_IF(layer < 0 || layer >= a->n_layers, "an adapter's layer %d of %d", layer, a->n_layers);
	return &a->slots[layer * ADAPTER_TARGETS + (int)t].m;
}
