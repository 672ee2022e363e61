/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: files of text that are sent once and named later (/v1/files, in the shape of OpenAI's Files API).
 *
 *   file      a text of one tenant, with a name and a purpose; immutable, kept for a time (file_store.h)
 *   form      the body that brings one (multipart.h)
 *   fetching  the texts of the files that a request names (file_fetch.h); request_files.h puts them into the prompt
 *
 * A file is its tenant's, or that of a browser token's subject (owned_name.h). Others get the same 404 as for an id
 * that never existed. The handlers are rows of the route table. Thread: the exchange's.
 */
#ifndef GATEWAY_FILES_H
#define GATEWAY_FILES_H

struct exchange;

void files_create(struct exchange *x);
void files_list(struct exchange *x);
void files_get(struct exchange *x);
void files_content(struct exchange *x);
void files_delete(struct exchange *x);

#endif
