/* SPDX-License-Identifier: Apache-2.0
 *
 * Which matrices of a Hugging Face folder are quantized how (engine/packed/hf_quant.h): folders with several kinds, by
 * names, patterns and classes; what a configuration excludes; what is ignored and said; what is refused by its key.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/packed/hf_quant.h"
#include "tests/unit/engine/source/packed_files.h"

/* ---- configurations alone ---- */

static struct hf_quant *read_text(const char *text, int code, const char *words)
{
	struct sl_err err = {0};
	struct hf_quant *q = NULL;
	json_t *j = json_loads(text, JSON_DECODE_ANY, NULL);
	assert_non_null(j);
	int rc = hf_quant_read(j, "folder/config.json", &q, &err);
	json_decref(j);
	if (rc != code || strstr(err.text, words) == NULL || strchr(err.text, '\n') != NULL)
		fail_msg("%s: %d \"%s\", not %d with \"%s\"", text, rc, err.text, code, words);
	return q;
}

/* How a module is stored; -1 and these words: refused. */
static void is_stored(const struct hf_quant *q, const char *module, int form, uint32_t bits_or_group, const char *words)
{
	struct sl_err err = {0};
	const struct hf_scheme *s = NULL;
	int rc = hf_quant_of(q, module, &s, &err);
	if (form < 0) {
		if (rc != SL_EINVAL || strstr(err.text, words) == NULL)
			fail_msg("%s: %d \"%s\", not \"%s\"", module, rc, err.text, words);
		return;
	}
	if (rc != 0 || (int)s->form != form || (s->bits != bits_or_group && s->group != bits_or_group))
		fail_msg("%s: %d \"%s\"", module, rc, err.text);
}

#define CT(groups, more)                                                                                              \
	"{\"quant_method\":\"compressed-tensors\",\"format\":\"mixed-precision\",\"config_groups\":{" groups "}" more \
	"}"
#define INT4(name, targets)                                                                                  \
	"\"" name "\":{\"targets\":[" targets "],\"format\":\"pack-quantized\",\"weights\":{\"num_bits\":4," \
	"\"type\":\"int\",\"strategy\":\"group\",\"group_size\":64}}"
#define FP8(name, targets)                                                                                    \
	"\"" name "\":{\"targets\":[" targets "],\"format\":\"float-quantized\",\"weights\":{\"num_bits\":8," \
	"\"type\":\"float\",\"strategy\":\"channel\"},\"input_activations\":{\"dynamic\":true}}"
#define NVFP4(name, targets)                                                                                       \
	"\"" name "\":{\"targets\":[" targets "],\"format\":\"nvfp4-pack-quantized\",\"weights\":{\"num_bits\":4," \
	"\"type\":\"float\",\"strategy\":\"tensor_group\",\"group_size\":16}}"

static void test_groups(void **arg)
{
	(void)arg;
	struct hf_quant *q = read_text(
	    CT(FP8("a", "\"Linear\"") "," INT4(
		   "b", "\"re:.*mlp\\\\.(gate|up)_proj$\",\"re:"
			"model[.]layers[.]9\"") "," NVFP4("c", "\"model.layers.0.mlp.up_proj\",\"Embedding\""),
	       ",\"ignore\":[\"lm_head\",\"re:.*\\\\.experts\\\\..*\"]"),
	    0, "");
	is_stored(q, "model.layers.0.self_attn.q_proj", HF_FP8, 8, "");
	is_stored(q, "model.layers.0.mlp.gate_proj", HF_PACKED, 64, "");
	is_stored(q, "model.layers.0.mlp.up_proj", HF_NVFP4, 16, "");
	is_stored(q, "model.layers.1.mlp.up_proj", HF_PACKED, 64, "");
	is_stored(q, "model.layers.0.mlp.gate_proj2", HF_FP8, 8, "");
	is_stored(q, "model.layers.91.mlp.down_proj", HF_PACKED, 64, ""); /* from the beginning, not to the end */
	is_stored(q, "the.model.layers.91.mlp.down_proj", HF_FP8, 8, "");
	is_stored(q, "model.embed_tokens", HF_NVFP4, 16, "");
	is_stored(q, "lm_head", -1, 0, "module lm_head is quantized, but quantization_config.ignore names it");
	is_stored(q, "model.layers.0.mlp.experts.3.up_proj", -1, 0, "quantization_config.ignore names it");
	assert_string_equal(hf_quant_note(q), "");
	hf_quant_free(q);

	q = read_text(CT(INT4("b", "\"LlamaAttention\",\"re:mlp\""), ""), 0, "");
	is_stored(q, "model.layers.0.mlp.up_proj", -1, 0, "no group of quantization_config targets it");
	hf_quant_free(q);

	q = read_text("{\"quant_method\":\"modelopt\",\"quant_algo\":\"MIXED_PRECISION\",\"quantized_layers\":{"
		      "\"model.layers.0.self_attn.q_proj\":{\"quant_algo\":\"FP8\"},"
		      "\"model.layers.0.mlp.up_proj\":{\"quant_algo\":\"NVFP4\",\"group_size\":16},"
		      "\"model.layers.1.mlp.up_proj\":{\"quant_algo\":\"NVFP4\"}},\"ignore\":[\"model.layers.2*\"]}",
		      0, "");
	is_stored(q, "model.layers.0.self_attn.q_proj", HF_FP8, 0, "");
	is_stored(q, "model.layers.1.mlp.up_proj", HF_NVFP4, 16, "");
	is_stored(q, "model.layers.1.mlp.down_proj", -1, 0, "no group of quantization_config targets it");
	is_stored(q, "model.layers.2.mlp.down_proj", -1, 0, "quantization_config.ignore names it");
	hf_quant_free(q);
}

