/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/hub/hub_served.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/config/model_path.h"
#include "cmd/hub/hub.h"
#include "cmd/hub/hub_folder.h"

/* A port that is free now. Another process may take it before the server does: then the server says so. */
static unsigned free_port(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool good = fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0 &&
		    getsockname(fd, (struct sockaddr *)&a, &n) == 0;
	if (fd >= 0)
		close(fd);
	return good ? ntohs(a.sin_port) : 0;
}

static int choose_port(const char *text, unsigned *out, struct sl_err *err)
{
	char *end = NULL;
	unsigned long n = text != NULL ? strtoul(text, &end, 10) : free_port();
	if (n == 0 || n > 65535 || (end != NULL && *end != '\0'))
		return sl_errf(err, SL_EINVAL, text != NULL ? "--port: a port is wanted" : "no free port");
	*out = (unsigned)n;
	return 0;
}

/* The model's name in requests: its file's or its folder's. */
static void name_model(const char *path, char *out, size_t size)
{
	const char *slash = strrchr(path, '/');
	snprintf(out, size, "%.80s", slash != NULL ? slash + 1 : path);
	size_t n = strlen(out);
	if (n > 5 && strcasecmp(out + n - 5, ".gguf") == 0)
		out[n - 5] = '\0';
	for (char *c = out; *c != '\0'; c++)
		if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", *c) == NULL)
			*c = '-';
	if (!model_name_valid(out))
		snprintf(out, size, "model");
}

/* YAML's single quotes: only they are doubled. */
static void put_quoted(FILE *f, const char *text)
{
	putc('\'', f);
	for (; *text != '\0'; text++) {
		if (*text == '\'')
			putc('\'', f);
		putc(*text, f);
	}
	putc('\'', f);
}

static int write_config(const struct hub_served *s, const char *model_path, unsigned port, char *path, size_t size,
			struct sl_err *err)
{
	char name[81];
	snprintf(path, size, "%s/sluice.yaml", s->folder);
	name_model(model_path, name, sizeof name);
	FILE *f = fopen(path, "wx");
	if (f == NULL)
		return sl_errf(err, SL_EIO, "%s: %s", path, strerror(errno));
	fprintf(
	    f,
	    "state: %s/state\nlog: {level: warn}\nengine:\n  models:\n    - name: %s\n      role: large\n      path: ",
	    s->folder, name);
	put_quoted(f, model_path);
	fprintf(f,
		"\ncache: {store: memory}\ngateway:\n  https: off\n  http: 127.0.0.1:%u\n  dev_keys: true\n  tiers:\n"
		"    - {name: free, max_output: 4096}\n    - {name: paid, priority: 0, max_output: 8192}\n",
		port);
	bool good = ferror(f) == 0;
	good = fclose(f) == 0 && good;
	return good ? 0 : sl_errf(err, SL_EIO, "%s: %s", path, strerror(errno));
}

static pid_t start(const char *config, int *out)
{
	int ends[2];
	if (pipe2(ends, O_CLOEXEC) != 0)
		return -1;
	pid_t self = getpid(), pid = hub_fork();
	if (pid == 0) {
		/* Ctrl-C is for the chat. */
		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != self)
			_exit(127); /* it died before the line above */
		dup2(ends[1], STDOUT_FILENO);
		execl("/proc/self/exe", "sluice", "serve", "-c", config, (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	if (pid < 0)
		close(ends[0]);
	*out = ends[0];
	return pid;
}

/* Reads what the server prints, up to `ready`. Its log, with the reason of a failure, is on standard error. */
static int await_ready(struct hub_served *s, int fd, struct sl_err *err)
{
	char line[512];
	bool ready = false;
	FILE *f = fdopen(fd, "r");
	while (f != NULL && !ready && fgets(line, sizeof line, f) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, "key-paid ", 9) == 0)
			snprintf(s->key, sizeof s->key, "%.63s", line + 9);
		ready = strcmp(line, "ready") == 0;
	}
	if (f != NULL)
		fclose(f);
	return ready ? 0 : sl_errf(err, SL_EIO, "the server did not become ready");
}

static void remove_folder(const char *path)
{
	int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (tmp < 0)
		return;
	(void)hub_remove(tmp, path + strlen("/tmp/"));
	close(tmp);
}

int hub_served_start(struct hub_served *s, const char *model_path, const char *port, struct sl_err *err)
{
	char config[96];
	unsigned number = 0;
	int fd = -1, rc = choose_port(port, &number, err);
	*s = (struct hub_served){.pid = -1, .folder = "/tmp/sluice-run-XXXXXX"};
	if (rc != 0)
		return rc;
	if (mkdtemp(s->folder) == NULL)
		return sl_errf(err, SL_EIO, "/tmp: %s", strerror(errno));
	snprintf(s->url, sizeof s->url, "http://127.0.0.1:%u", number);
	rc = write_config(s, model_path, number, config, sizeof config, err);
	if (rc == 0 && (s->pid = start(config, &fd)) < 0)
		rc = sl_errf(err, SL_EIO, "can't start the server: %s", strerror(errno));
	if (rc == 0)
		rc = await_ready(s, fd, err);
	if (rc != 0)
		hub_served_stop(s);
	return rc;
}

bool hub_served_ended(const struct hub_served *s)
{
	siginfo_t info = {.si_pid = 0};
	return waitid(P_PID, (id_t)s->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == s->pid;
}

void hub_served_stop(struct hub_served *s)
{
	if (s->pid > 0) {
		kill(s->pid, SIGTERM);
		while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	remove_folder(s->folder);
	s->pid = -1;
}
