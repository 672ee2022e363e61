// The page's conductor: which conversation is shown, which answers are under way, and who is told what.
//
// State kept here: `chat`, the conversation on screen (not yet in the store while it is empty), and `runs`, one Run per
// conversation being answered. An answer goes on when another conversation is opened; its text lands in its own record.

import { mark, h, icon } from './dom.js';
import { formatWait, pickLanguage, setLanguage, t, translatePage } from './i18n.js';
import { Keys, keysOfFragment } from './keys.js';
import { Run } from './run.js';
import { Settings } from './settings.js';
import { Sidebar } from './sidebar.js';
import { LIMITS, memoryStorage, newId, Store } from './store.js';
import { fit, Thread } from './thread.js';
import { UsageLine } from './usage.js';

const SAVE_EVERY_MS = 2000;
const ANNOUNCE_CHARS = 1200;
const CARD_ICONS = ['globe', 'idea', 'edit', 'code'];

const el = {};
for (const node of document.querySelectorAll('[id]')) {
  el[node.id.replace(/-(\w)/g, (_, c) => c.toUpperCase())] = node;
}

function browserStorage() {
  try {
    const storage = window.localStorage;
    storage.setItem('sluice.probe', '1');
    storage.removeItem('sluice.probe');
    return storage;
  } catch {
    return memoryStorage();
  }
}

const store = new Store(browserStorage());
const keys = new Keys(store);
const runs = new Map(); // chat id → {run, chat, message, savedAt}
let chat = emptyChat();

setLanguage(pickLanguage(store.pref('language'), navigator.languages));

const thread = new Thread({
  root: el.thread, scroll: el.scroll, latest: el.latest,
  actions: {
    onEdit: (index, text) => resend(index, text),
    onRegenerate: () => regenerate(),
    onEnterKey: () => settings.askKey(),
    hasKey: () => keys.current() !== null,
  },
});
const sidebar = new Sidebar(el, store, {
  onOpen: (id) => openChat(id),
  onRemove: (id) => removeChat(id),
  onRename: (id, title) => {
    if (chat.id === id) chat.title = title;
    const live = runs.get(id);
    if (live) live.chat.title = title;
    store.rename(id, title);
    showList();
    showTitle();
  },
});
const usage = new UsageLine(el, keys);
const settings = new Settings(el, store, keys, {
  onLanguage: (name) => {
    store.setPref('language', name);
    setLanguage(name);
    translateAll();
  },
  onModelsError: (error) => {
    if (error === null) {
      notice('');
      usage.refresh();
    } else if (error.status === 503) notice(t('waiting', { n: 2 }));
    else if (error.kind === 'network') notice(`${t('eNetwork')}. ${t('eNetworkText')}`);
    else if (error.status === 401) notice(t('e401'));
    else if (error.status === 429) notice(`${t('e429')}. ${error.retryAt ? t('e429wait', { n: formatWait(error.retryAt - Date.now()) }) : ''}`);
    else notice(error.message || t('e5xx'));
  },
});

function emptyChat() {
  const now = Date.now();
  return { v: 1, id: newId(), title: '', created: now, updated: now, messages: [] };
}

// ---- what is on screen ----------------------------------------------------------------------------------------------

function announce(text) {
  el.live.textContent = '';
  setTimeout(() => { el.live.textContent = text; }, 60);
}

function notice(text) {
  el.notice.textContent = text;
  el.notice.hidden = text === '';
}

function showList() { sidebar.show(store.list(), chat.id, runs); }

function showTitle() {
  const title = chat.title || (chat.messages.length > 0 ? t('untitled') : '');
  document.title = title ? `${title} – Sluice` : 'Sluice';
  el.title.textContent = title || 'Sluice';
}

function showComposer() {
  const running = runs.has(chat.id);
  el.stop.hidden = !running;
  el.send.hidden = running;
  el.send.disabled = el.composer.value.trim() === '';
  document.documentElement.dataset.flow = running ? 'on' : 'off';
}

// A reload comes back to the same conversation; a new tab begins an empty one.
const OPEN = 'sluice.v1.open';

function rememberOpen() {
  try { sessionStorage.setItem(OPEN, chat.id); } catch { /* then a reload begins an empty one */ }
}

function reopen() {
  try {
    const id = sessionStorage.getItem(OPEN);
    return id && store.list().some((c) => c.id === id) ? store.get(id) : null;
  } catch {
    return null;
  }
}

// The conversations being answered in this tab, so that a reload takes all of them up again.
const LIVE = 'sluice.v1.live';

function rememberLive() {
  try { sessionStorage.setItem(LIVE, JSON.stringify([...runs.keys()])); } catch { /* then only the one on screen is */ }
}

