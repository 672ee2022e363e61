/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice model`: looking into model files. Running them stands in model_generate.c,
 * what describes and makes them in model_inspect.c and model_convert.c.
 */
#include "cmd/model/model.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/config/cmd.h"
#include "engine/file/map_file.h"
#include "engine/token/tokenizer.h"
#include "kernels/kernels.h"
#include "kernels/kv_type.h"

static const char usage[] =
    "usage: sluice model inspect FILE [--json] [--keys] [--tensors]\n"
    "       sluice model random --shape NAME [--type TYPE] [--seed N] [--context N]\n"
    "              [--tokenizer FILE] [--name TEXT] [--threads N] [--force] OUT\n"
    "       sluice model quantize FILE --type TYPE OUT [--threads N] [--force]\n"
    "       sluice model generate FILE --prompt TEXT [--system TEXT] [--tokens N]\n"
    "              [--temperature T] [--seed S] [--raw] [--json] [--ids] [--logprobs [K]]\n"
    "              [--prompt-logprobs K] [SAMPLING] [--n N] [--best-of N]\n"
    "              [--beam WIDTH] [--length-penalty X] [--backend NAME] [--threads N]\n"
    "              [--quantize TYPE] [--kv-type TYPE]\n"
    "       sluice model generate FILE --batch [SAMPLING] [--backend NAME] [--threads N]\n"
    "              [--quantize TYPE] [--kv-type TYPE]\n"
    "       sluice model tokenize FILE [--decode] [--lines] [--trusted] [--cleanse LEVEL]\n"
    "       sluice model render FILE [CHAT] [--no-generation-prompt]\n"
    "\n"
    "FILE is a GGUF file (any part of a split one) or a Hugging Face folder.\n"
    "SAMPLING: --top-k K, --top-p P, --min-p P, --typical P, --repetition-penalty R,\n"
    "          --presence-penalty X, --frequency-penalty X, --min-tokens N, and as often as needed\n"
    "          --logit-bias ID=B, --stop TEXT, --stop-id ID\n"
    "\n"
    "inspect   what it is, what running it needs, and whether this build can; its keys, its tensors\n"
    "random    a GGUF file of a real model's shape (llama-3.2-1b, qwen3-4b, …; a wrong name lists\n"
    "          them) with random weights of TYPE (q8_0, q4_k_m, …) and a made-up vocabulary, or FILE's\n"
    "quantize  a GGUF file of the same model with weights of TYPE\n"
    "          OUT is written as OUT.partial-PID and gets its name when it is whole; a signal removes\n"
    "          what there is (SIGKILL leaves it). --force replaces an OUT that is there, never FILE's\n"
    "generate  an answer to TEXT as a chat (--raw: continues TEXT itself); --logprobs lists its\n"
    "          tokens, with their K likeliest rivals, --prompt-logprobs those of the prompt; --json\n"
    "          (or --ids) prints one line of JSON instead. --batch reads lines of JSON from\n"
    "          standard input, {\"id\":…, \"messages\":[…], \"max_tokens\":…, \"temperature\":…,\n"
    "          \"seed\":…} (or \"prompt\":\"…\" for plain text), runs them side by side and writes\n"
    "          one line of JSON for each as it ends\n"
    "tokenize  text on standard input to a JSON array of ids; --decode: ids to text; --lines: each\n"
    "          line is a JSON string (or an array of ids); --trusted: control tokens in it count;\n"
    "          --cleanse off, light, full: as a user's message would be;\n"
    "          FILE may be a tokenizer.json too\n"
    "render    the text that the model reads: a chat {\"messages\":[…], \"tools\":[…],\n"
    "          \"chat_template_kwargs\":{…}} on standard input or in the file CHAT through the\n"
    "          template in FILE: a GGUF, a .jinja file, a tokenizer_config.json or a folder of one\n";

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

int model_read_input(struct sl_buf *in)
{
	buf_init(in, MODEL_MAX_INPUT);
	for (;;) {
		uint8_t *at;
		if (buf_reserve(in, 65536, &at) != 0)
			return model_complain(1, "standard input has more than %d bytes", MODEL_MAX_INPUT);
		size_t n = fread(at, 1, 65536, stdin);
		buf_commit(in, n);
		if (n == 0)
			return ferror(stdin) ? model_complain(1, "standard input: %s", strerror(errno)) : 0;
	}
}

int model_finish_output(void)
{
	if (fflush(stdout) != 0 || ferror(stdout))
		return model_complain(1, "standard output: %s", strerror(errno));
	return 0;
}

/* ---- arguments ---- */

/* An option without a value: whether it is one. */
static bool generate_flag(struct generate_options *o, const char *name)
{
	if (strcmp(name, "--raw") == 0)
		o->raw = true;
	else if (strcmp(name, "--ids") == 0 || strcmp(name, "--json") == 0)
		o->json = true;
	else if (strcmp(name, "--batch") == 0)
		o->batch = true;
	else
		return false;
	return true;
}

/* An option with a value (NULL: the line has ended): whether it takes the value, or OTHER where it is none of these. */
static enum sampling_taken generate_option(struct generate_options *o, const char *name, const char *value)
{
	const struct {
		const char *name;
		const char **to;
	} texts[] = {{"--prompt", &o->prompt},
		     {"--system", &o->system},
		     {"--quantize", &o->quantize},
		     {"--kv-type", &o->kv_type},
		     {"--backend", &o->backend}};
	double x;
	uint64_t n;
	bool ok;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		if (strcmp(name, texts[i].name) != 0)
			continue;
		*texts[i].to = value;
		return value != NULL ? SAMPLING_TAKEN : SAMPLING_BAD;
	}
	if (strcmp(name, "--tokens") == 0) {
		ok = model_whole(value, 1, UINT32_MAX, &n);
		o->n_tokens = ok ? (uint32_t)n : 1;
	} else if (strcmp(name, "--threads") == 0) {
		ok = model_whole(value, 0, 1024, &n);
		o->n_threads = ok ? (int)n : 0;
	} else if (strcmp(name, "--seed") == 0) {
		ok = model_whole(value, 0, UINT64_MAX, &o->seed);
	} else if (strcmp(name, "--temperature") == 0) {
		ok = model_number(value, 0, 2, &x);
		o->temperature = ok ? (float)x : 0;
	} else {
		return model_sampling_option(&o->sampling, name, value);
	}
	return ok ? SAMPLING_TAKEN : SAMPLING_BAD;
}

/* What options ask for together. */
static int generate_check(struct generate_options *o)
{
	if (!o->batch && o->prompt == NULL)
		return model_complain(CMD_EXIT_USAGE, "generate needs --prompt or --batch");
	if (o->quantize != NULL && kn_type_from_name(o->quantize) < 0)
		return model_complain(CMD_EXIT_USAGE, "--quantize: no type is named %s", o->quantize);
	if (o->kv_type != NULL && strcmp(o->kv_type, "auto") != 0 && kn_kv_type_from_name(o->kv_type) < 0)
		return model_complain(CMD_EXIT_USAGE, "--kv-type: no type of keys and values is named %s", o->kv_type);
	const char *why = model_sampling_finish(&o->sampling, o->n_tokens);
	return why == NULL ? 0 : model_complain(CMD_EXIT_USAGE, "%s", why);
}

static int generate(int argc, char **argv)
{
	struct generate_options o = {.path = argv[2], .backend = "auto", .n_tokens = 256, .temperature = 0};
	model_sampling_init(&o.sampling);
	for (int i = 3; i < argc; i++) {
		const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
		uint64_t n;
		if (strcmp(name, "--logprobs") == 0) {
			/* K may be left out. */
			bool k = model_whole(value, 0, PROTO_MAX_TOP_LOGPROBS, &n);
			o.logprobs = true;
			o.sampling.req.n_top_logprobs = k ? (uint8_t)n : 0;
			i += k;
			continue;
		}
		if (generate_flag(&o, name))
			continue;
		enum sampling_taken taken = generate_option(&o, name, value);
		if (taken == SAMPLING_OTHER)
			return model_complain(CMD_EXIT_USAGE, "no option %s", name);
		if (value == NULL || taken != SAMPLING_TAKEN)
			return model_complain(CMD_EXIT_USAGE, "%s: %s is not possible", name,
					      value != NULL ? value : "nothing");
		i++;
	}
	int rc = generate_check(&o);
	return rc != 0 ? rc : model_generate(&o);
}

int cmd_model(int argc, char **argv)
{
	if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		fputs(usage, stdout);
		return 0;
	}
	map_file_guard();
	if (argc >= 3 && strcmp(argv[1], "inspect") == 0)
		return model_inspect_command(argc, argv);
	if (argc >= 3 && strcmp(argv[1], "random") == 0)
		return model_random(argc, argv);
	if (argc >= 3 && strcmp(argv[1], "quantize") == 0)
		return model_quantize(argc, argv);
	if (argc >= 3 && strcmp(argv[1], "generate") == 0)
		return generate(argc, argv);
	if (argc >= 3 && strcmp(argv[1], "tokenize") == 0)
		return model_tokenize(argc, argv);
	if (argc >= 3 && strcmp(argv[1], "render") == 0)
		return model_render(argc - 2, argv + 2);
	fputs(usage, stderr);
	return CMD_EXIT_USAGE;
}
