/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: `sluice doctor`, which names what is wrong and the line to change. Without a URL it examines this machine
 * and its configuration (machine.c, files.c, network.c, models.c); with one, the way to a server (way.c), whose faults
 * and their remedies are data (remedies.h). report.h prints.
 *
 * Nothing is changed: no folder is created, no port stays bound, no model is loaded.
 *
 * Thread: main.
 */
#ifndef CMD_DOCTOR_H
#define CMD_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "cmd/config/schema.h"
#include "cmd/doctor/report.h"
#include "cmd/http/http_client.h"

int cmd_doctor(int argc, char **argv);

/* Processors, memory, limits and what the kernel can confine. cfg: NULL where it cannot be read. */
void check_machine(struct report *r, const struct sluice_config *cfg);
void check_kernels(struct report *r, const struct sluice_config *cfg);
/* The listeners' addresses: free, or a Sluice's. */
void check_ports(struct report *r, const struct sluice_config *cfg);
void check_store(struct report *r, const struct sluice_config *cfg);
void check_certificates(struct report *r, const struct sluice_config *cfg);
void check_state(struct report *r, const struct sluice_config *cfg);
/* The folder of keys and values on disk, if there is to be one. */
void check_kv_disk(struct report *r, const struct sluice_config *cfg);
void check_models(struct report *r, const struct sluice_config *cfg);

/* The way to a server, by timed streams. quiet_s: how long one of them is silent. */
void check_way(struct report *r, const struct http_server *server, uint32_t quiet_s);

/* This machine's memory in bytes, within the limits of its control groups; 0: unknown. */
uint64_t machine_memory(uint64_t *available);

#endif
