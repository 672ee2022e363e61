/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/source/random_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"

static const char prefix[] = "random:";
enum { MOST_MATRICES = 1 << 14 };

bool random_source_names(const char *path) { return strncmp(path, prefix, sizeof prefix - 1) == 0; }

static bool is_end(const char *tensor)
{
	return strcmp(tensor, "token_embd.weight") == 0 || strcmp(tensor, "output.weight") == 0;
}

static void add(void *ctx, const struct random_matrix *x)
{
	struct random_source *s = ctx;
	if (s->n % 64 == 0 && !s->lacks_memory) {
		struct random_matrix *grown =
		    s->n < MOST_MATRICES ? sl_realloc_n(s->matrices, s->n + 64, sizeof *grown) : NULL;
		s->lacks_memory = grown == NULL;
		s->matrices = grown != NULL ? grown : s->matrices;
	}
	if (s->lacks_memory)
		return;
	s->matrices[s->n] = *x;
	if (x->type == KN_INT4 && is_end(x->name))
		s->matrices[s->n].type = KN_BF16;
	s->n++;
}

/* The part of a path from *at to the next colon or its end; false: it is empty or too long, or nothing follows that
 * colon. */
static bool part(const char **at, char *to, size_t size)
{
	const char *colon = strchr(*at, ':');
	size_t n = colon != NULL ? (size_t)(colon - *at) : strlen(*at);
	if (n == 0 || n >= size || (colon != NULL && colon[1] == '\0'))
		return false;
	memcpy(to, *at, n);
	to[n] = '\0';
	*at += n + (colon != NULL);
	return true;
}

static int parse(const char *path, struct random_model *m, struct sl_err *err)
{
	const char *at = path + sizeof prefix - 1;
	char shape[64], type[32], seed[32] = "", *end = NULL;
	if (!part(&at, shape, sizeof shape) || !part(&at, type, sizeof type) ||
	    (*at != '\0' && !part(&at, seed, sizeof seed)) || *at != '\0')
		return sl_errf(err, SL_EINVAL, "%.100s: not random:SHAPE:TYPE or random:SHAPE:TYPE:SEED", path);
	*m = (struct random_model){.path = path, .name = shape, .seed = 1, .n_threads = 1};
	if (seed[0] != '\0') {
		m->seed = strtoull(seed, &end, 10);
		if (seed[0] < '0' || seed[0] > '9' || *end != '\0')
			return sl_errf(err, SL_EINVAL, "%.100s: the seed is not a whole number", path);
	}
	int rc = random_shape_find(shape, &m->arch, err);
	if (rc == 0 && strcasecmp(type, "int4") == 0)
		m->plan = (struct weight_plan){KN_INT4, KN_INT4};
	else if (rc == 0)
		rc = weight_plan_parse(type, &m->plan, err);
	m->name = "random weights";
	return rc;
}

int random_source_open(const char *path, struct random_source **out, struct sl_err *err)
{
	struct random_model m;
	char at[64];
	int rc = parse(path, &m, err);
	if (rc != 0)
		return rc;
	struct random_source *s = sl_zalloc(sizeof *s);
	int fd = s != NULL ? memfd_create("sluice-random", MFD_CLOEXEC) : -1;
	if (fd < 0) {
		sl_free(s);
		return sl_errf(err, SL_ENOMEM, "%.100s: no memory", path);
	}
	rc = random_model_head(&m, fd, add, s, err);
	if (rc == 0 && s->lacks_memory)
		rc = sl_errf(err, SL_ENOMEM, "%.100s: no memory for its matrices", path);
	snprintf(at, sizeof at, "/proc/self/fd/%d", fd);
	if (rc == 0)
		rc = gguf_open(at, &s->head, err);
	close(fd);
	if (rc != 0) {
		random_source_close(s);
		return rc;
	}
	*out = s;
	return 0;
}

void random_source_close(struct random_source *s)
{
	if (s == NULL)
		return;
	gguf_close(s->head);
	sl_free(s->matrices);
	sl_free(s);
}
