/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice bench`: selects the measurement, and has the options and headers that all share.
 */
#include "cmd/bench/bench.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/beside.h"
#include "base/range.h"
#include "cmd/config/cmd.h"
#include "engine/model/model.h"
#include "version.h"

static const char usage[] =
    "usage: sluice bench machine [FILE] [--threads N] [--seconds S] [--repeat N] [--json]\n"
    "       sluice bench model FILE [--prompt N] [--tokens N] [--batch 1,2,4,8] [--threads N]\n"
    "              [--kv TYPE] [--weights FOLDER] [--repeat N] [--json]\n"
    "       sluice bench engine FILE [--scenario NAME] [--threads N] [--sequences N] [--step-tokens N]\n"
    "              [--itl-target MS] [--json]\n"
    "       sluice bench adapters FILE [--zipf N] [--streams N] [--adapters N] [--rank N] [--type TYPE] [--past N]\n"
    "              [--repeat N] [--threads N] [--json]\n"
    "       sluice bench speculation FILE [--draft FILE] [--head FILE] [--questions FILE] [--threads N]\n"
    "              [--rounds N] [--tokens N] [--max-draft N] [--json]\n"
    "       sluice bench constrained FILE [--streams N] [--tokens N] [--rounds N] [--threads N] [--json]\n"
    "       sluice bench coupling FILE --draft FILE [--temperature T] [--answers N] [--tokens N]\n"
    "              [--plain] [--json]\n"
    "       sluice bench ops [--op matmul|attention|rows] [--backend NAME] [--threads N] [--quick] [--json]\n"
    "       sluice bench ops|model MODEL --backend cuda [--kind NAME] [--adapters] [--loose] [--tiny]\n"
    "       sluice bench gpu PART [--backend NAME] [--model FILE] [--kind NAME] [--adapters] [--loose] [--tiny]\n"
    "       sluice bench serve URL [--key K] [--model NAME] [--connections C] [--streams S]\n"
    "              [--requests N] [--seconds T] [--rate R] [--arrivals poisson|even|gamma:SHAPE|burst:N]\n"
    "              [--prompt-tokens P] [--max-tokens T] [--mix WEIGHT:PROMPT:ANSWER,…] [--share N]\n"
    "              [--prefixes N] [--turns N] [--think S] [--trace FILE] [--speed F] [--temperature T]\n"
    "              [--tier-mix K1=WEIGHT,K2=WEIGHT] [--slo-ttft MS] [--slo-itl MS] [--slo-tpot MS]\n"
    "              [--slo-total MS] [--sweep] [--sweep-share PERCENT] [--plot FILE.svg] [--against FILE]\n"
    "              [--tolerance PERCENT] [--http1] [--whole] [--warmup] [--insecure] [--cacert FILE]\n"
    "              [--seed N] [--json]\n"
    "       sluice bench gateway [--load NAME] [--runs N] [--seconds S] [--quick] [--no-nginx] [--more FILE] [--json]\n"
    "       sluice bench cleanse [--json]\n"
    "       sluice bench store [--times N] [--json]\n"
    "       sluice bench cascade [--json]\n"
    "       sluice bench overload [FILE] [--seconds T] [--factor F] [--slots N] [--rate R] [--first-token MS]\n"
    "              [--target MS] [--prompt-tokens P] [--max-tokens T] [--peak-seconds T] [--threads N] [--json]\n"
    "       sluice bench pacing FILE [--paced N] [--unpaced N] [--share PERCENT] [--seconds T]\n"
    "              [--max-tokens T] [--json]\n"
    "       sluice bench grammar --cases FOLDER --tokenizer FILE [--only TEXT] [--list] [--seconds S]\n"
    "              [--megabytes N] [--json]\n"
    "\n"
    "machine   peak rates of this machine: memory reads, integer and floating-point products\n"
    "model     tokens per second of a model file for prompts and answers, relative to those peaks\n"
    "engine    the engine with scheduler and prefix tree. Scenarios: shared-prefix, no-sharing, long-prompt,\n"
    "          fair-share, fair-tiers, prediction, planning (default: all)\n"
    "adapters  steps of streams with low-rank adapters of their own, and prompts with one, compared with the same\n"
    "          without, and with what the adapters' bytes and multiply-adds cost at least\n"
    "speculation  drafts from the text, a small model, a layer that drafts (the model's own, or --head): steps and\n"
    "          time saved or lost. --questions: chats of a file's questions, lines of {\"question\": ...}\n"
    "constrained  streams held to schemas, compared with free ones: tokens per second of the step thread\n"
    "coupling  how often a draft model draws the token of its model, and the most that any rule allows\n"
    "ops       every operation for many shapes and weight types: correctness, share of its roofline\n"
    "gpu       a device's kernels and steps, one line each, for the table of tests/gpu/kit. ops and model with\n"
    "          a device as --backend do the same. A model may be random:SHAPE:TYPE (shapes and types of sluice\n"
    "          model random, and int4): its weights are generated on the device, without a file\n"
    "serve     a server under load: time to first token, time between tokens, throughput, goodput. --trace sends\n"
    "          recorded traffic: a file of log.requests, or lines of {\"at\": SECONDS, \"prompt_tokens\",\n"
    "          \"answer_tokens\"}. --sweep finds the highest rate at which 95 % of the requests are within the\n"
    "          targets, and draws it. --against compares with an earlier --json report; status 1: slower\n"
    "gateway   the gateway's own cost in front of the echo engine, compared with nginx if installed. Loads:\n"
    "          1000-5ms, 1000-20ms, 256-2ms, 256-20ms, 256-own, json, 1000-on-100, 10000-open, memory\n"
    "cleanse   cleansing of users' messages: bytes per second, compared with memcpy\n"
    "store     latency that Redis adds before a request's first token, compared with two PINGs\n"
    "cascade   nanoseconds of one score\n"
    "overload  a server (with the echo engine or a model file) under many times its capacity: goodput relative to\n"
    "          its peak, latency of refusals, accuracy of predicted waits, time to recover\n"
    "pacing    throughput that paced streams of a low tier take from unpaced streams of a high tier\n"
    "grammar   JSON schemas with instances (files of {\"schema\", \"tests\": [{\"valid\", \"data\"}]}): instances "
    "that\n"
    "          the masks judge correctly, reasons for refusals, processor time of masks\n";

void bench_header(void)
{
	char line[256], name[128] = "unknown processor";
	FILE *f = fopen("/proc/cpuinfo", "r");
	while (f != NULL && fgets(line, sizeof line, f) != NULL)
		if (sscanf(line, "model name : %127[^\n]", name) == 1)
			break;
	if (f != NULL)
		fclose(f);
	printf("%s, %ld processors; sluice %s\n", name, sysconf(_SC_NPROCESSORS_ONLN), SLUICE_VERSION);
}

static int out_of_range(const struct bench_option *o, const char *value)
{
	char range[80];
	return bench_complain(CMD_EXIT_USAGE, "%s must be %s, not %s", o->name,
			      range_of(o->lo, false, o->hi, range, sizeof range), value);
}

int bench_parse(int argc, char **argv, const struct bench_option *options, size_t n, const char **word)
{
	for (int i = 1; i < argc; i++) {
		const struct bench_option *o = NULL;
		for (size_t k = 0; k < n; k++)
			if (strcmp(argv[i], options[k].name) == 0)
				o = &options[k];
		if (o == NULL && argv[i][0] != '-' && word != NULL && *word == NULL) {
			*word = argv[i];
			continue;
		}
		if (o == NULL)
			return bench_complain(CMD_EXIT_USAGE, "%s: unknown option %s", argv[0], argv[i]);
		if (o->flag != NULL) {
			*o->flag = true;
			continue;
		}
		const char *value = ++i < argc ? argv[i] : NULL;
		if (value == NULL)
			return bench_complain(CMD_EXIT_USAGE, "%s needs a value", o->name);
		if (o->text != NULL) {
			*o->text = value;
			continue;
		}
		char *end;
		errno = 0;
		*o->number = strtod(value, &end);
		if (errno != 0 || end == value || *end != '\0' || !(*o->number >= o->lo && *o->number <= o->hi))
			return out_of_range(o, value);
	}
	return 0;
}

int bench_parse_model(int argc, char **argv, const struct bench_option *options, size_t n, const char **path,
		      struct model_info *out)
{
	struct sl_err err = {0};
	int rc = bench_parse(argc, argv, options, n, path);
	if (rc != 0)
		return rc;
	if (*path == NULL)
		return bench_complain(CMD_EXIT_USAGE, "%s needs a model file", argv[0]);
	return model_inspect(*path, out, &err) == 0 ? 0 : bench_complain(1, "%s", err.text);
}

int bench_list(const char *text, int most, int *out, int max)
{
	int n = 0;
	for (const char *at = text; *at != '\0';) {
		char *end;
		long v = strtol(at, &end, 10);
		if (end == at || v < 1 || v > most || n == max || (*end != ',' && *end != '\0'))
			return 0;
		out[n++] = (int)v;
		at = *end == ',' ? end + 1 : end;
	}
	return n;
}

int bench_run(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(int argc, char **argv);
	} commands[] = {{"machine", bench_machine},
			{"model", bench_model},
			{"engine", bench_engine},
			{"adapters", bench_adapters},
			{"speculation", bench_speculation},
			{"constrained", bench_constrained},
			{"coupling", bench_coupling},
			{"ops", bench_ops},
			{"gpu", bench_gpu},
			{"serve", bench_serve},
			{"gateway", bench_gateway},
			{"cleanse", bench_cleanse},
			{"store", bench_store},
			{"cascade", bench_cascade},
			{"overload", bench_overload},
			{"pacing", bench_pacing},
			{"grammar", bench_grammar}};
	if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		fputs(usage, stdout);
		return 0;
	}
	for (size_t i = 0; i < sizeof commands / sizeof *commands && argc >= 2; i++)
		if (strcmp(argv[1], commands[i].name) == 0)
			return commands[i].run(argc - 1, argv + 1);
	fputs(usage, stderr);
	return CMD_EXIT_USAGE;
}

const char *bench_server(void)
{
	static char path[PATH_MAX];
	if (path[0] == '\0' && (!beside_executable("sluice", path, sizeof path) || access(path, X_OK) != 0))
		snprintf(path, sizeof path, "sluice");
	return path;
}
