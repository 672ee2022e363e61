/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder for its two files: hf_folder.c opens and describes it, hf_tensors.c has its tensors.
 */
#ifndef ENGINE_HF_FOLDER_PRIV_H
#define ENGINE_HF_FOLDER_PRIV_H

#include "engine/file/safetensors.h"
#include "engine/source/hf_folder.h"
#include "engine/source/hf_int4.h"
#include "engine/source/hf_made.h"
#include "engine/source/hf_woven.h"

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
	char *template;
	size_t template_n;
	int32_t end_ids[MAX_END_IDS];
	size_t n_end_ids;
	char *names;      /* of hf_tensors */
	float *converted; /* likewise */
	struct hf_int4 int4;
	/* From hf_tensors: what the tensors are made of that are made. */
	struct hf_int4_matrix *matrices;
	struct hf_woven *woven;
	struct hf_made *made;
};

#endif
