/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of the PEFT library: base_model.model.MODULE.lora_A.weight [rank][n_in] and lora_B.weight [n_out][rank] for
 * the base's MODULE, by Hugging Face's names, whose rows of queries and keys lie as its folders have them. Those of the
 * embeddings are lora_embedding_A [rank][n_vocab] and lora_embedding_B [n_embd][rank].
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"
#include "engine/adapter/adapter_priv.h"
#include "engine/adapter/peft_config.h"
#include "engine/file/hf_names.h"
#include "kernels/quantize.h"

enum { MAX_PATH = 4096 };

static const char prefix[] = "base_model.model.";

/* Ends of halves' names; those of embeddings have their numbers turned. */
static const struct {
	const char *text;
	bool is_b, embeds;
} ends[] = {{".lora_A.weight", false, false},
	    {".lora_B.weight", true, false},
	    {".lora_embedding_A", true, true},
	    {".lora_embedding_B", false, true}};

static const char copy_end[] = ".base_layer.weight";

/* Why a tensor is no half of a matrix. */
static const char *reason(const char *name)
{
	if (strstr(name, "lora_magnitude_vector") != NULL)
		return "DoRA";
	if (text_ends(name, ".bias"))
		return "a bias";
	if (strstr(name, ".modules_to_save.") != NULL || (text_ends(name, ".weight") && strstr(name, "lora_") == NULL))
		return "a whole matrix in place of the base's (modules_to_save)";
	return "neither lora_A.weight nor lora_B.weight of a module";
}

/* The module of a name: it without what PEFT puts around it. False: the name has another end. */
static bool module_with(const char *name, const char *end, char out[ST_MAX_NAME + 1])
{
	size_t n = strlen(name), head = sizeof prefix - 1, tail = strlen(end);
	if (!text_ends(name, end) || n <= head + tail || strncmp(name, prefix, head) != 0)
		return false;
	snprintf(out, ST_MAX_NAME + 1, "%.*s", (int)(n - head - tail), name + head);
	return true;
}

static bool module_of(const char *name, char out[ST_MAX_NAME + 1], bool *is_b, bool *embeds)
{
	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
		if (module_with(name, ends[i].text, out)) {
			*is_b = ends[i].is_b;
			*embeds = ends[i].embeds;
			return true;
		}
	return false;
}

/* GGUF's name of a module's matrix; the folder's where it has none. */
static void matrix_of(const struct adapter *a, const char *module, char *out, size_t n)
{
	char with[ST_MAX_NAME + 16];
	snprintf(with, sizeof with, "%s.weight", module);
	if (!hf_gguf_name(with, a->family, out, n))
		snprintf(out, n, "%s", with);
}

/* ---- copies of the base ---- */

static bool is_plain(int type) { return type == KN_F32 || type == KN_F16 || type == KN_BF16; }

/* Whether rows of t are those of the base, of n numbers. -1: no memory. */
static int same_rows(const struct st_tensor *t, const struct model_tensor *base)
{
	size_t n = (size_t)t->dims[1], from = kn_row_bytes(t->type, n), of = kn_row_bytes(base->type, n);
	float *x = sl_alloc(n * sizeof *x), *y = sl_alloc(n * sizeof *y);
	int same = x != NULL && y != NULL ? 1 : -1;
	for (uint64_t r = 0; r < t->dims[0] && same == 1; r++) {
		kn_dequantize(t->type, (const uint8_t *)t->data + r * from, n, x);
		kn_dequantize(base->type, (const uint8_t *)base->data + r * of, n, y);
		same = memcmp(x, y, n * sizeof *x) == 0;
	}
	sl_free(x);
	sl_free(y);
	return same;
}

/* The library saves the matrices under adapters of embeddings and head, too: the base's own, or trained ones. */
static int check_copy(const struct adapter *a, const struct st_tensor *t, const char *module, struct sl_err *err)
{
	char matrix[ST_MAX_NAME + 64];
	struct adapter_place at;
	bool joined;
	matrix_of(a, module, matrix, sizeof matrix);
	if (!adapter_target_find(matrix, &at) || adapter_is_of_a_layer(at.target))
		return sl_errf(err, SL_EUNSUPPORTED, "%s: tensor %s is %s: not supported by this version", a->path,
			       t->name, reason(t->name));
	const struct model_tensor *base = a->base != NULL ? adapter_target_base(a->base, &at, &joined) : NULL;
	if (a->base == NULL)
		return 0;
	if (base == NULL || !is_plain(base->type) || base->data == NULL || !is_plain(t->type) || t->n_dims != 2)
		return sl_errf(err, SL_EUNSUPPORTED,
			       "%s: tensor %s is a copy of the base's %s, which can't be compared with one of type %s: "
			       "save the adapter with save_embedding_layers=False",
			       a->path, t->name, matrix, base != NULL ? kn_type_name(base->type) : "?");
	int same = t->dims[1] == base->dims[0] && t->dims[0] == base->dims[1] ? same_rows(t, base) : 0;
	if (same < 0)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", a->path);
	return same == 1 ? 0
			 : sl_errf(err, SL_EUNSUPPORTED,
				   "%s: tensor %s is another matrix than the base's %s: not supported by this version",
				   a->path, t->name, matrix);
}

