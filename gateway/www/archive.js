// The messages of conversations in IndexedDB, which has room for far more than localStorage: records as store.js writes them,
// by conversation and message. It only ever grows by newer states of a message, so tabs may write in any order.
//
// Object stores: `messages`, [chat, message] → the record's text; `chats`, chat → how many characters those are.
// Every call rejects when the browser refuses: always (private windows of some browsers), or this time (quota, a closed
// database, no answer within a time).

import { saysMore } from './records.js';

const NAME = 'sluice';
const OPEN_MS = 30_000;
const RUN_MS = 60_000;

const refused = (why) => new DOMException(why, 'InvalidStateError');

/** All keys of a conversation's messages. */
const rangeOf = (chat) => IDBKeyRange.bound([chat], [chat, []]);

const done = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

export class Archive {
  #factory;
  #opened = null; // promise of the database

  /** factory: window.indexedDB. */
  constructor(factory) { this.#factory = factory; }

  #open() {
    this.#opened ??= this.#begin();
    this.#opened.catch(() => { this.#opened = null; }); // the next call tries again
    return this.#opened;
  }

  #begin() {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(refused('no answer')), OPEN_MS);
      const request = this.#factory.open(NAME, 1);
      request.onupgradeneeded = () => {
        request.result.createObjectStore('messages');
        request.result.createObjectStore('chats');
      };
      request.onsuccess = () => {
        clearTimeout(timer);
        const db = request.result;
        db.onversionchange = () => { db.close(); this.#opened = null; }; // a later page may change the layout
        db.onclose = () => { this.#opened = null; };
        resolve(db);
      };
      request.onerror = () => { clearTimeout(timer); reject(request.error); };
    });
  }

  /** Resolves to what act(messages, chats) returns, once it is on the disk. */
  async #run(mode, act) {
    const db = await this.#open();
    return new Promise((resolve, reject) => {
      const tx = db.transaction(['messages', 'chats'], mode);
      let result;
      let why = null;
      const cancel = (error) => {
        why ??= error;
        try { tx.abort(); } catch { /* it has ended */ }
      };
      const timer = setTimeout(() => cancel(refused('no answer')), RUN_MS);
      tx.oncomplete = () => { clearTimeout(timer); resolve(result); };
      tx.onabort = () => { clearTimeout(timer); reject(why ?? tx.error ?? refused('aborted')); };
      act(tx.objectStore('messages'), tx.objectStore('chats')).then((value) => { result = value; }, cancel);
    });
  }

  /** Map: conversation → how many characters are here of it. */
  sizes() {
    return this.#run('readonly', async (_, chats) => {
      const [ids, sizes] = await Promise.all([done(chats.getAllKeys()), done(chats.getAll())]);
      return new Map(ids.map((id, i) => [id, sizes[i]]));
    });
  }

  /** [[message id, record]] of a conversation. */
  read(chat) {
    return this.#run('readonly', async (messages) => {
      const [keys, texts] = await Promise.all([done(messages.getAllKeys(rangeOf(chat))), done(messages.getAll(rangeOf(chat)))]);
      return keys.map(([, id], i) => [id, texts[i]]);
    });
  }

  /**
   * Takes records in, all or none; of a message that is here the one that says more stays. batch: [[chat, [[message id, record]]]].
   * Resolves to a Map as sizes(), of these conversations.
   */
  put(batch) {
    return this.#run('readwrite', async (messages, chats) => {
      const sizes = new Map();
      for (const [chat, records] of batch) {
        let size = await done(chats.get(chat)) ?? 0;
        for (const [id, text] of records) {
          const known = await done(messages.get([chat, id]));
          if (!saysMore(text, known, id)) continue;
          messages.put(text, [chat, id]);
          size += text.length - (known?.length ?? 0);
        }
        await done(chats.put(size, chat));
        sizes.set(chat, size);
      }
      return sizes;
    });
  }

  /** Takes messages out. Resolves to how many characters are left of the conversation. */
  takeOut(chat, ids) {
    return this.#run('readwrite', async (messages, chats) => {
      let size = await done(chats.get(chat)) ?? 0;
      for (const id of ids) {
        size -= (await done(messages.get([chat, id])))?.length ?? 0;
        messages.delete([chat, id]);
      }
      await done(size > 0 ? chats.put(size, chat) : chats.delete(chat));
      return size;
    });
  }

  drop(chat) {
    return this.#run('readwrite', async (messages, chats) => {
      messages.delete(rangeOf(chat));
      await done(chats.delete(chat));
    });
  }
}

/** The browser's; null where it has none. */
export function browserArchive() {
  try {
    return window.indexedDB ? new Archive(window.indexedDB) : null;
  } catch {
    return null;
  }
}
