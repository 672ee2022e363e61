/* SPDX-License-Identifier: Apache-2.0
 *
 * Small files of any structure (config.json, generation_config.json) are bounded in bytes and depth, then parsed into a
 * tree. Files that may be large are scanned in their mapping: the index of parts, and tokenizer_config.json, of which
 * only the chat template is read.
 */
#include "engine/source/hf_folder_priv.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json/json_depth.h"
#include "base/text.h"
#include "engine/source/arch_read.h"
#include "engine/file/hf_names.h"
#include "engine/file/json_file.h"
#include "engine/file/map_file.h"
#include "engine/file/name_index.h"

enum {
	MAX_JSON = 1 << 20,
	MAX_JSON_DEPTH = 32,
	MAX_TEMPLATE = 4 << 20,
	MAX_PARTS = 1024,
	MAX_PART_NAME = 255,
};

static char *join(const char *folder, const char *name)
{
	size_t n = strlen(folder) + strlen(name) + 2;
	char *path = sl_alloc(n);
	if (path != NULL)
		snprintf(path, n, "%s/%s", folder, name);
	return path;
}

static bool exists(const struct hf_folder *f, const char *name)
{
	struct stat st;
	char *path = join(f->path, name);
	bool there = path != NULL && file_stat(path, &st) == 0;
	sl_free(path);
	return there;
}

int hf_map(const struct hf_folder *f, const char *name, struct map_file *out, struct sl_err *err)
{
	char *path = join(f->path, name);
	int rc = path != NULL ? map_file_open(path, out, err) : sl_errf(err, SL_ENOMEM, "%s: no memory", f->path);
	sl_free(path);
	return rc;
}

/* ---- small files ---- */

/* Reads the whole file; SL_ENOTFOUND: there is none. The caller frees *out. */
static int read_small(const struct hf_folder *f, const char *name, size_t most, char **out, size_t *n,
		      struct sl_err *err)
{
	struct map_file map;
	if (!exists(f, name))
		return sl_errf(err, SL_ENOTFOUND, "%s/%s: no such file", f->path, name);
	char *path = join(f->path, name);
	int rc =
	    path != NULL ? map_file_read(path, most, &map, err) : sl_errf(err, SL_ENOMEM, "%s: no memory", f->path);
	sl_free(path);
	if (rc != 0)
		return rc;
	*n = map.bytes;
	if ((*out = sl_strndup((const char *)map.at, map.bytes)) == NULL)
		rc = sl_errf(err, SL_ENOMEM, "%s/%s: no memory", f->path, name);
	map_file_close(&map);
	return rc;
}

/* Python's writer prints an infinite bound as a word that is no JSON. It becomes a number beyond every range. */
static void replace_infinity(char *text, size_t n)
{
	static const char word[] = "Infinity", number[] = "1e308   ";
	bool quoted = false;
	for (size_t i = 0; i < n; i++) {
		if (text[i] == '"')
			quoted = !quoted;
		else if (text[i] == '\\' && quoted)
			i++;
		else if (!quoted && n - i >= sizeof word - 1 && memcmp(text + i, word, sizeof word - 1) == 0)
			memcpy(text + i, number, sizeof number - 1);
	}
}

static int read_json(const struct hf_folder *f, const char *name, json_t **out, struct sl_err *err)
{
	char *text = NULL;
	size_t n;
	json_error_t why;
	int rc = read_small(f, name, MAX_JSON, &text, &n, err);
	if (rc != 0)
		return rc;
	replace_infinity(text, n);
	if (json_deeper_than(text, n, MAX_JSON_DEPTH)) {
		rc = sl_errf(err, SL_EINVAL, "%s/%s: nested too deep", f->path, name);
	} else if ((*out = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why)) == NULL) {
		rc = sl_errf(err, SL_EINVAL, "%s/%s: line %d: %.100s", f->path, name, why.line, why.text);
	} else if (!json_is_object(*out)) {
		json_decref(*out);
		*out = NULL;
		rc = sl_errf(err, SL_EINVAL, "%s/%s: not an object", f->path, name);
	}
	sl_free(text);
	return rc;
}

