/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams each tensor in pieces from the mapping to disk, so memory use is a few MiB for any model size. A tensor that
 * keeps its type is copied.
 *
 * A Hugging Face folder needs two changes for GGUF: 1 is added to Gemma's norm gains, and in Llama's line the rows
 * of q and k are reordered so that rotary pairs, (i, i + half) there, become neighbours.
 */
#include "engine/source/quantize_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json/json_scan.h"
#include "base/out_file.h"
#include "base/text.h"
#include "engine/source/arch_family.h"
#include "engine/source/arch_read.h"
#include "engine/source/arch_write.h"
#include "engine/source/hf_made.h"
#include "kernels/quantize.h"

enum { COPY_PIECE = 8 << 20, N_TYPES = 64, SAMPLED_ROWS = 32 };

struct job {
	struct model_file *file;
	const struct quantize_how *how;
	size_t kept[N_TYPES];           /* matrices that keep their four bits, by type */
	double error, size;             /* sums of squares over sampled rows of these */
	const struct hf_folder *folder; /* NULL: from GGUF */
	struct model_arch arch;         /* of a folder */
	int n_layers;
	bool tied;                       /* in what is written */
	const struct model_tensor *head; /* NULL, or the table of embeddings, which becomes the output matrix, too */
	struct gguf_writer *w;
	struct convert_progress *progress;
	struct sl_err *err;
};

struct source {
	const struct model_tensor *t;
	size_t row_bytes;
	int pair_heads; /* dimension of reordered heads; 0: not reordered */
	float add;
	const struct quantize_change *change; /* NULL: none, of this one */
};

/* The input's row that becomes row `row`. */
static uint64_t row_from(const struct source *s, uint64_t row)
{
	uint64_t d = (uint64_t)s->pair_heads;
	return d > 0 ? row / d * d + row % 2 * (d / 2) + row % d / 2 : row;
}

static const uint8_t *row_at(const struct source *s, uint64_t row)
{
	return (const uint8_t *)s->t->data + row_from(s, row) * s->row_bytes;
}

static void source_row(void *ctx, uint64_t row, float *out)
{
	const struct source *s = ctx;
	kn_dequantize(s->t->type, row_at(s, row), (size_t)s->t->dims[0], out);
	if (s->add != 0)
		for (uint64_t i = 0; i < s->t->dims[0]; i++)
			out[i] += s->add;
	if (s->change != NULL)
		s->change->add(s->change->ctx, row_from(s, row), out);
}

static void same_row(void *ctx, uint64_t row, uint8_t *out)
{
	const struct source *s = ctx;
	memcpy(out, row_at(s, row), s->row_bytes);
}

/* INT4, which no file has, is Q4_0 with one scale for four blocks (kernels/blocks.h). */
static void int4_row(void *ctx, uint64_t row, uint8_t *out)
{
	const struct source *s = ctx;
	const uint8_t *at = row_at(s, row);
	for (uint64_t k = 0; k < s->t->dims[0]; k += 128, at += 66)
		for (int i = 0; i < 4; i++, out += 18) {
			memcpy(out, at, 2);
			memcpy(out + 2, at + 2 + 16 * i, 16);
		}
}

/* ---- types ---- */

static bool is_matrix(const struct model_tensor *t) { return weight_plan_covers(t->name, t->n_dims); }

static size_t tenths_of_bits(int type) { return kn_type_block_bytes(type) * 80 / (size_t)kn_type_block(type); }

static bool is_changed(const struct job *j, const struct model_tensor *t)
{
	return j->how->change != NULL && j->how->change->touches(j->how->change->ctx, t);
}

/* Four bits already, in a type that is not much larger. */
static bool keeps(const struct job *j, const struct model_tensor *t)
{
	if (j->how->requantize || !is_matrix(t) || is_changed(j, t))
		return false;
	return t->made != NULL && t->made->bits > 0 ? t->made->bits <= 4 && tenths_of_bits(t->type) < 70
						    : tenths_of_bits(t->type) < 50;
}

static int plan_type(const struct job *j, const struct model_tensor *t)
{
	return weight_plan_type(&j->how->plan, t->name, t->dims[0], j->n_layers, j->tied);
}

