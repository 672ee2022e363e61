/* SPDX-License-Identifier: Apache-2.0
 *
 * A step: its operations are recorded, and its end runs them, as a graph if possible (list.h). One kernel before it
 * reads the step's inputs from pinned memory, one after it writes the drawn tokens there: no copy is needed unless
 * logits go to the host, or there is no pinned memory.
 *
 * Steps of the same shape have equal lists, byte by byte, because
 *  - everything that varies (tokens, positions, sequences, page tables, rows to gather, adapters) is in one device
 *    buffer whose layout follows from the number of rows, and from whether there are adapters;
 *  - page tables are reduced to the sequences and pages that the step reads, with a power of two of pages each, so they
 *    are small and their stride rarely changes;
 *  - steps of decodes only are padded to a class, a power of two of rows, with copies of the last row: the same token
 *    at the same position. A row's result depends on its own inputs only, so a copy writes the same bits to the page as
 *    its original, and its result is never read. This needs room in the caller's activations, so it requires
 *    kn_config.pad_rows.
 *
 * Results go to pinned memory after the graph, and to their destinations once the step's event has occurred.
 *
 * A step may be issued while the previous one runs. Both use one stream and the same device memory, and the second
 * list equals the first, byte for byte: only the pinned memory that the device reads and writes exists twice. The
 * step's first kernel inserts tokens that the previous step draws.
 *
 * VERSIONS
 *  1  two copies to the device before the graph (integers, draws), one back after it.
 *  2  kernels instead, one each way. Counted for a decode of 256 rows at 1000 tokens of context: 19 words a row and 64
 *     pages of each, 85 kB, 16 kB of draws, 44 kB back. A copy is some 2 µs of the host and 1 to 2 of the device before
 *     the next thing starts, beside the bus (25 GB/s: 4 µs and 2 µs); a kernel has the bus and 1 µs. Saved: one
 *     submission of five and some 3 µs a step. Not measured on a device.
 */
#include "kernels/cuda/backend.h"

enum {
	TEXT_INTS = sizeof(struct kn_text) / sizeof(int32_t),
	RUN_INTS = sizeof(struct kn_run) / sizeof(int32_t),
	ALIGN_INTS = 4, /* 16 bytes */
};
enum {
	MOVE_THREADS = 128,
	MOST_MOVED = 256 << 10, /* bytes of a result; more of them are copied */
};
enum { MAX_CLASS = 256 }; /* rows: wider steps are prompts, neither padded nor captured */

/* ---- memory ---- */

int kn_cuda_room(struct kn_backend *b, struct kn_room *room, size_t bytes)
{
	if (bytes <= room->bytes)
		return 0;
	int rc = dev_sync(b->dev); /* it may be in use */
	if (rc != 0)
		return rc;
	kn_graphs_drop(b->dev, &b->graphs); /* they contain addresses of memory that moves */
	if (room->at != NULL)
		dev_free(b->dev, room->at);
	room->at = NULL;
	room->bytes = 0;
	size_t grown = bytes + bytes / 2;
	int (*alloc)(struct dev *, size_t, void **) = room->kept ? dev_alloc : dev_alloc_scratch;
	rc = alloc(b->dev, grown, &room->at);
	if (rc == SL_ENOMEM) { /* retry without room for growth */
		grown = bytes;
		rc = alloc(b->dev, grown, &room->at);
	}
	if (rc == 0)
		room->bytes = grown;
	else if (rc == SL_ENOMEM)
		b->lacked = bytes;
	return rc;
}

/* The content is lost. Falls back to pageable memory, which only makes copies slower. */
int kn_cuda_host_room(struct kn_backend *b, struct kn_host_room *room, size_t bytes)
{
	if (bytes <= room->bytes)
		return 0;
	kn_cuda_host_room_free(b, room);
	size_t grown = bytes + bytes / 2;
	room->at = dev_host_alloc(b->dev, grown);
	room->pinned = room->at != NULL;
	if (room->at == NULL)
		room->at = b->host->zalloc(grown);
	if (room->at == NULL)
		return dev_fail(b->dev, "a step", "no memory on the host");
	room->bytes = grown;
	return 0;
}

