// Conversations out of this browser and back: as files, and on the server for those that are to be kept there.

import { h } from './dom.js';
import { language, t } from './i18n.js';
import { isChatId, isTime, newId } from './records.js';
import { adoptItems } from './remote.js';
import { exportPieces, importInto, MAX_FILE_BYTES, readExport } from './transfer.js';

/** Why the server's history did not work, in the page's words; the server's own where there are none. */
function whyOf(error) {
  if (error?.code === 'too_many_conversations' || error?.code === 'conversation_too_large') return t('serverFull');
  if (error?.status === 401 || error?.status === 403) return t('serverKey');
  if (error?.status === 404) return t('serverGone');
  if (error?.status === 409) return t('serverLocked');
  if (!error?.status) return t('serverAway');
  return error.message;
}

export class Shelf {
  #el;
  #store;
  #remote;
  #actions;

  /** actions: onChange(...ids), onOpen(id), onNotice(text). */
  constructor(el, store, remote, actions) {
    this.#el = el;
    this.#store = store;
    this.#remote = remote;
    this.#actions = actions;
    el.exportAll.addEventListener('click', () => this.save());
    el.import.addEventListener('click', () => el.importInput.click());
    el.importInput.addEventListener('change', () => {
      const [file] = el.importInput.files;
      if (file) this.#take(file);
      el.importInput.value = '';
    });
    el.serverOpen.addEventListener('click', () => this.#list());
    el.serverClose.addEventListener('click', () => el.serverDialog.close());
  }

  // ---- files ----

  /** Saves a file with these conversations; all of them without ids. */
  async save(ids) {
    const pieces = [];
    const made = exportPieces(this.#store, ids);
    let next = await made.next();
    for (; !next.done; next = await made.next()) pieces.push(new Blob([next.value])); // out of the page's memory
    if (next.value > 0) this.#actions.onNotice(t('exportPart', { n: next.value }));
    const url = URL.createObjectURL(new Blob(pieces, { type: 'application/json' }));
    const link = h('a', { href: url, download: `sluice-chats-${new Date().toISOString().slice(0, 10)}.json` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  }

  async #take(file) {
    if (file.size > MAX_FILE_BYTES) { this.#actions.onNotice(t('importLarge')); return; }
    const found = readExport(await file.text());
    if (found === null) { this.#actions.onNotice(t('importWrong')); return; }
    const taken = await importInto(this.#store, found.chats);
    const left = found.wrong + found.chats.length - taken.length;
    this.#actions.onChange(...taken);
    this.#actions.onNotice(t(left > 0 ? 'importedPart' : 'imported', { n: taken.length, left }));
  }

  // ---- the server ----

  #failed(error) { this.#actions.onNotice(t('serverFailed', { why: whyOf(error) })); }

  /** Whether a conversation is to be on the server, from now on. */
  async setKept(chat, kept) {
    const { server } = chat.options ?? {};
    if (kept === Boolean(server || chat.toKeep)) return;
    chat.toKeep = kept;
    if (kept && chat.messages.length > 0) await this.#sync(chat);
    else if (!kept && server) {
      this.#setServer(chat, undefined);
      await this.#remote.drop(server).catch((error) => { if (error.status !== 404) this.#failed(error); });
    }
    this.#actions.onChange(chat.id);
  }

  #setServer(chat, server) {
    const { server: _, ...rest } = chat.options ?? {};
    chat.options = server === undefined ? rest : { ...rest, server };
    chat.toKeep = false;
    this.#store.setOptions(chat);
  }

  /** Something new is shown of a conversation. */
  async keep(chat) {
    if (chat.options?.server || chat.toKeep) await this.#sync(chat);
  }

  async #sync(chat) {
    try {
      const server = await this.#remote.keep(chat, chat.options?.server, (items) => this.#adopt(chat, items));
      if (server !== chat.options?.server) this.#setServer(chat, server);
      this.#actions.onChange(chat.id);
    } catch (error) {
      this.#failed(error);
    }
  }

  /** Adds what another browser has added on the server. */
  async refresh(chat) {
    const { server } = chat.options ?? {};
    if (!server) return;
    try {
      const { items } = await this.#remote.load(server);
      await this.#adopt(chat, items);
    } catch (error) {
      this.#failed(error);
    }
  }

  async #adopt(chat, items) {
    const known = await this.#store.read(chat.id) ?? chat;
    if (known.missing) return; // it would be taken for new
    const { added, parent, mine } = adoptItems(known, items);
    if (added.length === 0) return;
    this.#store.save({ ...known, updated: Date.now() }, added);
    if (mine !== undefined) this.#store.pick(chat.id, parent, mine); // what is shown stays
    this.#actions.onChange(chat.id);
  }

  /** A conversation is being deleted here; on the server, too. */
  remove(id) {
    const { server } = this.#store.optionsOf(id);
    if (server) this.#remote.drop(server).catch((error) => { if (error.status !== 404) this.#failed(error); });
  }

  async #list() {
    const { serverDialog, serverList, serverStatus } = this.#el;
    serverList.replaceChildren();
    serverStatus.textContent = t('serverLoading');
    serverDialog.showModal();
    try {
      const found = await this.#remote.list();
      const date = new Intl.DateTimeFormat(language(), { dateStyle: 'medium' });
      serverList.replaceChildren(...found.map((c) => h('li', {}, h('button', { type: 'button', class: 'server-item', 'data-testid': 'server-chat', onClick: () => this.#fetch(c.id) },
        h('span', { class: 'chat-title', text: c.title || t('untitled') }), h('time', { text: isTime(c.created) ? date.format(c.created) : '' })))));
      serverStatus.textContent = found.length > 0 ? '' : t('serverNone');
    } catch (error) {
      serverStatus.textContent = t('serverFailed', { why: whyOf(error) });
    }
  }

  async #fetch(server) {
    try {
      const { chat, title, items } = await this.#remote.load(server);
      const known = this.#store.list().map((c) => c.id).find((id) => this.#store.optionsOf(id).server === server);
      const id = known ?? (isChatId(chat) && this.#store.get(chat) === null ? chat : newId());
      const now = Date.now();
      await this.#adopt(this.#store.get(id) ?? { v: 1, id, title, created: now, updated: now, messages: [], options: { server } }, items);
      this.#el.serverDialog.close();
      this.#actions.onOpen(id);
    } catch (error) {
      this.#el.serverStatus.textContent = t('serverFailed', { why: whyOf(error) });
    }
  }
}
