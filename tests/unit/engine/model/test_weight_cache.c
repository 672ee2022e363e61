/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of rearranged weights: what was written is what is read; anything that is not whole, not its key's or not
 * this user's is not taken; the folder keeps to its bound; a model answers the same bits with and without.
 * Run from the repository's root.
 */
#include "tests/unit/engine/core/engine_run.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "engine/model/model.h"
#include "engine/model/weight_cache.h"
#include "engine/model/weight_write.h"
#include "kernels/kernels.h"
#include "tests/support/model_dir.h"

#define MODEL "etc/models/demo-small.gguf"

/* Pieces that end in, at and behind the ends of chunks. */
static const size_t sizes[] = {100, WEIGHT_CACHE_CHUNK - 128, 3, WEIGHT_CACHE_CHUNK + 4000, 64};
enum { N_PIECES = sizeof sizes / sizeof *sizes };

static char dir[128], folder[160];
static uint8_t *bytes[N_PIECES];
static const struct weight_cache_key key = {.source = 0x1111, .digest = {2, 3}};
static struct weight_cache_config cfg;

static int setup(void **arg)
{
	(void)arg;
	md_make(dir);
	snprintf(folder, sizeof folder, "%s/weights", dir);
	cfg = (struct weight_cache_config){.folder = folder, .max_bytes = 1 << 30, .n_threads = 2};
	for (int i = 0; i < N_PIECES; i++) {
		bytes[i] = malloc(sizes[i]);
		for (size_t k = 0; k < sizes[i]; k++)
			bytes[i][k] = (uint8_t)(k * 131 + k / 999 + (size_t)i);
	}
	return 0;
}

static int teardown(void **arg)
{
	(void)arg;
	fault_disarm_all();
	for (int i = 0; i < N_PIECES; i++)
		free(bytes[i]);
	md_remove(folder);
	md_remove(dir);
	return 0;
}

static struct weight_writer *begin(const struct weight_cache_key *k)
{
	struct weight_writer *w = NULL;
	struct weight_piece *pieces = sl_zalloc_n(N_PIECES, sizeof *pieces);
	for (int i = 0; i < N_PIECES; i++)
		pieces[i] = (struct weight_piece){
		    .entry = {.name = 10 + (uint64_t)i, .type = KN_Q8_0, .n_out = i + 1, .n_in = 32, .bytes = sizes[i]},
		    .at = bytes[i]};
	assert_int_equal(weight_write_start(&cfg, k, pieces, N_PIECES, "test", &w), 0);
	return w;
}

static bool write_one(const struct weight_cache_key *k) { return weight_write_end(begin(k), false); }

static int open_one(const struct weight_cache_key *k)
{
	struct weight_cache c;
	struct sl_err err = {0};
	int rc = weight_cache_open(&cfg, k, NULL, &c, &err);
	if (rc == 0)
		weight_cache_close(&c);
	assert_true(rc == 0 || rc == SL_ENOTFOUND || err.text[0] != '\0');
	return rc;
}

static void path_of(const struct weight_cache_key *k, char out[256])
{
	char name[WEIGHT_CACHE_NAME];
	weight_cache_name(k, name);
	md_path(out, folder, name);
}

static int count(const char *with)
{
	DIR *d = opendir(folder);
	struct dirent *e;
	int n = 0;
	while (d != NULL && (e = readdir(d)) != NULL)
		n += strstr(e->d_name, with) != NULL;
	if (d != NULL)
		closedir(d);
	return n;
}

static void test_round_trip(void **arg)
{
	(void)arg;
	struct weight_cache c;
	struct sl_err err;
	assert_int_equal(open_one(&key), SL_ENOTFOUND); /* not even a folder */
	assert_true(write_one(&key));
	for (cfg.n_threads = 1; cfg.n_threads <= 3; cfg.n_threads++) {
		assert_int_equal(weight_cache_open(&cfg, &key, NULL, &c, &err), 0);
		assert_int_equal(c.head->n_entries, N_PIECES);
		for (int i = 0; i < N_PIECES; i++) {
			assert_int_equal(c.entries[i].name, 10 + i);
			assert_int_equal(c.entries[i].n_out, i + 1);
			assert_int_equal(c.entries[i].bytes, sizes[i]);
			assert_int_equal((uintptr_t)(c.data + c.entries[i].at) % 64, 0);
			assert_memory_equal(c.data + c.entries[i].at, bytes[i], sizes[i]);
		}
		weight_cache_close(&c);
	}
	assert_int_equal(count(WEIGHT_CACHE_PART), 0);
	struct weight_cache_key other = key;
	other.digest[1]++;
	assert_int_equal(open_one(&other), SL_ENOTFOUND);
}

