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
#include "engine/source/arch_read.h"
#include "kernels/quantize.h"

/* ---- rows ---- */

/* Column `row` of what the file has. */
static void turned_row(const struct adapter_half *h, uint64_t row, float *out)
{
	size_t each = kn_type_block_bytes(h->type);
	const uint8_t *at = (const uint8_t *)h->data + row * each;
	for (uint64_t i = 0; i < h->width; i++, at += h->n_rows * each)
		kn_dequantize(h->type, at, 1, out + i);
}

static void half_row(const struct adapter_half *h, uint64_t row, float *out)
{
	size_t width = (size_t)h->width;
	if (h->turned)
		turned_row(h, row, out);
	else
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

char adapter_half_letter(enum adapter_target t, bool is_b) { return is_b == (t != ADAPTER_EMBED) ? 'B' : 'A'; }

static int check_base_shape(const struct adapter *a, const struct adapter_part *p, const struct adapter_place *at,
			    struct sl_err *err)
{
	int n_out, n_in;
	bool joined;
	const struct model_tensor *base = adapter_target_base(a->base, at, &joined);
	if (base == NULL)
		return sl_errf(err, SL_EINVAL, "%s: tensor %s changes %s, which the base does not have", a->path,
			       p->name, p->matrix);
	adapter_target_shape(a->arch, at->target, &n_out, &n_in);
	if (base->n_dims != 2 + joined || base->dims[0] != (uint64_t)n_in || base->dims[1] != (uint64_t)n_out)
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

static int check_place(const struct adapter *a, const struct adapter_part *p, const struct adapter_place *at,
		       struct sl_err *err)
{
	uint64_t experts = at->expert == ADAPTER_ALL ? p->n : (uint64_t)at->expert + 1,
		 most = (uint64_t)a->most_experts;
	if (at->layer >= a->most_layers)
		return sl_errf(err, SL_EINVAL, "%s: tensor %s is of layer %d, but the base has %d layers", a->path,
			       p->name, at->layer, a->most_layers);
	if (p->n != 1 && at->expert != ADAPTER_ALL)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: tensor %s has 3 dimensions", a->path, p->name);
	if (adapter_is_of_experts(at->target) &&
	    (experts > most || (at->expert == ADAPTER_ALL && a->base != NULL && experts != most)))
		return sl_errf(err, SL_EINVAL, "%s: tensor %s is of expert %s%llu, but the base has %llu experts",
			       a->path, p->name, at->expert == ADAPTER_ALL ? "0 to " : "",
			       (unsigned long long)experts - 1, (unsigned long long)most);
	return a->base != NULL ? check_base_shape(a, p, at, err) : 0;
}

static int check_part(const struct adapter *a, const struct adapter_part *p, struct sl_err *err)
{
	uint64_t rank = p->is_b ? p->half.width : p->half.n_rows,
		 in_file = p->half.turned ? p->half.n_rows : p->half.width;
	uint64_t rows = p->half.turned ? p->half.width : p->half.n_rows;
	int block = kn_type_block(p->half.type);
	if (block == 0 || !kn_type_in_files(p->half.type) || in_file % (uint64_t)block != 0 ||
	    (p->half.turned && block != 1))
		return sl_errf(err, SL_EUNSUPPORTED, "%s: tensor %s has type %s, which adapters don't support", a->path,
			       p->name, kn_type_name(p->half.type));
	if (rank < 1 || rank > ADAPTER_MAX_RANK)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: tensor %s has rank %llu; 1 to %d are supported", a->path,
			       p->name, (unsigned long long)rank, ADAPTER_MAX_RANK);
	if (in_file > ARCH_MAX_VOCAB || rows > ARCH_MAX_VOCAB || p->n < 1 || p->n > KN_MAX_EXPERTS ||
	    p->bytes != p->n * rows * kn_row_bytes(p->half.type, (size_t)in_file))
		return sl_errf(err, SL_EINVAL, "%s: tensor %s has %llu bytes, which do not make its shape", a->path,
			       p->name, (unsigned long long)p->bytes);
	if (p->want_rank > 0 && rank != (uint64_t)p->want_rank)
		return sl_errf(err, SL_EINVAL, "%s: tensor %s has rank %llu, but adapter_config.json says %d", a->path,
			       p->name, (unsigned long long)rank, p->want_rank);
	return 0;
}

/* Room for n experts of a target. */
static int make_experts(const struct adapter *a, struct adapter_slot *s, int n, struct sl_err *err)
{
	int room = 1;
	if (n <= s->n_experts)
		return 0;
	while (room < n)
		room *= 2;
	room = room < a->most_experts ? room : a->most_experts;
	struct adapter_slot *more = sl_zalloc_n((size_t)room, sizeof *more);
	if (more == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", a->path);
	for (int i = 0; i < s->n_experts; i++)
		more[i] = s->experts[i];
	sl_free(s->experts);
	s->experts = more;
	s->n_experts = room;
	return 0;
}

static int put_half(const struct adapter *a, struct adapter_slot *s, const struct adapter_part *p, uint64_t i,
		    struct sl_err *err)
{
	struct adapter_half *half = p->is_b ? &s->m.b : &s->m.a;
	if (half->data != NULL)
		return sl_errf(err, SL_EINVAL, "%s: tensor %s: another one is the same half of %s", a->path, p->name,
			       p->matrix);
	*half = p->half;
	half->data = (const uint8_t *)p->half.data + i * (p->bytes / p->n);
	s->alpha = p->alpha;
	s->by_root = p->by_root;
	s->name = p->name;
	return 0;
}

int adapter_put(struct adapter *a, const struct adapter_part *p, struct sl_err *err)
{
	struct adapter_place at;
	int rc;
	if (!adapter_target_find(p->matrix, &at))
		return sl_errf(
		    err, SL_EUNSUPPORTED,
		    "%s: tensor %s: adapters of %.100s are not supported by this version (only of q, k, v, o, "
		    "gate, up, down, those of experts, the embeddings and the head)",
		    a->path, p->name, p->matrix);
	if ((rc = check_part(a, p, err)) != 0 || (rc = check_place(a, p, &at, err)) != 0)
		return rc;
	struct adapter_slot *s = &a->slots[at.layer * ADAPTER_TARGETS + (int)at.target];
	if (!adapter_is_of_experts(at.target)) {
		rc = put_half(a, s, p, 0, err);
	} else {
		int first = at.expert == ADAPTER_ALL ? 0 : at.expert;
		rc = make_experts(a, s, first + (int)p->n, err);
		for (uint64_t i = 0; i < p->n && rc == 0; i++)
			rc = put_half(a, &s->experts[first + (int)i], p, i, err);
	}
	if (rc != 0)
		return rc;
	a->bytes += p->bytes;
	a->any = true;
	a->n_layers = at.layer >= a->n_layers ? at.layer + 1 : a->n_layers;
	return 0;
}

/* ---- once all are there ---- */

static int check_numbers(const struct adapter *a, const struct adapter_half *h, const char *of, char letter,
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
					     a->path, letter, of, (unsigned long long)i);
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
			       adapter_half_letter(t, m->a.data != NULL));
	if (m->a.n_rows != m->b.width)
		return sl_errf(err, SL_EINVAL, "%s: tensor %s: %c has rank %llu, %c has rank %llu", a->path, s->name,
			       adapter_half_letter(t, false), (unsigned long long)m->a.n_rows,
			       adapter_half_letter(t, true), (unsigned long long)m->b.width);
	m->rank = (int)m->a.n_rows;
	m->n_in = (int)m->a.width;
	m->n_out = (int)m->b.n_rows;
	m->scale = (float)(s->alpha / (s->by_root ? sqrt(m->rank) : (double)m->rank));
	if (!isfinite(m->scale) || m->scale == 0)
		return sl_errf(err, SL_EINVAL, "%s: tensor %s: alpha %g makes a scale of %g", a->path, s->name,
			       s->alpha, (double)m->scale);
	int rc = set_order(a, m, s->name, t, err);
	if (rc == 0)
		rc = check_numbers(a, &m->a, s->name, adapter_half_letter(t, false), err);
	return rc == 0 ? check_numbers(a, &m->b, s->name, adapter_half_letter(t, true), err) : rc;
}

