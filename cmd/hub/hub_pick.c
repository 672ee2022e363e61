/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/hub/hub_pick.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

enum { PART_BYTES = 15 /* -00001-of-00003 */, MOST_PARTS = 1024 };

/* ---- GGUF ---- */

/* What to take without a tag: close to the float model and small first. The engine reads all of these. */
static const char *const preferred[] = {"Q4_K_M", "Q4_K_S", "Q5_K_M", "Q5_K_S", "Q4_0",   "Q4_1",   "Q6_K",
					"Q8_0",   "IQ4_XS", "IQ4_NL", "Q5_0",   "Q5_1",   "MXFP4",  "BF16",
					"F16",    "FP16",   "F32",    "Q3_K_M", "Q3_K_L", "Q3_K_S", "Q2_K"};

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash != NULL ? slash + 1 : path;
}

/* Neither an encoder of images nor a table that quantization used. */
static bool is_gguf(const struct hub_file *f)
{
	const char *name = base_of(f->path);
	size_t n = strlen(name);
	return n > 5 && strcasecmp(name + n - 5, ".gguf") == 0 && strcasestr(name, "mmproj") == NULL &&
	       strcasestr(name, "imatrix") == NULL;
}

/* The part's number and their count, at the end of a name; false: not a split file. *stem: the length before. */
static bool part_of(const char *path, size_t *stem, unsigned *part, unsigned *of)
{
	size_t n = strlen(path), end = n - 5;
	*stem = end;
	*part = *of = 1;
	if (end <= PART_BYTES)
		return false;
	const char *at = path + end - PART_BYTES;
	static const char form[] = "-00000-of-00000";
	for (size_t i = 0; i < PART_BYTES; i++)
		if (form[i] == '0' ? !isdigit((unsigned char)at[i]) : at[i] != form[i])
			return false;
	*part = (unsigned)strtoul(at + 1, NULL, 10);
	*of = (unsigned)strtoul(at + 10, NULL, 10);
	*stem = end - PART_BYTES;
	return true;
}

static bool same_stem(const char *a, const char *b)
{
	size_t n, m;
	unsigned part, of;
	part_of(a, &n, &part, &of);
	part_of(b, &m, &part, &of);
	return n == m && strncmp(a, b, n) == 0;
}

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* Is tag a word of the path? */
static bool has_tag(const char *path, const char *tag)
{
	size_t n = strlen(tag);
	for (const char *at = path; (at = strcasestr(at, tag)) != NULL; at++)
		if ((at == path || !is_word(at[-1])) && !is_word(at[n]))
			return true;
	return false;
}

/* The file with this tag whose path is shortest, then first; NULL. tag NULL: any. */
static const struct hub_file *find_gguf(const struct hub_files *all, const char *tag)
{
	const struct hub_file *best = NULL;
	for (size_t i = 0; i < all->n; i++) {
		const struct hub_file *f = &all->items[i];
		if (!is_gguf(f) || (tag != NULL && !has_tag(f->path, tag)))
			continue;
		size_t n = strlen(f->path), m = best != NULL ? strlen(best->path) : SIZE_MAX;
		if (n < m || (n == m && best != NULL && strcmp(f->path, best->path) < 0))
			best = f;
	}
	return best;
}

/* Is every GGUF file a part of the same one? */
static bool is_only(const struct hub_files *all, const struct hub_file *first)
{
	for (size_t i = 0; i < all->n; i++)
		if (is_gguf(&all->items[i]) && !same_stem(all->items[i].path, first->path))
			return false;
	return true;
}

/* " Q4_K_M Q8_0": the known tags among the files. */
static void list_tags(const struct hub_files *all, char *out, size_t size)
{
	size_t at = 0;
	out[0] = '\0';
	for (size_t i = 0; i < sizeof preferred / sizeof *preferred; i++)
		if (find_gguf(all, preferred[i]) != NULL && at + strlen(preferred[i]) + 2 < size)
			at += (size_t)snprintf(out + at, size - at, " %s", preferred[i]);
}

static const struct hub_file *choose_gguf(const struct hub_files *all, const char *tag)
{
	if (tag[0] != '\0')
		return find_gguf(all, tag);
	for (size_t i = 0; i < sizeof preferred / sizeof *preferred; i++) {
		const struct hub_file *f = find_gguf(all, preferred[i]);
		if (f != NULL)
			return f;
	}
	const struct hub_file *any = find_gguf(all, NULL);
	return any != NULL && is_only(all, any) ? any : NULL;
}

