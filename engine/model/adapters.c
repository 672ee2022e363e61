/* SPDX-License-Identifier: Apache-2.0
 *
 * An adapter keeps its numbers' type where all halves of a site have it, F16 or BF16; else they become F32. The halves
 * of matrices that read the same rows are stacked, so that q, k and v, or gate and up, shrink them once.
 */
#include "engine/model/adapters.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/adapter/adapter.h"
#include "engine/model/model_priv.h"
#include "kernels/quantize.h"

/* Products of a layer that have the same inputs. */
enum site { SITE_QKV, SITE_O, SITE_GATE_UP, SITE_DOWN, SITES };

static const struct {
	enum adapter_target first;
	int n;
} targets[SITES] = {[SITE_QKV] = {ADAPTER_Q, 3},
		    [SITE_O] = {ADAPTER_O, 1},
		    [SITE_GATE_UP] = {ADAPTER_GATE, 2},
		    [SITE_DOWN] = {ADAPTER_DOWN, 1}};

struct loaded {
	struct kn_lora *sites; /* [n_layers][SITES]; rank 0: nothing */
	void *memory;          /* of the backend: all halves */
	uint64_t bytes;
};

struct model_adapters {
	struct loaded all[MODEL_MAX_ADAPTERS];
	int n, t_width;
	float *t; /* [max_rows][t_width] */
	/* Of the step: its rows by adapter, and of each group its slot. */
	int32_t *rows; /* [max_rows] */
	struct kn_lora_group by_slot[MODEL_MAX_ADAPTERS], groups[MODEL_MAX_ADAPTERS];
	int slots[MODEL_MAX_ADAPTERS], n_groups;
};

/* ---- loading ---- */

/* Where halves go: first counted, then written. */
struct packing {
	struct model *m;
	const struct adapter *from;
	struct loaded *to;
	size_t bytes;
	struct sl_err *err;
};

static size_t aligned(size_t bytes) { return (bytes + KN_ALIGN - 1) / KN_ALIGN * KN_ALIGN; }

static size_t tiles_of(int n_out) { return ((size_t)n_out + KN_LORA_TILE - 1) / KN_LORA_TILE; }

static size_t a_bytes(const struct kn_lora *l)
{
	return aligned((size_t)l->rank * kn_row_bytes(l->type, (size_t)l->n_in));
}

static size_t b_bytes(const struct kn_lora *l, const struct kn_lora_part *p)
{
	return aligned(tiles_of(p->n_out) * (size_t)p->rank * KN_LORA_TILE * kn_type_block_bytes(l->type));
}

static int type_with(int type, int other)
{
	bool keeps = other == KN_F16 || other == KN_BF16;
	return keeps && (type < 0 || type == other) ? other : KN_F32;
}

/* The site's shape, without its data. */
static struct kn_lora site_of(const struct adapter *a, int layer, enum site site)
{
	struct kn_lora l = {.type = -1, .n_parts = targets[site].n};
	for (int i = 0; i < l.n_parts; i++) {
		const struct adapter_matrix *m =
		    adapter_at(a, layer, (enum adapter_target)((int)targets[site].first + i));
		if (m->rank == 0)
			continue;
		l.parts[i] = (struct kn_lora_part){.n_out = m->n_out, .rank = m->rank, .scale = m->scale};
		l.type = type_with(type_with(l.type, m->a.type), m->b.type);
		l.n_in = m->n_in;
		l.rank += m->rank;
	}
	return l;
}

static int put(struct packing *p, size_t at, const void *host, size_t bytes)
{
	float *to = (float *)p->to->memory + at / sizeof(float);
	int rc = p->m->ops->upload(p->m->backend, to, host, bytes / sizeof(float));
	return rc == 0 ? 0 : sl_errf(p->err, rc, "%s: can't be brought to the device", adapter_path(p->from));
}

