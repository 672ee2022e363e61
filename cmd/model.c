/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice model`: looking into model files. Running them stands in model_generate.c.
 */
#include "cmd/model.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/cmd.h"
#include "engine/chat_template.h"
#include "engine/gguf.h"
#include "engine/model.h"
#include "engine/prompt.h"
#include "engine/tokenizer.h"

static const char usage[] =
    "usage: sluice model inspect FILE\n"
    "       sluice model generate FILE --prompt TEXT [--system TEXT] [--tokens N]\n"
    "              [--temperature T] [--seed S] [--raw] [--json] [--ids] [--logprobs [K]]\n"
    "              [--prompt-logprobs K] [SAMPLING] [--n N] [--best-of N]\n"
    "              [--beam WIDTH] [--length-penalty X] [--backend NAME] [--threads N]\n"
    "       sluice model generate FILE --batch [SAMPLING] [--backend NAME] [--threads N]\n"
    "       sluice model tokenize FILE [--decode]\n"
    "       sluice model render FILE\n"
    "\n"
    "inspect   what the file is, and every key in it\n"
    "SAMPLING: --top-k K, --top-p P, --min-p P, --typical P, --repetition-penalty R,\n"
    "          --presence-penalty X, --frequency-penalty X, --min-tokens N, and as often as needed\n"
    "          --logit-bias ID=B, --stop TEXT, --stop-id ID\n"
    "\n"
    "generate  an answer to TEXT as a chat (--raw: continues TEXT itself); --logprobs lists its\n"
    "          tokens, with their K likeliest rivals, --prompt-logprobs those of the prompt; --json\n"
    "          (or --ids) prints one line of JSON instead. --batch reads lines of JSON from\n"
    "          standard input, {\"id\":…, \"messages\":[…], \"max_tokens\":…, \"temperature\":…,\n"
    "          \"seed\":…} (or \"prompt\":\"…\" for plain text), runs them side by side and writes\n"
    "          one line of JSON for each as it ends\n"
    "tokenize  text on standard input to ids; --decode: a JSON array of ids to text\n"
    "render    {\"messages\":[…]} on standard input to the text that the model reads\n";

int model_complain(int status, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	fputs("sluice model: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	return status;
}

static int read_input(struct sl_buf *in)
{
	buf_init(in, MODEL_MAX_INPUT);
	for (;;) {
		uint8_t *at;
		if (buf_reserve(in, 65536, &at) != 0)
			return model_complain(1, "standard input has more than %d bytes",
					      MODEL_MAX_INPUT);
		size_t n = fread(at, 1, 65536, stdin);
		buf_commit(in, n);
		if (n == 0)
			return ferror(stdin) ? model_complain(1, "standard input: %s",
							      strerror(errno))
					     : 0;
	}
}

/* Every output ends here: a full disk or a closed pipe is a failure. */
static int finish_output(void)
{
	if (fflush(stdout) != 0 || ferror(stdout))
		return model_complain(1, "standard output: %s", strerror(errno));
	return 0;
}

/* ---- inspect ---- */

static void print_arch(const struct model_info *info)
{
	const struct model_arch *a = &info->arch;
	printf("name         %s\n", info->name[0] != '\0' ? info->name : "(none)");
	printf("family       %s\n", a->family);
	printf("parameters   %llu\n", (unsigned long long)info->n_params);
	printf("file         %llu bytes\n", (unsigned long long)info->file_bytes);
	printf("weights      %s\n", info->weight_types);
	printf("layers       %d of width %d, feed-forward %d\n", a->n_layers, a->n_embd, a->n_ff);
	printf("heads        %d, %d for keys and values, of width %d\n", a->n_heads,
	       a->n_kv_heads, a->head_dim);
	printf("vocabulary   %d%s\n", a->n_vocab, a->tied_embeddings ? ", tied" : "");
	printf("context      %d\n", a->n_ctx);
	printf("rope         %d dimensions, base %g\n", a->rope.n_rot, a->rope.base);
}

static int inspect(const char *path)
{
	struct model_info info;
	struct gguf *g;
	struct sl_err err = {0};
	if (gguf_open(path, &g, &err) != 0)
		return model_complain(1, "%s", err.text);
	int rc = model_inspect(path, &info, &err);
	if (rc == 0)
		print_arch(&info);
	printf("\ntensors      %zu\nkeys         %zu\n", gguf_n_tensors(g), gguf_n_keys(g));
	for (size_t i = 0; i < gguf_n_keys(g); i++) {
		char value[160];
		struct proto_str key = gguf_key_at(g, i, value, sizeof value);
		printf("  %-42.*s %s\n", (int)key.n, key.at, value);
	}
	gguf_close(g);
	int out = finish_output();
	if (rc != 0)
		return model_complain(1, "%s", err.text);
	return out;
}

/* ---- tokenize ---- */

static int encode(const struct tokenizer *t, const struct sl_buf *in)
{
	struct tok_ids ids = {0};
	int rc = tokenizer_encode(t, (const char *)buf_data(in), in->len, NULL, &ids);
	if (rc == 0) {
		putchar('[');
		for (size_t i = 0; i < ids.n; i++)
			printf(i > 0 ? ",%d" : "%d", (int)ids.ids[i]);
		puts("]");
	}
	tok_ids_dispose(&ids);
	return rc == 0 ? finish_output() : model_complain(1, "out of memory");
}

static int decode(const struct tokenizer *t, const struct sl_buf *in)
{
	json_t *ids = json_loadb((const char *)buf_data(in), in->len, 0, NULL);
	if (!json_is_array(ids)) {
		json_decref(ids);
		return model_complain(1, "standard input is not a JSON array");
	}
	int rc = 0;
	for (size_t i = 0; i < json_array_size(ids) && rc == 0; i++) {
		const json_t *id = json_array_get(ids, i);
		if (!json_is_integer(id) || json_integer_value(id) < 0 ||
		    json_integer_value(id) >= tokenizer_n_vocab(t)) {
			rc = model_complain(1, "item %zu is not an id from 0 to %d", i,
					    tokenizer_n_vocab(t) - 1);
			break;
		}
		struct proto_str s = tokenizer_bytes(t, (int32_t)json_integer_value(id));
		fwrite(s.at, 1, s.n, stdout);
	}
	json_decref(ids);
	return rc != 0 ? rc : finish_output();
}

static int tokenize(const char *path, bool decoding)
{
	struct sl_err err = {0};
	struct gguf *g;
	struct tokenizer *t;
	struct sl_buf in;
	if (gguf_open(path, &g, &err) != 0)
		return model_complain(1, "%s", err.text);
	int rc = tokenizer_create(g, &t, &err);
	gguf_close(g);
	if (rc != 0)
		return model_complain(1, "%s", err.text);
	rc = read_input(&in);
	if (rc == 0)
		rc = decoding ? decode(t, &in) : encode(t, &in);
	buf_dispose(&in);
	tokenizer_destroy(t);
	return rc;
}

/* ---- render ---- */

static char *token_text(const struct tokenizer *t, int32_t id)
{
	if (id < 0)
		return NULL;
	struct proto_str s = tokenizer_bytes(t, id);
	return strndup(s.at, s.n);
}

static int render_chat(const struct gguf *g, const json_t *messages)
{
	struct sl_err err = {0};
	struct tokenizer *t = NULL;
	struct chat_template *template = NULL;
	struct proto_str source;
	struct sl_buf text, trust;
	buf_init(&text, MODEL_MAX_INPUT);
	buf_init(&trust, MODEL_MAX_INPUT);
	int rc = gguf_get_str(g, "tokenizer.chat_template", &source, &err);
	if (rc == SL_ENOTFOUND)
		sl_errf(&err, rc, "%s has no chat template", gguf_path(g));
	if (rc == 0)
		rc = chat_template_compile(source.at, source.n, &template, &err);
	if (rc == 0)
		rc = tokenizer_create(g, &t, &err);
	if (rc == 0) {
		char *bos = token_text(t, tokenizer_bos(t)), *eos = token_text(t, tokenizer_eos(t));
		struct chat_vars vars = {.messages = messages,
					 .bos_token = bos,
					 .eos_token = eos,
					 .add_generation_prompt = true};
		rc = chat_template_render(template, &vars, &text, &trust, &err);
		free(bos);
		free(eos);
	}
	if (rc == 0 && text.len > 0)
		fwrite(buf_data(&text), 1, text.len, stdout);
	buf_dispose(&text);
	buf_dispose(&trust);
	if (t != NULL)
		tokenizer_destroy(t);
	if (template != NULL)
		chat_template_free(template);
	return rc == 0 ? finish_output() : model_complain(1, "%s", err.text);
}

static int render(const char *path)
{
	struct sl_err err = {0};
	struct gguf *g;
	struct sl_buf in;
	json_t *messages;
	if (gguf_open(path, &g, &err) != 0)
		return model_complain(1, "%s", err.text);
	int rc = read_input(&in);
	if (rc == 0) {
		rc = prompt_parse_chat((const char *)buf_data(&in), in.len, &messages, &err);
		if (rc != 0) {
			rc = model_complain(1, "%s", err.text);
		} else {
			rc = render_chat(g, messages);
			json_decref(messages);
		}
	}
	buf_dispose(&in);
	gguf_close(g);
	return rc;
}

/* ---- arguments ---- */

static int generate(int argc, char **argv)
{
	struct generate_options o = {
	    .path = argv[2], .backend = "auto", .n_tokens = 256, .temperature = 0};
	model_sampling_init(&o.sampling);
	for (int i = 3; i < argc; i++) {
		const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
		double x;
		uint64_t n;
		bool takes = true, ok = true;
		enum sampling_taken taken;
		if (strcmp(name, "--prompt") == 0) {
			o.prompt = value;
		} else if (strcmp(name, "--system") == 0) {
			o.system = value;
		} else if (strcmp(name, "--backend") == 0) {
			o.backend = value;
		} else if (strcmp(name, "--tokens") == 0) {
			ok = model_whole(value, 1, UINT32_MAX, &n);
			o.n_tokens = ok ? (uint32_t)n : 1;
		} else if (strcmp(name, "--threads") == 0) {
			ok = model_whole(value, 0, 1024, &n);
			o.n_threads = ok ? (int)n : 0;
		} else if (strcmp(name, "--seed") == 0) {
			ok = model_whole(value, 0, UINT64_MAX, &o.seed);
		} else if (strcmp(name, "--logprobs") == 0) {
			/* K may be left out. */
			bool k = model_whole(value, 0, PROTO_MAX_TOP_LOGPROBS, &n);
			o.logprobs = true;
			o.sampling.req.n_top_logprobs = k ? (uint8_t)n : 0;
			if (!k)
				continue;
		} else if ((taken = model_sampling_option(&o.sampling, name, value)) != SAMPLING_OTHER) {
			ok = taken == SAMPLING_TAKEN;
		} else if (strcmp(name, "--temperature") == 0) {
			ok = model_number(value, 0, 2, &x);
			o.temperature = ok ? (float)x : 0;
		} else {
			takes = false;
			if (strcmp(name, "--raw") == 0)
				o.raw = true;
			else if (strcmp(name, "--ids") == 0)
				o.json = true;
			else if (strcmp(name, "--json") == 0)
				o.json = true;
			else if (strcmp(name, "--batch") == 0)
				o.batch = true;
			else
				return model_complain(CMD_EXIT_USAGE, "no option %s", name);
		}
		if (takes && (value == NULL || !ok))
			return model_complain(CMD_EXIT_USAGE, "%s: %s is not possible", name,
					      value != NULL ? value : "nothing");
		i += takes;
	}
	if (!o.batch && o.prompt == NULL)
		return model_complain(CMD_EXIT_USAGE, "generate needs --prompt or --batch");
	const char *why = model_sampling_finish(&o.sampling, o.n_tokens);
	if (why != NULL)
		return model_complain(CMD_EXIT_USAGE, "%s", why);
	return model_generate(&o);
}

int cmd_model(int argc, char **argv)
{
	if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		fputs(usage, stdout);
		return 0;
	}
	if (argc >= 3 && strcmp(argv[1], "inspect") == 0 && argc == 3)
		return inspect(argv[2]);
	if (argc >= 3 && strcmp(argv[1], "generate") == 0)
		return generate(argc, argv);
	if (argc == 3 && strcmp(argv[1], "tokenize") == 0)
		return tokenize(argv[2], false);
	if (argc == 4 && strcmp(argv[1], "tokenize") == 0 && strcmp(argv[3], "--decode") == 0)
		return tokenize(argv[2], true);
	if (argc == 3 && strcmp(argv[1], "render") == 0)
		return render(argv[2]);
	fputs(usage, stderr);
	return CMD_EXIT_USAGE;
}