static void test_notes(void **arg)
{
	static const struct {
		const char *config, *note;
	} cases[] = {
	    {"{\"quant_method\":\"fp8\",\"activation_scheme\":\"static\"}", "activation_scheme is static"},
	    {"{\"quant_method\":\"fp8\",\"kv_cache_scheme\":{\"num_bits\":8}}", "kv_cache_scheme is not used"},
	    {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8\",\"kv_cache_quant_algo\":\"FP8\"}",
	     "kv_cache_quant_algo is not used"},
	    {CT("\"a\":{\"targets\":[\"Linear\"],\"format\":\"int-quantized\",\"weights\":{\"num_bits\":8,\"type\":"
		"\"int\","
		"\"strategy\":\"channel\"},\"input_activations\":{\"num_bits\":8,\"dynamic\":false}}",
		""),
	     "input_activations are static"},
	    {CT("\"a\":{\"targets\":[\"Linear\"],\"format\":\"int-quantized\",\"weights\":{\"num_bits\":8,\"type\":"
		"\"int\"},"
		"\"output_activations\":{\"num_bits\":8,\"dynamic\":true}}",
		""),
	     "output_activations are not rounded"},
	};
	(void)arg;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct hf_quant *q = read_text(cases[i].config, 0, "");
		if (strstr(hf_quant_note(q), cases[i].note) == NULL)
			fail_msg("%s: \"%s\", not \"%s\"", cases[i].config, hf_quant_note(q), cases[i].note);
		hf_quant_free(q);
	}
}

