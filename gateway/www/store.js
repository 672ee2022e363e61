// Conversations and choices kept in this browser.
//
// Layout in localStorage, all under one versioned prefix: `index` holds the list, `chat.<id>` one conversation each,
// so that saving a growing answer writes one record. Bounds: a number of chats and a total of characters; the least
// recently used go first. When the storage refuses (quota, private mode) the oldest are dropped, and if even that does
// not help the chat lives in memory until the page is closed. Whatever is read back is checked field by field.

const PREFIX = 'sluice.v1.';
export const LIMITS = { chats: 100, totalChars: 2_000_000, messageChars: 400_000, messages: 1000, titleChars: 80 };
const ENDS = new Set(['stop', 'length', 'content_filter', 'tool_calls', 'stopped', 'lost', 'gone', 'error']);

export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(9));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
}

const isTime = (v) => Number.isFinite(v) && v >= 0;
const number = (v) => (Number.isFinite(v) ? v : null);

/** An answer that was under way: its stream on the server, the name of the key it was asked with, and its times. */
function cleanStream(raw) {
  if (raw === null || typeof raw !== 'object' || typeof raw.id !== 'string' || !/^[\x21-\x7e]{1,200}$/.test(raw.id)) return null;
  return { id: raw.id, key: typeof raw.key === 'string' ? raw.key : '', sentAt: number(raw.sentAt) ?? 0, firstAt: number(raw.firstAt) ?? 0 };
}

function cleanMessage(raw) {
  if (raw === null || typeof raw !== 'object') return null;
  if ((raw.role !== 'user' && raw.role !== 'assistant') || typeof raw.text !== 'string') return null;
  const m = { role: raw.role, text: raw.text.slice(0, LIMITS.messageChars) };
  if (m.role === 'user') return m;
  m.model = typeof raw.model === 'string' ? raw.model.slice(0, 200) : '';
  const stream = raw.end === null ? cleanStream(raw.stream) : null;
  if (stream) m.stream = stream;
  m.end = ENDS.has(raw.end) ? raw.end : stream ? null : 'lost';
  if (typeof raw.reasoning === 'string' && raw.reasoning) m.reasoning = raw.reasoning.slice(0, LIMITS.messageChars);
  if (raw.stats && typeof raw.stats === 'object') {
    m.stats = {
      ttftMs: number(raw.stats.ttftMs), tps: number(raw.stats.tps), exact: raw.stats.exact === true,
      promptTokens: number(raw.stats.promptTokens), completionTokens: number(raw.stats.completionTokens),
    };
  }
  if (m.end === 'error') {
    const e = raw.error && typeof raw.error === 'object' ? raw.error : {};
    m.error = {
      kind: ['http', 'network', 'stream'].includes(e.kind) ? e.kind : 'stream',
      status: number(e.status) ?? 0, code: typeof e.code === 'string' ? e.code : null,
      message: typeof e.message === 'string' ? e.message.slice(0, 2000) : '', retryAt: number(e.retryAt),
    };
  }
  return m;
}

function cleanChat(raw, id) {
  if (raw === null || typeof raw !== 'object' || raw.v !== 1 || !Array.isArray(raw.messages)) return null;
  return {
    v: 1,
    id,
    title: typeof raw.title === 'string' ? raw.title.slice(0, LIMITS.titleChars) : '',
    created: isTime(raw.created) ? raw.created : 0,
    updated: isTime(raw.updated) ? raw.updated : 0,
    messages: raw.messages.slice(-LIMITS.messages).map(cleanMessage).filter(Boolean),
  };
}

export class Store {
  #storage;
  #limits;
  #memory = new Map(); // chats the storage refused

  constructor(storage, limits = LIMITS) {
    this.#storage = storage;
    this.#limits = limits;
  }

  #read(name) {
    try { return JSON.parse(this.#storage.getItem(PREFIX + name)); } catch { return null; }
  }

  #write(name, text) {
    try { this.#storage.setItem(PREFIX + name, text); return true; } catch { return false; }
  }

  #drop(name) {
    try { this.#storage.removeItem(PREFIX + name); } catch { /* nothing to free then */ }
  }

  #index() {
    const raw = this.#read('index');
    if (raw === null || raw.v !== 1 || !Array.isArray(raw.chats)) return [];
    return raw.chats
      .filter((c) => c && typeof c === 'object' && /^[0-9a-f]{4,40}$/.test(c.id) && typeof c.title === 'string')
      .map((c) => ({
        id: c.id, title: c.title.slice(0, LIMITS.titleChars),
        updated: isTime(c.updated) ? c.updated : 0, size: isTime(c.size) ? c.size : 0,
      }))
      .sort((a, b) => b.updated - a.updated);
  }

  #writeIndex(chats) { return this.#write('index', JSON.stringify({ v: 1, chats })); }

  /** [{id, title, updated}], newest first. */
  list() {
    const stored = this.#index();
    const memory = [...this.#memory.values()].map(({ id, title, updated }) => ({ id, title, updated }));
    return [...memory, ...stored.filter((c) => !this.#memory.has(c.id))].sort((a, b) => b.updated - a.updated);
  }

  get(id) {
    return this.#memory.get(id) ?? cleanChat(this.#read(`chat.${id}`), id);
  }

  /** Returns whether the chat is on the disk; false means it only lives as long as the page. */
  save(chat) {
    const text = JSON.stringify(chat);
    const entry = { id: chat.id, title: chat.title, updated: chat.updated, size: text.length };
    let rest = this.#index().filter((c) => c.id !== chat.id);
    let total = text.length + rest.reduce((sum, c) => sum + c.size, 0);
    const evict = () => {
      const oldest = rest.pop();
      this.#drop(`chat.${oldest.id}`);
      total -= oldest.size;
    };
    while (rest.length > 0 && (rest.length + 1 > this.#limits.chats || total > this.#limits.totalChars)) evict();
    const fits = text.length <= this.#limits.totalChars;
    let ok = false;
    while (fits && !(ok = this.#write(`chat.${chat.id}`, text) && this.#writeIndex([entry, ...rest]))) {
      if (rest.length === 0) break;
      evict();
    }
    if (ok) {
      this.#memory.delete(chat.id);
    } else {
      this.#drop(`chat.${chat.id}`);
      this.#writeIndex(rest);
      this.#memory.set(chat.id, chat);
      while (this.#memory.size > this.#limits.chats) this.#memory.delete(this.#memory.keys().next().value);
    }
    return ok;
  }

  rename(id, title) {
    const chat = this.get(id);
    if (chat === null) return;
    chat.title = title.slice(0, LIMITS.titleChars);
    this.save(chat);
  }

  remove(id) {
    this.#memory.delete(id);
    this.#drop(`chat.${id}`);
    this.#writeIndex(this.#index().filter((c) => c.id !== id));
  }

  clear() {
    for (const { id } of this.list()) this.remove(id);
  }

  /** A small choice of the user's: model, theme, language. */
  pref(name) {
    try { return this.#storage.getItem(PREFIX + name); } catch { return null; }
  }

  setPref(name, value) {
    if (value === null) this.#drop(name);
    else this.#write(name, value);
  }
}

/** A storage that forgets: used where the browser offers none. */
export function memoryStorage() {
  const map = new Map();
  return {
    getItem: (k) => map.get(k) ?? null,
    setItem: (k, v) => { map.set(k, String(v)); },
    removeItem: (k) => { map.delete(k); },
  };
}
