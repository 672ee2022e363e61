/* SPDX-License-Identifier: Apache-2.0
 *
 * Where keys and values go beside memory: the engine's tier on disk (engine/kv/kv_disk.h), one for all models, and
 * other engines (engine/kv/kv_hand.h). A model's pages are named by
 * everything that their bytes depend on: the files of its weights, how these are converted, the type and geometry of
 * its pages, the kernels, and this build, since any change to the sources may change the last bit of a sum.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "engine/disk/disk_tier.h"
#include "engine/file/map_file.h"
#include "engine/step/internal.h"
#include "kernels/kv_type.h"
#include "version.h"

void kv_tier_open(struct engine *e, const struct eng_config *cfg)
{
	struct sl_err err = {0};
	const struct disk_tier_config of = {.folder = cfg->kv_disk,
					    .max_bytes = cfg->kv_disk_bytes,
					    .max_age_s = cfg->kv_disk_age_s,
					    .segment_bytes = cfg->kv_disk_segment,
					    .policy = (enum disk_policy)cfg->kv_disk_policy};
	if (cfg->kv_disk == NULL || cfg->kv_disk_bytes == 0)
		return;
	if (cfg->no_prefix_cache)
		log_warn("engine.kv_disk: nothing is stored, since engine.prefix_cache is off");
	else if (disk_tier_open(&of, &e->disk, &err) != 0)
		log_warn("engine.kv_disk: nothing is stored until the next start: %s", err.text);
}

void kv_tier_close(struct engine *e)
{
	disk_tier_close(e->disk);
	e->disk = NULL;
}

/* NULL: its pages can be copied out of its pool and named; groups: also those of several groups of layers. */
static const char *why_not(const struct eng_model *m, bool groups, uint64_t stamp[2])
{
	if (m->info.arch.encoder)
		return "an encoder keeps none";
	if (m->states != NULL)
		return "it has recurrent layers, whose states stay";
	if (!groups && (m->kv_groups.n_groups != 1 || m->kv_groups.window > 0))
		return "it has layers with a window, whose pages stay";
	if (m->ops->memory != NULL || m->ops->page_out != NULL)
		return "they are in a device's memory";
	return model_stamp(m->model, stamp) ? NULL : "its weights are in a folder, whose state has no digest";
}

static void nudge(void *engine)
{
	struct engine *e = engine;
	mailbox_nudge(&e->box);
}

/* As text, so that no padding counts. */
static size_t describe(const struct eng_model *m, const uint64_t stamp[2], char *out, size_t size)
{
	const struct kn_kv *l = kv_pool_layout(m->pool);
	int n =
	    snprintf(out, size, "%016llx%016llx|%d,%d|%d,%d|%d,%d,%d,%d,%d,%zu|%u,%u,%u|%s,%s,%d|%s",
		     (unsigned long long)stamp[0], (unsigned long long)stamp[1], m->quantize, m->fp8, l->type,
		     l->rotate, l->page_tokens, l->n_layers, l->n_kv_heads, l->head_dim, l->latent, kn_kv_page_bytes(l),
		     m->kv_groups.n_groups, m->kv_groups.n_full, m->kv_groups.window, m->ops->name,
		     m->ops->made_layout != NULL ? m->ops->made_layout : "", m->e->cfg.loose_products, SLUICE_VERSION);
	return n > 0 && (size_t)n < size ? (size_t)n : size;
}

int kv_tier_join(struct eng_model *m)
{
	struct engine *e = m->e;
	uint64_t stamp[2];
	char what[512];
	if (e->disk == NULL)
		return 0;
	const char *why = why_not(m, false, stamp);
	if (why != NULL) {
		log_info("model %s: its keys and values are not stored on disk: %s", m->name, why);
		return 0;
	}
	const struct kv_disk_config cfg = {.tier = e->disk,
					   .prefix = m->prefix,
					   .pool = m->pool,
					   .cost = &m->cost,
					   .step_tokens = (uint32_t)m->step_tokens,
					   .model = what,
					   .n_model = describe(m, stamp, what, sizeof what),
					   .always = e->cfg.kv_disk_always,
					   .nudge = nudge,
					   .ctx = e};
	return kv_disk_create(&cfg, &m->disk) == 0 ? 0 : sl_errf(&m->load_err, SL_ENOMEM, "out of memory");
}

/* ---- pages that pass between engines ---- */

int hand_open(struct engine *e)
{
	if (e->cfg.hand_area == NULL || !hand_area_has_writer(e->cfg.hand_area, e->cfg.hand_number))
		return 0;
	return hand_writer_open(e->cfg.hand_area, e->cfg.hand_number, &e->hand_writer);
}

void hand_close(struct engine *e)
{
	hand_writer_close(e->hand_writer);
	e->hand_writer = NULL;
}

static void on_handed(void *engine, uint64_t id, const struct proto_handed *m)
{
	struct engine *e = engine;
	const struct eng_event ev = {.kind = ENG_HANDED, .id = id, .u.handed = *m};
	e->on_event(e->on_event_ctx, &ev);
}

int hand_join(struct eng_model *m)
{
	struct engine *e = m->e;
	uint64_t stamp[2];
	char what[512];
	if (e->cfg.hand_area == NULL || e->cfg.no_prefix_cache)
		return 0;
	const char *why = why_not(m, true, stamp);
	if (why != NULL) {
		log_info("model %s: its keys and values do not pass between engines: %s", m->name, why);
		return 0;
	}
	const struct kv_hand_config cfg = {.area = e->cfg.hand_area,
					   .writer = e->hand_writer,
					   .prefix = m->prefix,
					   .pool = m->pool,
					   .row = m->max_pages,
					   .model = what,
					   .n_model = describe(m, stamp, what, sizeof what),
					   .steps = &e->steps,
					   .handed = on_handed,
					   .ctx = e};
	return kv_hand_create(&cfg, &m->hand) == 0 ? 0 : sl_errf(&m->load_err, SL_ENOMEM, "out of memory");
}

/* ---- figures ---- */

void kv_tier_stats(const struct engine *e, struct proto_stats *out)
{
	if (e->disk == NULL)
		return;
	struct disk_stats *s = disk_tier_stats(e->disk);
	out->kv_disk_bytes = atomic_load(&s->bytes);
	out->kv_disk_pages = atomic_load(&s->pages);
	out->kv_disk_hits[disk_tier_policy(e->disk)] = atomic_load(&s->hits);
	_Static_assert(sizeof out->kv_disk_misses / sizeof *out->kv_disk_misses == DISK_MISSES, "one for each reason");
	for (int i = 0; i < DISK_MISSES; i++)
		out->kv_disk_misses[i] = atomic_load(&s->misses[i]);
	out->kv_disk_written = atomic_load(&s->written);
	out->kv_disk_evicted = atomic_load(&s->evicted);
	out->kv_disk_erased = atomic_load(&s->erased);
	out->kv_disk_dropped = atomic_load(&s->dropped);
	out->kv_disk_errors[0] = atomic_load(&s->read_errors);
	out->kv_disk_errors[1] = atomic_load(&s->write_errors);
	out->kv_disk_errors[2] = atomic_load(&s->damaged);
	out->kv_disk_read_bytes = atomic_load(&s->read_bytes);
	out->kv_disk_write_bytes = atomic_load(&s->write_bytes);
	out->kv_disk_read_us = atomic_load(&s->read_us);
	out->kv_disk_write_us = atomic_load(&s->write_us);
}
