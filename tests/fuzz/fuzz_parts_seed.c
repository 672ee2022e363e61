/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls as ByteDance's Seed-OSS writes them (parts_target.h has the input).
 */
#define PARTS_FORMAT PARTS_SEED
#define PARTS_THINK PARTS_REASONING_SEED
#include "tests/fuzz/parts_target.h"