void kn_cuda_host_room_free(struct kn_backend *b, struct kn_host_room *room)
{
	if (room->at != NULL && room->pinned)
		dev_host_free(b->dev, room->at);
	else
		b->host->free(room->at);
	room->at = NULL;
	room->bytes = 0;
}

/* ---- inputs of a step ---- */

static int fail_begin(struct kn_backend *b) { return dev_fail(b->dev, "a step", "no memory for what it reads"); }

/* n words, of which either side may be pinned host memory. */
struct stretch {
	uint32_t *to;
	const uint32_t *from;
	int64_t n;
};

__global__ void move(struct stretch a, struct stretch b)
{
	kn_begin();
	int64_t i = (int64_t)blockIdx.x * MOVE_THREADS + threadIdx.x;
	if (i < a.n)
		a.to[i] = a.from[i];
	else if (i - a.n < b.n)
		b.to[i - a.n] = b.from[i - a.n];
}

static int moved(struct kn_backend *b, const struct stretch &x, const struct stretch &y)
{
	return KN_LAUNCH(b->dev, move, (unsigned)((x.n + y.n + MOVE_THREADS - 1) / MOVE_THREADS), MOVE_THREADS, 0, x,
			 y);
}

/* Bytes are a multiple of a word's. */
static struct stretch stretch_of(void *to, const void *from, size_t bytes)
{
	return {(uint32_t *)to, (const uint32_t *)from, (int64_t)(bytes / sizeof(uint32_t))};
}

/* Sends the staged inputs unless already sent. */
int kn_cuda_send(void *backend)
{
	struct kn_backend *b = (struct kn_backend *)backend;
	size_t ints = b->n_staged * sizeof(int32_t), draws = b->n_draws;
	const struct kn_step_set *set = &b->sets[b->set];
	b->picks_at = b->texts_at = NULL; /* too late to fill these */
	b->n_staged = b->n_draws = 0;
	if (ints + draws == 0)
		return 0;
	if ((ints == 0 || set->staged.pinned) && (draws == 0 || set->draws_staged.pinned))
		return moved(b, stretch_of(b->ints.at, set->staged.at, ints),
			     stretch_of(b->draws.at, set->draws_staged.at, draws));
	int rc = ints == 0 ? 0 : dev_copy_in(b->dev, b->ints.at, set->staged.at, ints);
	return rc != 0 || draws == 0 ? rc : dev_copy_in(b->dev, b->draws.at, set->draws_staged.at, draws);
}

uint8_t *kn_cuda_stage_draws(struct kn_backend *b, size_t bytes, uint8_t **device)
{
	/* Earlier draws of this step are sent, and read, before they are overwritten. */
	if ((b->n_draws > 0 && dev_sync(b->dev) != 0) || kn_cuda_room(b, &b->draws, bytes) != 0 ||
	    kn_cuda_host_room(b, &b->sets[b->set].draws_staged, bytes) != 0)
		return NULL;
	b->n_draws = bytes;
	*device = (uint8_t *)b->draws.at;
	return (uint8_t *)b->sets[b->set].draws_staged.at;
}

/* Room for n integers of the step, zero, on the host; *device: where they will be. There is enough. */
static int32_t *stage(struct kn_backend *b, size_t n, const int32_t **device)
{
	int32_t *here = (int32_t *)b->sets[b->set].staged.at + b->n_staged;
	*device = (int32_t *)b->ints.at + b->n_staged;
	b->n_staged += n;
	memset(here, 0, n * sizeof *here);
	return here;
}

int kn_cuda_stage_picks(struct kn_backend *b, const int32_t *from, int n, const int32_t **device)
{
	int to = kn_cuda_rows(b, n);
	if (n < 1)
		return SL_EIO;
	if (b->picks_at != NULL && to <= b->shaped.n_rows) {
		memcpy(b->picks_at, from, (size_t)n * sizeof *from);
		for (int i = n; i < to; i++)
			b->picks_at[i] = from[n - 1];
		*device = (int32_t *)b->ints.at + (b->picks_at - (int32_t *)b->sets[b->set].staged.at);
		b->picks_at = NULL;
		return 0;
	}
	/* A second gather in a step: a separate copy, once the readers of the previous one are done. */
	if (kn_cuda_room(b, &b->picks, (size_t)to * sizeof *from) != 0 || dev_sync(b->dev) != 0)
		return SL_EIO;
	int32_t *all = (int32_t *)b->host->zalloc((size_t)to * sizeof *all);
	if (all == NULL)
		return fail_begin(b);
	for (int i = 0; i < to; i++)
		all[i] = from[i < n ? i : n - 1];
	*device = (int32_t *)b->picks.at;
	int rc = dev_copy_in(b->dev, b->picks.at, all, (size_t)to * sizeof *all);
	b->host->free(all);
	return rc;
}

