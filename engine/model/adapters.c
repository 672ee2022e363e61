/* SPDX-License-Identifier: Apache-2.0
 *
 * An adapter keeps its numbers' type where all halves of a site have it, F16 or BF16; else they become F32. As
 * KN_LORA_I8 each row of A and each column of B gets a scale, the largest magnitude in it divided by 127, and rounds to
 * nearest; the product of both scales is applied to t. The halves of matrices that read the same rows are stacked, so
 * that q, k and v, or gate and up, shrink them once.
 */
#include "engine/model/adapters.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

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

struct model_adapter {
	struct kn_lora *sites; /* [n_layers][SITES]; rank 0: nothing */
	void *memory;          /* of the backend: all halves */
	uint64_t bytes;
};

struct model_adapters {
	struct model_adapter *all[MODEL_MAX_ADAPTERS]; /* by slot */
	int n, t_width;                                /* n: slots up to the last that is used */
	float *t;                                      /* [max_rows][t_width] */
	/* Of the step: its rows by adapter, and of each group its slot. */
	int32_t *rows; /* [max_rows] */
	struct kn_lora_group by_slot[MODEL_MAX_ADAPTERS], groups[MODEL_MAX_ADAPTERS];
	int slots[MODEL_MAX_ADAPTERS], n_groups;
};

/* ---- loading ---- */

/* Where halves go: first counted, then written. */
struct packing {
	const struct model *m;
	const struct adapter *from;
	struct model_adapter *to; /* memory NULL: counted */
	int type;                 /* -1: as the file has it */
	size_t bytes;
	struct sl_err *err;
};

/* A site while it is packed: its parts in the file. */
struct site_parts {
	struct kn_lora l;
	const struct adapter_matrix *of[KN_LORA_PARTS];
};

static size_t aligned(size_t bytes) { return (bytes + KN_ALIGN - 1) / KN_ALIGN * KN_ALIGN; }

static size_t tiles_of(int n_out) { return ((size_t)n_out + KN_LORA_TILE - 1) / KN_LORA_TILE; }

static size_t a_bytes(const struct kn_lora *l)
{
	return aligned((size_t)l->rank * (size_t)l->n_in * kn_lora_bytes(l->type));
}

static size_t b_bytes(const struct kn_lora *l, const struct kn_lora_part *p)
{
	return aligned(tiles_of(p->n_out) * (size_t)p->rank * KN_LORA_TILE * kn_lora_bytes(l->type));
}

static int type_with(int type, int other)
{
	bool keeps = other == KN_F16 || other == KN_BF16;
	return keeps && (type < 0 || type == other) ? other : KN_F32;
}

/* The site's shape, without its data. */
static struct site_parts site_of(const struct adapter *a, int layer, enum site site, int type)
{
	struct site_parts s = {.l = {.type = -1, .n_parts = targets[site].n}};
	for (int i = 0; i < s.l.n_parts; i++) {
		const struct adapter_matrix *m =
		    adapter_at(a, layer, (enum adapter_target)((int)targets[site].first + i));
		s.of[i] = m;
		if (m->rank == 0)
			continue;
		s.l.parts[i] = (struct kn_lora_part){.n_out = m->n_out, .rank = m->rank, .scale = m->scale};
		s.l.type = type_with(type_with(s.l.type, m->a.type), m->b.type);
		s.l.n_in = m->n_in;
		s.l.rank += m->rank;
	}
	s.l.type = type >= 0 ? type : s.l.type;
	return s;
}

static int no_memory(const struct packing *p)
{
	return sl_errf(p->err, SL_ENOMEM, "%s: no memory", adapter_path(p->from));
}

static int put(struct packing *p, size_t at, const void *host, size_t bytes)
{
	float *to = (float *)p->to->memory + at / sizeof(float);
	int rc = p->m->ops->upload(p->m->backend, to, host, bytes / sizeof(float));
	return rc == 0 ? 0 : sl_errf(p->err, rc, "%s: can't be brought to the device", adapter_path(p->from));
}

/* Room for so many bytes, and where they are once there is memory. */
static const void *room_for(struct packing *p, size_t bytes, size_t *at)
{
	*at = p->bytes;
	p->bytes += bytes;
	return p->to->memory != NULL ? (const float *)p->to->memory + *at / sizeof(float) : NULL;
}

/* n numbers as the type; scale: of KN_LORA_I8. */
static void narrow(int type, const float *from, size_t n, float scale, uint8_t *to)
{
	if (type != KN_LORA_I8) {
		BUG_IF(kn_quantize_row(type, from, n, to) != 0, "an adapter's number");
		return;
	}
	for (size_t i = 0; i < n; i++)
		to[i] = (uint8_t)(int8_t)(scale > 0 ? lrintf(fmaxf(-127, fminf(127, from[i] / scale))) : 0);
}

static float largest(const float *row, size_t n)
{
	float most = 0;
	for (size_t i = 0; i < n; i++)
		most = fmaxf(most, fabsf(row[i]));
	return most;
}

