// The conversation on screen: one view per message, the live answer, and the scrolling that follows it.
//
// A live answer is drawn at most once per animation frame, and when drawing itself is slow (a huge list or table that
// is still open) the next drawing waits a multiple of what the last one cost, so typing and scrolling stay smooth.
// Screen readers do not announce every token: articles are marked busy, and app.js announces the finished answer once.

import { copyText, h, icon, mark, onKeys } from './dom.js';
import { formatNumber, formatWait, t } from './i18n.js';
import { renderInto, StreamRenderer } from './render.js';

const NEAR_BOTTOM_PX = 64;
const REST_FACTOR = 4;
const MAX_REST_MS = 1000;

function actionButton(name, label, testid, onClick) {
  return h('button', { type: 'button', class: 'action', 'aria-label': label, title: label, 'data-testid': testid, onClick }, icon(name));
}

function copyButton(getText) {
  const button = actionButton('copy', t('copy'), 'copy', async () => {
    const show = (label, picture) => {
      button.setAttribute('aria-label', label);
      button.title = label;
      button.replaceChildren(icon(picture));
    };
    const ok = await copyText(getText());
    show(t(ok ? 'copied' : 'copyFailed'), ok ? 'check' : 'alert');
    setTimeout(() => show(t('copy'), 'copy'), 1600);
  });
  return button;
}

/** The parts of the line under an answer. */
function statsNodes(model, stats, live) {
  const parts = [];
  if (model) parts.push(h('span', { class: 'stat-model', text: model }));
  if (Number.isFinite(stats?.ttftMs)) parts.push(h('span', { text: t('ttft', { n: formatNumber(Math.max(1, Math.round(stats.ttftMs))) }) }));
  if (Number.isFinite(stats?.tps)) {
    const n = (stats.exact ? '' : '≈ ') + formatNumber(stats.tps, stats.tps < 100 ? 1 : 0);
    parts.push(h('span', { text: t('tps', { n }) }));
  }
  if (!live && stats?.completionTokens > 0) {
    const out = (stats.exact ? '' : '≈ ') + formatNumber(stats.completionTokens);
    const known = Number.isFinite(stats.promptTokens);
    parts.push(h('span', { text: known ? t('tokens', { in: formatNumber(stats.promptTokens), out }) : t('tokensOut', { out }) }));
  }
  return parts;
}

const END_NOTES = { stopped: 'endStopped', length: 'endLength', content_filter: 'endFilter', lost: 'endLost', gone: 'endGone' };

/** Whether the server refuses the message itself, and so every request that contains it. */
export const isRefused = (error) => error?.kind === 'http' && [400, 413, 422].includes(error.status);

function errorTitle(error, hasKey) {
  if (error.kind === 'network') return t('eNetwork');
  if (error.kind === 'stream') return t('eStream');
  const { status } = error;
  if (error.code === 'context_length_exceeded') return t('e413');
  if (status === 401) return t(hasKey ? 'e401' : 'e401none');
  if ([400, 403, 404, 413, 429, 503].includes(status)) return t(`e${status}`);
  return t(status >= 500 ? 'e5xx' : 'e400');
}

class UserView {
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.el = h('article', { class: 'message user', 'data-testid': 'message-user', 'aria-label': t('you') });
    this.show();
  }

  /** The data that it was drawn from, to detect changes. */
  state() { return String(Boolean(this.message.unsent)); }

  show() {
    this.editing = false;
    this.shown = this.state();
    this.el.classList.toggle('unsent', Boolean(this.message.unsent));
    this.editButton = actionButton('edit', t('edit'), 'edit', () => this.edit());
    this.el.replaceChildren(
      h('div', { class: 'bubble', text: this.message.text }),
      this.message.unsent ? h('p', { class: 'unsent-note', 'data-testid': 'unsent', text: t('unsent') }) : '',
      h('div', { class: 'actions' }, copyButton(() => this.message.text), this.editButton));
  }

  edit() {
    this.editing = true;
    const area = h('textarea', { class: 'edit-text', rows: '1', 'aria-label': t('editField'), 'data-testid': 'edit-text' });
    area.value = this.message.text;
    const send = () => {
      const text = area.value.trim();
      if (text) this.actions.onEdit(this.message, text);
    };
    const cancel = () => {
      this.show();
      this.editButton.focus();
    };
    area.addEventListener('input', () => fit(area));
    onKeys(area, { Escape: () => { cancel(); return true; }, Enter: (event) => !event.shiftKey && (send(), true) });
    this.el.replaceChildren(h('div', { class: 'editor' }, area, h('div', { class: 'editor-buttons' },
      h('button', { type: 'button', class: 'button', text: t('cancel'), onClick: cancel }),
      h('button', { type: 'button', class: 'button primary', text: t('editSend'), 'data-testid': 'edit-send', onClick: send }))));
    fit(area);
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }

  dispose() {}
}