/* One bit of a written file, at `at` from its beginning or, negative, from its end. */
static void flip(const char *path, long at)
{
	int fd = open(path, O_RDWR);
	uint8_t byte;
	assert_true(fd >= 0);
	off_t where = at >= 0 ? at : lseek(fd, 0, SEEK_END) + at;
	assert_int_equal(pread(fd, &byte, 1, where), 1);
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, where), 1);
	close(fd);
}

static void expect_removed(const char *path)
{
	assert_int_equal(open_one(&key), SL_EINVAL);
	assert_int_equal(access(path, F_OK), -1);
}

static void test_damaged(void **arg)
{
	(void)arg;
	const long head = (long)sizeof(struct weight_cache_head),
		   entries = head + N_PIECES * (long)sizeof(struct weight_cache_entry);
	const long at[] = {
	    0,        16, 40, 60, head - 1, head, entries - 1, entries, entries + 8, 4096, 4096 + WEIGHT_CACHE_CHUNK,
	    -5000000, -1};
	char path[256];
	path_of(&key, path);
	for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
		assert_true(write_one(&key));
		assert_int_equal(open_one(&key), 0);
		flip(path, at[i]);
		expect_removed(path);
	}
}

static void test_lengths(void **arg)
{
	(void)arg;
	char path[256];
	struct stat st;
	path_of(&key, path);
	assert_true(write_one(&key));
	assert_int_equal(stat(path, &st), 0);
	const off_t lengths[] = {st.st_size - 1, st.st_size + 1, 4096 + WEIGHT_CACHE_CHUNK, 4096, 100, 1, 0};
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		assert_true(write_one(&key));
		assert_int_equal(truncate(path, lengths[i]), 0);
		expect_removed(path);
	}
	assert_int_equal(open_one(&key), SL_ENOTFOUND);
}

/* Under another's name, of other rights, a link. */
static void test_foreign(void **arg)
{
	(void)arg;
	struct weight_cache_key other = {.source = 0x2222, .digest = {2, 3}};
	char path[256], from[256];
	path_of(&key, path);
	path_of(&other, from);
	assert_true(write_one(&other));
	assert_int_equal(rename(from, path), 0);
	expect_removed(path);
	assert_true(write_one(&key));
	assert_int_equal(chmod(path, 0620), 0);
	assert_int_equal(open_one(&key), SL_EINVAL);
	assert_int_equal(access(path, F_OK), 0); /* not ours to remove */
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(open_one(&key), 0);
	assert_int_equal(rename(path, from), 0);
	assert_int_equal(symlink(from, path), 0);
	assert_int_equal(open_one(&key), SL_EINVAL);
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(open_one(&key), SL_EINVAL);
	rmdir(path);
}

/* Whatever fails while it is written: nothing is left, nothing else happens. */
static void test_not_written(void **arg)
{
	(void)arg;
	for (int nth = 1; nth <= 6; nth++) {
		fault_arm(FAULT_WRITE, nth, 1);
		assert_false(write_one(&key));
		assert_int_equal(count(""), 2); /* "." and ".." */
	}
	fault_disarm_all();
	cfg.max_bytes = WEIGHT_CACHE_CHUNK;
	assert_false(write_one(&key));
	cfg.max_bytes = 1 << 30;
	cfg.folder = "/proc/weights";
	assert_false(write_one(&key));
	assert_int_not_equal(open_one(&key), 0);
	char file[256];
	md_text(dir, "file", "x");
	md_path(file, dir, "file");
	cfg.folder = file;
	assert_false(write_one(&key));
	assert_int_equal(open_one(&key), SL_EIO);
	cfg.folder = folder;
	assert_true(write_one(&key));
}

static void test_given_up(void **arg)
{
	(void)arg;
	for (int i = 0; i < 5; i++) {
		struct weight_writer *w = begin(&key);
		usleep((useconds_t)(i * 1000));
		bool written = weight_write_end(w, true);
		assert_int_equal(open_one(&key), written ? 0 : SL_ENOTFOUND);
		assert_int_equal(count(WEIGHT_CACHE_PART), 0);
		char path[256];
		path_of(&key, path);
		unlink(path);
	}
}