int kn_cuda_stage_texts(struct kn_backend *b, const struct kn_text *from, int n, const struct kn_text **device)
{
	size_t bytes = (size_t)n * sizeof *from;
	if (n < 1 || n > b->shaped.n_rows)
		return SL_EIO;
	if (b->texts_at != NULL) {
		memcpy(b->texts_at, from, bytes);
		*device = (const struct kn_text *)((int32_t *)b->ints.at +
						   (b->texts_at - (int32_t *)b->sets[b->set].staged.at));
		b->texts_at = NULL;
		return 0;
	}
	/* A second time in a step, as with picks. */
	if (kn_cuda_room(b, &b->texts, bytes) != 0 || dev_sync(b->dev) != 0)
		return SL_EIO;
	*device = (const struct kn_text *)b->texts.at;
	return dev_copy_in(b->dev, b->texts.at, from, bytes);
}

static void find_items(struct kn_backend *b, const struct kn_step *s, struct kn_item *alone, struct kn_item *together)
{
	b->n_alone = b->n_together = 0;
	for (int32_t r = 0, n; r < s->n_rows; r += n) {
		for (n = 1; n < KN_ITEM_ROWS && r + n < s->n_rows && s->row_seq[r + n] == s->row_seq[r]; n++)
			;
		if (n == 1)
			alone[b->n_alone++] = {r, n};
		else
			together[b->n_together++] = {r, n};
	}
}

/* The runs of a step with states, and the run of each of its `rows` rows, padding included. */
static void find_runs(struct kn_backend *b, const struct kn_step *s, int rows, struct kn_run *runs, int32_t *run_of)
{
	b->n_runs = 0;
	for (int32_t r = 0, n; r < rows; r += n, b->n_runs++) {
		for (n = 0; r + n < s->n_rows && s->row_seq[r + n] == s->row_seq[r]; n++)
			run_of[r + n] = b->n_runs;
		runs[b->n_runs] = {r, n, n > 0 && r + n == s->n_rows ? rows - s->n_rows : 0, 0};
		if (n > 0)
			runs[b->n_runs].slot = s->state_of[s->row_seq[r]];
		else
			run_of[r + n++] = b->n_runs;
	}
}

/* Stages the runs of a step with states. */
static void stage_runs(struct kn_backend *b, const struct kn_step *s, int rows)
{
	const int32_t *at;
	b->n_runs = 0;
	if (s->states == NULL)
		return;
	struct kn_run *runs = (struct kn_run *)stage(b, RUN_INTS * (size_t)rows, &at);
	b->runs = (const struct kn_run *)at;
	find_runs(b, s, rows, runs, stage(b, (size_t)rows, &b->run_of));
}

/* A step with consecutive rows of a sequence computes a prompt or verifies a draft. */
static bool is_decode(const struct kn_step *s)
{
	for (int r = 1; s->row_seq != NULL && r < s->n_rows; r++)
		if (s->row_seq[r] == s->row_seq[r - 1])
			return false;
	return true;
}

/* The step's number of rows after padding, which applies to steps of decodes only. */
static int rows_of_class(const struct kn_backend *b, const struct kn_step *s)
{
	int rows = 1;
	if (!b->pad_rows || s->n_rows > MAX_CLASS || s->row_seq == NULL || s->row_pos == NULL || s->row_token == NULL ||
	    !is_decode(s))
		return s->n_rows;
	while (rows < s->n_rows)
		rows *= 2;
	return rows <= b->max_rows ? rows : s->n_rows;
}

int kn_cuda_rows(const struct kn_backend *b, int n_rows)
{
	return b->step == NULL || b->n_real == b->shaped.n_rows || n_rows % b->n_real != 0
		   ? n_rows
		   : n_rows / b->n_real * b->shaped.n_rows;
}

