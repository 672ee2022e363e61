/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GATEWAY_PROCESS_GAUGES_H
#define GATEWAY_PROCESS_GAUGES_H

/* Sets the metrics of this process (process_…), of the supervisor and its children (sluice_process_…) and of the host's
 * pressure (/proc/pressure, where the kernel has it). Reads files of /proc: not on an event loop. One thread at a time.
 */
void process_gauges_set(void);

#endif