/* Rows of A of all parts, one after the other. */
static void pack_a(const struct kn_lora *l, const struct adapter_matrix *const *parts, uint8_t *out, float *row)
{
	for (int i = 0; i < l->n_parts; i++)
		for (int j = 0; j < l->parts[i].rank; j++, out += kn_row_bytes(l->type, (size_t)l->n_in)) {
			adapter_a_row(parts[i], j, row);
			BUG_IF(kn_quantize_row(l->type, row, (size_t)l->n_in, out) != 0, "an adapter's number");
		}
}

static void pack_b(const struct kn_lora *l, const struct kn_lora_part *p, const struct adapter_matrix *m, uint8_t *out)
{
	float row[ADAPTER_MAX_RANK];
	uint8_t narrow[ADAPTER_MAX_RANK * sizeof(float)];
	size_t each = kn_type_block_bytes(l->type);
	for (int o = 0; o < p->n_out; o++) {
		adapter_b_row(m, o, row);
		BUG_IF(kn_quantize_row(l->type, row, (size_t)p->rank, narrow) != 0, "an adapter's number");
		for (int j = 0; j < p->rank; j++) {
			size_t at = ((size_t)o / KN_LORA_TILE * (size_t)p->rank + (size_t)j) * KN_LORA_TILE +
				    (size_t)o % KN_LORA_TILE;
			memcpy(out + at * each, narrow + (size_t)j * each, each);
		}
	}
}

static int pack_half(struct packing *p, const struct kn_lora *l, int part, const struct adapter_matrix *const *of,
		     const void **data)
{
	size_t bytes = part < 0 ? a_bytes(l) : b_bytes(l, &l->parts[part]), at = p->bytes;
	p->bytes += bytes;
	if (p->to->memory == NULL)
		return 0;
	uint8_t *host = sl_zalloc(bytes);
	float *row = sl_alloc((size_t)l->n_in * sizeof *row);
	int rc = host != NULL && row != NULL ? 0 : sl_errf(p->err, SL_ENOMEM, "%s: no memory", adapter_path(p->from));
	if (rc == 0 && part < 0)
		pack_a(l, of, host, row);
	else if (rc == 0)
		pack_b(l, &l->parts[part], of[part], host);
	if (rc == 0)
		rc = put(p, at, host, bytes);
	*data = (const float *)p->to->memory + at / sizeof(float);
	sl_free(host);
	sl_free(row);
	return rc;
}

static int pack_site(struct packing *p, int layer, enum site site)
{
	const struct adapter_matrix *of[KN_LORA_PARTS];
	struct kn_lora l = site_of(p->from, layer, site);
	for (int i = 0; i < l.n_parts; i++)
		of[i] = adapter_at(p->from, layer, (enum adapter_target)((int)targets[site].first + i));
	int rc = l.rank > 0 ? pack_half(p, &l, -1, of, &l.a) : 0;
	for (int i = 0; i < l.n_parts && rc == 0; i++)
		if (l.parts[i].rank > 0)
			rc = pack_half(p, &l, i, of, &l.parts[i].b);
	p->to->sites[layer * SITES + (int)site] = l;
	return rc;
}

static int pack_all(struct packing *p)
{
	int rc = 0;
	p->bytes = 0;
	for (int layer = 0; layer < p->m->info.arch.n_layers; layer++)
		for (int site = 0; site < SITES && rc == 0; site++)
			rc = pack_site(p, layer, (enum site)site);
	return rc;
}

static int widest_t(const struct model *m, const struct loaded *l)
{
	int most = 0;
	for (int i = 0; i < m->info.arch.n_layers * SITES; i++)
		most = l->sites[i].rank > most ? l->sites[i].rank : most;
	return most;
}

