// The history on the server, for conversations that are to be there: what is shown of one, as items of the server's Conversations
// API, which other clients can read and continue. Items of both sides are compared by what they say. What the server has
// beyond the common beginning becomes a version of its own here; what it lacks is added there.

import { joined, pathOf } from './branches.js';
import { createClient } from './client.js';
import { cleanMessage, LIMITS, newTurn } from './records.js';

const ADD_AT_ONCE = 20; // the API's limit
const LIST = 50;
const ASK_AT_ONCE = 6;

const wordsOf = (item) => JSON.stringify([item.role, item.content.map((c) => c.text)]);

function itemOf(m, text) {
  if (m.unsent || m.end === null || (text === '' && !m.files)) return null;
  const type = m.role === 'user' ? 'input_text' : 'output_text';
  const texts = [...(m.files ?? []).map((f) => `File: ${f.name}\n\n${f.text}`), ...(text === '' ? [] : [text])];
  return { type: 'message', role: m.role, content: texts.map((words) => ({ type, text: words })) };
}

/** What is shown of a conversation as items of the API. */
export function itemsOf(chat) {
  return joined(pathOf(chat.messages, chat.picks)).map(({ message, before }) => itemOf(message, before.map((b) => b.text).join('') + message.text)).filter(Boolean);
}

/** Messages of the server's items that the page can show. */
const messagesOf = (items) => (Array.isArray(items) ? items : []).filter((i) => i?.type === 'message' && (i.role === 'user' || i.role === 'assistant'))
  .map((i) => ({ id: i.id, role: i.role, content: (Array.isArray(i.content) ? i.content : []).filter((c) => typeof c?.text === 'string') }))
  .filter((i) => i.content.length > 0);

function messageOf(item, turn, parent, alt) {
  const texts = item.content.map((c) => c.text);
  const files = [];
  if (item.role === 'user' && texts.length > 1) {
    for (const text of texts.slice(0, -1)) {
      const [, name, words] = /^File: ([^\n]+)\n\n([\s\S]*)$/.exec(text) ?? [];
      if (name !== undefined) files.push({ name, text: words });
    }
  }
  const raw = { at: turn.at, parent, alt, role: item.role, text: files.length > 0 ? texts.at(-1) : texts.join('\n\n'), files, end: 'stop', model: '' };
  return cleanMessage(raw, item.role === 'user' ? turn.question : turn.answer, turn.at);
}

/** How many items at the beginning are the same on both sides. */
function common(mine, theirs) {
  let n = 0;
  while (n < mine.length && n < theirs.length && wordsOf(mine[n]) === wordsOf(theirs[n])) n++;
  return n;
}

/**
 * Adds what the server has of a conversation and the browser does not. Returns {added: the new messages, parent, mine}: where
 * they are another version of what the browser shows after `parent`, the id of that.
 */
export function adoptItems(chat, items) {
  const theirs = messagesOf(items).slice(-LIMITS.messages);
  const mine = itemsOf(chat);
  const n = common(mine, theirs);
  const known = new Set([...mine, ...chat.messages.flatMap((m) => itemOf(m, m.text) ?? [])].map(wordsOf));
  if (theirs.slice(n).every((item) => known.has(wordsOf(item)))) return { added: [] };
  const path = pathOf(chat.messages, chat.picks).filter(({ message: m }) => !m.unsent && m.end !== null && (m.text !== '' || m.files));
  const shown = joined(path);
  let parent = shown[n - 1]?.message.id ?? '';
  const added = [];
  for (const [i, item] of theirs.slice(n).entries()) {
    const message = messageOf(item, newTurn(chat.messages), parent, i === 0 && n < mine.length);
    if (message === null) continue;
    chat.messages.push(message);
    added.push(message);
    parent = message.id;
  }
  return { added, parent: added[0]?.parent, mine: shown[n] === undefined ? undefined : path.find((e) => e.parent === added[0]?.parent)?.message.id };
}

export class Remote {
  #keys;
  #turns = new Map(); // chat id → what goes on for it
  #fetch;

  constructor(keys, fetchFn) {
    this.#keys = keys;
    this.#fetch = fetchFn;
  }

  #ask(path, options) {
    return createClient({ apiKey: this.#keys.current()?.key, maxRetries: 2, fetch: this.#fetch }).request(`v1/conversations${path}`, options);
  }

  /** One after the other for a conversation. */
  #inTurn(id, act) {
    const mine = (this.#turns.get(id) ?? Promise.resolve()).then(act, act);
    this.#turns.set(id, mine.catch(() => {}));
    return mine;
  }

  /**
   * Brings the server's conversation to what is shown here. Resolves to its id: a new one where there is none any more.
   * onItems(items): what it has now, before anything of it is replaced; waited for.
   */
  keep(chat, known, onItems) { return this.#inTurn(chat.id, () => this.#keep(chat, known, onItems)); }

  async #keep(chat, known, onItems) {
    const mine = itemsOf(chat);
    const metadata = { sluice_chat: chat.id, title: chat.title.slice(0, LIMITS.titleChars) };
    let theirs = [];
    let id = known;
    if (id) {
      const out = await this.#ask(`/${id}/export`).catch((error) => { if (error.status !== 404) throw error; });
      if (out === undefined) id = undefined;
      else {
        theirs = messagesOf(out.items);
        await onItems(out.items);
      }
      if (out && out.conversation?.metadata?.title !== metadata.title) await this.#ask(`/${id}`, { body: { metadata } });
    }
    id ??= (await this.#ask('', { body: { metadata } })).id;
    const n = common(mine, theirs);
    for (const item of theirs.slice(n).reverse()) await this.#ask(`/${id}/items/${encodeURIComponent(item.id)}`, { method: 'DELETE' });
    for (let i = n; i < mine.length; i += ADD_AT_ONCE) await this.#ask(`/${id}/items`, { body: { items: mine.slice(i, i + ADD_AT_ONCE) } });
    return id;
  }

  /** {id, chat (the page's id of it), title, items}. */
  async load(id) {
    const { conversation, items } = await this.#ask(`/${encodeURIComponent(id)}/export`);
    return { id, chat: conversation?.metadata?.sluice_chat ?? '', title: String(conversation?.metadata?.title ?? '').slice(0, LIMITS.titleChars), items };
  }

  /** [{id, title, created}] of the key's conversations that a page has kept, the latest first. */
  async list() {
    const { data } = await this.#ask(`?limit=${LIST}&order=desc`);
    const ids = (Array.isArray(data) ? data : []).map((c) => c?.id).filter((id) => typeof id === 'string');
    const found = [];
    for (let i = 0; i < ids.length; i += ASK_AT_ONCE) {
      const some = await Promise.all(ids.slice(i, i + ASK_AT_ONCE).map((id) => this.#ask(`/${encodeURIComponent(id)}`).catch(() => null)));
      for (const c of some) if (typeof c?.metadata?.sluice_chat === 'string') found.push({ id: c.id, title: String(c.metadata.title ?? ''), created: c.created_at * 1000 });
    }
    return found;
  }

  drop(id) { return this.#ask(`/${encodeURIComponent(id)}`, { method: 'DELETE' }); }
}
