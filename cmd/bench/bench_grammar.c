/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice bench grammar`: checks schemas and instances in a folder, like MaskBench of JSONSchemaBench. An instance is
 * written as compact JSON, tokenized and walked mask by mask: a valid instance must be accepted to its end, an
 * invalid one refused at some token. Cases run in a process beside, so a crash or an endless case affects only itself.
 */
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/percentile.h"
#include "cmd/bench/bench.h"
#include "cmd/bench/grammar_case.h"
#include "cmd/config/cmd.h"
#include "engine/grammar/grammar.h"
#include "engine/token/tokenizer.h"

enum { MAX_FILE = 64 << 20, MAX_MASKS = 1 << 18, MAX_REASONS = 400, REASON_SHOWN = 100 };

struct reason {
	char text[REASON_SHOWN];
	size_t n;
};

enum { NAME_SHOWN = 200 };

/* worst: the case with the greatest of the values. */
struct figures {
	double *values, most;
	size_t n, cap;
	char worst[NAME_SHOWN];
};

struct bench {
	const char *folder;
	struct tokenizer *t;
	struct grammar_vocab *v;
	double seconds, megabytes;
	bool list, json;
	size_t cases, passing, refused, crashed, late, wrong_cases, instances;
	size_t wrong_accept, wrong_refuse;
	struct reason reasons[MAX_REASONS];
	size_t n_reasons;
	struct figures masks, firsts, slices; /* slices: the longest of each case */
};

/* ---- figures ---- */

static void add_figure(struct figures *f, double v, const char *name)
{
	if (f->n == f->cap) {
		double *grown = sl_realloc_n(f->values, f->cap * 2 + 1024, sizeof *grown);
		if (grown == NULL)
			return;
		f->values = grown;
		f->cap = f->cap * 2 + 1024;
	}
	f->values[f->n++] = v;
	if (v <= f->most)
		return;
	f->most = v;
	snprintf(f->worst, sizeof f->worst, "%s", name);
}

static double mean(const struct figures *f)
{
	double sum = 0;
	for (size_t i = 0; i < f->n; i++)
		sum += f->values[i];
	return f->n > 0 ? sum / (double)f->n : 0;
}

static void show_figures(const char *name, struct figures *f, bool json)
{
	double m = mean(f), p[4] = {50, 90, 99, 100};
	for (int i = 0; i < 4; i++)
		p[i] = percentile(f->values, f->n, p[i]);
	if (json)
		printf(",\"%s\":{\"n\":%zu,\"mean_us\":%.2f,\"p50_us\":%.2f,\"p90_us\":%.2f,\"p99_us\":%.2f,"
		       "\"worst_us\":%.2f}",
		       name, f->n, m, p[0], p[1], p[2], p[3]);
	else
		printf("%-12s %9zu %10.1f %10.1f %10.1f %10.1f %12.1f  %s\n", name, f->n, m, p[0], p[1], p[2], p[3],
		       f->worst);
}

/* Counts a reason by the end of its message; messages may differ in their JSON pointers. */
static void count_reason(struct bench *b, const char *text)
{
	const char *colon = strstr(text, ": ");
	char key[REASON_SHOWN] = "";
	const char *slash = colon != NULL ? colon : text;
	while (slash > text && slash[-1] != '/')
		slash--;
	snprintf(key, sizeof key, "%.*s", REASON_SHOWN - 1, colon != NULL ? slash : text);
	size_t i = 0;
	while (i < b->n_reasons && strcmp(b->reasons[i].text, key) != 0)
		i++;
	if (i == MAX_REASONS)
		return;
	b->n_reasons += i == b->n_reasons;
	memcpy(b->reasons[i].text, key, sizeof key);
	b->reasons[i].n++;
}

static int by_count(const void *a, const void *b)
{
	const struct reason *x = a, *y = b;
	return x->n > y->n ? -1 : x->n < y->n ? 1 : strcmp(x->text, y->text);
}

/* ---- cases in a process beside ---- */

/* One process runs case after case, as a server would, so a mask does not pay for the pages of a fresh process. It ends
 * with the case that crashes, takes too long or too much memory, and the next case begins another. */
struct runner {
	pid_t pid; /* 0: none */
	int fd;
};

struct frame {
	uint32_t n_times; /* follow, after the outcome */
	bool readable;    /* the file has the form of a case */
	struct grammar_outcome out;
};

static void write_all(int fd, const void *data, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t w = write(fd, (const char *)data + done, n - done);
		if (w <= 0)
			_exit(3);
		done += (size_t)w;
	}
}

/* borrows: the case from *text. */
static bool read_case(const struct bench *b, const char *name, struct sl_buf *text, struct grammar_case *c)
{
	char path[4096];
	struct sl_err err;
	snprintf(path, sizeof path, "%s/%s", b->folder, name);
	if (file_read(path, MAX_FILE, text, &err) != 0)
		return bench_complain(false, "%s: %s", path, err.text);
	if (grammar_case_read((const char *)buf_data(text), text->len, c))
		return true;
	return bench_complain(false, "%s does not have the form {\"schema\", \"tests\": [{\"valid\", \"data\"}]}",
			      path);
}

/* Another b->seconds of processor time from now on. */
static void allow_time(const struct bench *b)
{
	struct timespec used;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	struct rlimit cpu = {(rlim_t)used.tv_sec + (rlim_t)b->seconds + 1, RLIM_INFINITY};
	setrlimit(RLIMIT_CPU, &cpu);
}

static void runner_main(struct bench *b, struct dirent *const *names, int n, int fd)
{
	struct rlimit memory = {(rlim_t)(b->megabytes * 1e6), (rlim_t)(b->megabytes * 1e6)};
	uint32_t *times = sl_zalloc_n(MAX_MASKS, sizeof *times);
	setrlimit(RLIMIT_AS, &memory);
	if (times == NULL)
		_exit(3);
	for (int i = 0; i < n; i++) {
		struct sl_buf text;
		struct grammar_case c = {0};
		struct frame f = {0};
		allow_time(b);
		buf_init(&text, MAX_FILE);
		f.readable = read_case(b, names[i]->d_name, &text, &c);
		if (f.readable)
			grammar_case_run(&c, b->v, b->t, &f.out, times, MAX_MASKS);
		f.n_times = f.out.n_masks;
		write_all(fd, &f, sizeof f);
		write_all(fd, times, f.n_times * sizeof *times);
		grammar_case_dispose(&c);
		buf_dispose(&text);
	}
	_exit(0);
}

static bool runner_start(struct runner *r, struct bench *b, struct dirent *const *names, int n)
{
	int fds[2];
	if (pipe(fds) != 0)
		return false;
	fflush(stdout);
	r->pid = fork();
	if (r->pid == 0) {
		close(fds[0]);
		runner_main(b, names, n, fds[1]);
	}
	close(fds[1]);
	r->fd = fds[0];
	if (r->pid > 0)
		return true;
	close(fds[0]);
	r->pid = 0;
	return false;
}

/* True: it was too slow. */
static bool runner_end(struct runner *r, bool kills)
{
	int status = 0;
	if (kills)
		kill(r->pid, SIGKILL);
	waitpid(r->pid, &status, 0);
	close(r->fd);
	r->pid = 0;
	return kills || (WIFSIGNALED(status) && (WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL));
}

enum end { ENDED, CRASHED, LATE };

static enum end receive_bytes(struct bench *b, int fd, void *out, size_t n)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	for (size_t done = 0; done < n;) {
		if (poll(&p, 1, (int)(b->seconds * 2000)) <= 0)
			return LATE;
		ssize_t got = read(fd, (char *)out + done, n - done);
		if (got <= 0)
			return CRASHED;
		done += (size_t)got;
	}
	return ENDED;
}

/* times: [MAX_MASKS]. */
static enum end receive(struct bench *b, struct runner *r, struct frame *f, uint32_t *times)
{
	enum end end = receive_bytes(b, r->fd, f, sizeof *f);
	if (end == ENDED)
		end = f->n_times <= MAX_MASKS ? receive_bytes(b, r->fd, times, f->n_times * sizeof *times) : CRASHED;
	if (end != ENDED)
		end = runner_end(r, end == LATE) ? LATE : CRASHED;
	return end;
}

static void show_wrong(struct bench *b, const char *name, const struct grammar_outcome *o)
{
	struct sl_buf file;
	struct grammar_case c = {0};
	buf_init(&file, MAX_FILE);
	if (!read_case(b, name, &file, &c)) {
		buf_dispose(&file);
		return;
	}
	const struct grammar_instance *i = &c.instances[o->first_wrong];
	uint32_t at = o->refused_at < i->text.len ? o->refused_at : i->text.len;
	uint32_t from = at > 60 ? at - 60 : 0, to = at + 40 < i->text.len ? at + 40 : i->text.len;
	const char *text = (const char *)buf_data(&i->text);
	printf("%s: wrongly %s, instance %d: …%.*s⟪%.*s %s\n", name, i->valid ? "refused" : "accepted", o->first_wrong,
	       (int)(at - from), text + from, (int)(to - at), text + at, o->reason);
	grammar_case_dispose(&c);
	buf_dispose(&file);
}

static void take_outcome(struct bench *b, const char *name, const struct frame *f, const uint32_t *times)
{
	const struct grammar_outcome *o = &f->out;
	b->instances += o->n_instances;
	if (o->rc != 0) {
		b->refused++;
		count_reason(b, o->reason);
		if (b->list)
			printf("%s: refused: %s\n", name, o->reason);
		return;
	}
	add_figure(&b->firsts, (double)o->first_mask_ns / 1e3, name);
	add_figure(&b->slices, (double)o->slice_ns / 1e3, name);
	for (size_t i = 0; i < f->n_times; i++)
		add_figure(&b->masks, times[i] / 1e3, name);
	b->wrong_accept += o->wrong_accept;
	b->wrong_refuse += o->wrong_refuse;
	b->passing += o->first_wrong < 0;
	b->wrong_cases += o->first_wrong >= 0;
	if (o->first_wrong >= 0 && b->list)
		show_wrong(b, name, o);
	if (b->list && o->first_mask_ns > 20000000)
		printf("%s: slow: %.0f ms to the first mask\n", name, (double)o->first_mask_ns / 1e6);
}

static void run_cases(struct bench *b, struct dirent *const *names, int n)
{
	struct runner r = {0};
	uint32_t *times = sl_zalloc_n(MAX_MASKS, sizeof *times);
	for (int i = 0; i < n && times != NULL; i++) {
		struct frame f;
		if (r.pid == 0 && !runner_start(&r, b, names + i, n - i)) {
			bench_complain(1, "can't start a process");
			break;
		}
		enum end end = receive(b, &r, &f, times);
		b->cases++;
		b->crashed += end == CRASHED;
		b->late += end == LATE;
		if (end == ENDED && f.readable)
			take_outcome(b, names[i]->d_name, &f, times);
		else if (end != ENDED && b->list)
			printf("%s: %s\n", names[i]->d_name, end == LATE ? "too slow" : "crashed");
	}
	if (r.pid != 0)
		runner_end(&r, false);
	sl_free(times);
}

static int is_case(const struct dirent *d)
{
	size_t n = strlen(d->d_name);
	return n > 5 && strcmp(d->d_name + n - 5, ".json") == 0;
}

static void show(struct bench *b)
{
	qsort(b->reasons, b->n_reasons, sizeof *b->reasons, by_count);
	if (b->json) {
		printf(
		    "{\"cases\":%zu,\"passing\":%zu,\"instances\":%zu,\"wrongly_accepted\":%zu,\"wrongly_refused\":%zu,"
		    "\"refused_at_compile_time\":%zu,\"crashes\":%zu,\"timeouts\":%zu,\"n_vocab\":%d",
		    b->cases, b->passing, b->instances, b->wrong_accept, b->wrong_refuse, b->refused, b->crashed,
		    b->late, tokenizer_n_vocab(b->t));
		show_figures("mask", &b->masks, true);
		show_figures("first_mask", &b->firsts, true);
		show_figures("slice", &b->slices, true);
		printf("}\n");
		return;
	}
	printf("\nschemas %zu, passing %zu (%.2f %%); instances %zu, wrongly accepted %zu, wrongly refused %zu (in %zu "
	       "schemas)\n"
	       "refused at compile time %zu, crashes %zu, too slow %zu; vocabulary %d\n",
	       b->cases, b->passing, b->cases > 0 ? 100.0 * (double)b->passing / (double)b->cases : 0, b->instances,
	       b->wrong_accept, b->wrong_refuse, b->wrong_cases, b->refused, b->crashed, b->late,
	       tokenizer_n_vocab(b->t));
	for (size_t i = 0; i < b->n_reasons; i++)
		printf("%8zu  %s\n", b->reasons[i].n, b->reasons[i].text);
	printf("\nus, thread     number       mean        p50        p90        p99        worst\n");
	show_figures("mask", &b->masks, false);
	show_figures("first mask", &b->firsts, false);
	show_figures("slice", &b->slices, false);
}

static int run_all(struct bench *b, const char *only)
{
	struct dirent **names;
	int n = scandir(b->folder, &names, is_case, alphasort);
	if (n < 0)
		return bench_complain(1, "can't read %s", b->folder);
	int n_left = 0;
	for (int i = 0; i < n; i++) {
		if (only == NULL || strstr(names[i]->d_name, only) != NULL)
			names[n_left++] = names[i];
		else
			free(names[i]);
	}
	run_cases(b, names, n_left);
	for (int i = 0; i < n_left; i++)
		free(names[i]);
	free(names);
	show(b);
	return 0;
}

static int open_tokenizer(const char *path, struct tokenizer **out, struct sl_err *err)
{
	size_t n = strlen(path);
	if (n > 5 && strcmp(path + n - 5, ".json") == 0) {
		struct sl_buf text;
		int rc = file_read(path, MAX_FILE, &text, err);
		if (rc == 0)
			rc = tokenizer_create_json((const char *)buf_data(&text), text.len, NULL, 0, out, err);
		buf_dispose(&text);
		return rc;
	}
	struct gguf *g;
	int rc = gguf_open(path, &g, err);
	if (rc != 0)
		return rc;
	rc = tokenizer_create(g, out, err);
	gguf_close(g);
	return rc;
}

int bench_grammar(int argc, char **argv)
{
	struct bench *b = sl_zalloc(sizeof *b);
	const char *tokenizer = NULL, *only = NULL;
	struct sl_err err = {0};
	if (b == NULL)
		return bench_complain(1, "out of memory");
	b->seconds = 20;
	b->megabytes = 4000;
	const struct bench_option options[] = {{"--cases", NULL, &b->folder, NULL, 0, 0},
					       {"--tokenizer", NULL, &tokenizer, NULL, 0, 0},
					       {"--only", NULL, &only, NULL, 0, 0},
					       {"--seconds", &b->seconds, NULL, NULL, 1, 600},
					       {"--megabytes", &b->megabytes, NULL, NULL, 100, 1e6},
					       {"--list", NULL, NULL, &b->list, 0, 0},
					       {"--json", NULL, NULL, &b->json, 0, 0}};
	int rc = bench_parse(argc, argv, options, sizeof options / sizeof *options, NULL);
	if (rc == 0 && (b->folder == NULL || tokenizer == NULL || *tokenizer == '\0'))
		rc = bench_complain(CMD_EXIT_USAGE, "grammar needs --cases FOLDER and --tokenizer FILE");
	if (rc == 0 && tokenizer != NULL && open_tokenizer(tokenizer, &b->t, &err) != 0)
		rc = bench_complain(1, "%s", err.text);
	if (rc == 0 && grammar_vocab_create(b->t, &b->v) != 0)
		rc = bench_complain(1, "out of memory");
	if (rc == 0 && !b->json)
		bench_header();
	if (rc == 0)
		rc = run_all(b, only);
	grammar_vocab_unref(b->v);
	tokenizer_destroy(b->t);
	sl_free(b->masks.values);
	sl_free(b->firsts.values);
	sl_free(b->slices.values);
	sl_free(b);
	return rc;
}