static int type_of(const struct job *j, const struct model_tensor *t)
{
	if (keeps(j, t))
		return t->type == KN_INT4 ? KN_Q4_0 : t->type;
	if (is_matrix(t))
		return plan_type(j, t);
	bool plain = t->n_dims == 1 || text_ends(t->name, ".weight"); /* also norms and taps of two dimensions */
	return plain && (t->type == KN_F16 || t->type == KN_BF16) ? KN_F32 : t->type;
}

/* Whether GGUF has pairs side by side where folders of the family have halves. */
static bool turns_rows(const struct job *j)
{
	const struct arch_family *f = arch_family_find(j->arch.family, strlen(j->arch.family));
	return !f->halves && !f->hf_pairs;
}

static struct source source_of(const struct job *j, const struct model_tensor *t)
{
	struct source s = {.t = t,
			   .row_bytes = kn_row_bytes(t->type, (size_t)t->dims[0]),
			   .change = is_changed(j, t) ? j->how->change : NULL};
	if (j->folder == NULL)
		return s;
	if (t->n_dims == 1 && text_ends(t->name, "norm.weight"))
		s.add = j->arch.norm_gain_offset;
	if (turns_rows(j) && (text_ends(t->name, ".attn_q.weight") || text_ends(t->name, ".attn_k.weight")))
		s.pair_heads = j->arch.head_dim;
	return s;
}

static uint64_t rows_of(const struct model_tensor *t) { return t->dims[1] * t->dims[2] * t->dims[3]; }

static int declare_tensor(struct job *j, const struct model_tensor *t)
{
	if (kn_type_block(t->type) == 0)
		return sl_errf(j->err, SL_EUNSUPPORTED, "%s: tensor %s has type %s, which is not supported",
			       model_file_path(j->file), t->name, kn_type_name(t->type));
	int type = type_of(j, t);
	struct source s = source_of(j, t);
	if (s.pair_heads > 0 && (t->n_dims != 2 || t->dims[1] % (uint64_t)s.pair_heads != 0))
		return sl_errf(j->err, SL_EINVAL, "%s: tensor %s has rows for no whole number of heads",
			       model_file_path(j->file), t->name);
	gguf_add_tensor(j->w, t->name, type, t->n_dims, t->dims);
	j->progress->total += rows_of(t) * kn_row_bytes(type, (size_t)t->dims[0]);
	return 0;
}

/* The table of embeddings by the output matrix's name. Its data are there. */
static struct model_tensor as_head(const struct model_tensor *t)
{
	struct model_tensor head = *t;
	head.name = "output.weight";
	return head;
}

static int declare_tensors(struct job *j)
{
	int rc = 0;
	for (size_t i = 0; i < model_file_n_tensors(j->file) && rc == 0; i++) {
		const struct model_tensor *t = model_file_tensor_at(j->file, i);
		struct model_tensor head = as_head(t);
		rc = declare_tensor(j, t);
		if (rc == 0 && t == j->head)
			rc = declare_tensor(j, &head);
	}
	return rc;
}

/* What a row would lose in the plan's type. */
static void sample_row(struct job *j, const struct source *s, uint64_t row, int type, float *x, float *y, void *blocks)
{
	size_t n = (size_t)s->t->dims[0];
	source_row((void *)(uintptr_t)s, row, x);
	if (kn_quantize_row(type, x, n, blocks) != 0)
		return;
	kn_dequantize(type, blocks, n, y);
	for (size_t i = 0; i < n; i++) {
		j->error += ((double)y[i] - (double)x[i]) * ((double)y[i] - (double)x[i]);
		j->size += (double)x[i] * (double)x[i];
	}
}