static void test_two_writers(void **arg)
{
	(void)arg;
	for (int i = 0; i < 3; i++) {
		struct weight_writer *a = begin(&key), *b = begin(&key);
		assert_true(weight_write_end(a, false));
		assert_int_equal(open_one(&key), 0);
		assert_true(weight_write_end(b, false));
		assert_int_equal(open_one(&key), 0);
		assert_int_equal(count(WEIGHT_CACHE_SUFFIX), 1);
	}
}

static void test_bound(void **arg)
{
	(void)arg;
	struct weight_cache_key k[4];
	char path[4][256];
	struct stat st;
	for (int i = 0; i < 4; i++) {
		k[i] = (struct weight_cache_key){.source = 100 + (uint64_t)i, .digest = {7, (uint64_t)i}};
		path_of(&k[i], path[i]);
	}
	for (int i = 0; i < 3; i++) {
		assert_true(write_one(&k[i]));
		usleep(20000);
	}
	assert_int_equal(open_one(&k[0]), 0); /* used last */
	assert_int_equal(stat(path[0], &st), 0);
	cfg.max_bytes = 3 * (uint64_t)st.st_size;
	assert_true(write_one(&k[3]));
	assert_int_equal(access(path[1], F_OK), -1);
	assert_int_equal(access(path[0], F_OK), 0);
	assert_int_equal(access(path[2], F_OK), 0);
	cfg.max_bytes = (uint64_t)st.st_size;
	assert_true(write_one(&k[2]));
	assert_int_equal(count(WEIGHT_CACHE_SUFFIX), 1);
	assert_int_equal(open_one(&k[2]), 0);
	/* A newer one of the same source. */
	cfg.max_bytes = 1 << 30;
	struct weight_cache_key newer = k[2];
	newer.digest[0]++;
	assert_true(write_one(&newer));
	assert_int_equal(open_one(&k[2]), SL_ENOTFOUND);
	assert_int_equal(open_one(&newer), 0);
}

/* Of a writer that has died, and of one that lives; and what is nobody's of us. */
static void test_left_parts(void **arg)
{
	(void)arg;
	char live[256];
	assert_true(write_one(&key));
	md_text(folder, "0-1.weights.partAAAAAA", "x");
	md_text(folder, "0-1.weights.partBBBBBB", "x");
	md_text(folder, "notes", "x");
	md_path(live, folder, "0-1.weights.partBBBBBB");
	int fd = open(live, O_RDWR);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	weight_cache_tidy(&cfg, &key);
	assert_int_equal(count("partAAAAAA"), 0);
	assert_int_equal(count("partBBBBBB"), 1);
	assert_int_equal(count("notes"), 1);
	close(fd);
	weight_cache_tidy(&cfg, &key);
	assert_int_equal(count("partBBBBBB"), 0);
	assert_int_equal(open_one(&key), 0);
}

/* Cut after it was checked: the process says which file it was and ends, as with the model's own. */
static void test_cut_while_used(void **arg)
{
	(void)arg;
	char path[256], said[512];
	int fds[2], status;
	path_of(&key, path);
	assert_true(write_one(&key));
	assert_int_equal(pipe(fds), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct weight_cache c;
		dup2(fds[1], STDERR_FILENO);
		map_file_guard();
		if (weight_cache_open(&cfg, &key, NULL, &c, NULL) != 0 || truncate(path, 4096) != 0)
			_exit(99);
		const volatile uint8_t *last = c.data + c.head->data_bytes - 1;
		_exit(*last);
	}
	close(fds[1]);
	ssize_t n = read(fds[0], said, sizeof said - 1);
	said[n > 0 ? n : 0] = '\0';
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), MAP_FILE_EXIT);
	assert_non_null(strstr(said, "became shorter"));
	expect_removed(path);
}

/* ---- with a model ---- */

static char model_path[256];

/* A model that was changed a moment ago; its weights are kept all the same. */
static void copy_model(void)
{
	size_t n;
	uint8_t *all = md_read(".", MODEL, &n);
	md_write(dir, "model.gguf", all, n);
	free(all);
	md_path(model_path, dir, "model.gguf");
}

/* A sum over the files there are: another one once one was written, also in place of an older one. */
static uint64_t written(void)
{
	DIR *d = opendir(folder);
	struct dirent *e;
	uint64_t sum = 0;
	while (d != NULL && (e = readdir(d)) != NULL)
		if (strstr(e->d_name, WEIGHT_CACHE_SUFFIX) != NULL)
			sum += e->d_ino;
	if (d != NULL)
		closedir(d);
	return sum;
}

