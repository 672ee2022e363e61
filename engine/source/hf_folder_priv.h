/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder for its two files: hf_folder.c opens and describes it, hf_tensors.c has its tensors.
 */
#ifndef ENGINE_HF_FOLDER_PRIV_H
#define ENGINE_HF_FOLDER_PRIV_H

#include "engine/file/safetensors.h"
#include "engine/packed/hf_matrix.h"
#include "engine/source/hf_folder.h"
#include "engine/source/hf_made.h"
#include "engine/source/hf_woven.h"
#include "engine/token/tokenizer_source.h"

enum { MAX_END_IDS = 64 };

struct hf_part {
	char *name;
	struct safetensors *file;
};

struct hf_folder {
	char *path;
	json_t *root;         /* config.json */
	const json_t *config; /* of the text model */
	char model_type[64];
	struct hf_part *parts;
	size_t n_parts;
	const struct st_tensor **theirs; /* of all parts */
	uint32_t *by_name;               /* their index */
	size_t n_theirs;
	char *template;
	size_t template_n;
	int32_t end_ids[MAX_END_IDS];
	size_t n_end_ids;
	char *names;            /* of hf_tensors */
	float *converted;       /* likewise */
	struct hf_quant *quant; /* NULL: nothing is quantized */
	/* From hf_tensors: what the tensors are made of that are made. */
	struct hf_matrix *matrices;
	struct hf_woven *woven;
	struct hf_made *made;
};

/* tok_spm_visit with the folder's files. */
int hf_spm_visit(const struct hf_folder *f, tok_spm_fn fn, void *ctx, struct sl_err *err);
/* A tensor of the parts by the name that it has there, or NULL; an hf_find (hf_matrix.h). */
const struct st_tensor *hf_find_theirs(const void *folder, const char *name);

#endif
