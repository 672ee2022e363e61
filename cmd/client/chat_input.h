/* SPDX-License-Identifier: Apache-2.0
 *
 * What the user types. On a terminal lines can be edited and recalled where libedit is installed (opened at run time,
 * as libcurl is); otherwise they are read as they come. A message that begins with """ goes on to the next """.
 */
#ifndef CMD_CHAT_INPUT_H
#define CMD_CHAT_INPUT_H

#include <stdbool.h>

#include "base/buf.h"

enum { CHAT_INPUT_MAX = 4 << 20 };

void chat_input_init(void);
/* One message, without its line end, into *out (emptied first). False: the input has ended. */
bool chat_input_read(const char *prompt, struct sl_buf *out);

#endif