/* ---- config.json ---- */

/* In config.json or, where ModelOpt has left that as it was, in its own file. */
static int read_quantization(struct hf_folder *f, struct sl_err *err)
{
	static const char *const names[] = {"config.json", "hf_quant_config.json"};
	char file[512];
	json_t *own = NULL;
	const json_t *quantized = json_object_get(f->root, "quantization_config");
	if (quantized == NULL)
		quantized = json_object_get(f->config, "quantization_config");
	int rc = 0;
	if ((quantized == NULL || json_is_null(quantized)) && exists(f, names[1])) {
		rc = read_json(f, names[1], &own, err);
		quantized = own;
	}
	snprintf(file, sizeof file, "%s/%s", f->path, names[own != NULL]);
	if (rc == 0 && quantized != NULL && !json_is_null(quantized))
		rc = hf_quant_read(quantized, file, &f->quant, err);
	json_decref(own);
	return rc;
}

static int read_config(struct hf_folder *f, struct sl_err *err)
{
	int rc = read_json(f, "config.json", &f->root, err);
	if (rc != 0)
		return rc;
	const char *type = json_string_value(json_object_get(f->root, "model_type"));
	if (type == NULL)
		return sl_errf(err, SL_EINVAL, "%s/config.json: model_type is missing", f->path);
	snprintf(f->model_type, sizeof f->model_type, "%s", type);
	text_one_line(f->model_type, ' '); /* named in messages */
	const json_t *text = json_object_get(f->root, "text_config");
	f->config = json_is_object(text) ? text : f->root;
	/* A model of texts and images: of the family of its text model. */
	const char *inner = json_string_value(json_object_get(f->config, "model_type"));
	if (hf_family(f->model_type) == NULL && inner != NULL && hf_family(inner) != NULL)
		snprintf(f->model_type, sizeof f->model_type, "%s", inner);

	return read_quantization(f, err);
}

static void add_end_ids(struct hf_folder *f, const json_t *ids)
{
	size_t n = json_is_array(ids) ? json_array_size(ids) : 1;
	for (size_t i = 0; i < n && f->n_end_ids < MAX_END_IDS; i++) {
		const json_t *id = json_is_array(ids) ? json_array_get(ids, i) : ids;
		if (json_is_integer(id) && json_integer_value(id) >= 0 && json_integer_value(id) < ARCH_MAX_VOCAB)
			f->end_ids[f->n_end_ids++] = (int32_t)json_integer_value(id);
	}
}

/* generation_config.json takes precedence over config.json. */
static int read_end_ids(struct hf_folder *f, struct sl_err *err)
{
	json_t *generation = NULL;
	int rc = read_json(f, "generation_config.json", &generation, err);
	if (rc == 0)
		add_end_ids(f, json_object_get(generation, "eos_token_id"));
	json_decref(generation);
	if (f->n_end_ids == 0)
		add_end_ids(f, json_object_get(f->root, "eos_token_id"));
	return rc == SL_ENOTFOUND ? 0 : rc;
}

/* ---- the chat template ---- */