static int sample_loss(struct job *j, const struct source *s)
{
	uint64_t rows = rows_of(s->t), step = rows / SAMPLED_ROWS + 1;
	int type = plan_type(j, s->t);
	size_t n = (size_t)s->t->dims[0];
	float *x = sl_alloc(n * sizeof *x), *y = sl_alloc(n * sizeof *y);
	uint8_t *blocks = sl_alloc(kn_row_bytes(type, n));
	int rc = x != NULL && y != NULL && blocks != NULL ? 0 : SL_ENOMEM;
	for (uint64_t row = 0; row < rows && rc == 0; row += step)
		sample_row(j, s, row, type, x, y, blocks);
	sl_free(x);
	sl_free(y);
	sl_free(blocks);
	return rc == 0 ? 0 : sl_errf(j->err, rc, "no memory for tensor %s", s->t->name);
}

static int write_tensor(struct job *j, const struct model_tensor *t)
{
	struct source s = source_of(j, t);
	struct convert c = {.row = source_row,
			    .ctx = &s,
			    .type = type_of(j, t),
			    .width = (size_t)t->dims[0],
			    .n_threads = j->how->n_threads};
	int rc = 0;
	if (keeps(j, t)) {
		j->kept[c.type]++;
		rc = sample_loss(j, &s);
	}
	if (rc == 0 && s.change != NULL)
		rc = s.change->begin(s.change->ctx, t, j->err);
	if (rc != 0)
		return rc;
	if (j->how->inputs != NULL && is_matrix(t) && !keeps(j, t) && c.type != t->type)
		rc = j->how->inputs->find(j->how->inputs->ctx, t, c.type, &c.inputs, j->err);
	if (rc != 0)
		return rc;
	if (s.change != NULL)
		return convert_write(&c, t->name, rows_of(t), j->w, j->progress, j->err);
	if (s.add == 0 && c.type == t->type)
		c.raw_row = same_row;
	else if (t->type == KN_INT4 && c.type == KN_Q4_0 && keeps(j, t))
		c.raw_row = int4_row;
	if (c.type != t->type || s.pair_heads > 0 || s.add != 0)
		return convert_write(&c, t->name, rows_of(t), j->w, j->progress, j->err);
	for (uint64_t at = 0; at < t->bytes && gguf_writer_status(j->w) == 0; at += COPY_PIECE) {
		size_t n = t->bytes - at < COPY_PIECE ? (size_t)(t->bytes - at) : COPY_PIECE;
		gguf_write_data(j->w, (const uint8_t *)t->data + at, n);
		convert_advance(j->progress, n);
	}
	return gguf_writer_status(j->w);
}

/* ---- keys ---- */

/* Keys that describe the input file, not the model. */
static bool is_of_the_file(struct proto_str key)
{
	static const char *const keys[] = {"general.alignment", "general.file_type", "general.quantization_version",
					   "split.no",          "split.count",       "split.tensors.count"};
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
		if (json_is(key, keys[i]))
			return true;
	return false;
}

static void copy_keys(const struct gguf *g, struct gguf_writer *w)
{
	for (size_t i = 0; i < gguf_n_keys(g); i++) {
		enum gguf_value type;
		struct proto_str value, key = gguf_raw_key(g, i, &type, &value);
		if (!is_of_the_file(key))
			gguf_put_raw(w, key, type, value);
	}
}

static int folder_keys(struct job *j)
{
	const char *name = model_file_name(j->file);
	int rc = model_file_arch(j->file, &j->arch, j->err);
	if (rc != 0)
		return rc;
	if (j->arch.encoder)
		return sl_errf(j->err, SL_EUNSUPPORTED, "%s: folders of encoders are not converted by this version",
			       model_file_path(j->file));
	if (arch_is_recurrent(&j->arch))
		return sl_errf(j->err, SL_EUNSUPPORTED,
			       "%s: folders of models whose layers keep a state are not converted by this version",
			       model_file_path(j->file));
	if (turns_rows(j) && j->arch.rope.n_rot != j->arch.head_dim)
		return sl_errf(j->err, SL_EUNSUPPORTED,
			       "%s: partial rotary embedding has no GGUF form for "
			       "this family",
			       model_file_path(j->file));
	rc = arch_write_keys(&j->arch, j->w, j->err);
	gguf_put_str(j->w, "general.name", name, strlen(name));
	return rc != 0 ? rc : hf_write_tokenizer(j->folder, j->arch.n_vocab, j->w, j->err);
}

