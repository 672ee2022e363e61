/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: `sluice pull`, `sluice list`, `sluice rm` and `sluice run`. Models come from the Hugging Face hub, a mirror
 * of it, or an address.
 *
 *   source    what is asked for: hf:OWNER/NAME[@REVISION][:TAG], or the address of a GGUF file (hub_source.h)
 *   plan      the files of a source that are fetched, each with its size and digest (hub_tree.h, hub_pick.h)
 *   folder    the folder of pulled models (hub_folder.h). FOLDER/NAME is a complete, verified model
 *   staging   FOLDER/.NAME.pull: what was received so far. Files in it end in .part until they are verified; a journal
 *             describes them. It becomes FOLDER/NAME by one rename, so no model is ever visible half
 *
 * A process of its own downloads (hub_child.h): it has the folder, the network and nothing else. The process that the
 * user started shows the progress. libcurl is in the former only (base/http/curl_library.h). The gateway and the engine
 * contain no call of this room, so no request causes a download.
 *
 * Thread: main.
 */
#ifndef CMD_HUB_H
#define CMD_HUB_H

#include <signal.h>

#include "cmd/config/cmd.h"
#include "cmd/hub/hub_folder.h"
#include "cmd/hub/hub_source.h"

/* What to pull, and with which rights. */
struct hub_order {
	struct hub_source source;
	char name[HUB_NAME_BYTES];
	char token[512];    /* "": none */
	uint8_t digest[32]; /* --sha256 */
	bool has_digest;
};

/* Pulls one model and shows the progress on a terminal. 0, or the exit status after one line on standard error. */
int hub_pull(const struct sluice_config *cfg, struct hub_folder *folder, const struct hub_order *order);

/* Fills o->token: of the file at path, or of the one that hub.token_file or HF_TOKEN_FILE names; "" without any. */
int hub_token_read(const struct sluice_config *cfg, const char *path, struct hub_order *o, struct sl_err *err);

/* The handler of the signals that stop a process, except those that are ignored (nohup). Without SA_RESTART: what waits
 * then ends. */
void hub_catch_signals(void (*handler)(int));
/* Waits until fd has input or its other end is closed. False: a handler has set *stop, be it before the call or
 * between two looks, or poll fails. */
bool hub_wait_input(int fd, const volatile sig_atomic_t *stop);
/* fork(); no signal reaches the child while it still has the handlers of its parent, which would swallow it. */
pid_t hub_fork(void);

/* hub_complain(status, format, …): cmd_complain as "sluice". */
#define hub_complain(...) cmd_complain("sluice", __VA_ARGS__)

#endif