/* Loads and frees it; whether its weights were kept. */
static bool load_once(const char *backend)
{
	struct sl_err err = {0};
	const struct kn_ops *ops = kn_select(backend, &err);
	const struct model_how how = {.cache = &cfg};
	const struct kn_config kc = {.n_threads = 2, .max_rows = 4, .max_width = 65536};
	struct kn_backend *b;
	struct model *m;
	uint64_t before = written();
	assert_non_null(ops);
	assert_int_equal(ops->open(&kc, &b, &err), 0);
	assert_int_equal(model_load_as(model_path, &how, ops, b, 4, 0, &m, &err), 0);
	bool kept = model_was_kept(m);
	for (int i = 0;
	     ops->made_layout != NULL && !kept && i < 6000 && (written() == before || count(WEIGHT_CACHE_PART) > 0);
	     i++)
		usleep(10000);
	model_free(m);
	ops->close(b);
	return kept;
}

static bool has_int8(void)
{
	struct sl_err err;
	return kn_select("cpu-avx2-int8", &err) != NULL;
}

static void ask(const char *weights, struct answer *out, int n)
{
	struct eng_model_config models[] = {{.name = "small", .path = model_path}};
	struct eng_config e = {.models = models,
			       .n_models = 1,
			       .backend = "cpu-avx2-int8",
			       .n_threads = 2,
			       .n_text_workers = 1,
			       .page_tokens = 16,
			       .kv_bytes = 64 << 20,
			       .max_sequences = 4,
			       .max_waiting = 8,
			       .step_tokens = 64,
			       .max_prompt_bytes = 1 << 20,
			       .weight_cache = weights,
			       .weight_cache_bytes = 1 << 30};
	struct run r;
	run_start(&r, &e);
	for (int i = 0; i < n; i++) {
		struct proto_submit req = run_plain(i == 0 ? "Foxes and hens" : "What is the capital of France?", 16);
		req.flags |= PROTO_SUBMIT_IGNORE_EOS;
		req.temperature = i == 0 ? 0 : 0.9f;
		req.seed = 5;
		out[i] = *run_one(&r, 1, &req);
	}
	for (int i = 0; weights != NULL && i < 6000 && count(WEIGHT_CACHE_SUFFIX) == 0; i++)
		usleep(10000);
	run_stop(&r);
}

static void test_same_answers(void **arg)
{
	(void)arg;
	enum { ASKED = 2 };
	static struct answer without[ASKED], first[ASKED], second[ASKED];
	if (!has_int8())
		skip();
	copy_model();
	ask(NULL, without, ASKED);
	ask(folder, first, ASKED);
	assert_int_equal(count(WEIGHT_CACHE_SUFFIX), 1);
	assert_true(load_once("cpu-avx2-int8"));
	ask(folder, second, ASKED);
	for (int i = 0; i < ASKED; i++) {
		assert_int_equal(without[i].n_tokens, 16);
		run_assert_same(&first[i], &without[i]);
		run_assert_same(&second[i], &without[i]);
	}
}

/* A model that changed in place, length and time of change as they were, is another one. */
static void test_stale(void **arg)
{
	(void)arg;
	struct stat st;
	uint8_t byte;
	if (!has_int8())
		skip();
	copy_model();
	assert_false(load_once("cpu-ref")); /* rearranges nothing */
	assert_int_equal(count(WEIGHT_CACHE_SUFFIX), 0);
	assert_false(load_once("cpu-avx2-int8"));
	assert_true(load_once("cpu-avx2-int8"));
	assert_int_equal(stat(model_path, &st), 0);
	int fd = open(model_path, O_RDWR);
	off_t middle = st.st_size / 2;
	assert_int_equal(pread(fd, &byte, 1, middle), 1);
	byte ^= 1;
	assert_int_equal(pwrite(fd, &byte, 1, middle), 1);
	const struct timespec times[] = {st.st_atim, st.st_mtim};
	assert_int_equal(futimens(fd, times), 0);
	close(fd);
	/* Too soon to be kept, and then it is. */
	assert_int_equal(count(WEIGHT_CACHE_SUFFIX), 1);
	usleep(150000);
	assert_false(load_once("cpu-avx2-int8"));
	assert_true(load_once("cpu-avx2-int8"));
	assert_int_equal(count(WEIGHT_CACHE_SUFFIX), 1); /* the older one went */
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_lengths, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_foreign, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_not_written, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_given_up, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_two_writers, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_bound, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_left_parts, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_cut_while_used, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_same_answers, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_stale, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
