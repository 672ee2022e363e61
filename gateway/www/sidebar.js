// The list of conversations and the drawer it lives in. On a wide window it is a column that can be folded away; on a
// narrow one it lies over the page like a dialog: the page behind is inert, Escape closes it, focus returns.

import { h, icon, onKeys } from './dom.js';
import { t } from './i18n.js';
import { Search } from './search.js';

const DAY_MS = 86_400_000;
const ROWS = 50; // drawn at first, and more as one scrolls

function groupOf(time, now) {
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  if (time >= midnight) return 'today';
  if (time >= midnight - DAY_MS) return 'yesterday';
  return time >= midnight - 7 * DAY_MS ? 'week' : 'older';
}

export class Sidebar {
  #el;
  #store;
  #actions;
  #narrow = matchMedia('(max-width: 860px)');
  #removing = null;
  #editing = false;
  #search;
  #query = '';
  #shown = { chats: [], current: '', running: null };
  #rows = ROWS;

  /** el: the page's elements by id. actions: onOpen(id, message), onRemove(id), onRename(id, title), onExport(id), isKept(id). */
  constructor(el, store, actions) {
    this.#search = new Search(store);
    this.#el = el;
    this.#store = store;
    this.#actions = actions;
    el.sideOpen.addEventListener('click', () => this.open());
    el.sideClose.addEventListener('click', () => this.close());
    el.scrim.addEventListener('click', () => this.close());
    onKeys(el.sidebar, { Escape: () => this.#narrow.matches && (this.close(), true) });
    this.#narrow.addEventListener('change', () => this.#layout(false));
    el.removeNo.addEventListener('click', () => el.removeDialog.close());
    el.removeYes.addEventListener('click', () => {
      el.removeDialog.close();
      if (this.#removing) actions.onRemove(this.#removing);
      this.#removing = null;
    });
    el.searchInput.addEventListener('input', () => this.#ask(el.searchInput.value.trim()));
    onKeys(el.searchInput, {
      Escape: () => this.#query !== '' && (el.searchInput.value = '', this.#ask(''), true),
      Enter: () => (el.history.querySelector('.chat-open')?.click(), true),
      ArrowDown: () => (el.history.querySelector('.chat-open')?.focus(), true),
    });
    el.history.addEventListener('scroll', () => {
      const { scrollHeight, scrollTop, clientHeight } = el.history;
      if (scrollHeight - scrollTop - clientHeight < clientHeight) this.#more();
    }, { passive: true });
    this.#layout(false);
  }

  async #ask(query) {
    this.#query = query;
    this.#rows = ROWS;
    if (query !== '') await this.#search.prepare(this.#store.list(), query, undefined, () => this.#query !== query);
    if (this.#query === query) this.#draw();
  }

  #more() {
    if (this.#el.history.querySelector('.more') === null) return;
    this.#rows += ROWS;
    this.#draw();
  }

  get #folded() { return this.#store.pref('sidebar') === 'closed'; }

  #layout(drawerOpen) {
    const narrow = this.#narrow.matches;
    const open = narrow ? drawerOpen : !this.#folded;
    document.documentElement.dataset.sidebar = open ? 'open' : 'closed';
    this.#el.sidebar.inert = !open;
    this.#el.main.inert = narrow && drawerOpen;
    this.#el.scrim.hidden = !(narrow && drawerOpen);
    this.#el.sideOpen.setAttribute('aria-expanded', String(open));
    this.#el.sideClose.setAttribute('aria-expanded', String(open));
  }

  open() {
    if (!this.#narrow.matches) this.#store.setPref('sidebar', 'open');
    this.#layout(true);
    this.#el.sideClose.focus();
  }

  close() {
    if (!this.#narrow.matches) this.#store.setPref('sidebar', 'closed');
    this.#layout(false);
    this.#el.sideOpen.focus();
  }

  /** Closes the drawer after a choice in it; a column stays. Returns whether it did. */
  leave() {
    if (!this.#narrow.matches || this.#el.scrim.hidden) return false;
    this.#layout(false);
    return true;
  }

  /** chats: newest first; current: the id shown; running: has(id) of those being answered. */
  show(chats, current, running) {
    this.#shown = { chats, current, running };
    if (this.#query !== '') this.#ask(this.#query);
    else this.#draw();
  }

  #draw() {
    if (this.#editing) return; // keeps a rename in progress
    const { current, running } = this.#shown;
    const isSearch = this.#query !== '';
    const chats = isSearch ? this.#search.find(this.#shown.chats, this.#query) : this.#shown.chats;
    const focused = document.activeElement?.closest?.('.history [data-id]')?.dataset.id;
    const drawn = document.activeElement?.matches?.('.history .more') ? this.#el.history.querySelectorAll('[data-id]').length : 0;
    const top = this.#el.history.scrollTop;
    const nodes = [];
    let group = null;
    let list = null;
    for (const chat of chats.slice(0, this.#rows)) {
      const name = isSearch ? 'found' : groupOf(chat.updated, Date.now());
      if (name !== group) {
        group = name;
        list = h('ul', { 'aria-labelledby': `group-${name}` });
        nodes.push(h('h2', { class: 'group', id: `group-${name}`, text: isSearch ? t('found', { n: chats.length }) : t(name) }), list);
      }
      list.append(this.#row(chat, chat.id === current, running.has(chat.id)));
    }
    if (nodes.length === 0) nodes.push(h('p', { class: 'no-chats', text: t(isSearch ? 'foundNone' : 'noChats') }));
    if (chats.length > this.#rows) nodes.push(h('button', { type: 'button', class: 'side-button more', 'data-testid': 'more-chats', text: t('moreChats', { n: chats.length - this.#rows }), onClick: () => this.#more() }));
    this.#el.history.replaceChildren(...nodes);
    this.#el.history.scrollTop = top;
    this.#el.searchStatus.textContent = isSearch ? (chats.length > 0 ? t('found', { n: chats.length }) : t('foundNone')) : '';
    if (focused) this.#el.history.querySelector(`[data-id="${CSS.escape(focused)}"] .chat-open`)?.focus();
    if (drawn > 0) this.#el.history.querySelectorAll('.chat-open')[drawn]?.focus(); // goes on where more begins
  }

  #row(chat, isCurrent, isRunning) {
    const title = chat.title || t('untitled');
    const row = h('li', { class: isCurrent ? 'chat current' : 'chat', 'data-id': chat.id, 'data-testid': 'chat' });
    const open = h('button', {
      type: 'button', class: 'chat-open', title, 'aria-current': isCurrent ? 'page' : null, onClick: () => this.#actions.onOpen(chat.id, chat.message),
    }, isRunning ? h('span', { class: 'dot', role: 'img', 'aria-label': t('answering') }) : null, h('span', { class: 'chat-words' }, h('span', { class: 'chat-title', text: title }),
      chat.snippet ? h('span', { class: 'chat-snippet', 'data-testid': 'snippet', text: chat.snippet }) : null));
    const action = (name, picture, onClick) => h('button', {
      type: 'button', class: 'chat-action', 'aria-label': t(`${name}Of`, { title }), title: t(name), 'data-testid': name, onClick,
    }, icon(picture));
    row.append(open, action('rename', 'edit', () => this.#rename(row, chat)), action('export', 'down', () => this.#actions.onExport(chat.id)), action('remove', 'trash', () => {
      this.#removing = chat.id;
      this.#el.removeText.textContent = t(this.#actions.isKept(chat.id) ? 'removeKept' : 'removeText', { title });
      this.#el.removeDialog.showModal();
      this.#el.removeNo.focus();
    }));
    return row;
  }

  #rename(row, chat) {
    this.#editing = true;
    const input = h('input', { class: 'chat-rename', type: 'text', maxlength: '80', 'aria-label': t('newTitle'), 'data-testid': 'rename-input' });
    input.value = chat.title;
    let done = false;
    const finish = (keep) => {
      if (done) return;
      done = true;
      this.#editing = false;
      const title = input.value.trim();
      this.#actions.onRename(chat.id, keep && title ? title : chat.title);
      this.#el.history.querySelector(`[data-id="${CSS.escape(chat.id)}"] .chat-open`)?.focus();
    };
    onKeys(input, { Enter: () => { finish(true); return true; }, Escape: () => { finish(false); return true; } });
    input.addEventListener('blur', () => finish(true));
    row.replaceChildren(input);
    input.focus();
    input.select();
  }
}
