/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams each tensor in pieces from the mapping to disk, so memory use is a few MiB for any model size. A tensor that
 * keeps its type is copied.
 *
 * A Hugging Face folder needs two changes for GGUF: 1 is added to Gemma's norm gains, and in Llama's line the rows
 * of q and k are reordered so that rotary pairs, (i, i + half) there, become neighbours.
 */
#include "engine/source/quantize_model.h"

#include <stdlib.h>
#include <string.h>

#include "base/json/json_scan.h"
#include "base/out_file.h"
#include "base/text.h"
#include "engine/source/arch_family.h"
#include "engine/source/arch_read.h"
#include "engine/source/arch_write.h"
#include "kernels/quantize.h"

enum { COPY_PIECE = 8 << 20 };

struct job {
	struct model_file *file;
	const struct weight_plan *plan;
	const struct hf_folder *folder; /* NULL: from GGUF */
	struct model_arch arch;         /* of a folder */
	int n_layers, n_threads;
	bool tied;
	struct gguf_writer *w;
	struct convert_progress *progress;
	struct sl_err *err;
};

struct source {
	const struct model_tensor *t;
	size_t row_bytes;
	int pair_heads; /* dimension of reordered heads; 0: not reordered */
	float add;
};

static void source_row(void *ctx, uint64_t row, float *out)
{
	const struct source *s = ctx;
	uint64_t from = row, d = (uint64_t)s->pair_heads;
	if (d > 0)
		from = row / d * d + row % 2 * (d / 2) + row % d / 2;
	kn_dequantize(s->t->type, (const uint8_t *)s->t->data + from * s->row_bytes, (size_t)s->t->dims[0], out);
	if (s->add != 0)
		for (uint64_t i = 0; i < s->t->dims[0]; i++)
			out[i] += s->add;
}

static int type_of(const struct job *j, const struct model_tensor *t)
{
	if ((t->n_dims == 2 || t->n_dims == 3) && text_ends(t->name, ".weight"))
		return weight_plan_type(j->plan, t->name, t->dims[0], j->n_layers, j->tied);
	return t->n_dims == 1 && (t->type == KN_F16 || t->type == KN_BF16) ? KN_F32 : t->type;
}

/* Whether GGUF has pairs side by side where folders of the family have halves. */
static bool turns_rows(const struct job *j)
{
	const struct arch_family *f = arch_family_find(j->arch.family, strlen(j->arch.family));
	return !f->halves && !f->hf_pairs;
}

static struct source source_of(const struct job *j, const struct model_tensor *t)
{
	struct source s = {.t = t, .row_bytes = kn_row_bytes(t->type, (size_t)t->dims[0])};
	if (j->folder == NULL)
		return s;
	if (t->n_dims == 1 && text_ends(t->name, "norm.weight"))
		s.add = j->arch.norm_gain_offset;
	if (turns_rows(j) && (text_ends(t->name, ".attn_q.weight") || text_ends(t->name, ".attn_k.weight")))
		s.pair_heads = j->arch.head_dim;
	return s;
}

static uint64_t rows_of(const struct model_tensor *t) { return t->dims[1] * t->dims[2] * t->dims[3]; }

static int declare_tensors(struct job *j)
{
	for (size_t i = 0; i < model_file_n_tensors(j->file); i++) {
		const struct model_tensor *t = model_file_tensor_at(j->file, i);
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
	}
	return 0;
}

static int write_tensor(struct job *j, const struct model_tensor *t)
{
	struct source s = source_of(j, t);
	struct convert c = {.row = source_row,
			    .ctx = &s,
			    .type = type_of(j, t),
			    .width = (size_t)t->dims[0],
			    .n_threads = j->n_threads};
	int rc = model_file_bring(j->file, t, j->err);
	if (rc != 0)
		return rc;
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
		rc = write_tensor(j, t);
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

int quantize_model(const char *in, const char *out, bool replace, const struct weight_plan *plan, int n_threads,
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
			.plan = plan,
			.folder = model_file_folder(f),
			.n_layers = count_layers(f),
			.n_threads = n_threads,
			.tied = model_file_find(f, "output.weight") == NULL,
			.progress = p != NULL ? p : &mine,
			.err = err};
	rc = check_is_no_source(f, out, err);
	if (rc == 0)
		rc = gguf_writer_create(out, replace, &j.w, err);
	if (rc == 0) {
		rc = write_all(&j);
		if (rc == 0 || gguf_writer_status(j.w) != 0)
			rc = gguf_writer_finish(j.w, err);
		else
			gguf_writer_abort(j.w);
	}
	model_file_close(f);
	return rc;
}
