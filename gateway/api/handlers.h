/* SPDX-License-Identifier: Apache-2.0
 *
 * The handlers of the route table. Each answers its exchange now or later, exactly once, or resets it.
 */
#ifndef GATEWAY_HANDLERS_H
#define GATEWAY_HANDLERS_H

struct exchange;

void api_chat(struct exchange *x);            /* api_chat.c */
void api_completions(struct exchange *x);     /* api_completions.c */
void api_response_create(struct exchange *x); /* api_responses.c */
void api_response_count(struct exchange *x);
void api_response(struct exchange *x);
void api_response_delete(struct exchange *x);
void api_response_cancel(struct exchange *x);
void api_response_items(struct exchange *x);
void api_conversation_create(struct exchange *x); /* api_conversations.c */
void api_conversations(struct exchange *x);
void api_conversation(struct exchange *x);
void api_conversation_update(struct exchange *x);
void api_conversation_delete(struct exchange *x); /* api_conversation_delete.c */
void api_conversation_export(struct exchange *x);
void api_conversation_items(struct exchange *x);
void api_conversation_items_add(struct exchange *x);
void api_conversation_item(struct exchange *x);
void api_conversation_item_delete(struct exchange *x);
void api_stream(struct exchange *x); /* api_streams.c */
void api_stream_stop(struct exchange *x);
void api_models(struct exchange *x); /* api_models.c */
void api_model(struct exchange *x);
void api_load_adapter(struct exchange *x);
void api_unload_adapter(struct exchange *x);
void api_browser_tokens(struct exchange *x); /* api_browser_tokens.c */
void api_usage(struct exchange *x);          /* api_usage.c */
void api_tokenize(struct exchange *x);       /* api_tokens.c */
void api_detokenize(struct exchange *x);
void api_embeddings(struct exchange *x); /* api_embeddings.c */
void api_ollama_embed(struct exchange *x);
void api_ollama_embeddings(struct exchange *x);
void api_rerank(struct exchange *x); /* api_rank.c */
void api_score(struct exchange *x);
void api_messages(struct exchange *x); /* api_messages.c */
void api_messages_count(struct exchange *x);
void api_ollama_chat(struct exchange *x); /* api_ollama.c */
void api_ollama_generate(struct exchange *x);
void api_ollama_show(struct exchange *x);
void api_ollama_tags(struct exchange *x);
void api_ollama_ps(struct exchange *x);
void api_ollama_version(struct exchange *x);
void api_live(struct exchange *x); /* api_health.c */
void api_ready(struct exchange *x);
void api_health(struct exchange *x);
void api_metrics(struct exchange *x);
void api_openapi(struct exchange *x); /* api_openapi.c */
void page_serve(struct exchange *x);  /* page.c */

#endif