function wereLive() {
  try { return JSON.parse(sessionStorage.getItem(LIVE)).filter((id) => typeof id === 'string' && id !== chat.id).map((id) => store.get(id)).filter(Boolean); } catch { return []; }
}

function showChat() {
  rememberOpen();
  const empty = chat.messages.length === 0;
  el.hero.hidden = !empty;
  el.thread.hidden = empty;
  document.documentElement.dataset.empty = String(empty);
  thread.show(chat.messages, runs.get(chat.id)?.run ?? null);
  if (empty) el.scroll.scrollTop = 0;
  showTitle();
  showList();
  showComposer();
}

function showCards() {
  el.cards.replaceChildren(...CARD_ICONS.map((name, i) => {
    const question = t(`ask${i + 1}q`);
    return h('li', {}, h('button', { type: 'button', class: 'card', 'data-testid': 'suggestion', onClick: () => ask(question) },
      icon(name), h('span', { class: 'card-text' }, h('span', { class: 'card-title', text: t(`ask${i + 1}`) }), h('span', { class: 'card-question', text: question }))));
  }));
}

function translateAll() {
  translatePage(document);
  settings.translate();
  usage.show();
  showCards();
  showChat();
}

// ---- conversations --------------------------------------------------------------------------------------------------

function openChat(id) {
  if (id !== chat.id) {
    const found = runs.get(id)?.chat ?? store.get(id);
    if (found === null) { showList(); return; }
    chat = found;
    takeUp(chat);
    notice('');
    showChat();
  }
  sidebar.leave();
  toComposer();
}

/** Focus back to where one types; not on touch screens, where that would raise the keyboard over the answer. */
function toComposer() {
  if (!matchMedia('(pointer: coarse)').matches) el.composer.focus();
}

function newChat() {
  if (chat.messages.length > 0) {
    chat = emptyChat();
    notice('');
    showChat();
  }
  sidebar.leave();
  el.composer.focus();
}

function removeChat(id) {
  const live = runs.get(id);
  if (live) {
    forget(live);
    live.run.stop();
  }
  store.remove(id);
  if (chat.id === id) {
    chat = emptyChat();
    showChat();
  }
  showList();
  el.newChat.focus();
}

function save(which) {
  which.updated = Date.now();
  if (which.messages.length > LIMITS.messages) which.messages.splice(0, which.messages.length - LIMITS.messages);
  const kept = store.save(which);
  if (!kept && which === chat) notice(t('notSaved'));
}

// ---- asking ---------------------------------------------------------------------------------------------------------

function ask(text) {
  if (runs.has(chat.id)) return;
  if (keys.current() === null) {
    el.composer.value = text;
    fit(el.composer);
    showComposer();
    settings.askKey();
    return;
  }
  if (!chat.title) chat.title = titleOf(text);
  chat.messages.push({ role: 'user', text });
  answer();
  toComposer();
}

function titleOf(text) {
  const line = text.replace(/\s+/g, ' ').trim();
  return line.length <= 60 ? line : `${[...line.slice(0, 60)].slice(0, -1).join('').trimEnd()}…`;
}

function resend(index, text) {
  stopRun(chat.id);
  chat.messages.length = index;
  if (index === 0) chat.title = titleOf(text);
  chat.messages.push({ role: 'user', text });
  answer();
  toComposer();
}

function regenerate() {
  if (runs.has(chat.id)) return;
  while (chat.messages.at(-1)?.role === 'assistant') chat.messages.pop();
  if (chat.messages.length === 0) { showChat(); return; }
  answer();
  toComposer();
}

/** What the model is sent: questions that got no answer are joined, since chat templates want the roles to alternate. */
function turnsOf(messages) {
  const sent = [];
  for (const { role, text } of messages) {
    if (text === '') continue;
    const last = sent.at(-1);
    if (last?.role === role) last.content += `\n\n${text}`;
    else sent.push({ role, content: text });
  }
  return sent;
}

/** Asks for the next message of the conversation on screen. */
function answer() {
  const sent = turnsOf(chat.messages);
  const message = { role: 'assistant', text: '', model: settings.model, end: null };
  chat.messages.push(message);
  const key = keys.current();
  const live = begin(chat, message, key?.name ?? '', { key: key?.key ?? '', model: () => settings.modelWhenKnown(), messages: sent, conversation: chat.id });
  save(chat);
  showChat();
  announce(t('liveStarted'));
  live.run.start();
}

function begin(which, message, keyName, options) {
  const live = { chat: which, message, keyName, savedAt: Date.now(), run: null };
  live.run = new Run({ ...options, onChange: (run, what) => onRun(live, run, what) });
  runs.set(which.id, live);
  rememberLive();
  return live;
}