/* ---- halves ---- */

static int put_tensor(struct adapter *a, const struct st_tensor *t, const struct peft_config *c, struct sl_err *err)
{
	char module[ST_MAX_NAME + 1], matrix[ST_MAX_NAME + 64];
	bool is_b, embeds;
	if (module_with(t->name, copy_end, module))
		return check_copy(a, t, module, err);
	if (!module_of(t->name, module, &is_b, &embeds))
		return sl_errf(err, SL_EUNSUPPORTED, "%s: tensor %s is %s: not supported by this version", a->path,
			       t->name, reason(t->name));
	if (t->n_dims != 2 || t->type < 0)
		return sl_errf(err, SL_EUNSUPPORTED,
			       "%s: tensor %s has dtype %s in %d dimensions (supported: F32, F16, BF16 in 2)", a->path,
			       t->name, t->dtype, t->n_dims);
	matrix_of(a, module, matrix, sizeof matrix);
	if (embeds != (strcmp(matrix, adapter_target_tensor(ADAPTER_EMBED)) == 0))
		return sl_errf(err, SL_EUNSUPPORTED, "%s: tensor %s: adapters of %.100s are named lora_%sA and B",
			       a->path, t->name, matrix, embeds ? "" : "embedding_");
	struct adapter_part p = {
	    .name = t->name,
	    .matrix = matrix,
	    .is_b = is_b,
	    .half = {.data = t->data,
		     .type = t->type,
		     .width = t->dims[embeds ? 0 : 1],
		     .n_rows = t->dims[embeds ? 1 : 0],
		     .turned = embeds},
	    .n = 1,
	    .bytes = t->bytes,
	    .by_root = c->by_root,
	};
	peft_config_of(c, module, &p.want_rank, &p.alpha);
	return adapter_put(a, &p, err);
}

/* A module of the list that no tensor is of: they are not all there. */
static int check_targets(const struct adapter *a, const struct peft_config *c, struct sl_err *err)
{
	const char *target;
	for (size_t i = 0; (target = peft_config_target(c, i)) != NULL; i++) {
		bool there = false;
		for (size_t k = 0; k < safetensors_n(a->tensors) && !there; k++) {
			char module[ST_MAX_NAME + 1];
			bool is_b, embeds;
			there = module_of(safetensors_at(a->tensors, k)->name, module, &is_b, &embeds) &&
				peft_names(target, module);
		}
		if (!there)
			return sl_errf(err, SL_EINVAL,
				       "%s: target_modules names \"%.60s\", of which there is no tensor", a->path,
				       text_has_control(target, strlen(target)) ? "?" : target);
	}
	return 0;
}

/* Then what one of both adds would also have to be added to the other. */
static int check_tying(const struct adapter *a, const struct peft_config *c, struct sl_err *err)
{
	bool either = a->slots[ADAPTER_EMBED].m.a.data != NULL || a->slots[ADAPTER_HEAD].m.a.data != NULL;
	return c->ties && either
		   ? sl_errf(err, SL_EUNSUPPORTED,
			     "%s: ensure_weight_tying is not supported for adapters of embeddings and head", a->path)
		   : 0;
}

static int open_tensors(struct adapter *a, struct sl_err *err)
{
	char path[MAX_PATH + 40];
	struct stat st;
	snprintf(path, sizeof path, "%.*s/adapter_model.bin", MAX_PATH, a->path);
	bool old = file_stat(path, &st) == 0;
	snprintf(path, sizeof path, "%.*s/adapter_model.safetensors", MAX_PATH, a->path);
	if (old && file_stat(path, &st) != 0)
		return sl_errf(err, SL_EUNSUPPORTED,
			       "%s: adapter_model.bin is not supported; save it as adapter_model.safetensors", a->path);
	return safetensors_read(path, ADAPTER_MAX_BYTES, &a->tensors, err);
}

int adapter_read_peft(struct adapter *a, struct sl_err *err)
{
	struct peft_config c;
	a->form = "PEFT";
	if (strlen(a->path) > MAX_PATH)
		return sl_errf(err, SL_ELIMIT, "an adapter's path of more than %d bytes", MAX_PATH);
	int rc = peft_config_read(a->path, &c, err);
	if (rc != 0)
		return rc;
	snprintf(a->base_name, sizeof a->base_name, "%s", c.base);
	text_one_line(a->base_name, ' ');
	rc = open_tensors(a, err);
	for (size_t i = 0; rc == 0 && i < safetensors_n(a->tensors); i++)
		rc = put_tensor(a, safetensors_at(a->tensors, i), &c, err);
	if (rc == 0)
		rc = check_targets(a, &c, err);
	if (rc == 0)
		rc = check_tying(a, &c, err);
	peft_config_dispose(&c);
	return rc;
}
