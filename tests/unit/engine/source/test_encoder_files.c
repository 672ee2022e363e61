/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoders on disk: Hugging Face folders of BERT's line, their names, positions and poolings; GGUF's keys; and what is
 * refused in one line.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model_files.h"

#include "engine/model/model.h"

#define LAYER "encoder.layer.0."
#define WITH_BIAS(name, rows, width) \
	{name ".weight", "F32", rows, width}, { name ".bias", "F32", 0, rows }

/* Width 8, 2 heads, one layer, 20 positions, 12 tokens. */
static const struct md_tensor bert[] = {
    {"bert.embeddings.word_embeddings.weight", "F32", 12, 8},
    {"bert.embeddings.position_embeddings.weight", "F32", 20, 8},
    {"bert.embeddings.token_type_embeddings.weight", "F32", 2, 8},
    {"bert.embeddings.LayerNorm.gamma", "F32", 0, 8},
    {"bert.embeddings.LayerNorm.beta", "F32", 0, 8},
    WITH_BIAS("bert." LAYER "attention.self.query", 8, 8),
    WITH_BIAS("bert." LAYER "attention.self.key", 8, 8),
    WITH_BIAS("bert." LAYER "attention.self.value", 8, 8),
    WITH_BIAS("bert." LAYER "attention.output.dense", 8, 8),
    {"bert." LAYER "attention.output.LayerNorm.weight", "F32", 0, 8},
    {"bert." LAYER "attention.output.LayerNorm.bias", "F32", 0, 8},
    WITH_BIAS("bert." LAYER "intermediate.dense", 16, 8),
    WITH_BIAS("bert." LAYER "output.dense", 8, 16),
    {"bert." LAYER "output.LayerNorm.weight", "F32", 0, 8},
    {"bert." LAYER "output.LayerNorm.bias", "F32", 0, 8},
    WITH_BIAS("bert.pooler.dense", 8, 8),
    WITH_BIAS("classifier", 1, 8),
};
enum { N_BERT = sizeof bert / sizeof *bert, N_WITHOUT_HEAD = N_BERT - 2 };

static const char words[] =
    "{\"added_tokens\":[],\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":true},\"pre_tokenizer\":{\"type\":"
    "\"BertPreTokenizer\"},\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",3],\"cls\":[\"[CLS]\",2]}"
    ","
    "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"vocab\":{\"[PAD]\":0,\"[UNK]\":1,\"[CLS]\":2,"
    "\"[SEP]\":3,\"a\":4,\"b\":5,\"c\":6,\"d\":7,\"e\":8,\"f\":9,\"g\":10,\"##a\":11}}}";

#define CONFIG(type, class, more)                                                                              \
	"{\"model_type\":\"" type                                                                              \
	"\",\"architectures\":[\"" class "\"],\"hidden_size\":8,\"num_hidden_layers\":1,"                      \
					 "\"num_attention_heads\":2,\"intermediate_size\":16,\"max_position_"  \
					 "embeddings\":20,\"type_vocab_size\":2,"                              \
					 "\"vocab_size\":12,\"layer_norm_eps\":1e-12,\"hidden_act\":\"gelu\"," \
					 "\"position_embedding_type\":\"absolute\"" more "}"

static void write_folder(const char *config, bool head)
{
	md_text(dir, "config.json", config);
	md_text(dir, "tokenizer.json", words);
	md_safetensors(dir, "model.safetensors", bert, head ? N_BERT : N_WITHOUT_HEAD);
}

static struct model_arch read_arch(void)
{
	struct model_arch a;
	struct model_file *f = opened("");
	arch_of(f, &a);
	model_file_close(f);
	return a;
}

static int load(struct sl_err *err)
{
	const struct kn_config kc = {.n_threads = 1, .max_rows = 8, .max_width = 64};
	const struct kn_ops *ops;
	struct kn_backend *b;
	struct model *m = NULL;
	ops = kn_select("cpu-ref", err);
	assert_int_equal(ops->open(&kc, &b, err), 0);
	int rc = model_load(dir, ops, b, 8, 0, &m, err);
	model_free(m);
	ops->close(b);
	return rc;
}

/* As it would serve: every tensor has its use. */
static void loads(void)
{
	struct sl_err err = {0};
	if (load(&err) != 0)
		fail_msg("%s", err.text);
}

