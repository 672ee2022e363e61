/* SPDX-License-Identifier: Apache-2.0
 *
 * Models by their names: an entry of the models folder (hub.folder) stands for the file or folder that the loader
 * opens.
 */
#ifndef CMD_MODEL_PATH_H
#define CMD_MODEL_PATH_H

#include <stdbool.h>
#include <stddef.h>

/* Letters, digits and . _ - (not first: . -), at most 100: safe as a file's name and valid as a model's name. */
bool model_name_valid(const char *name);
/* Where FOLDER has an entry of this name: its path for the loader. FOLDER/NAME with a config.json is a Hugging Face
 * folder; another FOLDER/NAME stands for its first GGUF file in alphabetical order (the first part of a split one);
 * else FOLDER/NAME.gguf. False: there is none, or `out` is too small. */
bool model_path_find(const char *folder, const char *name, char *out, size_t size);

#endif
