// The list of conversations and the drawer it lives in. On a wide window it is a column that can be folded away; on a
// narrow one it lies over the page like a dialog: the page behind is inert, Escape closes it, focus returns.

import { h, icon, onKeys } from './dom.js';
import { t } from './i18n.js';

const DAY_MS = 86_400_000;

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

  /** el: the page's elements by id. actions: onOpen(id), onRemove(id), onRename(id, title). */
  constructor(el, store, actions) {
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
    this.#layout(false);
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

  /** chats: newest first; current: the id shown; running: ids being answered. */
  show(chats, current, running) {
    if (this.#editing) return; // keeps a rename in progress
    const focused = document.activeElement?.closest?.('.history [data-id]')?.dataset.id;
    const nodes = [];
    let group = null;
    let list = null;
    for (const chat of chats) {
      const name = groupOf(chat.updated, Date.now());
      if (name !== group) {
        group = name;
        list = h('ul', { 'aria-labelledby': `group-${name}` });
        nodes.push(h('h2', { class: 'group', id: `group-${name}`, text: t(name) }), list);
      }
      list.append(this.#row(chat, chat.id === current, running.has(chat.id)));
    }
    if (nodes.length === 0) nodes.push(h('p', { class: 'no-chats', text: t('noChats') }));
    this.#el.history.replaceChildren(...nodes);
    if (focused) this.#el.history.querySelector(`[data-id="${CSS.escape(focused)}"] .chat-open`)?.focus();
  }

  #row(chat, isCurrent, isRunning) {
    const title = chat.title || t('untitled');
    const row = h('li', { class: isCurrent ? 'chat current' : 'chat', 'data-id': chat.id, 'data-testid': 'chat' });
    const open = h('button', {
      type: 'button', class: 'chat-open', title, 'aria-current': isCurrent ? 'page' : null, onClick: () => this.#actions.onOpen(chat.id),
    }, isRunning ? h('span', { class: 'dot', role: 'img', 'aria-label': t('answering') }) : null, h('span', { class: 'chat-title', text: title }));
    const action = (name, picture, onClick) => h('button', {
      type: 'button', class: 'chat-action', 'aria-label': t(`${name}Of`, { title }), title: t(name), 'data-testid': name, onClick,
    }, icon(picture));
    row.append(open, action('rename', 'edit', () => this.#rename(row, chat)), action('remove', 'trash', () => {
      this.#removing = chat.id;
      this.#el.removeText.textContent = t('removeText', { title });
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
