/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of mixtures of experts that are wrong: each is refused in one line that names the key or the tensor.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/model/model.h"
#include "engine/source/random_model.h"
#include "kernels/plugin.h"

static char path[] = "/tmp/sluice-mixtures-XXXXXX";
static uint8_t *file;
static size_t n_file;

static void write_model(const char *shape, void (*change)(struct model_arch *a))
{
	struct sl_err err = {0};
	struct random_model m = {.path = path, .name = "experts", .seed = 3, .n_threads = 1};
	assert_int_equal(random_shape_find(shape, &m.arch, &err), 0);
	if (change != NULL)
		change(&m.arch);
	assert_int_equal(weight_plan_parse("q8_0", &m.plan, &err), 0);
	assert_int_equal(random_model_write(&m, NULL, &err), 0);
}

static void read_file(void)
{
	FILE *f = fopen(path, "rb");
	assert_non_null(f);
	fseek(f, 0, SEEK_END);
	n_file = (size_t)ftell(f);
	rewind(f);
	free(file);
	file = malloc(n_file);
	assert_true(file != NULL && fread(file, 1, n_file, f) == n_file);
	fclose(f);
}

static void write_file(void)
{
	FILE *f = fopen(path, "wb");
	assert_true(f != NULL && fwrite(file, 1, n_file, f) == n_file);
	assert_int_equal(fclose(f), 0);
}

/* The bytes after the first occurrence of `text` in the file. */
static uint8_t *after(const char *text)
{
	uint8_t *at = memmem(file, n_file, text, strlen(text));
	assert_non_null(at);
	return at + strlen(text);
}

static void refused(const char *said)
{
	struct sl_err err = {0};
	const struct kn_ops *o = kn_select("auto", &err);
	const struct kn_config kc = {.n_threads = 1, .max_rows = 4, .max_width = 4096};
	struct kn_backend *b;
	struct model *m = NULL;
	assert_int_equal(o->open(&kc, &b, &err), 0);
	int rc = model_load(path, o, b, 4, 0, &m, &err);
	o->close(b);
	if (rc == 0 || strstr(err.text, said) == NULL || strchr(err.text, '\n') != NULL)
		fail_msg("%d \"%s\", not \"%s\"", rc, err.text, said);
}

static void too_many_used(struct model_arch *a) { a->experts.n_used = a->experts.n + 1; }
static void none_used(struct model_arch *a) { a->experts.n_used = 0; }

static void test_keys(void **state)
{
	(void)state;
	write_model("tiny-qwen3moe", too_many_used);
	refused("qwen3moe.expert_used_count is 17, not from 1 to 16");
	write_model("tiny-qwen3moe", none_used);
	refused("qwen3moe.expert_used_count is 0, not from 1 to 16");
	/* A number after a key: its type in four bytes, then the value. */
	write_model("tiny-olmoe", NULL);
	read_file();
	after("olmoe.expert_count")[4] = 7;
	write_file();
	refused("tensor blk.0.ffn_gate_inp.weight is 256 × 8, not 256 × 7");
	write_model("tiny-qwen2moe", NULL);
	read_file();
	after("qwen2moe.expert_feed_forward_length")[4] = 128;
	write_file();
	refused("tensor blk.0.ffn_gate_exps.weight is 256 × 256 × 6, not 256 × ");
	write_model("tiny-qwen2moe", NULL);
	read_file();
	memcpy(after("qwen2moe.expert_count") - 5, "xxxxx", 5);
	write_file();
	refused("qwen2moe.expert_count");
}

static void test_tensors(void **state)
{
	(void)state;
	static const char *const names[] = {"blk.1.ffn_gate_inp.weight", "blk.0.ffn_down_shexp.weight",
					    "blk.1.ffn_gate_inp_shexp.weight"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		char said[96];
		write_model("tiny-qwen2moe", NULL);
		read_file();
		after(names[i])[-1] = 'x';
		write_file();
		snprintf(said, sizeof said, "tensor %s is missing", names[i]);
		refused(said);
	}
	/* All experts of one kind: the first of them is looked for under its own name. */
	write_model("tiny-olmoe", NULL);
	read_file();
	after("blk.1.ffn_up_exps.weight")[-1] = 'x';
	write_file();
	refused("tensor blk.1.ffn_up.0.weight is missing");
}

/* A layer beyond the last is refused; test_key_rules.c has those that the file says only draft. */
static void test_more_layers(void **state)
{
	(void)state;
	write_model("tiny-glm4moe", NULL);
	read_file();
	after("glm4moe.block_count")[4] = 2;
	write_file();
	refused("tensor blk.2.");
}

/* A backend without the operation says so; no step ever finds it missing. */
static void test_backend(void **state)
{
	(void)state;
	struct sl_err err = {0};
	struct kn_ops o = *kn_select("auto", &err);
	const struct kn_config kc = {.n_threads = 1, .max_rows = 4, .max_width = 4096};
	struct kn_backend *b;
	struct model *m = NULL;
	o.experts = NULL;
	write_model("tiny-mixtral", NULL);
	assert_int_equal(o.open(&kc, &b, &err), 0);
	assert_int_equal(model_load(path, &o, b, 4, 0, &m, &err), SL_EUNSUPPORTED);
	assert_non_null(strstr(err.text, "has no mixtures of experts"));
	o.close(b);
}

static int setup(void **state)
{
	(void)state;
	int fd = mkstemp(path);
	if (fd >= 0)
		close(fd);
	return fd >= 0 ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	free(file);
	return unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys), cmocka_unit_test(test_tensors),
					   cmocka_unit_test(test_more_layers), cmocka_unit_test(test_backend)};
	return cmocka_run_group_tests(tests, setup, teardown);
}