/* Pages per sequence in the step's tables. */
static int stride_of(const struct kn_backend *b, const struct kn_step *s)
{
	if (s->page_tokens <= 0)
		return s->max_pages;
	int64_t used = b->last_pos / s->page_tokens + 1, stride = 1;
	while (stride < used)
		stride *= 2;
	return stride < s->max_pages ? (int)stride : s->max_pages;
}

/* Numbers the sequences that the step has rows of, in the order of their first rows; how many. -1: no
 * memory. */
static int number_seqs(struct kn_backend *b, const struct kn_step *s)
{
	int n = 0;
	if (s->n_seqs > b->n_numbers) {
		int32_t *grown = (int32_t *)b->host->zalloc(2 * (size_t)s->n_seqs * sizeof *grown);
		if (grown == NULL)
			return -1;
		b->host->free(b->numbers);
		b->numbers = grown;
		b->n_numbers = s->n_seqs;
	}
	for (int i = 0; i < s->n_seqs; i++)
		b->numbers[i] = -1;
	int32_t *seqs = b->numbers + b->n_numbers;
	for (int r = 0; r < s->n_rows; r++) {
		int32_t *number = &b->numbers[s->row_seq[r]];
		if (*number < 0) {
			*number = n;
			seqs[n++] = s->row_seq[r];
		}
	}
	return n;
}

/* Stages a row array, padded with its last element. */
static const int32_t *stage_rows(struct kn_backend *b, const int32_t *from, int n, int rows, const int32_t **device)
{
	int32_t *here = stage(b, (size_t)rows, device);
	if (from == NULL)
		return NULL;
	for (int r = 0; r < rows; r++)
		here[r] = from[r < n ? r : n - 1];
	return here;
}

static int stage_adapters(struct kn_backend *b, const struct kn_lora_rows *from, int rows)
{
	const int32_t *at;
	while (b->n_staged % ALIGN_INTS != 0)
		stage(b, 1, &at);
	int32_t *here = stage(b, kn_cuda_lora_ints(rows), &at);
	return kn_cuda_lora_stage(from, b->n_real, rows, here, at, &b->lora);
}

/* ---- tokens of the previous step ---- */

__global__ void take_tokens(int32_t *token, const int32_t *from, int n, const struct kn_drawn *drawn)
{
	kn_begin();
	int r = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	if (r >= n || from[r] < 0)
		return;
	int32_t id = drawn[from[r]].id;
	token[r] = id >= 0 ? id : 0; /* without a draw the row's result is discarded */
}

static bool takes(const struct kn_step *s)
{
	for (int r = 0; s->row_from != NULL && r < s->n_rows; r++)
		if (s->row_from[r] >= 0)
			return true;
	return false;
}

/* Whether those draws exist. */
static bool from_is_there(const struct kn_backend *b, const struct kn_step *s)
{
	for (int r = 0; s->row_from != NULL && r < s->n_rows; r++)
		if (s->row_from[r] >= b->n_drawn)
			return false;
	return true;
}

static int take(struct kn_backend *b, const int32_t *from)
{
	int n = b->shaped.n_rows, threads = 4 * KN_WARP;
	return KN_LAUNCH(b->dev, take_tokens, (unsigned)((n + threads - 1) / threads), (unsigned)threads, 0,
			 (int32_t *)b->ints.at + (b->token - (const int32_t *)b->ints.at), from, n,
			 (const struct kn_drawn *)b->drawn.at);
}