/* Rows of A of all parts, one after the other; scales: of each, 0 where it has zeros only. */
static void pack_a(const struct site_parts *s, uint8_t *out, float *row, float *scales)
{
	size_t n = (size_t)s->l.n_in, at = 0;
	for (int i = 0; i < s->l.n_parts; i++)
		for (int j = 0; j < s->l.parts[i].rank; j++, at++) {
			adapter_a_row(s->of[i], j, row);
			scales[at] = largest(row, n) / 127;
			narrow(s->l.type, row, n, scales[at], out + at * n * kn_lora_bytes(s->l.type));
		}
}

/* Of each column of B the scale. */
static void b_scales(const struct kn_lora_part *p, const struct adapter_matrix *m, float *scales)
{
	float row[ADAPTER_MAX_RANK];
	memset(scales, 0, (size_t)p->rank * sizeof *scales);
	for (int o = 0; o < p->n_out; o++) {
		adapter_b_row(m, o, row);
		for (int j = 0; j < p->rank; j++)
			scales[j] = fmaxf(scales[j], fabsf(row[j]) / 127);
	}
}

static void pack_b(int type, const struct kn_lora_part *p, const struct adapter_matrix *m, const float *scales,
		   uint8_t *out)
{
	float row[ADAPTER_MAX_RANK];
	size_t each = kn_lora_bytes(type);
	for (int o = 0; o < p->n_out; o++) {
		adapter_b_row(m, o, row);
		for (int j = 0; j < p->rank; j++) {
			size_t at = ((size_t)o / KN_LORA_TILE * (size_t)p->rank + (size_t)j) * KN_LORA_TILE +
				    (size_t)o % KN_LORA_TILE;
			narrow(type, &row[j], 1, scales[j], out + at * each);
		}
	}
}

static int put_a(struct packing *p, struct site_parts *s, float *scales)
{
	size_t at, bytes = a_bytes(&s->l);
	s->l.a = room_for(p, bytes, &at);
	if (s->l.a == NULL)
		return 0;
	uint8_t *host = sl_zalloc(bytes);
	float *row = sl_alloc((size_t)s->l.n_in * sizeof *row);
	int rc = host != NULL && row != NULL ? 0 : no_memory(p);
	if (rc == 0) {
		pack_a(s, host, row, scales);
		rc = put(p, at, host, bytes);
	}
	sl_free(host);
	sl_free(row);
	return rc;
}

/* scales: of A's rows on entry, then of the products. */
static int put_b(struct packing *p, struct site_parts *s, int part, float *scales)
{
	struct kn_lora_part *to = &s->l.parts[part];
	size_t at, bytes = b_bytes(&s->l, to);
	float of_b[ADAPTER_MAX_RANK];
	to->b = room_for(p, bytes, &at);
	if (to->b == NULL)
		return 0;
	uint8_t *host = sl_zalloc(bytes);
	if (host == NULL)
		return no_memory(p);
	b_scales(to, s->of[part], of_b);
	pack_b(s->l.type, to, s->of[part], of_b, host);
	for (int j = 0; j < to->rank; j++)
		scales[j] *= of_b[j];
	int rc = put(p, at, host, bytes);
	sl_free(host);
	return rc;
}

static int put_scales(struct packing *p, struct site_parts *s, float *scales)
{
	size_t at, bytes = aligned((size_t)s->l.rank * sizeof *scales);
	if (s->l.type != KN_LORA_I8)
		return 0;
	s->l.scales = room_for(p, bytes, &at);
	return s->l.scales != NULL ? put(p, at, scales, bytes) : 0;
}

static int pack_site(struct packing *p, int layer, enum site site)
{
	enum { MOST = KN_LORA_PARTS * ADAPTER_MAX_RANK + KN_ALIGN };
	float scales[MOST] = {0}, *of = scales;
	struct site_parts s = site_of(p->from, layer, site, p->type);
	int rc = s.l.rank > 0 ? put_a(p, &s, scales) : 0;
	for (int i = 0; i < s.l.n_parts && rc == 0; of += s.l.parts[i++].rank)
		if (s.l.parts[i].rank > 0)
			rc = put_b(p, &s, i, of);
	if (rc == 0 && s.l.rank > 0)
		rc = put_scales(p, &s, scales);
	if (p->to->sites != NULL)
		p->to->sites[layer * SITES + (int)site] = s.l;
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

static int widest_t(const struct model *m, const struct model_adapter *l)
{
	int most = 0;
	for (int i = 0; i < m->info.arch.n_layers * SITES; i++)
		most = l->sites[i].rank > most ? l->sites[i].rank : most;
	return most;
}

/* Room for t of this adapter's rows, too. */
static int grow_t(struct model *m, const struct model_adapter *l, struct sl_err *err)
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

/* Text is converted by the base's tokenizer for all adapters, and by its template unless one has its own. */
static int check_text(const struct model *m, const struct adapter *a, struct chat_template **out, uint64_t *digest,
		      struct sl_err *err)
{
	struct proto_str base = {"", 0};
	struct sl_err why = {0};
	char *own = NULL;
	size_t n = 0;
	(void)model_file_template(m->file, &base, &why);
	int rc = adapter_check_tokens(a, m->tokenizer, err);
	if (rc == 0)
		rc = adapter_own_template(a, base, &own, &n, err);
	if (rc == 0 && own != NULL && (rc = chat_template_compile(own, n, out, &why)) != 0)
		sl_errf(err, rc, "%s: its chat template: %s", adapter_path(a), why.text);
	*digest = XXH3_64bits_withSeed(own, own != NULL ? n : 0, adapter_digest(a));
	sl_free(own);
	return rc;
}

int model_open_adapter(const struct model *m, const char *path, struct adapter **out, struct chat_template **template,
		       uint64_t *digest, struct sl_err *err)
{
	*template = NULL;
	if (m->ops->lora_shrink == NULL)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: the backend %s has no adapters in this version", path,
			       m->ops->name);
	int rc = adapter_open(path, m->file, &m->info.arch, out, err);
	if (rc == 0 && (rc = check_text(m, *out, template, digest, err)) != 0)
		adapter_close(*out);
	return rc;
}

