/* SPDX-License-Identifier: Apache-2.0
 *
 * An adapter in the backend's memory, by sites: products of the model that have the same inputs. adapter_pack.c makes
 * it, adapters.c runs it.
 */
#ifndef ENGINE_MODEL_ADAPTER_PACK_H
#define ENGINE_MODEL_ADAPTER_PACK_H

#include "engine/model/adapters.h"
#include "engine/model/model_priv.h"

/* Sites of layer i are numbers i · SITES and on, then come those outside of layers, then KN_EXPERT_LORAS for each
 * expert of each layer, if the adapter has any of these. */
enum site { SITE_QKV, SITE_O, SITE_GATE_UP, SITE_DOWN, SITES };
enum site_outside { SITE_EMBED, SITE_HEAD, SITES_OUTSIDE };

struct model_adapter {
	struct kn_lora *sites; /* [n_sites]; rank 0: nothing */
	int n_sites;
	bool has_experts;
	uint8_t *host; /* what memory is to hold; NULL once it does */
	void *memory;  /* of the backend: all halves, then the sites; NULL: not yet */
	uint64_t bytes;
};

/* Sites that are not of experts. */
static inline int model_sites(const struct model *m) { return m->info.arch.n_layers * SITES + SITES_OUTSIDE; }
/* Where the sites are in an adapter's memory. */
void *model_adapter_sites(const struct model_adapter *a, void *memory);
/* Brings what was packed on the host to the device. Step thread. SL_ENOMEM, SL_EIO. */
int model_bring_adapter(struct model *m, struct model_adapter *a, struct sl_err *err);

#endif