int kn_cuda_step_begin(struct kn_backend *b, const struct kn_step *s)
{
	bool paged = s->row_seq != NULL && s->row_pos != NULL && s->page_table != NULL;
	const int32_t *at, *from = NULL;
	dev_range(b->dev, is_decode(s) ? "decode" : "prefill");
	if (dev_fault(b->dev)[0] != '\0')
		return SL_EIO;
	if (b->n_issued == KN_STEPS_AHEAD || !from_is_there(b, s))
		return SL_EUNSUPPORTED;
	if (kn_cuda_await_pages(b, s) != 0)
		return SL_EIO;
	b->last_pos = 0;
	b->converted = {}; /* so that a step's commands depend on the step alone */
	b->flat.x = NULL;
	for (int i = 0; i < KN_N_FREQS; i++)
		b->freqs[i].turned = false;
	for (int r = 0; s->row_pos != NULL && r < s->n_rows; r++)
		b->last_pos = s->row_pos[r] > b->last_pos ? s->row_pos[r] : b->last_pos;
	for (int r = 0; s->row_sees != NULL && r < s->n_rows; r++)
		b->last_pos = s->row_sees[r] - 1 > b->last_pos ? s->row_sees[r] - 1 : b->last_pos;
	int rows = rows_of_class(b, s), n_seqs = paged ? number_seqs(b, s) : 0, stride = paged ? stride_of(b, s) : 0;
	if (n_seqs < 0)
		return fail_begin(b);
	int n_groups = s->n_groups > 0 ? s->n_groups : 1;
	/* Their number, six arrays, two of items, what is gathered, texts, runs, adapters, tables. */
	size_t table = (size_t)n_seqs * (size_t)n_groups * (size_t)stride;
	size_t n = 1 + (11 + TEXT_INTS + (s->states != NULL ? RUN_INTS + 1 : 0)) * (size_t)rows + table;
	bool adapted = s->adapters != NULL && s->adapters->n_groups > 0;
	n += adapted ? kn_cuda_lora_ints(rows) + ALIGN_INTS : 0;
	if (kn_cuda_room(b, &b->ints, n * sizeof(int32_t)) != 0 ||
	    kn_cuda_host_room(b, &b->sets[b->set].staged, n * sizeof(int32_t)) != 0)
		return fail_begin(b);
	b->n_staged = 0;
	b->n_real = s->n_rows;
	b->shaped = *s;
	b->shaped.n_rows = rows;
	b->shaped.row_token = stage_rows(b, s->row_token, s->n_rows, rows, &b->token);
	b->shaped.row_pos = stage_rows(b, s->row_pos, s->n_rows, rows, &b->pos);
	b->shaped.row_seq = stage_rows(b, s->row_seq, s->n_rows, rows, &b->seq);
	b->shaped.row_type = stage_rows(b, s->row_type, s->n_rows, rows, &b->type);
	b->shaped.row_sees = stage_rows(b, s->row_sees, s->n_rows, rows, &b->sees);
	bool taking = takes(s);
	stage_rows(b, taking ? s->row_from : NULL, s->n_rows, rows, &from);
	struct kn_item *alone = (struct kn_item *)stage(b, 2 * (size_t)rows, &at);
	b->alone = (const struct kn_item *)at;
	struct kn_item *together = (struct kn_item *)stage(b, 2 * (size_t)rows, &at);
	b->together = (const struct kn_item *)at;
	b->n_alone = b->n_together = 0;
	if (rows > s->n_rows) /* decodes */
		for (; b->n_alone < rows; b->n_alone++)
			alone[b->n_alone] = {b->n_alone, 1};
	else if (s->row_seq != NULL && s->row_pos != NULL)
		find_items(b, &b->shaped, alone, together);
	stage(b, 1, &b->real)[0] = s->n_rows;
	b->picks_at = stage(b, (size_t)rows, &at);
	b->texts_at = stage(b, TEXT_INTS * (size_t)rows, &at);
	stage_runs(b, s, rows);
	memset((void *)&b->lora, 0, sizeof b->lora);
	b->shrunk = 0;
	if (adapted && stage_adapters(b, s->adapters, rows) != 0)
		return SL_EUNSUPPORTED;
	if (paged) { /* last: where the others are depends on the number of rows alone */
		int32_t *tables = stage(b, table, &b->table), *seq = (int32_t *)b->shaped.row_seq;
		for (int i = 0; i < n_seqs * n_groups; i++)
			memcpy(tables + (size_t)i * (size_t)stride,
			       kn_table_of(s, b->numbers[b->n_numbers + i / n_groups], i % n_groups),
			       (size_t)stride * sizeof *tables);
		for (int r = 0; r < rows; r++)
			seq[r] = b->numbers[seq[r]];
		b->shaped.page_table = tables;
		b->shaped.n_seqs = n_seqs;
		b->shaped.max_pages = stride;
		b->shaped.n_groups = n_groups;
	}
	b->step = &b->shaped;
	kn_list_clear(&b->list);
	dev_record(b->dev, &b->list);
	return taking ? take(b, from) : 0;
}

/* ---- results of a step ---- */

static void forget(struct kn_step_set *set)
{
	set->n_reads = set->n_counted = 0;
	set->n_results = 0;
}

