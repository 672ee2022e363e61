/* SPDX-License-Identifier: Apache-2.0
 *
 * What a process without rights is granted, over the real wire: a thread asks as that process would, the test answers
 * as the supervisor does.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd_pass.h"
#include "base/file.h"
#include "base/log.h"
#include "cmd/serve/grant.h"

enum { PATIENCE_MS = 20000, N_SETS = 20 };

static char dir[64], state[96];
static char sets[N_SETS][256];
static struct sluice_config cfg;
static struct grants grants;
static struct run_user user;
static int ends[2]; /* [0] the supervisor's */

static const char *at(const char *name)
{
	static char path[8][256];
	static int next;
	char *to = path[next++ % 8];
	snprintf(to, sizeof path[0], "%s/%s", dir, name);
	return to;
}

static void make_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static int setup(void **unused)
{
	(void)unused;
	const char *list[N_SETS];
	struct sl_err err = {0};
	size_t n = 0;
	log_init("test", LOG_ERROR + 1);
	snprintf(dir, sizeof dir, "/tmp/sluice-grant-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(state, sizeof state, "%s/state", dir);
	assert_int_equal(mkdir(state, 0700), 0);
	snprintf(sets[n++], sizeof *sets, "state=%s", state);
	snprintf(sets[n++], sizeof *sets, "gateway.cert=%s", at("cert.pem"));
	snprintf(sets[n++], sizeof *sets, "gateway.key=%s", at("key.pem"));
	snprintf(sets[n++], sizeof *sets, "gateway.certificates.more.cert=%s", at("state/more.pem"));
	snprintf(sets[n++], sizeof *sets, "gateway.certificates.more.key=%s", at("state/sub/more.key"));
	snprintf(sets[n++], sizeof *sets, "gateway.client_ca=%s", at("ca.pem"));
	snprintf(sets[n++], sizeof *sets, "cache.password_file=%s", at("password"));
	snprintf(sets[n++], sizeof *sets, "cascade.weights=%s", at("weights.bin"));
	snprintf(sets[n++], sizeof *sets, "cascade.log=%s", at("out.jsonl"));
	snprintf(sets[n++], sizeof *sets, "engine.models.split.path=%s", at("m-00001-of-00003.gguf"));
	snprintf(sets[n++], sizeof *sets, "engine.models.folder.path=%s", at("folder"));
	snprintf(sets[n++], sizeof *sets, "engine.adapters.one.path=%s", at("one.gguf"));
	snprintf(sets[n++], sizeof *sets, "engine.adapters.one.model=folder");
	snprintf(sets[n++], sizeof *sets, "gateway.listeners.local.unix=%s", at("local.sock"));
	snprintf(sets[n++], sizeof *sets, "gateway.listeners.local.mode=0600");
	snprintf(sets[n++], sizeof *sets, "gateway.http=127.0.0.1:8123");
	snprintf(sets[n++], sizeof *sets, "gateway.https=off");
	for (size_t i = 0; i < n; i++)
		list[i] = sets[i];
	if (sluice_config_load(&cfg, NULL, list, n, &err) != 0)
		fail_msg("%s", err.text);
	user = (struct run_user){.uid = geteuid(), .gid = getegid()};
	grants =
	    (struct grants){.now = &cfg, .state_fd = open(state, O_RDONLY | O_DIRECTORY | O_CLOEXEC), .user = &user};
	assert_true(grants.state_fd >= 0);
	assert_int_equal(fd_pass_pair(ends), 0);
	broker_use(ends[1]);
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *w)
{
	(void)st, (void)kind, (void)w;
	return remove(path);
}

static int teardown(void **unused)
{
	(void)unused;
	broker_use(-1);
	close(ends[0]);
	close(ends[1]);
	close(grants.state_fd);
	sluice_config_free(&cfg);
	return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* ---- one request ---- */

struct call {
	enum broker_op op;
	const char *path;
	struct sockaddr_in sa;
	int sock;
	mode_t mode;
	struct broker_file file;
	int result;
};

static void *ask(void *arg)
{
	struct call *c = arg;
	switch (c->op) {
	case BROKER_OPEN: c->result = broker_open(c->path); break;
	case BROKER_LOOK: c->result = broker_look(c->path, &c->file); break;
	case BROKER_APPEND: c->result = broker_append(c->path); break;
	case BROKER_ROTATE: c->result = broker_rotate(c->path); break;
	case BROKER_BIND: c->result = broker_bind(c->sock, (const struct sockaddr *)&c->sa, sizeof c->sa); break;
	case BROKER_LISTEN: c->result = broker_listen(c->path, c->mode, &c->file); break;
	case BROKER_ADOPT: c->result = broker_adopt(c->path, c->mode, &c->file); break;
	case BROKER_REMOVE: c->result = broker_remove(c->path, c->file.dev, c->file.ino); break;
	default: c->result = 1;
	}
	return NULL;
}

static void serve_one(enum grant_role role)
{
	struct pollfd p = {.fd = ends[0], .events = POLLIN};
	assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
	assert_int_equal(grant_one(&grants, role, ends[0]), 1);
}

static int call(struct call *c, enum grant_role role)
{
	pthread_t t;
	assert_int_equal(pthread_create(&t, NULL, ask, c), 0);
	serve_one(role);
	pthread_join(t, NULL);
	return c->result;
}

static int get(enum grant_role role, enum broker_op op, const char *path)
{
	struct call c = {.op = op, .path = path};
	int rc = call(&c, role);
	if (rc > 0)
		close(rc);
	return rc;
}

static void opens(enum grant_role role, const char *path) { assert_true(get(role, BROKER_OPEN, path) > 0); }

static void refuses(enum grant_role role, const char *path, int why)
{
	assert_int_equal(get(role, BROKER_OPEN, path), -why);
}

/* ---- files ---- */

static void what_is_named_is_opened(void **unused)
{
	(void)unused;
	static const char *const names[] = {"cert.pem", "key.pem", "ca.pem", "password", "weights.bin"};
	char text[16] = "";
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		refuses(GRANT_GATEWAY, at(names[i]), ENOENT);
		make_file(at(names[i]), "words");
		opens(GRANT_GATEWAY, at(names[i]));
		refuses(GRANT_ENGINE, at(names[i]), EPERM);
	}
	struct call c = {.op = BROKER_OPEN, .path = at("key.pem")};
	int fd = call(&c, GRANT_GATEWAY);
	assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_int_equal(read(fd, text, sizeof text), 5);
	assert_string_equal(text, "words");
	close(fd);
}

static void nothing_else_is(void **unused)
{
	(void)unused;
	char path[256];
	make_file(at("other"), "x");
	make_file(at("key.pem"), "x");
	refuses(GRANT_GATEWAY, at("other"), EPERM);
	refuses(GRANT_GATEWAY, "/etc/passwd", EPERM);
	snprintf(path, sizeof path, "%s/./key.pem", dir);
	refuses(GRANT_GATEWAY, path, EPERM);
	snprintf(path, sizeof path, "%s/state/../key.pem", dir);
	refuses(GRANT_GATEWAY, path, EPERM);
	refuses(GRANT_GATEWAY, at("key.pem/"), EPERM);
	refuses(GRANT_GATEWAY, at("out.jsonl"), EPERM); /* written, not read */
}

static void an_upstream_instead_of_models(void **unused)
{
	(void)unused;
	static char url[] = "http://127.0.0.1:9/v1", none[] = "";
	char *was = cfg.upstream.url, key[256];
	snprintf(key, sizeof key, "%s", at("upstream.key"));
	make_file(key, "secret");
	make_file(at("m-00001-of-00003.gguf"), "x");
	refuses(GRANT_ENGINE, key, EPERM);
	cfg.upstream.url = url;
	cfg.upstream.key_file = key;
	opens(GRANT_ENGINE, key);
	refuses(GRANT_GATEWAY, key, EPERM);
	refuses(GRANT_ENGINE, at("m-00001-of-00003.gguf"), EPERM);
	cfg.upstream.url = was;
	cfg.upstream.key_file = none;
}

/* Each engine reads what its own section names. */
static void an_upstream_of_another_engine(void **unused)
{
	(void)unused;
	static char url[] = "http://127.0.0.1:9/v1", *texts[] = {url, NULL};
	static struct engine_item item = {.name = url};
	char key[256];
	snprintf(key, sizeof key, "%s", at("far.key"));
	texts[1] = key;
	make_file(key, "secret");
	make_file(at("m-00001-of-00003.gguf"), "x");
	size_t first = offsetof(struct sluice_config, engine);
	memcpy(item.section + offsetof(struct sluice_config, upstream.url) - first, &texts[0], sizeof(char *));
	memcpy(item.section + offsetof(struct sluice_config, upstream.key_file) - first, &texts[1], sizeof(char *));
	cfg.engines.items = &item;
	cfg.engines.n = 1;
	refuses(GRANT_ENGINE, key, EPERM);
	opens(GRANT_ENGINE, at("m-00001-of-00003.gguf"));
	grants.engine = 1;
	opens(GRANT_ENGINE, key);
	refuses(GRANT_ENGINE, at("m-00001-of-00003.gguf"), EPERM);
	grants.engine = 2;
	refuses(GRANT_ENGINE, key, EPERM);
	grants.engine = 0;
	cfg.engines.items = NULL;
	cfg.engines.n = 0;
}

static void models_are_files_parts_and_folders(void **unused)
{
	(void)unused;
	make_file(at("m-00001-of-00003.gguf"), "x");
	make_file(at("m-00003-of-00003.gguf"), "x");
	make_file(at("m-00001-of-00004.gguf"), "x");
	make_file(at("n-00002-of-00003.gguf"), "x");
	opens(GRANT_ENGINE, at("m-00001-of-00003.gguf"));
	opens(GRANT_ENGINE, at("m-00003-of-00003.gguf"));
	refuses(GRANT_ENGINE, at("m-0000x-of-00003.gguf"), EPERM);
	refuses(GRANT_ENGINE, at("m-00001-of-00004.gguf"), EPERM);
	refuses(GRANT_ENGINE, at("n-00002-of-00003.gguf"), EPERM);
	refuses(GRANT_GATEWAY, at("m-00001-of-00003.gguf"), EPERM);
	assert_int_equal(mkdir(at("folder"), 0700), 0);
	assert_int_equal(mkdir(at("folder/sub"), 0700), 0);
	make_file(at("folder/config.json"), "{}");
	make_file(at("folder/sub/x"), "x");
	make_file(at("foldersecret"), "x");
	opens(GRANT_ENGINE, at("folder/config.json"));
	refuses(GRANT_ENGINE, at("folder/none.json"), ENOENT);
	refuses(GRANT_ENGINE, at("folder/sub"), EINVAL); /* no regular file */
	refuses(GRANT_ENGINE, at("folder/sub/x"), EPERM);
	refuses(GRANT_ENGINE, at("folder/../key.pem"), EPERM);
	refuses(GRANT_ENGINE, at("folder/.."), EPERM);
	refuses(GRANT_ENGINE, at("foldersecret"), EPERM);
	/* An adapter, as a model: a file or what is in a folder. */
	make_file(at("one.gguf"), "x");
	opens(GRANT_ENGINE, at("one.gguf"));
	refuses(GRANT_GATEWAY, at("one.gguf"), EPERM);
	refuses(GRANT_ENGINE, at("two.gguf"), EPERM);
	struct call c = {.op = BROKER_LOOK, .path = at("folder")};
	assert_int_equal(call(&c, GRANT_ENGINE), 0);
	assert_true(S_ISDIR(c.file.mode));
}

static void what_is_no_file_holds_nothing_up(void **unused)
{
	(void)unused;
	assert_int_equal(mkfifo(at("cert.pem"), 0600), 0);
	refuses(GRANT_GATEWAY, at("cert.pem"), EINVAL);
	assert_int_equal(symlink("/dev/zero", at("key.pem")), 0);
	refuses(GRANT_GATEWAY, at("key.pem"), EINVAL);
	assert_int_equal(mkdir(at("ca.pem"), 0700), 0);
	refuses(GRANT_GATEWAY, at("ca.pem"), EINVAL);
	make_file(at("real"), "x");
	assert_int_equal(symlink("real", at("password")), 0); /* as certbot has them */
	opens(GRANT_GATEWAY, at("password"));
}

/* The state folder is the asker's: a name in it may lead nowhere else. */
static void no_link_in_the_state_folder_is_followed(void **unused)
{
	(void)unused;
	char path[256];
	make_file(at("secret"), "x");
	make_file(at("state/more.pem"), "x");
	opens(GRANT_GATEWAY, at("state/more.pem"));
	assert_int_equal(unlink(at("state/more.pem")), 0);
	assert_int_equal(symlink(at("secret"), at("state/more.pem")), 0);
	refuses(GRANT_GATEWAY, at("state/more.pem"), ELOOP);
	assert_int_equal(unlink(at("state/more.pem")), 0);
	assert_int_equal(link(at("secret"), at("state/more.pem")), 0);
	refuses(GRANT_GATEWAY, at("state/more.pem"), EPERM);
	snprintf(path, sizeof path, "%s/elsewhere", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	make_file(at("elsewhere/more.key"), "x");
	assert_int_equal(symlink(path, at("state/sub")), 0);
	refuses(GRANT_GATEWAY, at("state/sub/more.key"), ELOOP);
	/* And where the name itself does not show that it leads there. */
	assert_int_equal(unlink(at("state/sub")), 0);
	assert_int_equal(mkdir(at("state/sub"), 0700), 0);
	assert_int_equal(symlink(at("secret"), at("state/sub/m-00001-of-00003.gguf")), 0);
	assert_int_equal(rmdir(at("elsewhere")) == 0, 0);
	assert_int_equal(symlink(at("state/sub"), at("folder")), 0);
	refuses(GRANT_ENGINE, at("folder/m-00001-of-00003.gguf"), ELOOP);
}

static void the_log_is_appended_to_and_moved(void **unused)
{
	(void)unused;
	struct call c = {.op = BROKER_APPEND, .path = at("out.jsonl")};
	struct stat st;
	int fd = call(&c, GRANT_GATEWAY);
	assert_true(fd > 0);
	assert_true((fcntl(fd, F_GETFL) & O_APPEND) != 0);
	assert_int_equal(write(fd, "line\n", 5), 5);
	close(fd);
	assert_int_equal(get(GRANT_GATEWAY, BROKER_ROTATE, at("out.jsonl")), 0);
	assert_int_equal(stat(at("out.jsonl.1"), &st), 0);
	assert_int_equal(st.st_size, 5);
	assert_int_equal(get(GRANT_GATEWAY, BROKER_LOOK, at("out.jsonl")), -ENOENT);
	assert_int_equal(get(GRANT_GATEWAY, BROKER_APPEND, at("key.pem")), -EPERM);
	assert_int_equal(get(GRANT_GATEWAY, BROKER_ROTATE, at("key.pem")), -EPERM);
	assert_int_equal(get(GRANT_ENGINE, BROKER_APPEND, at("out.jsonl")), -EPERM);
}

/* Written with the supervisor's rights in a folder that may be the asker's. */
static void no_log_is_written_through_a_link(void **unused)
{
	(void)unused;
	make_file(at("secret"), "x");
	assert_int_equal(symlink(at("secret"), at("out.jsonl")), 0);
	assert_int_equal(get(GRANT_GATEWAY, BROKER_APPEND, at("out.jsonl")), -ELOOP);
	assert_int_equal(unlink(at("out.jsonl")), 0);
	assert_int_equal(symlink(at("none"), at("out.jsonl")), 0);
	assert_int_equal(get(GRANT_GATEWAY, BROKER_APPEND, at("out.jsonl")), -ELOOP);
	assert_int_equal(unlink(at("out.jsonl")), 0);
	assert_int_equal(link(at("secret"), at("out.jsonl")), 0);
	assert_int_equal(get(GRANT_GATEWAY, BROKER_APPEND, at("out.jsonl")), -EPERM);
}

/* ---- sockets ---- */

static void only_named_addresses_are_bound(void **unused)
{
	(void)unused;
	struct call c = {.op = BROKER_BIND, .sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
	c.sa = (struct sockaddr_in){
	    .sin_family = AF_INET, .sin_port = htons(8124), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	assert_int_equal(call(&c, GRANT_GATEWAY), -EPERM);
	c.sa.sin_port = htons(8123);
	c.sa.sin_addr.s_addr = htonl(INADDR_ANY);
	assert_int_equal(call(&c, GRANT_GATEWAY), -EPERM);
	c.sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(call(&c, GRANT_ENGINE), -EPERM);
	int rc = call(&c, GRANT_GATEWAY);
	assert_true(rc == 0 || rc == -EADDRINUSE); /* somebody else's port, perhaps */
	close(c.sock);
	c.sock = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(call(&c, GRANT_GATEWAY), -ENOTSOCK);
	close(c.sock);
}

static bool listens(int fd)
{
	int on = 0;
	socklen_t n = sizeof on;
	return fd > 0 && getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &n) == 0 && on != 0;
}

/* The supervisor has no broker itself, which is one for a whole process. */
static int call_apart(struct call *c, enum grant_role role)
{
	int back[2];
	assert_int_equal(pipe(back), 0);
	pid_t pid = fork();
	if (pid == 0) {
		ask(c);
		if (c->op == BROKER_LISTEN && c->result >= 0 && !listens(c->result))
			c->result = -EIO;
		_exit(write(back[1], c, sizeof *c) != sizeof *c);
	}
	close(back[1]);
	broker_use(-1);
	serve_one(role);
	broker_use(ends[1]);
	assert_int_equal(read(back[0], c, sizeof *c), sizeof *c);
	close(back[0]);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	return c->result;
}

static void a_unix_socket_is_made_adopted_and_removed(void **unused)
{
	(void)unused;
	struct call c = {.op = BROKER_LISTEN, .path = at("local.sock"), .mode = 0777};
	struct stat st;
	assert_true(call_apart(&c, GRANT_GATEWAY) > 0);
	assert_int_equal(lstat(at("local.sock"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600); /* what is configured, not what is asked for */
	assert_true(c.file.ino == st.st_ino && c.file.dev == st.st_dev);
	assert_int_equal(chmod(at("local.sock"), 0666), 0);
	c.op = BROKER_ADOPT;
	assert_int_equal(call(&c, GRANT_GATEWAY), 0);
	assert_int_equal(lstat(at("local.sock"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(get(GRANT_GATEWAY, BROKER_LISTEN, at("other.sock")), -EPERM);
	assert_int_equal(get(GRANT_ENGINE, BROKER_LISTEN, at("local.sock")), -EPERM);
	struct call again = {.op = BROKER_LISTEN, .path = at("state/more.pem")};
	int other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	assert_int_equal(call_apart(&again, GRANT_GATEWAY), -EPERM);
	again.path = at("local.sock");
	assert_int_equal(unlink(again.path), 0);
	snprintf(sa.sun_path, sizeof sa.sun_path, "%.100s", again.path);
	assert_int_equal(bind(other, (struct sockaddr *)&sa, sizeof sa), 0);
	assert_int_equal(listen(other, 1), 0);
	assert_int_equal(call_apart(&again, GRANT_GATEWAY), -EADDRINUSE); /* one serves there */
	close(other);
	assert_int_equal(call_apart(&again, GRANT_GATEWAY) > 0, 1); /* and has gone */
	c.file = again.file;
	c.op = BROKER_REMOVE;
	c.file.ino++;
	assert_int_equal(call(&c, GRANT_GATEWAY), -EPERM);
	c.file.ino--;
	assert_int_equal(call(&c, GRANT_GATEWAY), 0);
	assert_int_equal(lstat(at("local.sock"), &st), -1);
}

/* ---- the wire ---- */

static void what_is_no_request_is_answered(void **unused)
{
	(void)unused;
	uint8_t junk[256];
	static const size_t sizes[] = {1, 15, 31, 32, 33, 256};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		for (int fill = 0; fill < 256; fill += 51) {
			memset(junk, fill, sizeof junk);
			assert_int_equal(send(ends[1], junk, sizes[i], 0), sizes[i]);
			assert_int_equal(grant_one(&grants, GRANT_GATEWAY, ends[0]), 1);
			assert_true(recv(ends[1], junk, sizeof junk, MSG_DONTWAIT) > 0);
		}
	}
	assert_int_equal(grant_one(&grants, GRANT_GATEWAY, ends[0]), 0);
	make_file(at("key.pem"), "x");
	opens(GRANT_GATEWAY, at("key.pem")); /* and it goes on */
}

static void an_answer_that_is_late_is_not_the_next_ones(void **unused)
{
	(void)unused;
	struct broker_asked old = {.op = BROKER_OPEN, .serial = 0, .sock = -1};
	make_file(at("key.pem"), "x");
	int other = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct stat st;
	broker_answer(ends[0], &old, other, NULL);
	struct call c = {.op = BROKER_OPEN, .path = at("key.pem")};
	int fd = call(&c, GRANT_GATEWAY);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true(S_ISREG(st.st_mode));
	close(fd);
	close(other);
}

static void a_broker_that_has_gone_is_an_error(void **unused)
{
	(void)unused;
	close(ends[0]);
	ends[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(broker_open(at("key.pem")), -EPIPE);
	broker_use(-1);
	assert_int_equal(broker_open(at("key.pem")), -EPERM);
	int line[2];
	assert_int_equal(fd_pass_pair(line), 0);
	close(line[1]);
	assert_int_equal(grant_one(&grants, GRANT_GATEWAY, line[0]), SL_ECLOSED);
	close(line[0]);
}

static void what_an_upgrade_names_is_granted_too(void **unused)
{
	(void)unused;
	struct sluice_config other = cfg;
	struct gw_config *g = &other.gateway;
	g->cert_file = (char *)(uintptr_t)at("newer.pem");
	make_file(at("newer.pem"), "x");
	refuses(GRANT_GATEWAY, at("newer.pem"), EPERM);
	grants.next = &other;
	opens(GRANT_GATEWAY, at("newer.pem"));
	grants.next = NULL;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(what_is_named_is_opened),
	    TEST(nothing_else_is),
	    TEST(an_upstream_instead_of_models),
	    TEST(an_upstream_of_another_engine),
	    TEST(models_are_files_parts_and_folders),
	    TEST(what_is_no_file_holds_nothing_up),
	    TEST(no_link_in_the_state_folder_is_followed),
	    TEST(the_log_is_appended_to_and_moved),
	    TEST(no_log_is_written_through_a_link),
	    TEST(only_named_addresses_are_bound),
	    TEST(a_unix_socket_is_made_adopted_and_removed),
	    TEST(what_is_no_request_is_answered),
	    TEST(an_answer_that_is_late_is_not_the_next_ones),
	    TEST(a_broker_that_has_gone_is_an_error),
	    TEST(what_an_upgrade_names_is_granted_too),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