class AssistantView {
  #timer = 0;

  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.answer = h('div', { class: 'prose', 'data-testid': 'answer-text' });
    this.status = h('div', { class: 'status' });
    this.foot = h('footer', { class: 'answer-foot' });
    this.thought = h('div', { class: 'thought' });
    this.thinking = h('details', { class: 'thinking', hidden: true }, h('summary', { text: t('thinking') }), this.thought);
    this.called = h('pre', { class: 'calls', 'data-testid': 'calls', 'aria-label': t('calls'), hidden: true });
    this.el = h('article', { class: 'message assistant', 'data-testid': 'message-assistant', 'aria-label': 'Sluice' },
      h('div', { class: 'avatar' }, mark()),
      h('div', { class: 'answer' }, this.thinking, this.answer, this.called, this.status, this.foot));
  }

  #reasoning(text) {
    this.thinking.hidden = !text;
    if (this.thought.textContent.length !== text.length) this.thought.textContent = text;
  }

  #calls(text) {
    this.called.hidden = !text;
    if (this.called.textContent.length !== text.length) this.called.textContent = text;
  }

  /** The data that it was drawn from, to detect changes. */
  state(last) {
    const { text, end, reasoning, calls } = this.message;
    return [text.length, reasoning?.length ?? 0, calls?.length ?? 0, end, last].join();
  }

  /** A finished answer, or one that another tab reads. */
  finish(last, hasKey) {
    clearInterval(this.#timer);
    this.shown = this.state(last);
    const { text, end, error, model, stats, reasoning, calls } = this.message;
    this.el.classList.remove('live');
    this.el.removeAttribute('aria-busy');
    if (this.stream) this.stream.update(text, true);
    else renderInto(this.answer, text);
    this.stream = null;
    this.#reasoning(reasoning ?? '');
    this.#calls(calls ?? '');
    this.status.replaceChildren();
    if (end === 'error') this.#showError(error, last, hasKey);
    if (end === null) this.status.replaceChildren(h('p', { class: 'opening', 'data-testid': 'elsewhere', text: t('elsewhere') }));
    const note = END_NOTES[end];
    const actions = h('div', { class: 'actions' });
    if (text) actions.append(copyButton(() => text));
    if (last && end !== 'error' && end !== null) actions.append(actionButton('again', t('regenerate'), 'regenerate', () => this.actions.onRegenerate()));
    const parts = statsNodes(model, stats, false);
    this.foot.replaceChildren(
      note ? h('p', { class: `end end-${end}`, 'data-testid': 'end' }, t(note)) : '',
      h('div', { class: 'foot-row' }, actions,
        parts.length > 0 && text ? h('p', { class: 'stats', 'data-testid': 'stats' }, parts) : ''));
  }

  #showError(error, last, hasKey) {
    const wait = h('p', { class: 'error-wait' });
    const again = h('button', { type: 'button', class: 'button', 'data-testid': 'try-again', onClick: () => this.actions.onRegenerate() }, icon('again'), t('tryAgain'));
    const refused = isRefused(error);
    const edit = h('button', { type: 'button', class: 'button primary', 'data-testid': 'edit-unsent', onClick: () => this.actions.onEditAsked(this.message) }, icon('edit'), t('edit'));
    const buttons = h('div', { class: 'error-buttons' }, refused ? edit : null, last ? again : null,
      error.status === 401 ? h('button', { type: 'button', class: 'button primary', 'data-testid': 'enter-key', text: t('enterKey'), onClick: () => this.actions.onEnterKey() }) : null);
    const detail = error.kind === 'network' ? t('eNetworkText') : error.message;
    // Outside the alert, which screen readers would read again at every tick.
    this.status.replaceChildren(h('div', { class: 'error', 'data-testid': 'error' },
      icon('alert'),
      h('div', { class: 'error-body' },
        h('div', { role: 'alert' },
          h('p', { class: 'error-title', text: errorTitle(error, hasKey) }),
          detail ? h('p', { class: 'error-text', text: detail }) : null,
          refused ? h('p', { class: 'error-text', text: t('unsentText') }) : null),
        wait, buttons)));
    if (error.status !== 429 || !error.retryAt || !last) { wait.remove(); return; }
    const tick = () => {
      const left = error.retryAt - Date.now();
      wait.textContent = left > 0 ? t('e429wait', { n: formatWait(left) }) : t('e429now');
      again.disabled = left > 0;
      if (left <= 0) clearInterval(this.#timer);
    };
    this.#timer = setInterval(tick, 1000);
    tick();
  }

  /** An answer under way. */
  begin(run) {
    this.el.classList.add('live');
    this.el.setAttribute('aria-busy', 'true');
    this.stream = new StreamRenderer(this.answer);
    this.phase(run);
  }

  phase(run) {
    clearInterval(this.#timer);
    if (run.state === 'connecting' || run.state === 'reconnecting') {
      this.status.replaceChildren(h('p', { class: 'opening', 'data-testid': run.state, text: t(run.state) }));
    } else if (run.state === 'waiting') {
      const text = h('span');
      const tick = () => { text.textContent = t('waiting', { n: Math.max(1, Math.ceil((run.retryAt - Date.now()) / 1000)) }); };
      tick();
      this.#timer = setInterval(tick, 500);
      this.status.replaceChildren(h('p', { class: 'opening', 'data-testid': 'waiting' }, text,
        h('button', { type: 'button', class: 'link-button', 'data-testid': 'waiting-cancel', text: t('cancel'), onClick: () => run.stop() })));
    } else {
      this.status.replaceChildren();
    }
  }

  draw(run) {
    this.stream?.update(run.text);
    this.#reasoning(run.reasoning);
    this.#calls(run.calls);
    if (run.state === 'streaming' && this.status.firstChild) this.status.replaceChildren();
    const now = performance.now();
    if (now - (this.statsAt ?? 0) < 250) return;
    this.statsAt = now;
    this.foot.replaceChildren(h('div', { class: 'foot-row' },
      h('p', { class: 'stats', 'data-testid': 'stats' }, statsNodes(run.model, run.stats(), true))));
  }

  dispose() { clearInterval(this.#timer); }
}

/** Makes a textarea as high as its text, within what the style sheet allows. */
export function fit(area) {
  area.style.height = 'auto';
  area.style.height = `${area.scrollHeight + area.offsetHeight - area.clientHeight}px`;
}

export class Thread {
  #root;
  #scroll;
  #latest;
  #actions;
  #views = [];
  #live = null; // {run, view}
  #frame = 0;
  #restUntil = 0;
  #pinned = true;
  #lastTop = 0;

  /** actions: onEdit(message, text), onEditAsked(answer), onRegenerate(), onEnterKey(), hasKey(). */
  constructor({ root, scroll, latest, actions }) {
    this.#root = root;
    this.#scroll = scroll;
    this.#latest = latest;
    this.#actions = actions;
    scroll.addEventListener('scroll', () => this.#onScroll(), { passive: true });
    latest.addEventListener('click', () => this.toBottom());
    new ResizeObserver(() => this.#follow()).observe(scroll);
  }

  #atBottom() {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroll;
    return scrollHeight - scrollTop - clientHeight < NEAR_BOTTOM_PX;
  }

  #onScroll() {
    const top = this.#scroll.scrollTop;
    if (this.#atBottom()) this.#pinned = true;
    else if (top < this.#lastTop) this.#pinned = false;
    this.#lastTop = top;
    this.#latest.hidden = this.#pinned || this.#atBottom();
  }

  #follow() {
    if (this.#pinned) this.#scroll.scrollTop = this.#scroll.scrollHeight;
    this.#latest.hidden = this.#pinned || this.#atBottom();
  }

  toBottom() {
    this.#pinned = true;
    this.#follow();
  }

  /** Shows a conversation; `live` is {run, message} of its answer under way, or null. */
  show(messages, live) {
    this.#stopDrawing();
    for (const view of this.#views) view.dispose();
    this.#views = [];
    this.#root.replaceChildren();
    this.sync(messages, live);
    this.toBottom();
  }

  /** Updates the views to the messages. Unchanged views stay, with an edit in progress. */
  sync(messages, live) {
    const old = new Map(this.#views.map((view) => [view.message.id, view]));
    if (this.#live && this.#live.run !== live?.run) this.#stopDrawing();
    this.#views = messages.map((m, i) => {
      const view = this.#viewOf(m, i === messages.length - 1, live, old.get(m.id));
      if (view === old.get(m.id)) old.delete(m.id);
      return view;
    });
    for (const view of old.values()) {
      view.dispose();
      view.el.remove();
    }
    let at = this.#root.firstChild;
    for (const { el } of this.#views) {
      if (el === at) at = at.nextSibling;
      else this.#root.insertBefore(el, at);
    }
    this.#follow();
  }

  /** The view of a message: the old one if it is still right. */
  #viewOf(m, last, live, old) {
    if (m.role === 'user') {
      if (!old) return new UserView(m, this.#actions);
      old.message = m;
      if (!old.editing && old.shown !== old.state()) old.show();
      return old;
    }
    if (live?.message === m) {
      if (old && this.#live?.view === old) return old;
      const view = new AssistantView(m, this.#actions);
      this.#live = { run: live.run, view };
      view.begin(live.run);
      view.draw(live.run);
      return view;
    }
    if (old && this.#live?.view !== old) {
      old.message = m;
      if (old.shown === old.state(last)) return old;
    }
    const view = new AssistantView(m, this.#actions);
    view.finish(last, this.#actions.hasKey());
    return view;
  }

  #stopDrawing() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#live = null;
    this.#restUntil = 0;
  }

  /** A run has changed; ignored unless its conversation is shown. */
  update(run, what) {
    if (this.#live?.run !== run) return;
    if (what === 'state') this.#live.view.phase(run);
    else if (!this.#frame) this.#frame = requestAnimationFrame(() => this.#draw());
    if (what === 'state') this.#follow();
  }

  #draw() {
    this.#frame = 0;
    if (!this.#live) return;
    const { run, view } = this.#live;
    const from = performance.now();
    if (from < this.#restUntil) {
      this.#frame = requestAnimationFrame(() => this.#draw());
      return;
    }
    view.draw(run);
    this.#follow();
    const cost = performance.now() - from;
    this.#restUntil = cost > 8 ? from + Math.min(MAX_REST_MS, cost * REST_FACTOR) : 0;
  }

  /** The run shown has ended and its message holds the result. Returns whether it was on screen. */
  finished(run) {
    if (this.#live?.run !== run) return false;
    const { view } = this.#live;
    this.#stopDrawing();
    view.finish(this.#views.at(-1) === view, this.#actions.hasKey());
    this.#follow();
    return true;
  }

  /** Opens the last user message for editing. */
  editLast() {
    return this.#editBefore(this.#views.length);
  }

  /** Opens the last user message among the first n views for editing. Returns whether there is one. */
  #editBefore(n) {
    const view = this.#views.slice(0, n).findLast((v) => v instanceof UserView);
    view?.edit();
    return view !== undefined;
  }

  /** Opens the question of an answer for editing. */
  editAsked(message) {
    this.#editBefore(Math.max(0, this.#views.findIndex((view) => view.message.id === message.id)));
  }

  /** The visible text of an answer. */
  textOf(message) { return this.#views.find((view) => view.message.id === message.id)?.answer?.innerText ?? ''; }
}
