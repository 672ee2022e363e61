/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls as Cohere's Command models write them (parts_target.h has the input).
 */
#define PARTS_FORMAT PARTS_COHERE
#define PARTS_THINK PARTS_REASONING_COHERE
#include "tests/fuzz/parts_target.h"
