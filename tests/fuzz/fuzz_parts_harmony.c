/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages with headers, as gpt-oss writes them (parts_target.h has the input).
 */
#define PARTS_FORMAT PARTS_HARMONY
#define PARTS_THINK PARTS_REASONING_HARMONY
#include "tests/fuzz/parts_target.h"
