/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/model/model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/config/cmd.h"
#include "engine/file/map_file.h"

static const char usage[] =
    "usage: sluice model inspect FILE [--json] [--keys] [--tensors]\n"
    "       sluice model random --shape NAME [--type TYPE] [--seed N] [--context N]\n"
    "              [--tokenizer FILE] [--name TEXT] [--threads N] [--force] OUT\n"
    "       sluice model quantize FILE --type TYPE OUT [--calibrate FILE] [--threads N]\n"
    "              [--force] [--requantize]\n"
    "       sluice model generate FILE --prompt TEXT [--system TEXT] [--tokens N]\n"
    "              [--temperature T] [--seed S] [--raw] [--json] [--ids] [--logprobs [K]]\n"
    "              [--prompt-logprobs K] [SAMPLING] [--n N] [--best-of N]\n"
    "              [--beam WIDTH] [--length-penalty X] [--backend NAME] [--threads N]\n"
    "              [--quantize TYPE] [--kv-type TYPE] [--adapter ADAPTER]\n"
    "       sluice model generate FILE --batch [SAMPLING] [--backend NAME] [--threads N]\n"
    "              [--quantize TYPE] [--kv-type TYPE] [--adapter ADAPTER]\n"
    "       sluice model tokenize FILE [--decode] [--lines] [--trusted] [--cleanse LEVEL]\n"
    "       sluice model render FILE [CHAT] [--no-generation-prompt]\n"
    "       sluice model adapter inspect ADAPTER [--base FILE] [--json]\n"
    "       sluice model adapter merge FILE ADAPTER --type TYPE OUT [--threads N] [--force]\n"
    "       sluice model adapter make FILE OUT [--rank N[,TARGET=N…]] [--alpha X[,TARGET=X…]]\n"
    "              [--targets LIST] [--rslora] [--type TYPE] [--seed N] [--force]\n"
    "       sluice model compare A B [--text FILE] [--tasks FILE] [--match exact|prefix|words]\n"
    "              [--raw] [--tokens N] [--block N] [--kv-a TYPE] [--kv-b TYPE]\n"
    "              [--kv-rotation-a auto|on|off] [--kv-rotation-b auto|on|off]\n"
    "              [--adapter-a ADAPTER] [--adapter-b ADAPTER] [--quantize-a TYPE]\n"
    "              [--quantize-b TYPE] [--backend NAME] [--threads N] [--json]\n"
    "\n"
    "FILE is a GGUF file (any part of a split one) or a Hugging Face folder.\n"
    "SAMPLING: --top-k K, --top-p P, --min-p P, --typical P, --repetition-penalty R,\n"
    "          --presence-penalty X, --frequency-penalty X, --min-tokens N, and as often as needed\n"
    "          --logit-bias ID=B, --stop TEXT, --stop-id ID\n"
    "\n"
    "inspect   prints architecture and memory needs, and whether this build can run the model.\n"
    "          --keys lists the metadata, --tensors the tensors\n"
    "random    writes a GGUF file with random weights in the shape of a real model (llama-3.2-1b,\n"
    "          qwen3-4b, …; an unknown NAME lists all). TYPE is a weight type (q8_0, q4_k_m, …). The\n"
    "          vocabulary is made up, or that of the GGUF file after --tokenizer\n"
    "quantize  writes a GGUF file of the same model with weights of TYPE. Matrices of four bits\n"
    "          keep them, and it says what they would lose; --requantize converts them too.\n"
    "          --calibrate: the model reads the text FILE (as compare's; some 1,000 documents are\n"
    "          enough), and weights are rounded so that errors of outputs, not of weights, are least\n"
    "          random and quantize write OUT.partial-PID and rename it when it is complete; a signal\n"
    "          removes it (SIGKILL does not). --force replaces an existing OUT, but never FILE\n"
    "generate  answers TEXT as a chat message (--raw continues TEXT as is). --logprobs lists the\n"
    "          answer's tokens, each with its K likeliest alternatives; --prompt-logprobs lists the\n"
    "          prompt's; --json (or --ids) prints one line of JSON instead. --batch reads lines of\n"
    "          JSON from standard input, {\"id\":…, \"messages\":[…], \"tools\":[…],\n"
    "          \"max_tokens\":…, \"temperature\":…, \"seed\":…} (\"prompt\":\"…\" instead of messages\n"
    "          for plain text),\n"
    "          runs them in parallel and prints one line of JSON as each one finishes\n"
    "tokenize  converts text on standard input to a JSON array of ids; --decode converts ids to text.\n"
    "          --lines: each line is a JSON string (or an array of ids). --trusted: control tokens in\n"
    "          the text are recognized. --cleanse off|light|full: cleanses it like a user's message.\n"
    "          FILE may also be a tokenizer.json or a SentencePiece tokenizer.model\n"
    "render    applies a chat template and prints the prompt. The chat is {\"messages\":[…],\n"
    "          \"tools\":[…], \"chat_template_kwargs\":{…}} on standard input or in the file CHAT. FILE\n"
    "          is a GGUF or .jinja file, a tokenizer_config.json or a model folder\n"
    "adapter   ADAPTER is a PEFT folder or a GGUF adapter (LoRA). inspect prints its targets, ranks,\n"
    "          scales and bytes, with --base whether it fits. merge writes the model FILE with the\n"
    "          adapter added to its weights. make writes a random adapter for FILE, for tests: a GGUF\n"
    "          file if OUT ends in .gguf, else a folder. LIST: of q, k, v, o, gate, up, down (these\n"
    "          are made without it), embed, head, and of mixtures' shared_gate, shared_up,\n"
    "          shared_down, expert_gate, expert_up, expert_down\n"
    "compare   whether model B is as good as model A, which may be the same file with other keys and\n"
    "          values or weights, or with an adapter. --text: perplexity, the share of positions\n"
    "          with the same likeliest token and the KL divergence, over pieces of --block tokens\n"
    "          (512). In a .jsonl file each line is a document: {\"text\":…}, {\"prompt\":…,\n"
    "          \"text\":…}, of which the text counts, or {\"messages\":[…]}, of which the last one\n"
    "          counts. --tasks: right answers to lines of {\"prompt\":…, \"answer\":…} or\n"
    "          {\"messages\":[…], \"answer\":[…]}, greedily, of --tokens at most (256): equal to an\n"
    "          accepted answer, beginning with one, or having one as whole words (--match). --raw:\n"
    "          prompts are no chat messages. Every figure has its standard error, by documents,\n"
    "          blocks or tasks, and a verdict at the 95 % level with the difference that this many\n"
    "          would find\n";

