/* SPDX-License-Identifier: Apache-2.0
 *
 * A whole engine (with a model that has no weights, fake_model.h) on a device whose driver, a stand-in, tells that it
 * is too warm: fewer sequences run until that is over, and the answers are what they are alone. The same with a
 * processor that is short, and with a driver that lies.
 */
#include "engine/sched/slowdown.h"
#include "engine_requests.h"

#include <dlfcn.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COOL = 6, HOT = 7, LIES = 5, N = 6, TOKENS = 400 };

static char nvml[PATH_MAX + 64], root[] = "/tmp/sluice-slow-XXXXXX";
static void (*set_mode)(int);

static struct proto_submit long_request(int i)
{
	struct proto_submit req = run_plain(i % 2 ? "once upon a time" : "the other one", TOKENS);
	req.seed = (uint64_t)i;
	req.temperature = 0.8f;
	req.tenant = (uint64_t)i;
	req.flags |= PROTO_SUBMIT_IGNORE_EOS;
	return req;
}

/* A step of all rows takes 24 milliseconds, where it takes any time, and its target is 15. */
static struct eng_config slow_config(void)
{
	struct eng_config cfg = config();
	cfg.ease_itl_ms[0] = 15;
	cfg.slow_watch_ms = 10;
	cfg.memory_root = root; /* this machine's processor may be short */
	cfg.spec_mode = ENG_SPEC_OFF;
	return cfg;
}

/* Polls: nothing tells of it. */
#define UNTIL(cond)                                           \
	do {                                                  \
		for (int i_ = 0; !(cond) && i_ < 30000; i_++) \
			usleep(2000);                         \
		assert_true(cond);                            \
	} while (0)

static struct proto_stats stats_of(struct run *r)
{
	struct proto_stats s;
	engine_stats(r->e, &s);
	return s;
}

static void submit_all(struct run *r, uint64_t first)
{
	for (uint64_t i = 0; i < N; i++) {
		struct proto_submit req = long_request((int)i);
		run_submit(r, first + i, &req);
		run_credit(r, first + i, TOKENS);
	}
}

static void same_as(struct run *r, uint64_t first, const struct answer *expect)
{
	for (uint64_t i = 0; i < N; i++)
		run_assert_same(run_until_done(r, first + i), &expect[i]);
}

static struct answer *answers_alone(void)
{
	struct answer *expect = calloc(N, sizeof *expect);
	atomic_store(&fake.row_us, 0);
	struct eng_config cfg = slow_config();
	memset(cfg.ease_itl_ms, 0, sizeof cfg.ease_itl_ms);
	run_each_alone(&cfg, N, long_request, expect);
	return expect;
}

static void a_hot_device_runs_fewer_sequences(void **state)
{
	(void)state;
	struct run r;
	struct answer *expect = answers_alone();
	struct eng_config cfg = slow_config();
	cfg.nvml_library = nvml;
	cfg.nvml_pci = "0000:1b:00.0";
	set_mode(COOL);
	run_start(&r, &cfg);
	atomic_store(&fake.row_us, 4000);
	submit_all(&r, 1);
	UNTIL(stats_of(&r).running == N);
	assert_int_equal(stats_of(&r).slowed, 0);
	assert_int_equal(stats_of(&r).held, 0);
	set_mode(HOT);
	UNTIL(stats_of(&r).slowed == 1 && stats_of(&r).held >= N / 3);
	assert_int_equal(stats_of(&r).slowdowns, 1);
	/* They keep their pages: nothing is computed again. */
	assert_int_equal(stats_of(&r).preemptions, 0);
	set_mode(COOL);
	UNTIL(stats_of(&r).slowed == 0);
	atomic_store(&fake.row_us, 0);
	same_as(&r, 1, expect);
	UNTIL(stats_of(&r).held == 0);
	run_stop(&r);
	free(expect);
}

/* Of the log, on standard error: what it said of the driver. */
static int driver_lines(FILE *log)
{
	char line[1024];
	int n = 0;
	rewind(log);
	while (fgets(line, sizeof line, log) != NULL)
		n += strstr(line, "driver") != NULL;
	return n;
}