static int set_template(struct hf_folder *f, const char *path, struct proto_str raw, struct sl_err *err)
{
	if (raw.n > MAX_TEMPLATE)
		return sl_errf(err, SL_ELIMIT, "%s: a chat template of %zu bytes", path, raw.n);
	sl_free(f->template);
	f->template = sl_alloc(raw.n + 1);
	if (f->template == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", f->path);
	f->template_n = json_unescape(raw, f->template);
	if (f->template_n == SIZE_MAX)
		return sl_errf(err, SL_EINVAL, "%s: the chat template has a malformed escape", path);
	return 0;
}

/* [{"name": "default", "template": "…"}, …]: the one named default. */
static int scan_templates(struct hf_folder *f, const char *path, struct json_scan *j, struct sl_err *err)
{
	struct proto_str key;
	int rc = 0;
	json_scan_array(j);
	while (rc == 0 && json_scan_item(j)) {
		struct proto_str which = {.at = "", .n = 0}, text = {.at = NULL, .n = 0};
		json_scan_object(j);
		while (json_scan_key(j, &key)) {
			if (json_is(key, "name"))
				json_scan_string(j, &which);
			else if (json_is(key, "template"))
				json_scan_string(j, &text);
			else
				json_scan_skip(j);
		}
		if (text.at != NULL && json_is(which, "default"))
			rc = set_template(f, path, text, err);
	}
	return rc;
}

static int scan_keys(struct hf_folder *f, const char *name, json_file_fn read, struct sl_err *err)
{
	char *path = join(f->path, name);
	int rc = path != NULL ? json_file_each(path, read, f, err) : sl_errf(err, SL_ENOMEM, "%s: no memory", f->path);
	sl_free(path);
	return rc;
}

/* chat_template: a string, a list of them, or null. */
static int read_template_key(void *folder, const char *path, struct proto_str key, struct json_scan *j,
			     struct sl_err *err)
{
	struct hf_folder *f = folder;
	struct proto_str raw;
	char kind = json_scan_peek(j);
	if (json_is(key, "chat_template") && kind == '"')
		return json_scan_string(j, &raw) ? set_template(f, path, raw, err) : 0;
	if (json_is(key, "chat_template") && kind == '[')
		return scan_templates(f, path, j, err);
	json_scan_skip(j);
	return 0;
}

static int read_template(struct hf_folder *f, struct sl_err *err)
{
	int rc = read_small(f, "chat_template.jinja", MAX_TEMPLATE, &f->template, &f->template_n, err);
	if (rc != SL_ENOTFOUND)
		return rc;
	static const char *const others[] = {"chat_template.json", "tokenizer_config.json"};
	rc = 0;
	for (int i = 0; i < 2 && rc == 0 && f->template == NULL; i++)
		rc = exists(f, others[i]) ? scan_keys(f, others[i], read_template_key, err) : 0;
	return rc;
}

int hf_read_template(const char *folder, char **out, size_t *n, struct sl_err *err)
{
	struct hf_folder f = {.path = (char *)(uintptr_t)folder};
	int rc = read_template(&f, err);
	if (rc != 0) {
		sl_free(f.template);
		f = (struct hf_folder){.template = NULL};
	}
	*out = f.template;
	*n = f.template_n;
	return rc;
}

int hf_template(const struct hf_folder *f, struct proto_str *out, struct sl_err *err)
{
	if (f->template == NULL)
		return sl_errf(err, SL_ENOTFOUND, "%s: there is no chat template", f->path);
	*out = (struct proto_str){.at = f->template, .n = f->template_n};
	return 0;
}

/* ---- weights ---- */

/* Only a file of this folder. */
static bool proper_part(const char *name, size_t n)
{
	return n > 0 && n <= MAX_PART_NAME && name[0] != '.' && !text_has_control(name, n) &&
	       memchr(name, ' ', n) == NULL && memchr(name, '/', n) == NULL;
}

static int add_part(struct hf_folder *f, struct proto_str raw, struct sl_err *err)
{
	char name[MAX_PART_NAME * 6 + 1];
	size_t n = raw.n < sizeof name ? json_unescape(raw, name) : SIZE_MAX;
	if (n >= sizeof name || !proper_part(name, n))
		return sl_errf(err, SL_EINVAL, "%s/model.safetensors.index.json: not a file's name: \"%.*s\"", f->path,
			       (int)(raw.n > 60 ? 60 : strcspn(raw.at, "\"")), raw.at);
	name[n] = '\0';
	/* Most neighbouring tensors name the same part. */
	for (size_t i = f->n_parts; i > 0; i--)
		if (strcmp(f->parts[i - 1].name, name) == 0)
			return 0;
	if (f->n_parts == MAX_PARTS)
		return sl_errf(err, SL_ELIMIT, "%s: more than %d parts", f->path, MAX_PARTS);
	if ((f->parts[f->n_parts].name = sl_strdup(name)) == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", f->path);
	f->n_parts++;
	return 0;
}

static int read_index_key(void *folder, const char *path, struct proto_str key, struct json_scan *j, struct sl_err *err)
{
	struct hf_folder *f = folder;
	struct proto_str file;
	int rc = 0;
	(void)path;
	if (!json_is(key, "weight_map")) {
		json_scan_skip(j);
		return 0;
	}
	json_scan_object(j);
	while (rc == 0 && json_scan_key(j, &key))
		rc = json_scan_string(j, &file) ? add_part(f, file, err) : 0;
	return rc;
}

static int read_index(struct hf_folder *f, struct sl_err *err)
{
	static const char name[] = "model.safetensors.index.json";
	int rc = scan_keys(f, name, read_index_key, err);
	return rc == 0 && f->n_parts == 0 ? sl_errf(err, SL_EINVAL, "%s/%s: weight_map names no file", f->path, name)
					  : rc;
}

static struct proto_str their_name(const void *list, size_t i)
{
	const char *name = ((const struct st_tensor *const *)list)[i]->name;
	return (struct proto_str){.at = name, .n = strlen(name)};
}

/* Duplicates are found by their names here (model_file.c). */
static int index_theirs(struct hf_folder *f, struct sl_err *err)
{
	size_t n = 0, twice;
	f->theirs = sl_zalloc_n(f->n_theirs, sizeof(struct st_tensor *));
	for (size_t i = 0; f->theirs != NULL && i < f->n_parts; i++)
		for (size_t k = 0; k < safetensors_n(f->parts[i].file); k++)
			f->theirs[n++] = safetensors_at(f->parts[i].file, k);
	if (f->theirs == NULL || name_index_make(their_name, f->theirs, f->n_theirs, &f->by_name, &twice) != 0)
		return sl_errf(err, SL_ENOMEM, "%s: no memory for %zu tensors", f->path, f->n_theirs);
	return 0;
}

const struct st_tensor *hf_find_theirs(const void *folder, const char *name)
{
	const struct hf_folder *f = folder;
	const struct proto_str want = {.at = name, .n = strlen(name)};
	size_t i = name_index_find(f->by_name, f->n_theirs, their_name, f->theirs, want);
	return i < f->n_theirs ? f->theirs[i] : NULL;
}

static int open_weights(struct hf_folder *f, struct sl_err *err)
{
	f->parts = sl_zalloc_n(MAX_PARTS, sizeof *f->parts);
	if (f->parts == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory", f->path);
	int rc;
	if (exists(f, "model.safetensors.index.json"))
		rc = read_index(f, err);
	else if (exists(f, "model.safetensors"))
		rc = add_part(f, (struct proto_str){.at = "model.safetensors", .n = 17}, err);
	else
		rc = sl_errf(err, SL_EINVAL, "%s: neither model.safetensors nor model.safetensors.index.json exists%s",
			     f->path,
			     exists(f, "pytorch_model.bin") || exists(f, "pytorch_model.bin.index.json")
				 ? " (pytorch_model.bin is not supported)"
				 : "");
	for (size_t i = 0; i < f->n_parts && rc == 0; i++) {
		char *path = join(f->path, f->parts[i].name);
		rc = path == NULL ? sl_errf(err, SL_ENOMEM, "%s: no memory", f->path)
				  : safetensors_open(path, &f->parts[i].file, err);
		sl_free(path);
		f->n_theirs += rc == 0 ? safetensors_n(f->parts[i].file) : 0;
		if (f->n_theirs > ST_MAX_TENSORS)
			rc = sl_errf(err, SL_EINVAL, "%s: more than %d tensors in all parts", f->path, ST_MAX_TENSORS);
	}
	return rc == 0 ? index_theirs(f, err) : rc;
}

/* ---- the folder ---- */

int hf_open(const char *path, struct hf_folder **out, struct sl_err *err)
{
	struct hf_folder *f = sl_zalloc(sizeof *f);
	if (f != NULL)
		f->path = sl_strdup(path);
	if (f == NULL || f->path == NULL) {
		sl_free(f);
		return sl_errf(err, SL_ENOMEM, "%s: no memory", path);
	}
	/* "folder/" and "folder" are the same in messages. */
	for (size_t n = strlen(f->path); n > 1 && f->path[n - 1] == '/'; n--)
		f->path[n - 1] = '\0';
	int rc;
	if ((rc = read_config(f, err)) != 0 || (rc = read_end_ids(f, err)) != 0 || (rc = read_template(f, err)) != 0 ||
	    (rc = open_weights(f, err)) != 0) {
		hf_close(f);
		return rc == SL_ENOTFOUND
			   ? sl_errf(err, SL_EINVAL, "%s: not a model's folder: it has no config.json", path)
			   : rc;
	}
	*out = f;
	return 0;
}

void hf_close(struct hf_folder *f)
{
	if (f == NULL)
		return;
	for (size_t i = 0; i < f->n_parts; i++) {
		safetensors_close(f->parts[i].file);
		sl_free(f->parts[i].name);
	}
	json_decref(f->root);
	sl_free(f->parts);
	sl_free(f->template);
	sl_free(f->names);
	sl_free(f->converted);
	sl_free(f->matrices);
	sl_free(f->woven);
	sl_free(f->made);
	sl_free(f->theirs);
	sl_free(f->by_name);
	hf_quant_free(f->quant);
	sl_free(f->path);
	sl_free(f);
}

const char *hf_path(const struct hf_folder *f) { return f->path; }
size_t hf_n_parts(const struct hf_folder *f) { return f->n_parts; }
const char *hf_model_type(const struct hf_folder *f) { return f->model_type; }
const json_t *hf_config(const struct hf_folder *f) { return f->config; }
const json_t *hf_root(const struct hf_folder *f) { return f->root; }
const char *hf_note(const struct hf_folder *f) { return f->quant != NULL ? hf_quant_note(f->quant) : ""; }

uint64_t hf_bytes(const struct hf_folder *f)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < f->n_parts; i++)
		bytes += safetensors_bytes(f->parts[i].file);
	return bytes;
}

const int32_t *hf_end_ids(const struct hf_folder *f, size_t *n)
{
	*n = f->n_end_ids;
	return f->end_ids;
}

/* Nothing where there is no such file. */
static int map_if_there(const struct hf_folder *f, const char *name, struct map_file *out, struct sl_err *err)
{
	return exists(f, name) ? hf_map(f, name, out, err) : 0;
}

static struct proto_str text_of(const struct map_file *m) { return (struct proto_str){(const char *)m->at, m->bytes}; }

int hf_spm_visit(const struct hf_folder *f, tok_spm_fn fn, void *ctx, struct sl_err *err)
{
	struct map_file model = {0}, config = {0}, added = {0};
	struct sl_err why = {0};
	int rc = hf_map(f, "tokenizer.model", &model, err);
	if (rc == 0)
		rc = map_if_there(f, "tokenizer_config.json", &config, err);
	if (rc == 0)
		rc = map_if_there(f, "added_tokens.json", &added, err);
	if (rc == 0 && (rc = tok_spm_visit(text_of(&model), text_of(&added), text_of(&config), fn, ctx, &why)) != 0)
		sl_errf(err, rc, "%s/tokenizer.model: %s", f->path, why.text);
	map_file_close(&model);
	map_file_close(&config);
	map_file_close(&added);
	return rc;
}

static int create_tokenizer(void *out, struct tok_source *src, const struct spm_model *m, struct sl_err *err)
{
	(void)m;
	return tokenizer_create_from(src, out, err);
}

static int json_tokenizer(const struct hf_folder *f, struct tokenizer **out, struct sl_err *err)
{
	struct map_file json = {0}, config = {0};
	struct sl_err why = {0};
	if (!exists(f, "tokenizer.json"))
		return sl_errf(err, SL_EUNSUPPORTED, "%s: it has neither tokenizer.json nor tokenizer.model", f->path);
	int rc = hf_map(f, "tokenizer.json", &json, err);
	if (rc == 0)
		rc = map_if_there(f, "tokenizer_config.json", &config, err);
	if (rc == 0 && (rc = tokenizer_create_json((const char *)json.at, json.bytes, (const char *)config.at,
						   config.bytes, out, &why)) != 0)
		sl_errf(err, rc, "%s/tokenizer.json: %s", f->path, why.text);
	map_file_close(&json);
	map_file_close(&config);
	return rc;
}

bool hf_has_spm(const struct hf_folder *f) { return !exists(f, "tokenizer.json") && exists(f, "tokenizer.model"); }

int hf_tokenizer(const struct hf_folder *f, struct tokenizer **out, struct sl_err *err)
{
	int rc = hf_has_spm(f) ? hf_spm_visit(f, create_tokenizer, out, err) : json_tokenizer(f, out, err);
	for (size_t i = 0; rc == 0 && i < f->n_end_ids; i++)
		tokenizer_mark_end(*out, f->end_ids[i]);
	return rc;
}

/* ---- sentence-transformers ---- */

/* Any module beyond these would change every vector. */
static int check_modules(const struct hf_folder *f, struct sl_err *err)
{
	static const char *const known[] = {"Transformer", "Pooling", "Normalize"};
	struct map_file map = {0};
	json_error_t why;
	if (!exists(f, "modules.json"))
		return 0;
	int rc = hf_map(f, "modules.json", &map, err);
	if (rc != 0)
		return rc;
	json_t *list = map.bytes <= MAX_JSON && !json_deeper_than((const char *)map.at, map.bytes, MAX_JSON_DEPTH)
			   ? json_loadb((const char *)map.at, map.bytes, 0, &why)
			   : NULL;
	if (!json_is_array(list))
		rc = sl_errf(err, SL_EINVAL, "%s/modules.json: not a list", f->path);
	for (size_t i = 0; rc == 0 && i < json_array_size(list); i++) {
		const char *type = json_string_value(json_object_get(json_array_get(list, i), "type"));
		const char *dot = type != NULL ? strrchr(type, '.') : NULL;
		bool is_known = false;
		for (size_t k = 0; dot != NULL && k < sizeof known / sizeof *known; k++)
			is_known = is_known || strcmp(dot + 1, known[k]) == 0;
		if (!is_known)
			rc = sl_errf(err, SL_EUNSUPPORTED, "%s/modules.json: module \"%.60s\" is not supported",
				     f->path, type != NULL ? type : "");
	}
	json_decref(list);
	map_file_close(&map);
	return rc;
}

int hf_pooling(const struct hf_folder *f, enum arch_pooling *out, struct sl_err *err)
{
	static const struct {
		const char *key;
		enum arch_pooling pooling;
	} modes[] = {{"pooling_mode_cls_token", ARCH_POOL_CLS},
		     {"pooling_mode_mean_tokens", ARCH_POOL_MEAN},
		     {"pooling_mode_lasttoken", ARCH_POOL_LAST}};
	json_t *config = NULL, *value;
	const char *key;
	int n = 0;
	*out = ARCH_POOL_NONE;
	int rc = check_modules(f, err);
	if (rc == 0 && exists(f, "1_Pooling/config.json"))
		rc = read_json(f, "1_Pooling/config.json", &config, err);
	json_object_foreach(config, key, value)
	{
		bool known = false;
		if (!json_is_true(value) || strncmp(key, "pooling_mode_", 13) != 0)
			continue;
		for (size_t k = 0; k < sizeof modes / sizeof *modes; k++)
			if (strcmp(key, modes[k].key) == 0) {
				*out = modes[k].pooling;
				known = true;
			}
		if ((!known || ++n > 1) && rc == 0)
			rc = sl_errf(err, SL_EUNSUPPORTED, "%s/1_Pooling/config.json: %s is not supported%s", f->path,
				     key, known ? " beside another" : "");
	}
	json_decref(config);
	return rc;
}
