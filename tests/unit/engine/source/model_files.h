/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of models on disk share: files made in the fixture's folder, and what is said of them when they are
 * opened.
 */
#ifndef TESTS_ENGINE_MODEL_FILES_H
#define TESTS_ENGINE_MODEL_FILES_H

#include "engine/source/model_file.h"
#include "engine/source/random_model.h"
#include "kernels/quantize.h"
#include "tests/support/gguf_write.h"
#include "tests/support/random_file.h"

/* The shape of md_llama_folder's tensors, for a config.json of another family. */
#define SHAPE                                                                                  \
	"\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2,"                 \
	"\"num_key_value_heads\":1,\"intermediate_size\":16,\"max_position_embeddings\":8192," \
	"\"rms_norm_eps\":1e-6,\"head_dim\":4"

/* Refused with that code and those words in one line. */
static inline void refused(const char *name, int code, const char *words)
{
	char path[256];
	struct sl_err err = {0};
	struct model_file *f = NULL;
	struct model_arch arch;
	md_path(path, dir, name);
	int rc = model_file_open(path, &f, &err);
	if (rc == 0) {
		rc = model_file_arch(f, &arch, &err);
		model_file_close(f);
	}
	if (rc != code || strstr(err.text, words) == NULL || strchr(err.text, '\n') != NULL)
		fail_msg("%d \"%s\", not %d with \"%s\"", rc, err.text, code, words);
}

static inline struct model_file *opened(const char *name)
{
	char path[256];
	struct sl_err err = {0};
	struct model_file *f = NULL;
	md_path(path, dir, name);
	if (model_file_open(path, &f, &err) != 0)
		fail_msg("%s", err.text);
	return f;
}

static inline void arch_of(const struct model_file *f, struct model_arch *a)
{
	struct sl_err err = {0};
	if (model_file_arch(f, a, &err) != 0)
		fail_msg("%s", err.text);
}

/* Of the model at ours: the values that md_llama_folder wrote under theirs. */
static inline void check_values(const struct model_file *f, const char *ours, const char *theirs)
{
	const struct model_tensor *t = model_file_find(f, ours);
	if (t == NULL)
		fail_msg("no tensor %s", ours);
	size_t n = (size_t)(t->dims[0] * t->dims[1]);
	float *values = malloc(n * sizeof *values);
	kn_dequantize(t->type, t->data, n, values);
	for (size_t i = 0; i < n; i++)
		if (values[i] != md_value(theirs, i))
			fail_msg("%s[%zu] is %g, not %g", ours, i, (double)values[i], (double)md_value(theirs, i));
	free(values);
}

/* Part i of n, with a vector of i + 1 floats, each its part's number. */
static inline void write_part(const char *name, uint32_t i, uint32_t n, uint32_t in_all)
{
	static struct gw w;
	char tensor[16];
	w.n = 0;
	gw_head(&w, 3, 1, i == 0 ? 5 : 3);
	if (i == 0) {
		gw_key(&w, "general.name", 8), gw_str(&w, "in parts");
		gw_key(&w, "general.architecture", 8), gw_str(&w, "none");
	}
	gw_key(&w, "split.no", 2), gw_int(&w, i, 2);
	gw_key(&w, "split.count", 2), gw_int(&w, n, 2);
	gw_key(&w, "split.tensors.count", 5), gw_u32(&w, in_all);
	snprintf(tensor, sizeof tensor, "t%u", i);
	gw_tensor(&w, tensor, 1, (uint64_t[]){i + 1}, 0, 0);
	gw_pad(&w, 32);
	for (uint32_t k = 0; k <= i; k++)
		gw_f32(&w, (float)i);
	md_write(dir, name, w.at, w.n);
}

static inline void write_parts(void)
{
	write_part("m-00001-of-00003.gguf", 0, 3, 3);
	write_part("m-00002-of-00003.gguf", 1, 3, 3);
	write_part("m-00003-of-00003.gguf", 2, 3, 3);
}

#endif
