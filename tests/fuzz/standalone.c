/* SPDX-License-Identifier: Apache-2.0
 *
 * A main for fuzz targets without libFuzzer: all of them in one program, which the name it is called by selects.
 * FUZZ_TARGETS names them: T(fuzz_x) T(fuzz_y) ...; each was compiled with its two functions renamed fuzz_x_input and
 * fuzz_x_seed (run.sh).
 *
 *   fuzz_x FILE…          replays files (findings, a corpus)
 *   fuzz_x -seeds DIR     writes the seed corpus as files, for libFuzzer to begin with
 *   fuzz_x [-runs=N] [-seed=S]   N mutations of the seed corpus, the same for the same S
 *
 * An input that is at work is remembered; when it ends the process, it is written to crash-fuzz.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

enum { MAX_INPUT = 4096 };

#define T(name)                                          \
	int name##_input(const uint8_t *data, size_t n); \
	size_t name##_seed(size_t i, uint8_t *out, size_t max);
FUZZ_TARGETS
#undef T

static const struct target {
	const char *name;
	int (*input)(const uint8_t *data, size_t n);
	size_t (*seed)(size_t i, uint8_t *out, size_t max);
} targets[] = {
#define T(name) {#name, name##_input, name##_seed},
    FUZZ_TARGETS
#undef T
};

static const struct target *target; /* of this process */

static uint8_t input[MAX_INPUT];
static size_t input_n;

static uint64_t rng;

static uint64_t next(void)
{
	rng += 0x9E3779B97F4A7C15u;
	uint64_t z = rng;
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
	z = (z ^ z >> 27) * 0x94D049BB133111EBu;
	return z ^ z >> 31;
}

static void keep_input(int sig)
{
	int fd = open("crash-fuzz", O_CREAT | O_TRUNC | O_WRONLY, 0644);
	if (fd >= 0) {
		ssize_t n = write(fd, input, input_n);
		(void)n;
		close(fd);
	}
	signal(sig, SIG_DFL);
	raise(sig);
}

static size_t count_seeds(void)
{
	static uint8_t seed[MAX_INPUT];
	size_t n = 0;
	while (target->seed(n, seed, sizeof(seed)) > 0)
		n++;
	return n;
}

/* Bytes that parsers treat in a special way, and ends of ranges. */
static const uint8_t telling[] = {0,   1,   0x7F, 0x80, 0xFF, '\n', ' ', '"', '\'', '{',  '}',
				  '%', '<', '|',  '>',  '\\', ':',  '-', '0', 0xC3, 0xE2, 0xF0};

static size_t pick(size_t below) { return below ? (size_t)(next() % below) : 0; }

static void mutate(size_t n_seeds)
{
	static uint8_t other[MAX_INPUT];
	size_t at = pick(input_n), len;
	switch (next() % 6) {
	case 0:
		if (input_n > 0)
			input[at] ^= (uint8_t)(1u << pick(8));
		break;
	case 1:
		if (input_n > 0)
			input[at] = telling[pick(sizeof(telling))];
		break;
	case 2: /* insert */
		if (input_n < MAX_INPUT) {
			memmove(input + at + 1, input + at, input_n - at);
			input[at] = telling[pick(sizeof(telling))];
			input_n++;
		}
		break;
	case 3: /* delete */
		len = 1 + pick(input_n - at < 16 ? input_n - at : 16);
		if (input_n > 0 && len <= input_n - at) {
			memmove(input + at, input + at + len, input_n - at - len);
			input_n -= len;
		}
		break;
	case 4: /* repeat a part */
		len = pick(input_n - at < 64 ? input_n - at : 64);
		if (len > 0 && input_n + len <= MAX_INPUT) {
			memmove(input + at + len, input + at, input_n - at);
			input_n += len;
		}
		break;
	default: /* a part of another seed */
		len = target->seed(pick(n_seeds), other, sizeof(other));
		if (len > 0) {
			size_t from = pick(len), part = 1 + pick(len - from);
			if (part > MAX_INPUT - at)
				part = MAX_INPUT - at;
			memcpy(input + at, other + from, part);
			if (input_n < at + part)
				input_n = at + part;
		}
	}
}

static int run_mutations(long runs, uint64_t seed)
{
	size_t n_seeds = count_seeds();
	for (size_t i = 0; i < n_seeds; i++) {
		input_n = target->seed(i, input, sizeof(input));
		target->input(input, input_n);
	}
	rng = seed;
	for (long run = 0; run < runs; run++) {
		input_n = n_seeds ? target->seed(pick(n_seeds), input, sizeof(input)) : 0;
		for (size_t k = 1 + pick(12); k > 0; k--)
			mutate(n_seeds);
		/* A copy of the exact size, so that a sanitizer sees a read behind it. */
		uint8_t *copy = malloc(input_n ? input_n : 1);
		BUG_IF(copy == NULL, "no memory");
		memcpy(copy, input, input_n);
		target->input(copy, input_n);
		free(copy);
	}
	printf("%zu seeds, %ld mutations: no finding\n", n_seeds, runs);
	return 0;
}

static int write_seeds(const char *dir)
{
	for (size_t i = 0; (input_n = target->seed(i, input, sizeof(input))) > 0; i++) {
		char path[4096];
		snprintf(path, sizeof(path), "%s/seed-%zu", dir, i);
		FILE *f = fopen(path, "wb");
		if (f == NULL || fwrite(input, 1, input_n, f) != input_n || fclose(f) != 0) {
			perror(path);
			return 1;
		}
	}
	return 0;
}

static int replay(const char *path)
{
	FILE *f = fopen(path, "rb");
	if (f == NULL) {
		perror(path);
		return 1;
	}
	static uint8_t all[1 << 20];
	size_t n = fread(all, 1, sizeof(all), f);
	fclose(f);
	uint8_t *copy = malloc(n ? n : 1);
	BUG_IF(copy == NULL, "no memory");
	memcpy(copy, all, n);
	target->input(copy, n);
	free(copy);
	return 0;
}

static const struct target *find(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
	for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
		if (strcmp(targets[i].name, name) == 0)
			return &targets[i];
	return NULL;
}

int main(int argc, char **argv)
{
	target = find(argv[0]);
	if (target == NULL) {
		fprintf(stderr, "%s: no such target\n", argv[0]);
		return 2;
	}
	long runs = 2000;
	uint64_t seed = 1;
	int files = 0, failed = 0;
	signal(SIGABRT, keep_input);
	signal(SIGSEGV, keep_input);
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "-seeds") == 0 && i + 1 < argc)
			return write_seeds(argv[i + 1]);
		if (strncmp(argv[i], "-runs=", 6) == 0) {
			runs = strtol(argv[i] + 6, NULL, 10);
		} else if (strncmp(argv[i], "-seed=", 6) == 0) {
			seed = strtoull(argv[i] + 6, NULL, 10);
		} else {
			failed |= replay(argv[i]);
			files++;
		}
	}
	return files > 0 ? failed : run_mutations(runs, seed);
}
