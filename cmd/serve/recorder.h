/* SPDX-License-Identifier: Apache-2.0
 *
 * The flight recorder (base/flight.h) of a child process.
 */
#ifndef CMD_RECORDER_H
#define CMD_RECORDER_H

#include "cmd/config/schema.h"

/* Once, after the process has confined itself. Without the folder it logs a warning: the process runs all the same. */
void start_flight_recorder(const char *process, const struct sluice_config *cfg);

#endif
