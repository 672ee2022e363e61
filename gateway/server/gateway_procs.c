/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/server/gateway_procs.h"

#include "gateway/conversation/conversation_proc.h"
#include "gateway/files/file_store.h"
#include "gateway/sharing/idempotent_proc.h"
#include "gateway/variant/variant_proc.h"

const struct cache_proc *const gateway_procs[GATEWAY_PROCS] = {
    &conversation_read,   &conversation_hold, &conversation_free, &conversation_put,
    &conversation_delete, &conversation_list, &idempotent_change, &variant_merge,
    &file_proc_put,       &file_proc_delete,  &file_proc_list,
};