static int take_parts(const struct hub_files *all, const struct hub_file *first, struct hub_files *out,
		      struct sl_err *err)
{
	bool seen[MOST_PARTS + 1] = {false};
	size_t stem;
	unsigned part, of, n = 0, parts;
	part_of(first->path, &stem, &part, &parts);
	for (size_t i = 0; i < all->n && parts <= MOST_PARTS; i++) {
		const struct hub_file *f = &all->items[i];
		if (!is_gguf(f) || !same_stem(f->path, first->path))
			continue;
		part_of(f->path, &stem, &part, &of);
		if (of != parts || part < 1 || part > parts || seen[part])
			continue;
		seen[part] = true;
		n++;
		if (hub_files_add(out, f) != 0)
			return sl_errf(err, SL_ENOMEM, "no memory");
	}
	return n == parts
		   ? 0
		   : sl_errf(err, SL_EPROTO, "the repository has %u of the %u parts of %s", n, parts, first->path);
}

static int pick_gguf(const struct hub_files *all, const char *tag, struct hub_files *out, struct sl_err *err)
{
	char tags[160];
	const struct hub_file *first = choose_gguf(all, tag);
	if (first != NULL)
		return take_parts(all, first, out, err);
	list_tags(all, tags, sizeof tags);
	return sl_errf(err, SL_ENOTFOUND, "%s%s%s%s", tag[0] != '\0' ? "no GGUF file is tagged " : "name one by :TAG",
		       tag, tags[0] != '\0' ? "; there are" : "", tags);
}

/* ---- Hugging Face folders ---- */

/* What the loader reads, and what other loaders read of a tokenizer: data, no code. */
static const char *const companions[] = {"config.json",
					 "generation_config.json",
					 "tokenizer.json",
					 "tokenizer.model",
					 "tokenizer_config.json",
					 "special_tokens_map.json",
					 "added_tokens.json",
					 "vocab.txt",
					 "vocab.json",
					 "merges.txt",
					 "chat_template.jinja",
					 "chat_template.json",
					 "modules.json",
					 "1_Pooling/config.json",
					 "hf_quant_config.json",
					 "model.safetensors.index.json"};

static const struct hub_file *find(const struct hub_files *all, const char *path)
{
	for (size_t i = 0; i < all->n; i++)
		if (strcmp(all->items[i].path, path) == 0)
			return &all->items[i];
	return NULL;
}

/* model.safetensors, or with an index the parts beside it. Other files in the same form are adapters or the same
 * weights once more. */
static bool is_weights(const struct hub_file *f, bool has_index)
{
	if (strchr(f->path, '/') != NULL || !text_ends(f->path, ".safetensors"))
		return false;
	return has_index ? strstr(f->path, "-of-") != NULL && strncmp(f->path, "consolidated", 12) != 0
			 : strcmp(f->path, "model.safetensors") == 0;
}

static bool has_pickles(const struct hub_files *all)
{
	for (size_t i = 0; i < all->n; i++)
		if (text_ends(all->items[i].path, ".bin") || text_ends(all->items[i].path, ".pt") ||
		    text_ends(all->items[i].path, ".pth"))
			return true;
	return false;
}

static int pick_folder(const struct hub_files *all, struct hub_files *out, struct sl_err *err)
{
	bool has_index = find(all, "model.safetensors.index.json") != NULL;
	size_t n_weights = 0;
	int rc = 0;
	for (size_t i = 0; rc == 0 && i < sizeof companions / sizeof *companions; i++) {
		const struct hub_file *f = find(all, companions[i]);
		if (strcmp(companions[i], "tokenizer.model") == 0 && find(all, "tokenizer.json") != NULL)
			continue; /* read only where there is no tokenizer.json */
		rc = f != NULL ? hub_files_add(out, f) : 0;
	}
	for (size_t i = 0; rc == 0 && i < all->n; i++)
		if (is_weights(&all->items[i], has_index)) {
			rc = hub_files_add(out, &all->items[i]);
			n_weights++;
		}
	if (rc != 0)
		return sl_errf(err, rc, "no memory");
	if (n_weights == 0 || find(all, "config.json") == NULL)
		return sl_errf(err, SL_ENOTFOUND, "it has no GGUF file, and not both config.json and safetensors%s",
			       has_pickles(all) ? " (pickled weights are never read)" : "");
	return 0;
}

int hub_pick(const struct hub_files *all, const char *tag, struct hub_files *out, struct sl_err *err)
{
	*out = (struct hub_files){.items = NULL};
	bool folder = strcmp(tag, "SAFETENSORS") == 0;
	if (!folder && (tag[0] != '\0' || find_gguf(all, NULL) != NULL))
		return pick_gguf(all, tag, out, err);
	return pick_folder(all, out, err);
}

const char *hub_pick_local(const struct hub_file *file) { return is_gguf(file) ? base_of(file->path) : file->path; }
