/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory by itself: what a machine, its control groups and its limits leave, read from folders that look like theirs;
 * the budget for keys and values that follows; and the contexts of a model of 0.6 billion parameters on machines of
 * several sizes. Nothing here depends on the machine that runs it.
 */
#include "engine/core/host_memory.h"
#include "engine/handover/hand_area.h"
#include "engine/core/kv_budget.h"
#include "tests/unit/engine/core/engine_run.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "engine/kv/kv_memory.h"
#include "engine/step/kv_rebalance.h"
#include "kernels/kv_type.h"
#include "tests/support/small_engine.h"
#include "tests/support/tiny_gguf.h"

#define GB (1ull << 30)
#define MB (1ull << 20)

static char root[64];

/* Writes root/path with its folders. */
static void put(const char *path, const char *text)
{
	char whole[512];
	snprintf(whole, sizeof whole, "%s%s", root, path);
	for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
		*at = '\0';
		(void)mkdir(whole, 0700);
		*at = '/';
	}
	FILE *f = fopen(whole, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static void put_meminfo(uint64_t total, uint64_t available)
{
	char text[256];
	snprintf(text, sizeof text,
		 "MemTotal:       %llu kB\nMemFree:        1 kB\nMemAvailable:   %llu kB\nCommitLimit:    %llu kB\n"
		 "Committed_AS:   %llu kB\n",
		 (unsigned long long)(total >> 10), (unsigned long long)(available >> 10),
		 (unsigned long long)(total >> 11), (unsigned long long)(total >> 12));
	put("/proc/meminfo", text);
}

static void begin(uint64_t total, uint64_t available)
{
	char command[192];
	snprintf(command, sizeof command, "rm -rf %s", root);
	assert_int_equal(system(command), 0);
	assert_int_equal(mkdir(root, 0700), 0);
	put_meminfo(total, available);
}

static const struct machine_limits unlimited = {UINT64_MAX, UINT64_MAX};

static struct machine_memory look(const struct machine_limits *limits)
{
	struct machine_memory m;
	assert_int_equal(machine_memory_read(root, limits, &m), 0);
	return m;
}

static void of_the_machine(void **state)
{
	(void)state;
	begin(16 * GB, 9 * GB);
	struct machine_memory m = look(&unlimited);
	assert_int_equal(m.total, 16 * GB);
	assert_int_equal(m.available, 9 * GB);
	assert_string_equal(m.limited_by, "the machine");
	assert_int_equal(m.stalled, 0);
	put("/proc/pressure/memory",
	    "some avg10=12.34 avg60=1.00 avg300=0.00 total=1\nfull avg10=99.00 avg60=0 total=0\n");
	assert_int_equal(look(&unlimited).stalled, 123);
	put("/proc/sys/vm/overcommit_memory", "0\n");
	assert_int_equal(look(&unlimited).available, 9 * GB);
	put("/proc/sys/vm/overcommit_memory", "2\n");
	assert_int_equal(look(&unlimited).available, 4 * GB);
	/* An old kernel. */
	put("/proc/sys/vm/overcommit_memory", "0\n");
	put("/proc/meminfo", "MemTotal: 1024 kB\nMemFree: 100 kB\nCached: 200 kB\n");
	assert_int_equal(look(&unlimited).available, 300 << 10);
	put("/proc/meminfo", "nothing\n");
	assert_int_equal(machine_memory_read(root, &unlimited, &m), SL_EIO);
	assert_int_equal(machine_memory_read("/nowhere", &unlimited, &m), SL_EIO);
}

/* The least of all groups up to the root counts; memory that caches files is not lost. */
static void of_control_groups(void **state)
{
	(void)state;
	begin(16 * GB, 9 * GB);
	put("/proc/self/cgroup", "0::/system.slice/sluice.service\n");
	assert_int_equal(look(&unlimited).available, 9 * GB);
	put("/sys/fs/cgroup/system.slice/sluice.service/memory.max", "max\n");
	put("/sys/fs/cgroup/system.slice/sluice.service/memory.current", "1073741824\n");
	assert_int_equal(look(&unlimited).available, 9 * GB);
	put("/sys/fs/cgroup/system.slice/sluice.service/memory.high", "4294967296\n");
	struct machine_memory m = look(&unlimited);
	assert_int_equal(m.total, 4 * GB);
	assert_int_equal(m.available, 3 * GB);
	assert_string_equal(m.limited_by, "its control group");
	put("/sys/fs/cgroup/system.slice/sluice.service/memory.stat",
	    "anon 1\nfile 3\ninactive_file 536870912\nactive_file 268435456\n");
	assert_int_equal(look(&unlimited).available, 3 * GB + 768 * MB);
	put("/sys/fs/cgroup/system.slice/memory.max", "2147483648\n");
	put("/sys/fs/cgroup/system.slice/memory.current", "2147483649\n");
	m = look(&unlimited);
	assert_int_equal(m.total, 2 * GB);
	assert_int_equal(m.available, 0);
	put("/sys/fs/cgroup/system.slice/sluice.service/memory.events", "low 9\nhigh 5\nmax 2\noom 1\noom_kill 8\n");
	assert_int_equal(look(&unlimited).events, 8);

	/* A container: the path is the host's, the mount is the container's own group. */
	begin(16 * GB, 9 * GB);
	put("/proc/self/cgroup", "0::/docker/0123\n");
	put("/sys/fs/cgroup/memory.max", "3221225472\n");
	put("/sys/fs/cgroup/memory.current", "1073741824\n");
	assert_int_equal(look(&unlimited).available, 2 * GB);

	/* Version 1, whose number for no limit is a large one. */
	begin(16 * GB, 9 * GB);
	put("/proc/self/cgroup", "12:pids:/a\n7:cpu,memory:/a/b\n0::/\n");
	put("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
	put("/sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "1\n");
	put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1073741824\n");
	put("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "805306368\n");
	put("/sys/fs/cgroup/memory/a/memory.stat", "total_inactive_file 268435456\n");
	assert_int_equal(look(&unlimited).available, 512 * MB);
	/* Nothing outside the hierarchy is read. */
	begin(16 * GB, 9 * GB);
	put("/proc/self/cgroup", "0::/../../x\n");
	put("/sys/x/memory.max", "1\n");
	put("/sys/x/memory.current", "0\n");
	assert_int_equal(look(&unlimited).available, 9 * GB);
}

static void of_limits(void **state)
{
	(void)state;
	begin(16 * GB, 9 * GB);
	struct machine_limits limits = {.address_space = 2 * GB, .data = UINT64_MAX};
	char text[64];
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	assert_int_equal(look(&limits).available, 9 * GB); /* nothing says what is taken */
	snprintf(text, sizeof text, "%llu 1 2 3 0 %llu 0\n", (unsigned long long)(GB / page),
		 (unsigned long long)(512 * MB / page));
	put("/proc/self/statm", text);
	struct machine_memory m = look(&limits);
	assert_int_equal(m.available, GB);
	assert_string_equal(m.limited_by, "its limit of address space");
	limits.data = GB;
	assert_int_equal(look(&limits).available, 512 * MB);
	limits.data = 1;
	assert_int_equal(look(&limits).available, 0);
	assert_int_equal(look(&limits).total, 16 * GB);
}

static void budget(void **state)
{
	(void)state;
	struct machine_memory now = {.total = 16 * GB, .available = 12 * GB, .limited_by = "the machine"};
	struct host_needs needs = {.weights = GB, .work = GB, .contexts = 3 * GB, .useful = 100 * GB};
	struct host_plan p;
	host_memory_plan(&now, &needs, &p);
	assert_int_equal(p.reserve, 2 * GB);
	assert_int_equal(p.left, 8 * GB);
	assert_int_equal(p.kv, 4 * GB); /* half, which is more than the contexts */
	needs.contexts = 6 * GB;
	host_memory_plan(&now, &needs, &p);
	assert_int_equal(p.kv, 6 * GB);
	needs.contexts = 60 * GB;
	host_memory_plan(&now, &needs, &p);
	assert_int_equal(p.kv, 8 * GB);
	needs.contexts = needs.useful = GB;
	host_memory_plan(&now, &needs, &p);
	assert_int_equal(p.kv, GB);
	/* Pages between engines take what no engine plans for itself, whatever its own bound. */
	needs = (struct host_needs){
	    .weights = GB, .work = GB, .contexts = 6 * GB, .useful = 100 * GB, .shared = 4 * GB, .bound = 5 * GB};
	host_memory_plan(&now, &needs, &p);
	assert_int_equal(p.left, 3 * GB); /* of the bound */
	needs.shared = 6 * GB;
	host_memory_plan(&now, &needs, &p);
	assert_int_equal(p.left, 2 * GB);
	needs = (struct host_needs){.bound = 3 * GB, .weights = GB, .work = GB, .contexts = 6 * GB, .useful = 100 * GB};
	host_memory_plan(&now, &needs, &p);
	assert_int_equal(p.kv, GB);
	/* Nothing left: a little, so that a small model still starts. */
	needs.weights = 50 * GB;
	host_memory_plan(&now, &needs, &p);
	assert_int_equal(p.left, 0);
	assert_int_equal(p.kv, 16 * MB);
	assert_int_equal(host_memory_reserve(512 * MB), 128 * MB);
	assert_int_equal(host_memory_reserve(4 * GB), 512 * MB);
}

/* An engine as the loader has it when it plans, with models of this shape. */
struct planned {
	struct engine e;
	struct eng_model models[3];
};

static struct hand_area *between; /* engines; NULL: none */

static void plan(struct planned *x, int n, const uint64_t kv_bytes, int n_ctx)
{
	struct sl_err err;
	memset(x, 0, sizeof *x);
	x->e.ops = kn_select("cpu-ref", &err);
	assert_non_null(x->e.ops);
	x->e.cfg = (struct eng_config){.page_tokens = 16,
				       .max_sequences = 32,
				       .step_tokens = 128,
				       .kv_bytes = kv_bytes,
				       .memory_root = root,
				       .hand_area = between};
	x->e.models = x->models;
	x->e.n_models = n;
	for (int i = 0; i < n; i++) {
		struct eng_model *m = &x->models[i];
		m->e = &x->e;
		m->index = i;
		m->step_tokens = 128;
		m->kv_type = KN_F16;
		m->inspected = true;
		m->kv_groups = kv_groups_one(16, 28);
		m->info.file_bytes = 640 * MB;
		m->info.arch = (struct model_arch){.n_layers = 28,
						   .n_embd = 1024,
						   .n_ff = 3072,
						   .n_heads = 16,
						   .n_kv_heads = 8,
						   .head_dim = 128,
						   .n_vocab = 151936,
						   .n_ctx = i == 2 ? 512 : n_ctx};
		m->kv_groups = kv_groups_one(16, 28);
	}
	kv_budget_plan(&x->e, false);
}

/* handover.memory is full sooner or later; without it the same engine takes more. */
static void pages_between_engines_have_their_room(void **state)
{
	(void)state;
	struct planned x;
	struct hand_area area = {.bytes = 6 * GB};
	begin(16 * GB, 12 * GB);
	plan(&x, 1, 0, 40960);
	const uint64_t alone = x.e.cfg.kv_bytes;
	kv_rebalance_destroy_memory(&x.e);
	between = &area;
	plan(&x, 1, 0, 40960);
	between = NULL;
	assert_true(x.e.cfg.kv_bytes < alone);
	assert_true(x.e.cfg.kv_bytes > 0);
	assert_true(x.e.cfg.kv_bytes + area.bytes + x.e.memory_reserve + 640 * MB <= 12 * GB);
	assert_true(alone + area.bytes + x.e.memory_reserve + 640 * MB > 12 * GB);
	kv_rebalance_destroy_memory(&x.e);
}

/* Tokens of context that model i's share holds. */
static uint64_t tokens(const struct planned *x, int i)
{
	const struct eng_model *m = &x->models[i];
	struct kv_pool *pool;
	struct sl_err err;
	assert_non_null(x->e.memory);
	assert_int_equal(kv_pool_create_in(x->e.memory, m->memory_index, x->e.ops, x->e.memory_backend, m->kv_type, 16,
					   m->info.arch.n_layers, m->info.arch.n_kv_heads, m->info.arch.head_dim, &pool,
					   &err),
			 0);
	uint64_t n = (uint64_t)kv_pool_n_pages(pool) * 16;
	kv_pool_destroy(pool);
	return n;
}

/* 40,960 tokens of this shape take 4.4 GiB. */
static void contexts_of_a_small_model(void **state)
{
	(void)state;
	static const struct {
		uint64_t total, available;
		int n_ctx;
		bool whole;
	} machines[] = {{16 * GB, 14 * GB, 40960, true},
			{23 * GB, 21 * GB, 40960, true},
			{8 * GB, 7 * GB, 40960, true},
			{8 * GB, 5 * GB, 40960, false},
			{4 * GB, 3 * GB, 4096, true}};
	for (size_t k = 0; k < sizeof machines / sizeof *machines; k++) {
		struct planned x;
		begin(machines[k].total, machines[k].available);
		plan(&x, 1, 0, machines[k].n_ctx);
		uint64_t has = tokens(&x, 0);
		if ((has >= (uint64_t)machines[k].n_ctx) != machines[k].whole)
			fail_msg("machine %zu: %llu tokens of %d", k, (unsigned long long)has, machines[k].n_ctx);
		assert_true(x.e.cfg.kv_bytes <= machines[k].available);
		if (!machines[k].whole) {
			char line[256];
			struct sl_err err;
			struct eng_model *m = &x.models[0];
			assert_int_equal(kv_pool_create_in(x.e.memory, 0, x.e.ops, x.e.memory_backend, m->kv_type, 16,
							   28, 8, 128, &m->pool, &err),
					 0);
			m->n_ctx = (uint32_t)has;
			kv_budget_short(m, line, sizeof line);
			assert_non_null(strstr(line, " of 40960 tokens: 4480 MiB of keys and values would be needed"));
			assert_non_null(strstr(line, "engine.kv_memory"));
			kv_pool_destroy(m->pool);
		}
		kv_rebalance_destroy_memory(&x.e);
	}
}

/* Two of them and one whose context is short: all whole where there is room; else the short one is. */
static void contexts_of_several_models(void **state)
{
	(void)state;
	struct planned x;
	begin(32 * GB, 30 * GB);
	plan(&x, 3, 0, 40960);
	for (int i = 0; i < 3; i++)
		assert_true(tokens(&x, i) >= (uint64_t)x.models[i].info.arch.n_ctx);
	kv_rebalance_destroy_memory(&x.e);
	begin(8 * GB, 7 * GB);
	plan(&x, 3, 0, 40960);
	assert_true(tokens(&x, 2) >= 512);
	uint64_t half = tokens(&x, 0);
	assert_in_range(half, 4096, 40959);
	assert_in_range(tokens(&x, 1), half * 9 / 10, half * 11 / 10);
	kv_rebalance_destroy_memory(&x.e);
	/* A size of one's own is what it says. */
	plan(&x, 1, 100 * MB, 40960);
	assert_int_equal(x.e.cfg.kv_bytes, 100 * MB);
	assert_int_equal(tokens(&x, 0), 100 * MB / model_page_bytes(&x.models[0]) * 16);
	kv_rebalance_destroy_memory(&x.e);
}

static char path[64];

/* A whole engine that plans by itself. */
static void an_engine_plans(void **state)
{
	(void)state;
	static struct run r;
	const struct eng_model_config models[] = {{.name = "tiny", .path = path}, {.name = "twin", .path = path}};
	struct eng_config cfg = small_engine("cpu-ref", models, 2);
	cfg.memory_root = root;
	begin(16 * GB, 12 * GB);
	run_start(&r, &cfg);
	struct proto_submit req = run_plain("hens and", 4);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(r.states[i], PROTO_MODEL_READY);
		assert_int_equal(r.n_ctx[i], TINY_CTX);
		req.model = (uint16_t)i;
		assert_int_not_equal(run_one(&r, 1 + (uint64_t)i, &req)->end.finish, PROTO_FINISH_ERROR);
	}
	run_stop(&r);
}

/* An engine that starts while another one runs. */
static void memory_for_both(void **state)
{
	(void)state;
	static struct run r;
	const struct eng_model_config models[] = {{.name = "tiny", .path = path}};
	struct eng_config cfg = small_engine("cpu-ref", models, 1);
	char line[200];
	cfg.memory_root = root;
	cfg.beside = true;
	begin(16 * GB, 12 * GB);
	run_start(&r, &cfg);
	assert_int_equal(r.states[0], PROTO_MODEL_READY);
	assert_true(kv_budget_fits_beside(r.e, line, sizeof line));
	r.e->cfg.kv_bytes = 12 * GB;
	assert_false(kv_budget_fits_beside(r.e, line, sizeof line));
	assert_non_null(strstr(line, "MiB"));
	r.e->cfg.kv_bytes = UINT64_MAX;
	assert_false(kv_budget_fits_beside(r.e, line, sizeof line));
	run_stop(&r);
	/* Of 16 GB two are in reserve. */
	begin(16 * GB, 2 * GB + 10 * MB);
	run_start(&r, &cfg);
	struct proto_model m;
	engine_model_info(r.e, 0, &m);
	assert_int_equal(m.state, PROTO_MODEL_FAILED);
	assert_non_null(memmem(m.reason.at, m.reason.n, "beside the running engine it needs", 34));
	run_stop(&r);
	cfg.beside = false;
	run_start(&r, &cfg);
	assert_int_equal(r.states[0], PROTO_MODEL_READY);
	run_stop(&r);
}

static void until_stats(struct run *r, bool (*met)(const struct proto_stats *s))
{
	uint64_t until = clock_now_ns() + RUN_WAIT_S * NS_PER_S;
	struct proto_stats s;
	do {
		engine_stats(r->e, &s);
		if (met(&s))
			return;
		struct timespec ts = {.tv_nsec = 1000000};
		nanosleep(&ts, NULL);
	} while (clock_now_ns() < until);
	fail_msg("%llu of %llu bytes are withheld, %llu were released, %llu restored",
		 (unsigned long long)s.kv_withheld, (unsigned long long)s.kv_bytes, (unsigned long long)s.kv_released,
		 (unsigned long long)s.kv_restored);
}

static bool is_shrunk(const struct proto_stats *s) { return s->kv_withheld > s->kv_bytes / 2 && s->kv_released > 0; }

static bool is_whole_again(const struct proto_stats *s) { return s->kv_withheld == 0 && s->kv_restored > 0; }

/* Others take the machine's memory: prefixes go, answers and whole contexts stay; then all comes back. */
static void pressure_on_an_engine(void **state)
{
	(void)state;
	static struct run r;
	const struct eng_model_config models[] = {{.name = "tiny", .path = path}, {.name = "twin", .path = path}};
	struct eng_config cfg = small_engine("cpu-ref", models, 0);
	cfg.max_sequences = 256;
	cfg.step_tokens = 64;
	cfg.memory_watch_ms = 2;
	cfg.memory_root = root;
	static char prompt[400];
	for (size_t i = 0; i + 1 < sizeof prompt; i++)
		prompt[i] = "hens and eggs "[i % 14];
	for (cfg.n_models = 1; cfg.n_models <= 2; cfg.n_models++) {
		begin(16 * GB, 12 * GB);
		run_start(&r, &cfg);
		struct proto_submit req = run_plain(prompt, 4);
		struct answer before = *run_one(&r, 1, &req);
		assert_int_not_equal(before.end.finish, PROTO_FINISH_ERROR);
		put_meminfo(16 * GB, 100 * MB);
		until_stats(&r, is_shrunk);
		for (int i = 0; i < cfg.n_models; i++) {
			req.model = (uint16_t)i;
			run_assert_same(run_one(&r, 2 + (uint64_t)i, &req), &before);
			/* As long as a context. */
			struct proto_submit longest = run_plain(prompt, TINY_CTX);
			longest.model = (uint16_t)i;
			longest.flags |= PROTO_SUBMIT_IGNORE_EOS;
			const struct answer *a = run_one(&r, 4 + (uint64_t)i, &longest);
			assert_int_equal(a->end.finish, PROTO_FINISH_LENGTH);
			assert_int_equal(a->end.n_prompt + a->end.n_completion, TINY_CTX);
		}
		put_meminfo(16 * GB, 12 * GB);
		until_stats(&r, is_whole_again);
		run_assert_same(run_one(&r, 6, &req), &before);
		run_stop(&r);
	}
}

int main(void)
{
	log_init("test", LOG_ERROR);
	snprintf(root, sizeof root, "/tmp/sluice-memory-%d", (int)getpid());
	snprintf(path, sizeof path, "/tmp/sluice-memory-%d.gguf", (int)getpid());
	if (!tiny_gguf_write(path, 1))
		return 1;
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(of_the_machine),
	    cmocka_unit_test(of_control_groups),
	    cmocka_unit_test(of_limits),
	    cmocka_unit_test(budget),
	    cmocka_unit_test(contexts_of_a_small_model),
	    cmocka_unit_test(contexts_of_several_models),
	    cmocka_unit_test(pages_between_engines_have_their_room),
	    cmocka_unit_test(an_engine_plans),
	    cmocka_unit_test(memory_for_both),
	    cmocka_unit_test(pressure_on_an_engine),
	};
	int rc = cmocka_run_group_tests(tests, NULL, NULL);
	char command[192];
	snprintf(command, sizeof command, "rm -rf %s %s", root, path);
	return system(command) == 0 ? rc : 1;
}
