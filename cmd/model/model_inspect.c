/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice model inspect`: describes a model on disk, the memory it needs, and whether this build can run it. It reads
 * metadata only, no weights.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cmd/config/cmd.h"
#include "cmd/model/model.h"
#include "engine/file/gguf.h"
#include "engine/kv/kv.h"
#include "engine/model/model.h"
#include "engine/source/hf_folder.h"
#include "engine/source/model_file.h"
#include "kernels/kernels.h"
#include "kernels/kv_type.h"

enum { N_TYPES = 64, STEP_ROWS = 128, KV_PAGE = 16 };

struct facts {
	const struct model_file *file;
	struct model_arch arch;
	bool has_arch, can_run;
	struct sl_err why_not; /* why has_arch or can_run is false */
	uint64_t n_params, weight_bytes, counts[N_TYPES], n_other;
	int kv_type;           /* the type that `auto` selects here */
	uint64_t kv_per_token; /* bytes, in kv_type */
	uint64_t activations;  /* bytes, for a step of STEP_ROWS rows */
	char tokenizer[160];
	bool has_template;
};

static void count_tensors(struct facts *f)
{
	for (size_t i = 0; i < model_file_n_tensors(f->file); i++) {
		const struct model_tensor *t = model_file_tensor_at(f->file, i);
		f->n_params += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
		f->weight_bytes += t->bytes;
		if (t->type >= 0 && t->type < N_TYPES)
			f->counts[t->type]++;
		else
			f->n_other++;
	}
}

static void describe_tokenizer(struct facts *f)
{
	const struct gguf *g = model_file_gguf(f->file);
	struct proto_str kind = {.at = "none", .n = 4}, pre = {.at = "", .n = 0};
	struct gguf_array tokens = {.n = 0};
	struct sl_err ignored;
	if (g == NULL) {
		bool spm = model_file_folder(f->file) != NULL && hf_has_spm(model_file_folder(f->file));
		snprintf(f->tokenizer, sizeof f->tokenizer, spm ? "tokenizer.model" : "tokenizer.json");
		return;
	}
	if (gguf_get_str(g, "tokenizer.ggml.model", &kind, &ignored) == 0 &&
	    gguf_get_array(g, "tokenizer.ggml.tokens", &tokens, &ignored) != 0)
		tokens.n = 0;
	gguf_get_str(g, "tokenizer.ggml.pre", &pre, &ignored);
	snprintf(f->tokenizer, sizeof f->tokenizer, "%.*s%s%.*s, %" PRIu64 " tokens", (int)(kind.n > 30 ? 30 : kind.n),
		 kind.at, pre.n > 0 ? " / " : "", (int)(pre.n > 60 ? 60 : pre.n), pre.at, tokens.n);
	for (char *c = f->tokenizer; *c != '\0'; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = ' ';
}

static void gather(struct facts *f)
{
	struct proto_str template;
	struct sl_err ignored;
	const struct model_arch *a = &f->arch;
	count_tensors(f);
	describe_tokenizer(f);
	f->has_template = model_file_template(f->file, &template, &ignored) == 0;
	f->has_arch = model_file_arch(f->file, &f->arch, &f->why_not) == 0;
	if (!f->has_arch)
		return;
	f->can_run = model_check(model_file_path(f->file), NULL, 0, &f->why_not) == 0;
	f->kv_type = model_kv_type(a, kn_select("auto", &ignored));
	const struct kn_kv kv = model_kv_layout(a, f->kv_type, KV_PAGE, arch_n_attending(a, a->n_layers));
	f->kv_per_token = kv_layout_bytes(&kv) / KV_PAGE;
	f->activations = STEP_ROWS * sizeof(float) *
			 (2 * (uint64_t)a->n_embd + arch_attn_floats(a) + arch_ff_floats(a) + arch_recurrent_floats(a) +
			  (uint64_t)a->n_vocab);
}

/* ---- as text ---- */

static const char *scaling_name(enum arch_rope_scaling s)
{
	static const char *const names[] = {"none", "linear", "llama3", "yarn", "longrope"};
	return names[s];
}

/* "Q8_0 ×29, F32 ×9". */
static void type_counts(const struct facts *f, char *out, size_t n)
{
	size_t at = 0;
	out[0] = '\0';
	for (int type = 0; type < N_TYPES; type++)
		if (f->counts[type] > 0 && at < n)
			at += (size_t)snprintf(out + at, n - at, "%s%s ×%" PRIu64, at > 0 ? ", " : "",
					       kn_type_name(type), f->counts[type]);
	if (f->n_other > 0 && at < n)
		snprintf(out + at, n - at, "%sunknown ×%" PRIu64, at > 0 ? ", " : "", f->n_other);
}

static const char *size_text(uint64_t bytes, char out[32])
{
	static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
	double v = (double)bytes;
	int u = 0;
	for (; v >= 1024 && u < 4; u++)
		v /= 1024;
	snprintf(out, 32, u == 0 ? "%.0f %s" : "%.1f %s", v, units[u]);
	return out;
}

static const char *mixer_name(enum arch_mixer kind)
{
	return kind == ARCH_DELTA ? "the gated delta rule" : kind == ARCH_SSM ? "state spaces" : "short convolutions";
}

static void print_arch(const struct facts *f)
{
	const struct model_arch *a = &f->arch;
	char text[32];
	printf("family       %s\n", a->family);
	printf("layers       %d of width %d, feed-forward %d\n", a->n_layers, a->n_embd, a->n_ff);
	if (a->experts.n > 0)
		printf("experts      %d of width %d, %d for each row\n", a->experts.n, a->experts.n_ff,
		       a->experts.n_used);
	if (a->experts.n_ff_shared > 0)
		printf("             and one of width %d for every row\n", a->experts.n_ff_shared);
	if (arch_is_recurrent(a))
		printf("recurrent    %d of the layers: %s\n", arch_n_recurrent(a, a->n_layers),
		       mixer_name(a->recurrent.kind));
	if (a->latent.n > 0)
		printf("heads        %d of width %d, on latent rows of %d + %d, values of width %d\n", a->n_heads,
		       a->latent.plain + a->rope.n_rot, a->latent.n, a->rope.n_rot, a->latent.n_value);
	else
		printf("heads        %d, %d for keys and values, of width %d\n", a->n_heads, a->n_kv_heads,
		       a->head_dim);
	printf("vocabulary   %d%s\n", a->n_vocab, a->tied_embeddings ? ", tied" : "");
	printf("context      %d\n", a->n_ctx);
	if (a->window > 0 && a->window_pattern > 0)
		printf("window       %d, except in one of every %d layers\n", a->window, a->window_pattern);
	else if (a->window > 0)
		printf("window       %d\n", a->window);
	printf("rope         %d dimensions, base %g, scaling %s", a->rope.n_rot, a->rope.base,
	       scaling_name(a->rope.scaling));
	if (a->rope.factor > 0)
		printf(" by %g", a->rope.factor);
	printf(a->rope.n_factors > 0 ? ", with %d factors\n" : "\n", a->rope.n_factors);
	printf("needs        %s for weights\n", size_text(f->weight_bytes, text));
	printf("             %s of KV cache for each token in %s,", size_text(f->kv_per_token, text),
	       kn_kv_type_name(f->kv_type));
	printf(" %s for the full context\n", size_text(f->kv_per_token * (uint64_t)a->n_ctx, text));
	if (arch_is_recurrent(a))
		printf("             %s of states for each sequence and snapshot\n",
		       size_text(arch_state(a) * sizeof(float), text));
	printf("             %s for steps of %d rows\n", size_text(f->activations, text), STEP_ROWS);
}

static void print_text(const struct facts *f)
{
	char types[256];
	type_counts(f, types, sizeof types);
	printf("form         %s\n", model_file_form(f->file));
	printf("name         %s\n", model_file_name(f->file)[0] != '\0' ? model_file_name(f->file) : "(none)");
	printf("parameters   %" PRIu64 "\n", f->n_params);
	printf("file         %" PRIu64 " bytes\n", model_file_bytes(f->file));
	printf("weights      %s\n", types);
	printf("tokenizer    %s\n", f->tokenizer);
	printf("template     %s\n", f->has_template ? "yes" : "no");
	if (f->has_arch)
		print_arch(f);
	if (f->has_arch && f->arch.n_unknown_keys > 0)
		printf("unknown keys %d, ignored: %s\n", f->arch.n_unknown_keys, f->arch.unknown_keys);
	if (model_file_note(f->file)[0] != '\0')
		printf("note         %s\n", model_file_note(f->file));
	printf("runs here    %s\n", f->can_run ? "yes" : "no");
}

static void print_keys(const struct gguf *g)
{
	printf("\nkeys         %zu\n", gguf_n_keys(g));
	for (size_t i = 0; i < gguf_n_keys(g); i++) {
		char value[160];
		struct proto_str key = gguf_key_at(g, i, value, sizeof value);
		printf("  %-42.*s %s\n", (int)key.n, key.at, value);
	}
}

static void print_tensors(const struct model_file *file)
{
	printf("\ntensors      %zu\n", model_file_n_tensors(file));
	for (size_t i = 0; i < model_file_n_tensors(file); i++) {
		const struct model_tensor *t = model_file_tensor_at(file, i);
		printf("  %-42s %-7s", t->name, kn_type_name(t->type));
		for (int d = 0; d < t->n_dims; d++)
			printf(d > 0 ? " × %" PRIu64 : " %" PRIu64, t->dims[d]);
		putchar('\n');
	}
}

/* ---- as JSON ---- */

static void set_number(json_t *o, const char *key, uint64_t v)
{
	json_object_set_new(o, key, json_integer((json_int_t)v));
}

static json_t *arch_json(const struct model_arch *a)
{
	json_t *rope = json_pack("{s:i, s:f, s:s}", "dimensions", a->rope.n_rot, "base", a->rope.base, "scaling",
				 scaling_name(a->rope.scaling));
	json_t *experts = json_pack("{s:i, s:i, s:i, s:i}", "count", a->experts.n, "used", a->experts.n_used, "width",
				    a->experts.n_ff, "shared_width", a->experts.n_ff_shared);
	if (a->rope.factor > 0)
		json_object_set_new(rope, "factor", json_real(a->rope.factor));
	return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:i, s:i, s:o, s:o}", "family",
			 a->family, "layers", a->n_layers, "recurrent_layers", arch_n_recurrent(a, a->n_layers),
			 "width", a->n_embd, "heads", a->n_heads, "kv_heads", a->n_kv_heads, "head_width", a->head_dim,
			 "feed_forward", a->n_ff, "vocabulary", a->n_vocab, "context", a->n_ctx, "tied",
			 a->tied_embeddings, "window", a->window, "window_pattern", a->window_pattern, "rope", rope,
			 "experts", experts);
}

static json_t *tensors_json(const struct model_file *file)
{
	json_t *list = json_array();
	for (size_t i = 0; i < model_file_n_tensors(file); i++) {
		const struct model_tensor *t = model_file_tensor_at(file, i);
		json_t *dims = json_array();
		for (int d = 0; d < t->n_dims; d++)
			json_array_append_new(dims, json_integer((json_int_t)t->dims[d]));
		json_array_append_new(list,
				      json_pack("{s:s, s:s, s:o, s:I}", "name", t->name, "type", kn_type_name(t->type),
						"dims", dims, "bytes", (json_int_t)t->bytes));
	}
	return list;
}

static json_t *keys_json(const struct gguf *g)
{
	json_t *keys = json_object();
	for (size_t i = 0; i < gguf_n_keys(g); i++) {
		char value[160];
		struct proto_str key = gguf_key_at(g, i, value, sizeof value);
		/* A file's keys and values need not be UTF-8. */
		json_t *text = json_string(value);
		json_object_setn_new(keys, key.at, key.n, text != NULL ? text : json_string("(not UTF-8)"));
	}
	return keys;
}

static int print_json(const struct facts *f, bool keys, bool tensors)
{
	json_t *o = f->has_arch ? arch_json(&f->arch) : json_object(), *types = json_object(), *name;
	name = json_string(model_file_name(f->file));
	json_object_set_new(o, "form", json_string(model_file_form(f->file)));
	json_object_set_new(o, "name", name != NULL ? name : json_string(""));
	set_number(o, "parameters", f->n_params);
	set_number(o, "file_bytes", model_file_bytes(f->file));
	for (int type = 0; type < N_TYPES; type++)
		if (f->counts[type] > 0)
			set_number(types, kn_type_name(type), f->counts[type]);
	json_object_set_new(o, "weights", types);
	json_object_set_new(o, "tokenizer", json_string(f->tokenizer));
	json_object_set_new(o, "chat_template", json_boolean(f->has_template));
	set_number(o, "weight_bytes", f->weight_bytes);
	if (f->has_arch) {
		json_object_set_new(o, "kv_type", json_string(kn_kv_type_name(f->kv_type)));
		set_number(o, "kv_bytes_per_token", f->kv_per_token);
		set_number(o, "kv_bytes_full_context", f->kv_per_token * (uint64_t)f->arch.n_ctx);
		set_number(o, "state_bytes", arch_state(&f->arch) * sizeof(float));
		set_number(o, "activation_bytes", f->activations);
	}
	if (f->has_arch && f->arch.n_unknown_keys > 0)
		json_object_set_new(o, "unknown_keys", json_string(f->arch.unknown_keys));
	if (model_file_note(f->file)[0] != '\0')
		json_object_set_new(o, "note", json_string(model_file_note(f->file)));
	json_object_set_new(o, "runs_here", json_boolean(f->can_run));
	if (!f->can_run)
		json_object_set_new(o, "reason", json_string(f->why_not.text));
	if (keys && model_file_gguf(f->file) != NULL)
		json_object_set_new(o, "keys", keys_json(model_file_gguf(f->file)));
	if (tensors)
		json_object_set_new(o, "tensors", tensors_json(f->file));
	return model_print_json(o);
}

/* ---- the command ---- */

int model_inspect_command(int argc, char **argv)
{
	const char *path = NULL;
	bool json = false, keys = false, tensors = false;
	const struct model_option options[] = {{"--json", OPTION_FLAG, &json, 0, 0, NULL},
					       {"--keys", OPTION_FLAG, &keys, 0, 0, NULL},
					       {"--tensors", OPTION_FLAG, &tensors, 0, 0, NULL}};
	int rc = model_options(options, sizeof options / sizeof *options, argc, argv, 2, &path, 1);
	if (rc != 0)
		return rc;
	if (path == NULL)
		return model_complain(CMD_EXIT_USAGE, "inspect needs a file or a folder");
	struct sl_err err = {0};
	struct model_file *file;
	if (model_file_open(path, &file, &err) != 0)
		return model_complain(1, "%s", err.text);
	struct facts f = {.file = file};
	gather(&f);
	if (json) {
		rc = print_json(&f, keys, tensors);
	} else {
		print_text(&f);
		if (keys && model_file_gguf(file) != NULL)
			print_keys(model_file_gguf(file));
		if (tensors)
			print_tensors(file);
	}
	model_file_close(file);
	int out = model_finish_output();
	rc = rc != 0 ? rc : out;
	if (rc == 0 && !f.can_run && !json)
		return model_complain(1, "%s", f.why_not.text);
	return rc;
}