static int write_all(struct job *j)
{
	struct arch_extra extras[ARCH_EXTRA_TENSORS];
	int n_extras = 0, rc = 0;
	if (j->folder == NULL)
		copy_keys(model_file_gguf(j->file), j->w);
	else if ((rc = folder_keys(j)) == 0)
		n_extras = arch_write_extras(&j->arch, extras);
	for (int i = 0; i < n_extras; i++)
		gguf_add_tensor(j->w, extras[i].name, KN_F32, 1, (uint64_t[]){(uint64_t)extras[i].n});
	if (rc == 0)
		rc = declare_tensors(j);
	for (int i = 0; i < n_extras && rc == 0; i++)
		gguf_write_data(j->w, extras[i].values, (size_t)extras[i].n * sizeof(float));
	for (size_t i = 0; i < model_file_n_tensors(j->file) && rc == 0; i++) {
		const struct model_tensor *t = model_file_tensor_at(j->file, i);
		rc = model_file_bring(j->file, t, j->err);
		struct model_tensor head = as_head(t);
		if (rc == 0)
			rc = write_tensor(j, t);
		if (rc == 0 && t == j->head)
			rc = write_tensor(j, &head);
		if (t->made != NULL)
			model_file_let_go(j->file, t);
	}
	return rc;
}

static int count_layers(const struct model_file *f)
{
	long most = 0;
	for (size_t i = 0; i < model_file_n_tensors(f); i++) {
		const char *name = model_file_tensor_at(f, i)->name;
		long layer = strncmp(name, "blk.", 4) == 0 ? strtol(name + 4, NULL, 10) : 0;
		if (layer >= most && layer < ARCH_MAX_LAYERS)
			most = layer + 1;
	}
	return (int)most;
}

/* Refuses to overwrite an input file. */
static int check_is_no_source(const struct model_file *f, const char *out, struct sl_err *err)
{
	int rc = model_file_folder(f) != NULL ? out_file_is_not_in(out, model_file_path(f), ".gguf", err) : 0;
	for (size_t i = 0; i < model_file_n_parts(f) && rc == 0; i++)
		rc = out_file_is_not(out, gguf_path(model_file_part(f, i)), err);
	return rc;
}

static void report_kept(const struct job *j, struct quantize_kept *out)
{
	size_t at = 0;
	*out = (struct quantize_kept){.loss = j->size > 0 ? sqrt(j->error / j->size) : 0};
	for (int type = 0; type < N_TYPES; type++) {
		out->n += j->kept[type];
		if (j->kept[type] > 0 && at < sizeof out->types)
			at += (size_t)snprintf(out->types + at, sizeof out->types - at, "%s%s ×%zu", at > 0 ? ", " : "",
					       kn_type_name(type), j->kept[type]);
	}
}

int quantize_model(const char *in, const char *out, const struct quantize_how *how, struct quantize_kept *kept,
		   struct convert_progress *p, struct sl_err *err)
{
	struct convert_progress mine = {0};
	struct model_file *f;
	int rc = model_file_open(in, &f, err);
	if (rc != 0)
		return rc;
	if (model_file_is_random(f)) {
		model_file_close(f);
		return sl_errf(err, SL_EUNSUPPORTED, "%s: weights without a file cannot be converted", in);
	}
	struct job j = {.file = f,
			.how = how,
			.folder = model_file_folder(f),
			.n_layers = count_layers(f),
			.tied = model_file_find(f, "output.weight") == NULL,
			.progress = p != NULL ? p : &mine,
			.err = err};
	if (j.tied && how->change != NULL && how->change->unties) {
		j.head = model_file_find(f, "token_embd.weight");
		j.tied = j.head == NULL;
	}
	rc = check_is_no_source(f, out, err);
	if (rc == 0)
		rc = gguf_writer_create(out, how->replace, &j.w, err);
	if (rc == 0) {
		rc = write_all(&j);
		if (rc == 0 || gguf_writer_status(j.w) != 0)
			rc = gguf_writer_finish(j.w, err);
		else
			gguf_writer_abort(j.w);
	}
	if (kept != NULL)
		report_kept(&j, kept);
	model_file_close(f);
	return rc;
}
