/* SPDX-License-Identifier: Apache-2.0
 *
 * kit [--backend NAME] [--seconds N] [--dry] [--tests] [--only NAME,…] [FOLDER]
 * kit --figures FILE
 *
 * FOLDER has what was built (the program's own by default). cuda is the backend; --dry tries the kit on the emulation,
 * with shapes so small that the figures mean nothing and a few of the tests. --tests: no measurements. --only: these
 * parts. --figures: the table of figures that were measured before. Exit status 0: nothing failed; 1: something did;
 * 77: there is no device.
 */
#include "tests/gpu/kit/kit.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NO_DEVICE = 77, BUDGET_S = 585, PATIENCE = 20 };

#define KERNELS "tests/kernels/"
#define ENGINE "tests/unit/engine/core/"
#define TEST(name, folder, limit, dry)                               \
	{                                                            \
		name, limit, true, dry, false, folder name, { NULL } \
	}
#define GPU(name, limit, ...)                                                                             \
	{                                                                                                 \
		name, limit, false, true, false, "sluice-bench", { "gpu", __VA_ARGS__, "--backend", "@" } \
	}
#define MODEL(name, limit, model, kind)                                                    \
	{                                                                                  \
		name, limit, false, true, false, "sluice-bench",                           \
		{                                                                          \
			"gpu", "model", "--model", model, "--kind", kind, "--backend", "@" \
		}                                                                          \
	}

/* What is wrong makes the rest worthless: correctness first, and of that what needs the least. */
static const struct part parts[] = {
    TEST("test_ops", KERNELS, 25, false),
    TEST("test_encoder_ops", KERNELS, 10, false),
    TEST("test_experts", KERNELS, 15, false),
    TEST("test_attention", KERNELS, 20, false),
    TEST("test_types", KERNELS, 20, false),
    TEST("test_cuda_products", KERNELS, 20, false),
    TEST("test_cuda_attention", KERNELS, 20, false),
    TEST("test_recurrent_ops", KERNELS, 10, false),
    TEST("test_latent", KERNELS, 10, false),
    TEST("test_graphs", KERNELS, 15, true),
    TEST("test_sample", KERNELS, 15, false),
    TEST("test_library", KERNELS, 15, false),
    TEST("test_lora", KERNELS, 10, false),
    TEST("test_invariance", ENGINE, 40, false),
    TEST("test_engine_adapters", KERNELS, 15, false),
    TEST("test_golden", ENGINE, 15, false),
    TEST("test_families", ENGINE, 25, false),
    TEST("test_encoders", ENGINE, 10, false),
    TEST("test_weight_types", ENGINE, 15, false),
    GPU("copy", 10, "copy"),
    GPU("matrix", 15, "matrix"),
    GPU("matrix-fp8", 15, "matrix-fp8"),
    GPU("library", 15, "matrix", "--loose"),
    GPU("library-fp8", 12, "matrix-fp8", "--loose"),
    GPU("start", 15, "start"),
    GPU("rows", 10, "rows"),
    GPU("products", 30, "products"),
    GPU("products-fp8", 12, "products-fp8"),
    GPU("attention", 15, "attention"),
    GPU("sample", 10, "sample"),
    GPU("8b-bf16", 60, "model", "--model", "random:llama-3.1-8b:bf16", "--kind", "bf16", "--adapters"),
    MODEL("8b-fp8", 25, "random:llama-3.1-8b:bf16", "fp8"),
    MODEL("8b-int4", 25, "random:llama-3.1-8b:int4", "int4"),
    MODEL("8b-q4_0", 25, "random:llama-3.1-8b:q4_0", "q4_0"),
    GPU("1b-bf16", 30, "model", "--model", "random:llama-3.2-1b:bf16", "--kind", "1b", "--adapters"),
    {"8b-library",
     25,
     false,
     true,
     false,
     "sluice-bench",
     {"gpu", "model", "--model", "random:llama-3.1-8b:bf16", "--kind", "library", "--loose", "--backend", "@"}},
    {"torch", 60, false, false, true, "python3", {"tests/bench/gpu_peer.py"}},
};

enum { N_PARTS = sizeof parts / sizeof *parts };