static void a_driver_that_lies_harms_nothing(void **state)
{
	(void)state;
	struct run r;
	struct answer *expect = answers_alone();
	struct eng_config cfg = slow_config();
	cfg.nvml_library = nvml;
	cfg.nvml_pci = "0000:1b:00.0";
	FILE *log = tmpfile();
	int before = dup(STDERR_FILENO);
	assert_true(log != NULL && before >= 0 && dup2(fileno(log), STDERR_FILENO) >= 0);
	set_mode(LIES);
	run_start(&r, &cfg);
	submit_all(&r, 1);
	same_as(&r, 1, expect);
	for (int i = 0; i < 250; i++) {
		struct proto_device d = stats_of(&r).device;
		assert_true(d.busy_percent <= 100 && d.celsius <= 150 && d.memory_used_bytes <= d.memory_bytes);
		usleep(10000);
	}
	/* What comes and goes that often is not believed to go. */
	assert_true(stats_of(&r).slowdowns <= SLOWDOWN_TURNS);
	run_stop(&r);
	assert_true(dup2(before, STDERR_FILENO) >= 0);
	close(before);
	/* One of what cannot be, one if it fell silent: not one a reading. */
	int n = driver_lines(log);
	assert_true(n >= 1 && n <= 2);
	fclose(log);
	free(expect);
}

/* ---- a processor that is short, as the kernel's files would tell ---- */

static void write_file(const char *name, const char *text)
{
	char path[PATH_MAX], next[PATH_MAX + 8];
	snprintf(path, sizeof path, "%s/%s", root, name);
	snprintf(next, sizeof next, "%s.new", path);
	FILE *f = fopen(next, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(rename(next, path), 0);
}

static void make_folder(const char *name)
{
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%s/%s", root, name);
	assert_int_equal(mkdir(path, 0700), 0);
}

static uint64_t stalled_us;

static void tell_cpu(const char *file)
{
	char text[256];
	snprintf(text, sizeof text,
		 "some avg10=99.00 avg60=1.00 avg300=0.00 total=%llu\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
		 (unsigned long long)stalled_us);
	write_file(file, text);
}

static void a_short_processor_runs_fewer_sequences(void **state)
{
	(void)state;
	struct run r;
	struct answer *expect = answers_alone();
	struct eng_config cfg = slow_config();
	write_file("proc/self/cgroup", "0::/a/b\n");
	tell_cpu("proc/pressure/cpu");
	tell_cpu("sys/fs/cgroup/a/b/cpu.pressure");
	run_start(&r, &cfg);
	atomic_store(&fake.row_us, 4000);
	submit_all(&r, 1);
	/* Of the group: its tasks wait all the time, by the reader's clock. */
	struct timespec then, now;
	clock_gettime(CLOCK_MONOTONIC, &then);
	for (bool held = false; !held;) {
		usleep(5000);
		clock_gettime(CLOCK_MONOTONIC, &now);
		stalled_us += (uint64_t)((now.tv_sec - then.tv_sec) * 1000000 + (now.tv_nsec - then.tv_nsec) / 1000);
		then = now;
		tell_cpu("sys/fs/cgroup/a/b/cpu.pressure");
		const struct proto_stats s = stats_of(&r);
		held = s.slowed == 1 && s.held > 0;
		if (s.running == 0 && s.waiting == 0)
			submit_all(&r, 1 + N); /* a slow reader: once more */
	}
	/* It stands still: nobody waits any more. */
	UNTIL(stats_of(&r).slowed == 0);
	atomic_store(&fake.row_us, 0);
	same_as(&r, 1, expect);
	run_stop(&r);
	free(expect);
}

static int setup(void **state)
{
	(void)state;
	static const char *const folders[] = {"proc",   "proc/self",     "proc/pressure",   "sys",
					      "sys/fs", "sys/fs/cgroup", "sys/fs/cgroup/a", "sys/fs/cgroup/a/b"};
	ssize_t n = readlink("/proc/self/exe", nvml, PATH_MAX);
	assert_true(n > 0);
	nvml[n] = '\0';
	char *slash = strrchr(nvml, '/');
	snprintf(slash + 1, sizeof nvml - (size_t)(slash + 1 - nvml), "../../libfake-nvml.so");
	void *so = dlopen(nvml, RTLD_NOW | RTLD_LOCAL), *symbol = so != NULL ? dlsym(so, "fake_nvml_mode") : NULL;
	memcpy(&set_mode, &symbol, sizeof set_mode);
	if (symbol == NULL || mkdtemp(root) == NULL)
		return 1;
	for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
		make_folder(folders[i]);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	char command[128];
	snprintf(command, sizeof command, "rm -rf '%s'", root);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_hot_device_runs_fewer_sequences),
					   cmocka_unit_test(a_driver_that_lies_harms_nothing),
					   cmocka_unit_test(a_short_processor_runs_fewer_sequences)};
	return cmocka_run_group_tests(tests, setup, teardown);
}