static int finish_place(const struct adapter *a, struct adapter_slot *s, enum adapter_target t, struct sl_err *err)
{
	int rc = finish_slot(a, s, t, err);
	for (int e = 0; e < s->n_experts && rc == 0; e++)
		rc = finish_slot(a, &s->experts[e], t, err);
	return rc;
}

static int finish(struct adapter *a, struct sl_err *err)
{
	int rc = a->any ? 0 : sl_errf(err, SL_EINVAL, "%s: the adapter changes no matrix", a->path);
	for (int i = 0; i < a->n_layers * ADAPTER_TARGETS && rc == 0; i++)
		rc = finish_place(a, &a->slots[i], (enum adapter_target)(i % ADAPTER_TARGETS), err);
	if (a->base != NULL)
		a->n_layers = a->most_layers;
	a->base = NULL;
	a->arch = NULL;
	return rc;
}

/* ---- what it is ---- */

static uint64_t digest_of(const struct adapter_matrix *m, int64_t at, uint64_t sum)
{
	if (m->rank == 0)
		return sum;
	const struct {
		int64_t at, rank, n_in, n_out, head_dim, apart, types, turned;
		double scale;
	} head = {at,
		  m->rank,
		  m->n_in,
		  m->n_out,
		  m->head_dim,
		  m->apart,
		  ((int64_t)m->a.type << 32) | m->b.type,
		  m->a.turned | m->b.turned << 1,
		  (double)m->scale};
	const struct adapter_half *halves[] = {&m->a, &m->b};
	sum = XXH3_64bits_withSeed(&head, sizeof head, sum);
	for (int k = 0; k < 2; k++) {
		const struct adapter_half *h = halves[k];
		size_t bytes = h->turned ? (size_t)h->width * kn_row_bytes(h->type, (size_t)h->n_rows)
					 : (size_t)h->n_rows * kn_row_bytes(h->type, (size_t)h->width);
		sum = XXH3_64bits_withSeed(h->data, bytes, sum);
	}
	return sum;
}