static void refuses_to_load(const char *why)
{
	struct sl_err err = {0};
	assert_int_not_equal(load(&err), 0);
	if (strstr(err.text, why) == NULL)
		fail_msg("%s", err.text);
}

static void vectors(void **state)
{
	(void)state;
	write_folder(CONFIG("bert", "BertModel", ""), false);
	struct model_arch a = read_arch();
	assert_string_equal(a.family, "bert");
	assert_true(a.encoder && a.qkv_bias && a.ungated && a.n_types == 2 && a.first_pos == 0 && a.n_ctx == 20);
	assert_int_equal(a.n_vocab, 12);
	assert_int_equal(a.pooling, ARCH_POOL_MEAN); /* where no file says it */
	struct model_file *f = opened("");
	check_values(f, "token_embd_norm.weight", "bert.embeddings.LayerNorm.gamma");
	check_values(f, "blk.0.attn_k.weight", "bert." LAYER "attention.self.key.weight");
	check_values(f, "blk.0.attn_output_norm.bias", "bert." LAYER "attention.output.LayerNorm.bias");
	check_values(f, "blk.0.ffn_down.weight", "bert." LAYER "output.dense.weight");
	check_values(f, "blk.0.layer_output_norm.weight", "bert." LAYER "output.LayerNorm.weight");
	model_file_close(f);
	loads(); /* and no pooling uses the pooler */
	/* RoBERTa's positions begin behind the padding's. */
	write_folder(CONFIG("xlm-roberta", "XLMRobertaModel", ",\"pad_token_id\":1"), false);
	a = read_arch();
	assert_true(a.first_pos == 2 && a.n_ctx == 18);
	loads();
}

static void scores(void **state)
{
	(void)state;
	write_folder(CONFIG("bert", "BertForSequenceClassification", ",\"id2label\":{\"0\":\"LABEL_0\"}"), true);
	struct model_arch a = read_arch();
	assert_true(a.pooling == ARCH_POOL_RANK && a.rank_dense);
	loads();
	write_folder(CONFIG("bert", "BertForSequenceClassification", ",\"id2label\":{\"0\":\"a\",\"1\":\"b\"}"), true);
	refused("", SL_EUNSUPPORTED, "num_labels is not 1");
}

/* RoBERTa's head has names of its own. */
static void scores_of_roberta(void **state)
{
	struct md_tensor renamed[N_BERT];
	static const char *const names[] = {"classifier.dense.weight", "classifier.dense.bias",
					    "classifier.out_proj.weight", "classifier.out_proj.bias"};
	(void)state;
	memcpy(renamed, bert, sizeof renamed);
	for (int i = 0; i < 4; i++)
		renamed[N_BERT - 4 + i].name = names[i];
	md_text(dir, "config.json",
		CONFIG("xlm-roberta", "XLMRobertaForSequenceClassification",
		       ",\"pad_token_id\":1,\"id2label\":{\"0\":\"LABEL_0\"}"));
	md_text(dir, "tokenizer.json", words);
	md_safetensors(dir, "model.safetensors", renamed, N_BERT);
	struct model_arch a = read_arch();
	assert_true(a.pooling == ARCH_POOL_RANK && a.rank_dense && a.first_pos == 2);
	struct model_file *f = opened("");
	check_values(f, "cls.weight", names[0]);
	check_values(f, "cls.output.weight", names[2]);
	model_file_close(f);
	loads();
	md_safetensors(dir, "model.safetensors", renamed, N_BERT - 2);
	refuses_to_load("cls.output.weight");
}

static void lengths(void **state)
{
	(void)state;
	write_folder(CONFIG("bert", "BertModel", ""), false);
	struct model_arch a = read_arch();
	assert_true(!a.shortens && a.n_lengths == 0 && (model_does(&a) & PROTO_DOES_SHORTEN) == 0);
	write_folder(CONFIG("bert", "BertModel", ",\"is_matryoshka\":true"), false);
	a = read_arch();
	assert_true(a.shortens && a.n_lengths == 0 && (model_does(&a) & PROTO_DOES_SHORTEN) != 0);
	write_folder(CONFIG("bert", "BertModel", ",\"matryoshka_dimensions\":[2,4,8]"), false);
	a = read_arch();
	assert_true(a.shortens && a.n_lengths == 3 && a.lengths[0] == 2 && a.lengths[2] == 8);
	assert_int_equal(a.n_unknown_keys, 0);
	write_folder(CONFIG("bert", "BertModel", ",\"matryoshka_dimensions\":[2,9]"), false);
	refused("", SL_EINVAL, "matryoshka_dimensions is not a list");
	write_folder(CONFIG("bert", "BertModel", ",\"matryoshka_dimensions\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"),
		     false);
	refused("", SL_EINVAL, "up to 16 vector lengths");
}

