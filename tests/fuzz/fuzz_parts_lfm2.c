/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls as Liquid's LFM2 writes them (parts_target.h has the input).
 */
#define PARTS_FORMAT PARTS_LFM2
#define PARTS_THINK PARTS_REASONING_NONE
#include "tests/fuzz/parts_target.h"
