/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of the PEFT library: base_model.model.MODULE.lora_A.weight [rank][n_in] and lora_B.weight [n_out][rank] for
 * the base's MODULE, by Hugging Face's names, whose rows of queries and keys lie as its folders have them.
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

enum { MAX_PATH = 4096 };

static const char prefix[] = "base_model.model.", end_a[] = ".lora_A.weight", end_b[] = ".lora_B.weight";

/* Why a tensor is no half of a matrix. */
static const char *reason(const char *name)
{
	if (strstr(name, "lora_magnitude_vector") != NULL)
		return "DoRA";
	if (strstr(name, "lora_embedding_") != NULL)
		return "an adapter of the embeddings";
	if (text_ends(name, ".bias"))
		return "a bias";
	return "neither lora_A.weight nor lora_B.weight of a module";
}

/* The module of a half: its name without what PEFT puts around it. False: it is none. */
static bool module_of(const char *name, char out[ST_MAX_NAME + 1], bool *is_b)
{
	size_t n = strlen(name), head = sizeof prefix - 1, tail = sizeof end_a - 1;
	*is_b = text_ends(name, end_b);
	if ((!*is_b && !text_ends(name, end_a)) || n <= head + tail || strncmp(name, prefix, head) != 0)
		return false;
	snprintf(out, ST_MAX_NAME + 1, "%.*s", (int)(n - head - tail), name + head);
	return true;
}

static int put_tensor(struct adapter *a, const struct st_tensor *t, const struct peft_config *c, struct sl_err *err)
{
	char module[ST_MAX_NAME + 1], with[ST_MAX_NAME + 16], matrix[ST_MAX_NAME + 64];
	bool is_b;
	if (!module_of(t->name, module, &is_b))
		return sl_errf(err, SL_EUNSUPPORTED, "%s: tensor %s is %s: not supported by this version", a->path,
			       t->name, reason(t->name));
	if (t->n_dims != 2 || t->type < 0)
		return sl_errf(err, SL_EUNSUPPORTED,
			       "%s: tensor %s has dtype %s in %d dimensions (supported: F32, F16, BF16 in 2)", a->path,
			       t->name, t->dtype, t->n_dims);
	snprintf(with, sizeof with, "%s.weight", module);
	if (!hf_gguf_name(with, a->family, matrix, sizeof matrix))
		snprintf(matrix, sizeof matrix, "%s", with);
	struct adapter_part p = {
	    .name = t->name,
	    .matrix = matrix,
	    .is_b = is_b,
	    .half = {.data = t->data, .type = t->type, .width = t->dims[1], .n_rows = t->dims[0]},
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
			bool is_b;
			there =
			    module_of(safetensors_at(a->tensors, k)->name, module, &is_b) && peft_names(target, module);
		}
		if (!there)
			return sl_errf(err, SL_EINVAL,
				       "%s: target_modules names \"%.60s\", of which there is no tensor", a->path,
				       text_has_control(target, strlen(target)) ? "?" : target);
	}
	return 0;
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
	peft_config_dispose(&c);
	return rc;
}
