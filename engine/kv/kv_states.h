/* SPDX-License-Identifier: Apache-2.0
 *
 * The states of sequences in layers that keep no pages: recurrent states and the last inputs of convolutions. A slot is
 * the state of all such layers at one position. Each row of the page tables has a slot of its own, so a sequence that
 * starts never waits for one; the other slots hold snapshots (prefix_states.c). A slot's content is undefined until
 * steps or copies write it: a row at position 0 begins with zeros (kernels.h: kn_step).
 *
 * The memory is the backend's and becomes resident as it is written. Private to engine/; step thread.
 */
#ifndef ENGINE_KV_STATES_H
#define ENGINE_KV_STATES_H

#include <stdint.h>

#include "base/err.h"
#include "kernels/kernels.h"

struct kv_states;

/* floats: of a slot. SL_EUNSUPPORTED: the backend has no recurrent layers. SL_ENOMEM. */
int kv_states_create(const struct kn_ops *ops, struct kn_backend *b, uint64_t floats, int n_rows, int n_snapshots,
		     struct kv_states **out, struct sl_err *err);
/* No snapshot may be held; BUG otherwise. NULL is allowed. */
void kv_states_destroy(struct kv_states *s);

/* The step's sequences are the rows. s NULL: nothing. */
void kv_states_in_step(const struct kv_states *s, struct kn_step *step);

/* A free slot for a snapshot; -1: there is none. */
int32_t kv_states_take(struct kv_states *s);
void kv_states_give(struct kv_states *s, int32_t slot);
int kv_states_n_free(const struct kv_states *s);
int kv_states_n_snapshots(const struct kv_states *s);
/* Between a row and a snapshot, after all steps issued so far. 0 or SL_EIO, which the next step reports too. */
int kv_states_save(struct kv_states *s, int row, int32_t slot);
int kv_states_restore(struct kv_states *s, int32_t slot, int row);
/* rows[i] gets what rows[parents[i]] has, for all i < n_children at once; n rows in all, whose other contents are lost.
 * 0 or SL_EIO. */
int kv_states_inherit(struct kv_states *s, const int *rows, uint32_t n, const uint8_t *parents, uint32_t n_children);

/* How many slots for snapshots `bytes` of memory pay for: at most `most`. */
uint64_t kv_states_plan(uint64_t slot_bytes, uint64_t bytes, uint64_t most);

#endif