/* The same part with a model that the emulation bears, and patience beside whatever else runs. */
static struct part made_tiny(const struct part *p)
{
	struct part t = *p;
	t.limit_s *= PATIENCE;
	for (int i = 0; i < MOST_ARGS && t.args[i] != NULL; i++) {
		if (strncmp(t.args[i], "random:", 7) == 0)
			t.args[i] = strstr(t.args[i], "int4") != NULL   ? "random:tiny-llama:int4"
				    : strstr(t.args[i], "q4_0") != NULL ? "random:tiny-llama:q4_0"
									: "random:tiny-llama:bf16";
	}
	return t;
}

/* 0, with one line about it; NO_DEVICE or 1, with the reason. */
static int find_device(const struct kit *k, char *line, int size)
{
	static const struct part probe = {"probe", 60, true, true, false, "tests/gpu/probe", {"%"}};
	char path[PATH_MAX];
	struct outcome o = part_run(k, &probe, probe.limit_s);
	snprintf(path, sizeof path, "%s/probe.txt", k->out);
	FILE *f = fopen(path, "r");
	if (f == NULL || fgets(line, size, f) == NULL)
		snprintf(line, (size_t)size, "the probe for a device failed: %s", o.why);
	if (f != NULL)
		fclose(f);
	line[strcspn(line, "\n")] = '\0';
	if (o.status == 0)
		return 0;
	return WIFEXITED(o.status) && WEXITSTATUS(o.status) == NO_DEVICE ? NO_DEVICE : 1;
}

/* Tests of the engine look for the backend beside them. True: to is a new link. */
static bool link_backend(const struct kit *k, char *to)
{
	char from[PATH_MAX];
	if (snprintf(from, sizeof from, "%s/libsluice-%s.so", k->folder, k->backend) >= (int)sizeof from ||
	    snprintf(to, PATH_MAX, "%s/" ENGINE "libsluice-%s.so", k->folder, k->backend) >= PATH_MAX)
		return false;
	if (symlink(from, to) == 0)
		return true;
	if (errno != EEXIST)
		fprintf(stderr, "kit: %s: %s\n", to, strerror(errno));
	return false;
}

static int usage(void)
{
	fprintf(stderr, "usage: kit [--backend NAME] [--seconds N] [--dry] [--tests] [--only NAME,…] [FOLDER]\n"
			"       kit --figures FILE\n");
	return 64;
}

/* The folder that this program is in, three levels below FOLDER: tests/gpu/kit. */
static bool own_folder(char *out)
{
	ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);
	if (n <= 0)
		return realpath(".", out) != NULL;
	out[n] = '\0';
	char *slash = strrchr(out, '/');
	*slash = '\0';
	if (strlen(out) > 10 && strcmp(out + strlen(out) - 10, "/tests/gpu") == 0)
		out[strlen(out) - 10] = '\0';
	return true;
}

/* Whether the name is among those with commas between them. */
static bool listed(const char *name, const char *list)
{
	size_t n = strlen(name);
	for (const char *at = list; at != NULL; at = strchr(at, ',')) {
		at += *at == ',';
		if (strncmp(at, name, n) == 0 && (at[n] == ',' || at[n] == '\0'))
			return true;
	}
	return false;
}

static bool wanted(const struct part *p, const struct kit *k, const char *only, bool tests)
{
	if (only != NULL)
		return listed(p->name, only);
	return (p->dry || !k->tiny) && (p->test || !tests);
}

static int print_figures(const char *path)
{
	const struct kit k = {.backend = "cuda"};
	char line[512];
	FILE *f = fopen(path, "r");
	if (f == NULL) {
		fprintf(stderr, "kit: %s: %s\n", path, strerror(errno));
		return 1;
	}
	while (fgets(line, sizeof line, f) != NULL)
		figure_note(line);
	fclose(f);
	return table_print(&k, NULL, 0) > 0 ? 1 : 0;
}

