/* SPDX-License-Identifier: Apache-2.0
 *
 * A server for a measurement: an engine and a gateway in a temporary folder, with cleartext HTTP/2 on a free port of
 * 127.0.0.1. bench_box_close ends both and removes the folder.
 */
#ifndef CMD_BENCH_BOX_H
#define CMD_BENCH_BOX_H

#include "cmd/bench/bench_child.h"
#include "cmd/load/load_client.h"

enum { BOX_PATH = 600 };

struct bench_box {
	char dir[BOX_PATH], config[BOX_PATH + 64], log[BOX_PATH + 64], socket[BOX_PATH + 64];
	struct bench_child engine, gateway;
	struct load_target target;
};

int bench_box_open(struct bench_box *b, struct sl_err *err);
/* engine, gateway: YAML for these two sections, each line indented by two spaces. Returns when a model is ready.
 * echo: runs the echo engine. May be called again after bench_box_stop. */
int bench_box_start(struct bench_box *b, const char *engine, const char *gateway, bool echo, struct sl_err *err);
/* Starts the engine of b->config on that processor (-1: any) and waits until it listens. */
int bench_box_start_engine(struct bench_box *b, bool echo, int cpu, struct sl_err *err);
void bench_box_stop(struct bench_box *b);
void bench_box_close(struct bench_box *b);
/* The SHA-256 of a key in hexadecimal, as in gateway.keys. */
void bench_box_hash(const char *key, char out[65]);

#endif
