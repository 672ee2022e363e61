/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/kit/kit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void path_of(const struct kit *k, const struct part *p, const char *ending, char *out, size_t size)
{
	snprintf(out, size, "%s/%s.%s", k->out, p->name, ending);
}

static void send_to(int fd, const char *path)
{
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (file < 0 || dup2(file, fd) < 0)
		_exit(126);
	close(file);
}

/* In the child. @ in an argument stands for the backend's name, % for its shared object. */
static void become(const struct kit *k, const struct part *p)
{
	char program[4096], so[4096], *argv[MOST_ARGS + 3], txt[4096], err[4096];
	int n = 0;
	snprintf(so, sizeof so, "%s/libsluice-%s.so", k->folder, k->backend);
	snprintf(program, sizeof program, "%s%s%s", p->optional ? "" : k->folder, p->optional ? "" : "/", p->program);
	argv[n++] = program;
	for (int i = 0; i < MOST_ARGS && p->args[i] != NULL; i++) {
		const char *a = p->args[i];
		argv[n++] = strcmp(a, "@") == 0 ? (char *)k->backend : strcmp(a, "%") == 0 ? so : (char *)a;
	}
	if (k->tiny && !p->test && !p->optional)
		argv[n++] = "--tiny";
	argv[n] = NULL;
	path_of(k, p, "txt", txt, sizeof txt);
	path_of(k, p, "err", err, sizeof err);
	setpgid(0, 0);
	int none = open("/dev/null", O_RDONLY);
	if (none > 0 && dup2(none, 0) == 0) /* where there is none, it is not missed */
		close(none);
	send_to(1, txt);
	send_to(2, err);
	if (p->optional) { /* not with the archive's libraries */
		if (k->libraries != NULL)
			setenv("LD_LIBRARY_PATH", k->libraries, 1);
		else
			unsetenv("LD_LIBRARY_PATH");
	}
	execvp(program, argv);
	dprintf(2, "%s: %s\n", program, strerror(errno));
	_exit(127);
}

/* Waits for it at most that long; then its process group is killed. */
static void await_child(pid_t pid, double limit_s, struct outcome *o)
{
	const struct timespec nap = {.tv_nsec = 2000000};
	double begin = now_s();
	pid_t ended;
	while ((ended = waitpid(pid, &o->status, WNOHANG)) == 0) {
		if (!o->timed_out && now_s() - begin > limit_s) {
			o->timed_out = true;
			kill(-pid, SIGKILL);
			kill(pid, SIGKILL);
		}
		nanosleep(&nap, NULL);
	}
	if (ended < 0)
		o->status = -1;
}

static void count_line(struct outcome *o, const char *line)
{
	bool bad = strncmp(line, "not ok ", 7) == 0, good = strncmp(line, "ok ", 3) == 0;
	if (!bad && !good)
		return;
	if (strstr(line, "# SKIP") != NULL)
		o->skipped++;
	else
		*(bad ? &o->failed : &o->passed) += 1;
}

static void read_results(const struct kit *k, struct outcome *o)
{
	char path[4096], line[512];
	path_of(k, o->part, "txt", path, sizeof path);
	FILE *f = fopen(path, "r");
	while (f != NULL && fgets(line, sizeof line, f) != NULL)
		if (o->part->test)
			count_line(o, line);
		else
			figure_note(line);
	if (f != NULL)
		fclose(f);
}

/* The last line that it wrote to its standard error. */
static void last_words(const struct kit *k, struct outcome *o, char *out, size_t size)
{
	char path[4096], line[512];
	path_of(k, o->part, "err", path, sizeof path);
	FILE *f = fopen(path, "r");
	out[0] = '\0';
	while (f != NULL && fgets(line, sizeof line, f) != NULL)
		if (line[0] != '\n')
			snprintf(out, size, "%.99s", line);
	if (f != NULL)
		fclose(f);
	out[strcspn(out, "\n")] = '\0';
	for (char *at = out; *at != '\0'; at++)
		*at = *at == '|' ? '/' : *at; /* which ends a cell */
}

static void judge(const struct kit *k, struct outcome *o, double limit_s)
{
	char words[100];
	last_words(k, o, words, sizeof words);
	if (o->timed_out)
		snprintf(o->why, sizeof o->why, "took more than %.0f s", limit_s);
	else if (o->status == -1)
		snprintf(o->why, sizeof o->why, "not started");
	else if (WIFSIGNALED(o->status))
		snprintf(o->why, sizeof o->why, "ended by signal %d", WTERMSIG(o->status));
	else if (o->failed == 0 && o->status != 0)
		snprintf(o->why, sizeof o->why, "exit status %d: %s", WEXITSTATUS(o->status), words);
	else if (o->part->test && o->failed == 0 && o->passed + o->skipped == 0)
		snprintf(o->why, sizeof o->why, "reported no test");
}

struct outcome part_run(const struct kit *k, const struct part *p, double left_s)
{
	struct outcome o = {.part = p, .status = -1};
	double limit = left_s < p->limit_s ? left_s : p->limit_s, begin = now_s();
	if (limit <= 0) {
		snprintf(o.why, sizeof o.why, "no time left");
		return o;
	}
	pid_t pid = fork();
	if (pid == 0)
		become(k, p);
	if (pid > 0)
		await_child(pid, limit, &o);
	o.seconds = now_s() - begin;
	read_results(k, &o);
	judge(k, &o, limit);
	return o;
}