static void add_counts(const struct kn_step_set *set)
{
	for (int i = 0; i < set->n_counted; i++) {
		const struct kn_counted *c = &set->counted[i];
		uint32_t n;
		for (int j = 0; j < c->n; j++) {
			memcpy(&n, (const uint8_t *)set->results.at + set->counts_at + (size_t)(c->at + j) * sizeof n,
			       sizeof n);
			c->to[j] += n;
		}
	}
}

static void deliver(struct kn_step_set *set)
{
	const uint8_t *from = (const uint8_t *)set->results.at;
	for (int i = 0; i < set->n_reads; i++) {
		memcpy(set->reads[i].to, from, set->reads[i].bytes);
		from += set->reads[i].bytes;
	}
	add_counts(set);
	forget(set);
}

int kn_cuda_read_back(struct kn_backend *b, const float *src, size_t n, float *host)
{
	return kn_cuda_read_bytes(b, src, n * sizeof *host, host);
}

static int more_reads(struct kn_backend *b, struct kn_step_set *set)
{
	if (set->n_reads < set->max_reads)
		return 0;
	int max = 2 * set->max_reads + 16;
	struct kn_read *grown = (struct kn_read *)b->host->zalloc((size_t)max * sizeof *grown);
	if (grown == NULL)
		return dev_fail(b->dev, "a step", "no memory for its results");
	if (set->n_reads > 0)
		memcpy(grown, set->reads, (size_t)set->n_reads * sizeof *grown);
	b->host->free(set->reads);
	set->reads = grown;
	set->max_reads = max;
	return 0;
}

/* Existing and pending results move to the larger memory: they reach their destinations only in step_wait. */
static int more_results(struct kn_backend *b, struct kn_step_set *set, size_t bytes)
{
	struct kn_host_room grown = {};
	if (set->n_results + bytes <= set->results.bytes)
		return 0;
	if (set->n_results > 0 && dev_sync(b->dev) != 0)
		return SL_EIO;
	if (kn_cuda_host_room(b, &grown, set->n_results + bytes) != 0)
		return SL_EIO;
	if (set->n_results > 0)
		memcpy(grown.at, set->results.at, set->n_results);
	kn_cuda_host_room_free(b, &set->results);
	set->results = grown;
	return 0;
}

/* A small result by a kernel, which starts sooner than a copy; the copy engine has the better rate for others. */
static int bring_back(struct kn_backend *b, void *to, const void *from, size_t bytes, bool pinned)
{
	if (!pinned || bytes > MOST_MOVED || bytes % sizeof(uint32_t) != 0)
		return dev_copy_out(b->dev, to, from, bytes);
	if (dev_recording(b->dev) != NULL)
		kn_list_end_head(dev_recording(b->dev));
	return moved(b, stretch_of(to, from, bytes), {});
}

int kn_cuda_read_bytes(struct kn_backend *b, const void *src, size_t bytes, void *host)
{
	if (dev_fault(b->dev)[0] != '\0')
		return SL_EIO;
	if (b->step == NULL)
		return dev_copy_out(b->dev, host, src, bytes);
	struct kn_step_set *set = &b->sets[b->set];
	if (more_reads(b, set) != 0 || more_results(b, set, bytes) != 0)
		return SL_EIO;
	set->reads[set->n_reads].to = host;
	set->reads[set->n_reads++].bytes = bytes;
	int rc = bring_back(b, (uint8_t *)set->results.at + set->n_results, src, bytes, set->results.pinned);
	set->n_results += bytes;
	return rc;
}

/* Memory for all counts; those of this step stay. */
static int more_counts(struct kn_backend *b)
{
	size_t bytes = (size_t)b->n_counts * sizeof(uint32_t);
	void *was = b->counts.at, *at;
	if (bytes <= b->counts.bytes)
		return 0;
	bytes += bytes / 2;
	int rc = dev_alloc(b->dev, bytes, &at);
	if (rc == 0 && was != NULL && (rc = dev_copy(b->dev, at, was, b->counts.bytes)) == 0)
		rc = dev_sync(b->dev);
	if (rc != 0)
		return rc;
	kn_graphs_drop(b->dev, &b->graphs);
	if (was != NULL)
		dev_free(b->dev, was);
	b->counts = {at, bytes, true};
	return 0;
}