uint64_t adapter_digest(const struct adapter *a)
{
	uint64_t sum = 0;
	for (int i = 0; i < a->n_layers * ADAPTER_TARGETS; i++) {
		const struct adapter_slot *s = &a->slots[i];
		sum = digest_of(&s->m, i, sum);
		for (int e = 0; e < s->n_experts; e++)
			sum = digest_of(&s->experts[e].m, (int64_t)(e + 1) << 32 | i, sum);
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
	a->most_experts = arch != NULL ? arch->experts.n : KN_MAX_EXPERTS;
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
	for (int i = 0; a->slots != NULL && i < a->most_layers * ADAPTER_TARGETS; i++)
		sl_free(a->slots[i].experts);
	sl_free(a->slots);
	sl_free(a->path);
	sl_free(a);
}

const char *adapter_path(const struct adapter *a) { return a->path; }
const char *adapter_form(const struct adapter *a) { return a->form; }
const char *adapter_base_name(const struct adapter *a) { return a->base_name; }
uint64_t adapter_bytes(const struct adapter *a) { return a->bytes; }
int adapter_n_layers(const struct adapter *a) { return a->n_layers; }

static const struct adapter_slot *slot_at(const struct adapter *a, int layer, enum adapter_target t)
{
	BUG_IF(layer < 0 || layer >= a->n_layers, "an adapter's layer %d of %d", layer, a->n_layers);
	return &a->slots[layer * ADAPTER_TARGETS + (int)t];
}

const struct adapter_matrix *adapter_at(const struct adapter *a, int layer, enum adapter_target t)
{
	return &slot_at(a, layer, t)->m;
}

int adapter_n_experts(const struct adapter *a, int layer, enum adapter_target t)
{
	const struct adapter_slot *s = slot_at(a, layer, t);
	int n = s->n_experts;
	while (n > 0 && s->experts[n - 1].m.rank == 0)
		n--;
	return n;
}

const struct adapter_matrix *adapter_expert(const struct adapter *a, int layer, enum adapter_target t, int expert)
{
	static const struct adapter_matrix none;
	const struct adapter_slot *s = slot_at(a, layer, t);
	return expert < s->n_experts ? &s->experts[expert].m : &none;
}

bool adapter_has(const struct adapter *a, enum adapter_target t)
{
	for (int layer = 0; layer < a->n_layers; layer++)
		if (adapter_at(a, layer, t)->rank > 0 || adapter_n_experts(a, layer, t) > 0)
			return true;
	return false;
}