/* Room for t of this adapter's rows, too. */
static int grow_t(struct model *m, const struct loaded *l, struct sl_err *err)
{
	struct model_adapters *all = m->adapters;
	int width = widest_t(m, l);
	float *t;
	if (width <= all->t_width)
		return 0;
	int rc = model_alloc_floats(m, "adapters", (size_t)m->max_rows * (size_t)width, &t, err);
	if (rc != 0)
		return rc;
	model_free_floats(m, all->t);
	all->t = t;
	all->t_width = width;
	return 0;
}

static void unload(struct model *m, struct loaded *l)
{
	if (l->memory != NULL)
		m->ops->mem_free(m->backend, l->memory);
	sl_free(l->sites);
	*l = (struct loaded){0};
}

static int load(struct model *m, const struct adapter *a, struct loaded *l, struct sl_err *err)
{
	struct packing p = {.m = m, .from = a, .to = l, .err = err};
	l->sites = sl_zalloc_n((size_t)m->info.arch.n_layers * SITES, sizeof *l->sites);
	if (l->sites == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", adapter_path(a));
	int rc = pack_all(&p);
	l->bytes = p.bytes;
	if (rc == 0 && m->ops->mem_alloc(m->backend, p.bytes, &l->memory) != 0)
		rc = sl_errf(err, SL_ENOMEM, "%s: no memory for %zu bytes", adapter_path(a), p.bytes);
	if (rc == 0)
		rc = pack_all(&p);
	return rc == 0 ? grow_t(m, l, err) : rc;
}

static int make_room(struct model *m, struct sl_err *err)
{
	if (m->adapters == NULL)
		m->adapters = sl_zalloc(sizeof *m->adapters);
	if (m->adapters != NULL && m->adapters->rows == NULL)
		m->adapters->rows = sl_zalloc_n((size_t)m->max_rows, sizeof *m->adapters->rows);
	if (m->adapters == NULL || m->adapters->rows == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory for adapters", model_file_path(m->file));
	return 0;
}

/* Text is converted by the base's tokenizer and template for all adapters. */
static int check_text(const struct model *m, const struct adapter *a, struct sl_err *err)
{
	struct proto_str template = {"", 0};
	struct sl_err none;
	bool own = false;
	(void)model_file_template(m->file, &template, &none);
	int rc = adapter_check_tokens(a, m->tokenizer, err);
	if (rc == 0)
		rc = adapter_has_template(a, template, &own, err);
	if (rc == 0 && own)
		log_warn("adapter %s: its own chat template is not used, but its base's", adapter_path(a));
	return rc;
}

int model_load_adapter(struct model *m, const char *path, int *slot, struct sl_err *err)
{
	struct adapter *a = NULL;
	if (m->ops->lora_shrink == NULL)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: the backend %s has no adapters in this version", path,
			       m->ops->name);
	int rc = make_room(m, err);
	if (rc == 0 && m->adapters->n == MODEL_MAX_ADAPTERS)
		rc = sl_errf(err, SL_ELIMIT, "%s: a model has at most %d adapters", path, MODEL_MAX_ADAPTERS);
	if (rc == 0)
		rc = adapter_open(path, m->file, &m->info.arch, &a, err);
	if (rc != 0)
		return rc;
	struct loaded *l = &m->adapters->all[m->adapters->n];
	rc = check_text(m, a, err);
	if (rc == 0)
		rc = load(m, a, l, err);
	adapter_close(a);
	if (rc != 0)
		unload(m, l);
	else
		*slot = m->adapters->n++;
	return rc;
}

uint64_t model_adapter_bytes(const struct model *m, int slot) { return m->adapters->all[slot].bytes; }

void adapters_free(struct model *m)
{
	struct model_adapters *all = m->adapters;
	if (all == NULL)
		return;
	for (int i = 0; i < all->n; i++)
		unload(m, &all->all[i]);
	model_free_floats(m, all->t);
	sl_free(all->rows);
	sl_free(all);
	m->adapters = NULL;
}

/* ---- a step ---- */

void adapters_begin(struct model *m, const struct kn_step *s)
{
	struct model_adapters *all = m->adapters;
	int32_t first[MODEL_MAX_ADAPTERS + 1] = {0};
	if (all == NULL)
		return;
	all->n_groups = 0;
	for (int r = 0; r < s->n_rows && s->row_adapter != NULL; r++) {
		BUG_IF(s->row_adapter[r] >= all->n, "a row of adapter %d", s->row_adapter[r]);
		if (s->row_adapter[r] >= 0)
			first[s->row_adapter[r] + 1]++;
	}
	for (int i = 0; i < all->n; i++) {
		int n = first[i + 1];
		first[i + 1] += first[i];
		if (n > 0) {
			all->slots[all->n_groups] = i;
			all->by_slot[all->n_groups++] = (struct kn_lora_group){.first = first[i], .n = n};
		}
	}
	for (int r = 0; r < s->n_rows && all->n_groups > 0; r++)
		if (s->row_adapter[r] >= 0)
			all->rows[first[s->row_adapter[r]]++] = r;
}

static int add(struct model *m, const struct layer *l, enum site site, const float *x, const struct kn_lora_out *outs)
{
	struct model_adapters *all = m->adapters;
	size_t at = (size_t)(l - m->layers) * SITES + (size_t)site;
	int n = 0, rc;
	for (int i = 0; all != NULL && i < all->n_groups; i++) {
		const struct kn_lora *lora = &all->all[all->slots[i]].sites[at];
		if (lora->rank == 0)
			continue;
		all->groups[n] = all->by_slot[i];
		all->groups[n++].lora = lora;
	}
	if (n == 0)
		return 0;
	const struct kn_lora_rows rows = {
	    .groups = all->groups, .n_groups = n, .rows = all->rows, .t_width = all->t_width};
	rc = m->ops->lora_shrink(m->backend, &rows, x, all->t);
	return rc != 0 ? rc : m->ops->lora_expand(m->backend, &rows, all->t, outs);
}

int adapters_qkv(struct model *m, const struct layer *l, const float *x)
{
	const struct model_arch *a = &m->info.arch;
	int q = a->n_heads * a->head_dim, kv = a->n_kv_heads * a->head_dim, all = q + 2 * kv;
	const struct kn_lora_out apart[KN_LORA_PARTS] = {{m->q, q}, {m->k, kv}, {m->v, kv}};
	if (l->qkv.data == NULL)
		return add(m, l, SITE_QKV, x, apart);
	const struct kn_lora_out joined[KN_LORA_PARTS] = {{m->qkv, all}, {m->qkv + q, all}, {m->qkv + q + kv, all}};
	return add(m, l, SITE_QKV, x, joined);
}

int adapters_gate_up(struct model *m, const struct layer *l, const float *x)
{
	const struct kn_lora_out apart[KN_LORA_PARTS] = {{m->gate, l->n_ff}, {m->up, l->n_ff}};
	const struct kn_lora_out alone[KN_LORA_PARTS] = {{NULL, 0}, {m->gate, l->n_ff}};
	if (l->gate_up.data == NULL)
		return add(m, l, SITE_GATE_UP, x, l->gate.data != NULL ? apart : alone);
	const struct kn_lora_out joined[KN_LORA_PARTS] = {{m->gate_up, 2 * l->n_ff},
							  {m->gate_up + l->n_ff, 2 * l->n_ff}};
	return add(m, l, SITE_GATE_UP, x, joined);
}

int adapters_o(struct model *m, const struct layer *l, const float *x, float *y)
{
	return add(m, l, SITE_O, x, (const struct kn_lora_out[KN_LORA_PARTS]){{y, m->info.arch.n_embd}});
}

int adapters_down(struct model *m, const struct layer *l, const float *x, float *y)
{
	return add(m, l, SITE_DOWN, x, (const struct kn_lora_out[KN_LORA_PARTS]){{y, m->info.arch.n_embd}});
}
