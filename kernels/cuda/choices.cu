/* SPDX-License-Identifier: Apache-2.0
 *
 * Remembers which implementation computes which product (library.h), in memory and in a file, so that later starts
 * need not measure again. Host code.
 *
 * The file is text: a magic line, the key, then one line per choice: type, n_out, n_in, rows, implementation (0 the
 * library, 1 the kernels here, 2 the library with FP8), eight words in hexadecimal. The file is untrusted: lines with
 * numbers out of bounds are ignored.
 */
#include "kernels/cuda/device/library.h"
#include "kernels/cuda/packed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LINE = 512, PATH = 4096, MOST_LINES = 4 * KN_MAX_CHOICES, MOST_TYPE = 1 << 20, MOST_SIDE = 1 << 30 };

enum maker { LIBRARY, OWN, LIBRARY_FP8 };

static const char magic[] = "sluice products 1";

struct kn_choice *kn_choices_find(struct kn_choices *c, int type, int n_out, int n_in, int rows)
{
	for (int i = 0; i < c->n; i++) {
		struct kn_choice *one = &c->all[i];
		if (one->type == type && one->n_out == n_out && one->n_in == n_in && one->rows == rows)
			return one;
	}
	return NULL;
}

bool kn_choices_put(struct kn_choices *c, const struct kn_choice *one)
{
	struct kn_choice *at = kn_choices_find(c, one->type, one->n_out, one->n_in, one->rows);
	if (at == NULL && c->n == KN_MAX_CHOICES)
		return false;
	if (at == NULL)
		at = &c->all[c->n++];
	*at = *one;
	return true;
}

/* Reads the next number of a line, at most `most`. */
static bool number(const char **at, int base, uint64_t most, uint64_t *out)
{
	char *end;
	while (**at == ' ')
		++*at;
	if (!((**at >= '0' && **at <= '9') || (base == 16 && **at >= 'a' && **at <= 'f')))
		return false;
	errno = 0;
	unsigned long long v = strtoull(*at, &end, base);
	if (errno != 0 || v > most)
		return false;
	*at = end;
	*out = v;
	return true;
}

static bool parse(const char *line, struct kn_choice *c)
{
	uint64_t v[5], word;
	static const uint64_t most[5] = {MOST_TYPE, MOST_SIDE, MOST_SIDE, MOST_SIDE, LIBRARY_FP8};
	for (int i = 0; i < 5; i++)
		if (!number(&line, 10, most[i], &v[i]) || (i > 0 && i < 4 && v[i] == 0))
			return false;
	if (v[4] == LIBRARY_FP8 && v[0] != KN_CUDA_FP8)
		return false;
	*c = {(int32_t)v[0], (int32_t)v[1], (int32_t)v[2], (int32_t)v[3], v[4] == OWN, v[4] == LIBRARY_FP8, {}, 0};
	for (int i = 0; i < DEV_ALGO_WORDS; i++) {
		if (!number(&line, 16, UINT64_MAX, &word))
			return false;
		c->algo.word[i] = word;
	}
	return *line == '\0';
}

/* Reads a line without its newline. False: no more lines, or a line is too long, which ends the reading. */
static bool get_line(FILE *f, char *line)
{
	if (fgets(line, LINE, f) == NULL)
		return false;
	size_t n = strlen(line);
	if (n == 0 || line[n - 1] != '\n')
		return false;
	line[n - 1] = '\0';
	return true;
}

void kn_choices_load(struct kn_choices *c, const char *path, const char *key)
{
	char line[LINE];
	struct kn_choice one;
	FILE *f = fopen(path, "re");
	if (f == NULL)
		return;
	bool mine = get_line(f, line) && strcmp(line, magic) == 0 && get_line(f, line) && strcmp(line, key) == 0;
	for (int i = 0; mine && i < MOST_LINES && get_line(f, line); i++)
		if (parse(line, &one) && kn_choices_find(c, one.type, one.n_out, one.n_in, one.rows) == NULL)
			(void)kn_choices_put(c, &one);
	(void)fclose(f);
}

static bool write_all(FILE *f, const struct kn_choices *c, const char *key)
{
	bool good = fprintf(f, "%s\n%s\n", magic, key) > 0;
	for (int i = 0; i < c->n && good; i++) {
		const struct kn_choice *o = &c->all[i];
		good = fprintf(f, "%d %d %d %d %d", o->type, o->n_out, o->n_in, o->rows,
			       o->own   ? OWN
			       : o->fp8 ? LIBRARY_FP8
					: LIBRARY) > 0;
		for (int w = 0; w < DEV_ALGO_WORDS && good; w++)
			good = fprintf(f, " %llx", (unsigned long long)o->algo.word[w]) > 0;
		good = good && fputc('\n', f) != EOF;
	}
	return good;
}

int kn_choices_save(struct kn_choices *c, const char *path, const char *key)
{
	char made[PATH];
	kn_choices_load(c, path, key);
	int n = snprintf(made, sizeof made, "%s.%ld.new", path, (long)getpid());
	if (n < 0 || n >= (int)sizeof made)
		return SL_EIO;
	FILE *f = fopen(made, "we");
	if (f == NULL)
		return SL_EIO;
	bool good = write_all(f, c, key);
	good = fclose(f) == 0 && good;
	if (good && rename(made, path) == 0)
		return 0;
	(void)unlink(made);
	return SL_EIO;
}
