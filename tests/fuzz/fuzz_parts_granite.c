/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls as IBM's Granite and Microsoft's Phi-4-mini write them (parts_target.h has the input).
 */
#define PARTS_FORMAT PARTS_GRANITE
#define PARTS_THINK PARTS_REASONING_NONE
#include "tests/fuzz/parts_target.h"