int kn_cuda_count(struct kn_backend *b, uint64_t *to, int n, int at, uint32_t **device)
{
	struct kn_step_set *set = &b->sets[b->set];
	if (b->step == NULL || more_counts(b) != 0)
		return SL_EIO;
	if (set->n_counted == set->max_counted) {
		int max = 2 * set->max_counted + 16;
		struct kn_counted *grown = (struct kn_counted *)b->host->zalloc((size_t)max * sizeof *grown);
		if (grown == NULL)
			return dev_fail(b->dev, "a step", "no memory for its counts");
		if (set->n_counted > 0)
			memcpy(grown, set->counted, (size_t)set->n_counted * sizeof *grown);
		b->host->free(set->counted);
		set->counted = grown;
		set->max_counted = max;
	}
	set->counted[set->n_counted++] = {to, n, at};
	*device = (uint32_t *)b->counts.at + at;
	return 0;
}

/* The last of a step's results. */
static int bring_counts(struct kn_backend *b)
{
	struct kn_step_set *set = &b->sets[b->set];
	int n = 0; /* up to the last that are counted: there may be more mixtures than there is room for */
	for (int i = 0; i < set->n_counted; i++)
		n = set->counted[i].at + set->counted[i].n > n ? set->counted[i].at + set->counted[i].n : n;
	size_t bytes = (size_t)n * sizeof(uint32_t);
	if (n == 0)
		return 0;
	if (more_results(b, set, bytes) != 0)
		return SL_EIO;
	set->counts_at = set->n_results;
	set->n_results += bytes;
	return bring_back(b, (uint8_t *)set->results.at + set->counts_at, b->counts.at, bytes, set->results.pinned);
}

static int issue(struct kn_backend *b)
{
	int counted = b->step != NULL && dev_fault(b->dev)[0] == '\0' ? bring_counts(b) : 0;
	const struct kn_list *l = &b->list;
	bool graph = !l->broken && b->shaped.n_rows <= MAX_CLASS;
	size_t head = graph ? kn_list_head(l) : 0;
	dev_record(b->dev, NULL);
	int rc = b->step == NULL || counted != 0 || dev_fault(b->dev)[0] != '\0' ? SL_EIO : kn_cuda_send(b);
	if (rc == 0 && graph)
		rc = kn_graphs_run(b->dev, &b->graphs, l, head);
	if (rc == 0)
		rc = kn_list_run(b->dev, l, head, l->n);
	if (rc == 0)
		rc = dev_mark(b->dev, b->set);
	if (rc == 0) {
		b->set = (b->set + 1) % KN_STEPS_AHEAD;
		b->n_issued++;
	} else {
		forget(&b->sets[b->set]);
	}
	b->n_draws = 0;
	b->step = NULL;
	b->n_steps++;
	kn_list_clear(&b->list);
	return rc;
}

static int oldest(const struct kn_backend *b) { return (b->set + KN_STEPS_AHEAD - b->n_issued) % KN_STEPS_AHEAD; }

static int wait(struct kn_backend *b)
{
	if (b->n_issued == 0)
		return SL_EIO;
	int set = oldest(b), rc = dev_await(b->dev, set);
	b->n_issued--;
	if (rc == 0)
		deliver(&b->sets[set]);
	else
		forget(&b->sets[set]);
	return rc;
}

static int issue_and_wait(struct kn_backend *b)
{
	int rc = issue(b);
	return rc != 0 ? rc : wait(b);
}

/* In a profiler's range of that name. */
static int in_range(struct kn_backend *b, const char *name, int (*run)(struct kn_backend *b))
{
	dev_range(b->dev, name);
	int rc = run(b);
	dev_range(b->dev, NULL);
	return rc;
}

/* The recorded commands are launched here, at the step's end. */
int kn_cuda_step_issue(struct kn_backend *b) { return in_range(b, "step", issue); }

int kn_cuda_step_wait(struct kn_backend *b) { return in_range(b, "wait", wait); }

int kn_cuda_step_end(struct kn_backend *b) { return in_range(b, "step", issue_and_wait); }

bool kn_cuda_step_ready(struct kn_backend *b) { return b->n_issued == 0 || dev_reached(b->dev, oldest(b)); }