int model_read(const char *path, size_t most, struct sl_buf *out, struct sl_err *err)
{
	enum { CHUNK = 65536 };
	const char *name = path != NULL ? path : "standard input";
	FILE *f = path != NULL ? fopen(path, "rb") : stdin;
	buf_init(out, most);
	if (f == NULL)
		return sl_errf(err, errno == ENOENT ? SL_ENOTFOUND : SL_EIO, "%s: %s", name, strerror(errno));
	int rc;
	size_t n;
	uint8_t *at;
	do {
		rc = buf_reserve(out, CHUNK, &at);
		n = rc == 0 ? fread(at, 1, CHUNK, f) : 0;
		buf_commit(out, n);
	} while (n > 0);
	if (rc == SL_ELIMIT)
		sl_errf(err, rc, "%s has more than %zu bytes", name, most);
	else if (rc != 0 || ferror(f))
		rc = sl_errf(err, rc != 0 ? rc : SL_EIO, "%s: %s", name, rc != 0 ? sl_code_name(rc) : strerror(errno));
	if (path != NULL)
		fclose(f);
	return rc;
}

bool model_ends_with(const char *path, const char *end)
{
	size_t n = strlen(path), k = strlen(end);
	return n >= k && strcmp(path + n - k, end) == 0;
}

int model_finish_output(void)
{
	if (fflush(stdout) != 0 || ferror(stdout))
		return model_complain(1, "standard output: %s", strerror(errno));
	return 0;
}

int model_print_json(json_t *value)
{
	char *text = json_dumps(value, JSON_INDENT(2));
	json_decref(value);
	if (text == NULL)
		return model_complain(1, "out of memory");
	puts(text);
	free(text);
	return 0;
}

int cmd_model(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(int argc, char **argv);
	} actions[] = {{"inspect", model_inspect_command},   {"random", model_random},     {"quantize", model_quantize},
		       {"generate", model_generate_command}, {"tokenize", model_tokenize}, {"render", model_render},
		       {"adapter", model_adapter},           {"compare", model_compare}};
	if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		fputs(usage, stdout);
		return 0;
	}
	map_file_guard();
	for (size_t i = 0; i < sizeof actions / sizeof *actions && argc >= 3; i++)
		if (strcmp(argv[1], actions[i].name) == 0)
			return actions[i].run(argc, argv);
	fputs(usage, stderr);
	return CMD_EXIT_USAGE;
}