static void test_refusals(void **arg)
{
	static const struct {
		const char *config;
		int code;
		const char *words;
	} cases[] = {
	    {"{\"quant_method\":\"bitsandbytes\"}", SL_EUNSUPPORTED, "quant_method \"bitsandbytes\" is not supported"},
	    {"{\"quant_method\":7}", SL_EUNSUPPORTED, "quant_method \"unknown\""},
	    {"{\"quant_method\":\"fp8\",\"fmt\":\"e5m2\"}", SL_EUNSUPPORTED, "fp8 with a fmt other than e4m3"},
	    {"{\"quant_method\":\"fp8\",\"weight_block_size\":[128]}", SL_EUNSUPPORTED,
	     "a weight_block_size that is not [rows, width]"},
	    {"{\"quant_method\":\"fp8\",\"weight_block_size\":[128,0]}", SL_EUNSUPPORTED,
	     "a weight_block_size that is not [rows, width]"},
	    {"{\"quant_method\":\"fp8\",\"weight_block_size\":[99999999999,128]}", SL_EUNSUPPORTED,
	     "a weight_block_size that is not [rows, width]"},
	    {CT("\"a\":{\"format\":\"float-quantized\",\"weights\":{\"num_bits\":8,\"type\":\"float\",\"strategy\":"
		"\"block\",\"block_structure\":\"128\"}}",
		""),
	     SL_EUNSUPPORTED, "config_groups.a: a block_structure that is not [rows, width]"},
	    {"{\"quant_method\":\"fp8\",\"modules_to_not_convert\":\"lm_head\"}", SL_EINVAL,
	     "quantization_config.modules_to_not_convert is not a list of strings"},
	    {"{\"quant_method\":\"fp8\",\"modules_to_not_convert\":[\"a*b*c*d*e*f*g*h\"]}", SL_ELIMIT,
	     "modules_to_not_convert: a name has more than 6 wildcards"},
	    {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"W4A8_AWQ\\n\"}", SL_EUNSUPPORTED,
	     "quant_algo \"W4A8_AWQ?\""},
	    {"{\"quant_method\":\"modelopt\"}", SL_EUNSUPPORTED, "quant_algo \"\""},
	    {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\",\"group_size\":32}", SL_EUNSUPPORTED,
	     "nvfp4 with a group_size other than 16"},
	    {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"MIXED_PRECISION\"}", SL_EUNSUPPORTED,
	     "MIXED_PRECISION without quantized_layers"},
	    {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"MIXED_PRECISION\",\"quantized_layers\":{\"a\":{}}}",
	     SL_EUNSUPPORTED, "quantization_config.quantized_layers.a: quant_algo \"\""},
	    {CT("\"a\":{\"targets\":[\"Linear\"],\"weights\":{}}", ""), SL_EUNSUPPORTED,
	     "the format \"mixed-precision\""},
	    {CT("\"a\":{\"format\":\"marlin-24\",\"weights\":{}}", ""), SL_EUNSUPPORTED, "the format \"marlin-24\""},
	    {CT("\"a\":{\"format\":\"nvfp4-pack-quantized\",\"weights\":{\"num_bits\":4,\"type\":\"float\",\"group_"
		"size\":32}}",
		""),
	     SL_EUNSUPPORTED,
	     "config_groups.a: compressed-tensors of that format with weights other than float of 4 bits, in groups of "
	     "16 (nvfp4) or 32 (mxfp4)"},
	    {CT("\"a\":{\"format\":\"int-quantized\",\"weights\":{\"num_bits\":8,\"type\":\"float\"}}", ""),
	     SL_EUNSUPPORTED, "of another type than its format's"},
	    {CT("\"a\":{\"format\":\"float-quantized\",\"weights\":{\"num_bits\":4,\"type\":\"float\"}}", ""),
	     SL_EUNSUPPORTED, "weights of other bits"},
	    {CT("\"a\":{\"format\":\"pack-quantized\",\"weights\":{\"num_bits\":2,\"type\":\"int\"}}", ""),
	     SL_EUNSUPPORTED, "config_groups.a: pack-quantized with weights other than int of 4 or 8 bits"},
	    {CT("\"a\":{\"format\":\"pack-quantized\",\"weights\":{\"num_bits\":4,\"type\":\"int\",\"strategy\":"
		"\"block\","
		"\"block_structure\":[8,8]}}",
		""),
	     SL_EUNSUPPORTED, "pack-quantized with a strategy other than group and channel"},
	    {CT("\"a\":{\"format\":\"int-quantized\",\"weights\":{\"num_bits\":8,\"type\":\"int\",\"strategy\":"
		"\"token\"}}",
		""),
	     SL_EUNSUPPORTED, "a strategy other than tensor, channel, group and block"},
	    {CT(FP8("a", "\"re:(\""), ""), SL_EINVAL, "config_groups.a.targets: a pattern is malformed"},
	    {CT(FP8("a", "7"), ""), SL_EINVAL, "config_groups.a.targets is not a list of strings"},
	    {CT(FP8("a", "\"Linear\""), ",\"ignore\":{}"), SL_EINVAL,
	     "quantization_config.ignore is not a list of strings"},
	    {CT(FP8("a", "\"Linear\""), ",\"sparsity_config\":{\"format\":\"sparse-24-bitmask\"}"), SL_EUNSUPPORTED,
	     "sparsity_config"},
	};
	(void)arg;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		assert_null(read_text(cases[i].config, cases[i].code, cases[i].words));
}