static void write_pooling(const char *text)
{
	char path[256];
	md_path(path, dir, "1_Pooling");
	mkdir(path, 0700);
	md_text(dir, "1_Pooling/config.json", text);
}

static void poolings(void **state)
{
	(void)state;
	write_folder(CONFIG("bert", "BertModel", ""), false);
	write_pooling(
	    "{\"word_embedding_dimension\":8,\"pooling_mode_cls_token\":true,\"pooling_mode_mean_tokens\":false}");
	assert_int_equal(read_arch().pooling, ARCH_POOL_CLS);
	write_pooling("{\"pooling_mode_lasttoken\":true}");
	assert_int_equal(read_arch().pooling, ARCH_POOL_LAST);
	write_pooling("{\"pooling_mode_max_tokens\":true}");
	refused("", SL_EUNSUPPORTED, "pooling_mode_max_tokens is not supported");
	write_pooling("{\"pooling_mode_cls_token\":true,\"pooling_mode_mean_tokens\":true}");
	refused("", SL_EUNSUPPORTED, "beside another");
	write_pooling("{\"pooling_mode_mean_tokens\":true}");
	md_text(dir, "modules.json",
		"[{\"type\":\"sentence_transformers.models.Transformer\"},{\"type\":\"sentence_transformers.models."
		"Pooling\"},"
		"{\"type\":\"sentence_transformers.models.Normalize\"}]");
	assert_int_equal(read_arch().pooling, ARCH_POOL_MEAN);
	md_text(dir, "modules.json", "[{\"type\":\"sentence_transformers.models.Dense\"}]");
	refused("", SL_EUNSUPPORTED, "module \"sentence_transformers.models.Dense\" is not supported");
	md_text(dir, "modules.json", "{}");
	refused("", SL_EINVAL, "modules.json: not a list");
	md_remove_file(dir, "modules.json");
	/* A decoder's, too. */
	md_llama_folder(dir);
	write_pooling("{\"pooling_mode_lasttoken\":true}");
	assert_int_equal(read_arch().pooling, ARCH_POOL_LAST);
	write_pooling("{\"pooling_mode_cls_token\":true}");
	refused("", SL_EUNSUPPORTED, "the first row of a decoder sees nothing");
	md_remove_file(dir, "1_Pooling/config.json");
	char path[256];
	md_path(path, dir, "1_Pooling");
	assert_int_equal(rmdir(path), 0);
}

static void what_is_refused(void **state)
{
	static const struct {
		const char *config, *words;
	} cases[] = {
	    {CONFIG("bert", "BertForTokenClassification", ""), "architectures names a class"},
	    {CONFIG("bert", "BertModel", ",\"is_decoder\":true"), "is_decoder is true"},
	    {CONFIG("bert", "BertModel", ",\"add_cross_attention\":true"), "add_cross_attention is true"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		write_folder(cases[i].config, false);
		refused("", SL_EUNSUPPORTED, cases[i].words);
	}
	write_folder(
	    "{\"model_type\":\"bert\",\"architectures\":[\"BertModel\"],\"hidden_size\":8,\"num_hidden_layers\":1,"
	    "\"num_attention_heads\":2,\"intermediate_size\":16,\"hidden_act\":\"relu\"}",
	    false);
	refused("", SL_EUNSUPPORTED, "hidden_act is not supported");
	write_folder(
	    "{\"model_type\":\"bert\",\"architectures\":[\"BertModel\"],\"hidden_size\":8,\"num_hidden_layers\":1,"
	    "\"num_attention_heads\":2,\"intermediate_size\":16,\"position_embedding_type\":\"relative_key\"}",
	    false);
	refused("", SL_EUNSUPPORTED, "position_embedding_type is not supported");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(vectors, setup, teardown),
					   cmocka_unit_test_setup_teardown(scores, setup, teardown),
					   cmocka_unit_test_setup_teardown(scores_of_roberta, setup, teardown),
					   cmocka_unit_test_setup_teardown(lengths, setup, teardown),
					   cmocka_unit_test_setup_teardown(poolings, setup, teardown),
					   cmocka_unit_test_setup_teardown(what_is_refused, setup, teardown)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