void model_close_adapter(struct adapter *a) { adapter_close(a); }

uint64_t model_adapter_size(const struct model *m, const struct adapter *a, int type)
{
	struct model_adapter none = {0};
	struct packing p = {.m = m, .from = a, .to = &none, .type = type};
	(void)pack_all(&p);
	return p.bytes;
}

int model_pack_adapter(struct model *m, const struct adapter *a, int type, struct model_adapter **out,
		       struct sl_err *err)
{
	struct model_adapter *l = sl_zalloc(sizeof *l);
	struct packing p = {.m = m, .from = a, .to = l, .type = type, .err = err};
	if (l == NULL)
		return no_memory(&p);
	l->bytes = model_adapter_size(m, a, type);
	l->sites = sl_zalloc_n((size_t)m->info.arch.n_layers * SITES, sizeof *l->sites);
	int rc = l->sites != NULL ? 0 : no_memory(&p);
	if (rc == 0 && m->ops->mem_alloc(m->backend, l->bytes, &l->memory) != 0)
		rc = sl_errf(err, SL_ENOMEM, "%s: no memory for %llu bytes", adapter_path(a),
			     (unsigned long long)l->bytes);
	if (rc == 0)
		rc = pack_all(&p);
	if (rc != 0)
		model_drop_adapter(m, l);
	else
		*out = l;
	return rc;
}

void model_drop_adapter(struct model *m, struct model_adapter *a)
{
	if (a == NULL)
		return;
	if (a->memory != NULL)
		m->ops->mem_free(m->backend, a->memory);
	sl_free(a->sites);
	sl_free(a);
}

int model_put_adapter(struct model *m, struct model_adapter *a, int *slot, struct sl_err *err)
{
	int i = 0, rc = make_room(m, err);
	if (rc == 0)
		rc = grow_t(m, a, err);
	if (rc != 0)
		return rc;
	while (i < MODEL_MAX_ADAPTERS && m->adapters->all[i] != NULL)
		i++;
	if (i == MODEL_MAX_ADAPTERS)
		return sl_errf(err, SL_ELIMIT, "a model has at most %d adapters in memory", MODEL_MAX_ADAPTERS);
	m->adapters->all[i] = a;
	m->adapters->n = i >= m->adapters->n ? i + 1 : m->adapters->n;
	*slot = i;
	return 0;
}

void model_remove_adapter(struct model *m, int slot)
{
	struct model_adapters *all = m->adapters;
	model_drop_adapter(m, all->all[slot]);
	all->all[slot] = NULL;
	while (all->n > 0 && all->all[all->n - 1] == NULL)
		all->n--;
}

int model_load_adapter(struct model *m, const char *path, int *slot, struct sl_err *err)
{
	struct adapter *a;
	struct chat_template *template;
	struct model_adapter *l = NULL;
	uint64_t digest;
	int rc = model_open_adapter(m, path, &a, &template, &digest, err);
	if (rc != 0)
		return rc;
	rc = model_pack_adapter(m, a, -1, &l, err);
	if (rc == 0 && (rc = model_put_adapter(m, l, slot, err)) != 0)
		model_drop_adapter(m, l);
	chat_template_free(template);
	adapter_close(a);
	return rc;
}

uint64_t model_adapter_bytes(const struct model *m, int slot) { return m->adapters->all[slot]->bytes; }

void adapters_free(struct model *m)
{
	struct model_adapters *all = m->adapters;
	if (all == NULL)
		return;
	for (int i = 0; i < all->n; i++)
		model_drop_adapter(m, all->all[i]);
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
		BUG_IF(s->row_adapter[r] >= all->n || (s->row_adapter[r] >= 0 && all->all[s->row_adapter[r]] == NULL),
		       "a row of adapter %d", s->row_adapter[r]);
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
		const struct kn_lora *lora = &all->all[all->slots[i]]->sites[at];
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