/* Many groups, and a pattern whose cost is exponential. */
static void test_bounds(void **arg)
{
	static char text[80000];
	struct sl_err err = {0};
	const struct hf_scheme *s = NULL;
	(void)arg;
	size_t n = (size_t)snprintf(text, sizeof text, "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{");
	for (int i = 0; i < 33; i++)
		n += (size_t)snprintf(
		    text + n, sizeof text - n,
		    "%s\"g%d\":{\"targets\":[],\"format\":\"int-quantized\",\"weights\":{\"num_bits\":8,"
		    "\"type\":\"int\"}}",
		    i > 0 ? "," : "", i);
	snprintf(text + n, sizeof text - n, "}}");
	assert_null(read_text(text, SL_ELIMIT, "more than 32 groups"));
	n = (size_t)snprintf(text, sizeof text, "{\"quant_method\":\"compressed-tensors\",\"ignore\":[");
	for (int i = 0; i < 65; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%s\"re:a%d\"", i > 0 ? "," : "", i);
	snprintf(text + n, sizeof text - n, "]}");
	assert_null(read_text(text, SL_ELIMIT, "quantization_config.ignore: more than 64 patterns"));
	n = (size_t)snprintf(text, sizeof text, "{\"quant_method\":\"compressed-tensors\",\"ignore\":[\"a\"");
	for (int i = 0; i < 16384; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, ",\"a\"");
	snprintf(text + n, sizeof text - n, "]}");
	assert_null(read_text(text, SL_ELIMIT, "quantization_config.ignore: more than 16384 names"));

	struct hf_quant *q = read_text(CT(FP8("a", "\"re:(a+)+$\""), ""), 0, "");
	assert_int_equal(hf_quant_of(q, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", &s, &err), SL_ELIMIT);
	assert_non_null(strstr(err.text, "config_groups.a.targets: a pattern cannot be matched"));
	hf_quant_free(q);
}

/* ---- a folder of several kinds ---- */

static void test_mixed(void **arg)
{
	(void)arg;
	prefix = "model.layers.0.self_attn.q_proj";
	add(".weight", "F8_E4M3", 8, 64);
	float *s = add(".weight_scale", "F32", 8, 1);
	add(".input_scale", "F32", 0, 1);
	prefix = "model.layers.0.self_attn.k_proj"; /* ignored by the configuration: floats */
	add(".weight", "BF16", 8, 64);
	add(".k_scale", "F32", 0, 1);
	prefix = "model.layers.0.mlp.up_proj";
	add(".weight_packed", "I32", 8, 8);
	uint16_t *h = add(".weight_scale", "F16", 8, 1);
	prefix = "model.layers.0.mlp.down_proj";
	add(".weight_packed", "U8", 8, 32);
	add(".weight_scale", "F8_E4M3", 8, 4);
	*(float *)add(".weight_global_scale", "F32", 0, 1) = 1;
	for (int i = 0; i < 8; i++)
		s[i] = 1, h[i] = 0x3C00;
	static const char config[] =
	    CT(FP8("a", "\"Linear\"") "," INT4("b", "\"re:.*up_proj$\"") "," NVFP4("c", "\"re:.*down_proj$\""),
	       ",\"ignore\":[\"model.layers.0.self_attn.k_proj\"],\"kv_cache_scheme\":{\"num_bits\":8}");
	static const struct {
		const char *name;
		int type;
	} want[] = {{"attn_q", KN_Q8_0}, {"attn_k", KN_BF16}, {"ffn_up", KN_Q4_0}, {"ffn_down", KN_Q8_0}};
	prefix = PREFIX;
	write_folder(config);
	struct model_file *f = opened();
	struct sl_err err = {0};
	assert_int_equal(model_file_n_tensors(f), 4);
	for (size_t i = 0; i < 4; i++) {
		char name[64];
		snprintf(name, sizeof name, "blk.0.%s.weight", want[i].name);
		const struct model_tensor *t = model_file_find(f, name);
		if (t == NULL || t->type != want[i].type || model_file_bring(f, t, &err) != 0)
			fail_msg("%s: %s", name, t == NULL ? "none" : kn_type_name(t->type));
	}
	assert_non_null(strstr(model_file_note(f), "kv_cache_scheme is not used"));
	model_file_close(f);
	/* An ignored module that is quantized all the same; a group's form that is another one. */
	refused(CT(FP8("a", "\"Linear\"") "," INT4("b", "\"re:.*up_proj$\""), ",\"ignore\":[\"re:.*q_proj\"]"),
		SL_EINVAL,
		"module model.layers.0.self_attn.q_proj is quantized, but quantization_config.ignore names it");
	refused(CT(FP8("a", "\"Linear\""), ""), SL_EINVAL, "up_proj.weight_packed is of another form");
	drop_raws();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_groups),
	    cmocka_unit_test(test_notes),
	    cmocka_unit_test(test_refusals),
	    cmocka_unit_test(test_bounds),
	    cmocka_unit_test_setup_teardown(test_mixed, begin, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