function forget(live) {
  runs.delete(live.chat.id);
  rememberLive();
}

/** Goes on with an answer that was under way when the page was left. */
function takeUp(which) {
  const message = which.messages.at(-1);
  if (!message?.stream || message.end !== null || runs.has(which.id)) return;
  const key = keys.named(message.stream.key);
  begin(which, message, message.stream.key, { key: key?.key ?? '', kept: message }).run.start();
}

function takeOver(live) {
  const { run, message } = live;
  message.text = run.text.slice(0, LIMITS.messageChars);
  if (run.reasoning) message.reasoning = run.reasoning.slice(0, LIMITS.messageChars);
  message.model = run.model;
  message.end = run.end;
  if (run.end === null && run.stream !== null) message.stream = { ...run.stream, key: live.keyName };
  else delete message.stream;
  message.stats = run.stats();
  if (run.error) message.error = run.error;
}

function onRun(live, run, what) {
  if (runs.get(live.chat.id) !== live) return; // removed or replaced meanwhile
  if (run.state !== 'done') {
    if (what !== 'stream') thread.update(run, what);
    if (run.state === 'waiting' && live.chat === chat) {
      announce(t('waiting', { n: Math.ceil((run.retryAt - Date.now()) / 1000) }));
    }
    if (run.state === 'reconnecting' && live.state !== run.state && live.chat === chat) announce(t('reconnecting'));
    live.state = run.state;
    if (what === 'stream' || (what === 'text' && Date.now() - live.savedAt > SAVE_EVERY_MS)) {
      live.savedAt = Date.now();
      takeOver(live);
      save(live.chat);
    }
    return;
  }
  forget(live);
  takeOver(live);
  save(live.chat);
  if (thread.finished(run)) {
    if (run.end === 'stopped') announce(t('liveStopped'));
    else if (run.end !== 'error') announce(t('liveDone', { text: thread.lastAnswerText().slice(0, ANNOUNCE_CHARS) }));
    showComposer();
  }
  showList();
  if (run.error?.status === 401) settings.askKey();
  else usage.refresh();
}

function stopRun(id) {
  const live = runs.get(id);
  if (!live) return;
  live.run.stop();
}

// ---- events ---------------------------------------------------------------------------------------------------------

el.form.addEventListener('submit', (event) => {
  event.preventDefault();
  const text = el.composer.value.trim();
  if (!text || runs.has(chat.id)) return;
  if (keys.current() !== null) el.composer.value = '';
  fit(el.composer);
  ask(text);
});

el.composer.addEventListener('input', () => {
  fit(el.composer);
  showComposer();
});

el.composer.addEventListener('keydown', (event) => {
  if (event.isComposing || event.keyCode === 229) return; // a syllable is still being composed
  if (event.key === 'Enter' && !event.shiftKey) {
    event.preventDefault();
    el.form.requestSubmit();
  } else if (event.key === 'ArrowUp' && el.composer.value === '' && !runs.has(chat.id)) {
    if (thread.editLast()) event.preventDefault();
  }
});

el.stop.addEventListener('click', () => {
  stopRun(chat.id);
  el.composer.focus();
});

document.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape' || event.isComposing || event.defaultPrevented || document.querySelector('dialog[open]')) return;
  if (runs.has(chat.id)) {
    event.preventDefault();
    stopRun(chat.id);
    el.composer.focus();
  }
});

el.newChat.addEventListener('click', newChat);
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  el.composer.focus();
});

// Another tab changed the history or the keys.
window.addEventListener('storage', (event) => {
  if (event.key === null || event.key === 'sluice.v1.index') showList();
  if (event.key === 'sluice.v1.keys') {
    keys.reload();
    settings.showKeys();
  }
});

window.addEventListener('pagehide', () => {
  for (const live of runs.values()) {
    takeOver(live);
    if (!live.message.stream) live.message.end = 'lost';
    save(live.chat);
  }
});

function takeFragment() {
  if (location.hash.length < 2) return false;
  const found = keysOfFragment(location.hash);
  history.replaceState(null, '', location.pathname + location.search);
  if (found.length === 0) return false;
  keys.add(found, keys.current() === null ? found[0].name : null);
  return true;
}

window.addEventListener('hashchange', () => {
  if (takeFragment()) {
    settings.showKeys();
    settings.loadModels();
  }
});

// ---- start ----------------------------------------------------------------------------------------------------------

takeFragment();
chat = reopen() ?? chat;
for (const which of [chat, ...wereLive()]) takeUp(which);
el.brand.prepend(mark('mark brand-mark'));
el.heroMark.append(mark('mark hero-logo'));
translateAll();
settings.loadModels();
if (!el.keyDialog.open) el.composer.focus();