static int run_all(struct kit *k, const char *only, bool tests)
{
	static struct outcome all[N_PARTS];
	static struct part tiny[N_PARTS];
	double begin = now_s();
	size_t n = 0;
	for (size_t i = 0; i < N_PARTS; i++) {
		tiny[i] = k->tiny ? made_tiny(&parts[i]) : parts[i];
		if (!wanted(&parts[i], k, only, tests))
			continue;
		all[n] = part_run(k, &tiny[i], begin + k->budget_s - now_s());
		fprintf(stderr, "%-20s %5.1f s  %s\n", parts[i].name, all[n].seconds, all[n].why);
		n++;
	}
	int short_of = table_print(k, all, n);
	printf("\n%.0f s of %d. What each part said is in %s.\n", now_s() - begin, k->budget_s, k->out);
	return short_of;
}

struct options {
	const char *folder, *only, *figures;
	bool tests;
};

/* 0: it is no such number. */
static int seconds_of(const char *text)
{
	char *end;
	long n = strtol(text, &end, 10);
	return *end == '\0' && n > 0 && n <= 86400 ? (int)n : 0;
}

/* False: that is no way to call it. */
static bool parse(int argc, char **argv, struct kit *k, struct options *o)
{
	for (int i = 1; i < argc && argv[i] != NULL; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : NULL;
		if (strcmp(argv[i], "--dry") == 0)
			k->tiny = true;
		else if (strcmp(argv[i], "--tests") == 0)
			o->tests = true;
		else if (strcmp(argv[i], "--backend") == 0 && value != NULL)
			k->backend = argv[++i];
		else if (strcmp(argv[i], "--only") == 0 && value != NULL)
			o->only = argv[++i];
		else if (strcmp(argv[i], "--figures") == 0 && value != NULL)
			o->figures = argv[++i];
		else if (strcmp(argv[i], "--seconds") == 0 && value != NULL && seconds_of(value) > 0)
			k->budget_s = seconds_of(argv[++i]);
		else if (argv[i][0] != '-' && o->folder == NULL)
			o->folder = argv[i];
		else
			return false;
	}
	if (k->tiny && strcmp(k->backend, "cuda") == 0)
		k->backend = "cuda-emulated";
	if (k->budget_s == 0)
		k->budget_s = k->tiny ? PATIENCE * BUDGET_S : BUDGET_S;
	return true;
}

static bool complain(const char *what)
{
	fprintf(stderr, "kit: %s: %s\n", what, strerror(errno));
	return false;
}

/* Where everything is, and what programs find in their environment. */
static bool prepare(struct kit *k, const char *given)
{
	static char folder[PATH_MAX], out[PATH_MAX + 16], lib[PATH_MAX + 16], path[2 * PATH_MAX];
	if (given != NULL ? realpath(given, folder) == NULL : !own_folder(folder))
		return complain(given != NULL ? given : "its own folder");
	snprintf(out, sizeof out, "%s/kit-out", folder);
	snprintf(lib, sizeof lib, "%s/lib", folder);
	k->folder = folder;
	k->out = out;
	if (mkdir(out, 0755) != 0 && errno != EEXIST)
		return complain(out);
	k->libraries = getenv("LD_LIBRARY_PATH"); /* the vendor's may be there */
	if (access(lib, R_OK) == 0) {             /* an archive, with what tests read of the repository */
		snprintf(path, sizeof path, "%s%s%s", lib, k->libraries != NULL ? ":" : "",
			 k->libraries != NULL ? k->libraries : "");
		setenv("LD_LIBRARY_PATH", path, 1);
		if (chdir(folder) != 0)
			return complain(folder);
	}
	setenv("TMPDIR", out, 1); /* there may be no other */
	setenv("SLUICE_TEST_BACKEND", k->backend, 1);
	setenv("CMOCKA_MESSAGE_OUTPUT", "TAP", 1);
	return true;
}

int main(int argc, char **argv)
{
	static char link[PATH_MAX], device[200];
	struct kit k = {.backend = "cuda"};
	struct options o = {0};
	if (!parse(argc, argv, &k, &o))
		return usage();
	if (o.figures != NULL)
		return print_figures(o.figures);
	if (!prepare(&k, o.folder))
		return 1;
	int none = find_device(&k, device, sizeof device);
	printf("%s\n", device);
	if (none != 0)
		return none;
	putchar('\n');
	fflush(stdout);
	bool linked = link_backend(&k, link);
	int short_of = run_all(&k, o.only, o.tests);
	if (linked)
		unlink(link);
	return short_of > 0 ? 1 : 0;
}
