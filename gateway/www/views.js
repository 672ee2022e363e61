// One message on screen: a question with its files, or an answer that grows or has ended.
//
// An answer that continues others (branches.js joined()) is one view with them: `before` are those messages.

import { copyText, fit, h, icon, mark, onKeys } from './dom.js';
import { formatNumber, formatWait, t } from './i18n.js';
import { renderInto, StreamRenderer } from './render.js';

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
function statsNodes({ model, asked }, stats, live) {
  const parts = [];
  const name = asked && asked !== model ? `${asked} → ${model}` : model;
  if (model) parts.push(h('span', { class: 'stat-model', 'data-testid': 'stat-model', text: name }));
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

/** ‹ 2/3 ›: the versions of a message; nothing where there is one. */
function versionsNode({ message, versions, at }, actions) {
  if (versions.length < 2) return null;
  const go = (step) => { if (versions[at + step] !== undefined) actions.onVersion(message, versions[at + step], step); };
  const button = (step, picture, name) => h('button', {
    type: 'button', class: 'action', 'aria-label': t(name), title: t(name), 'data-testid': name, disabled: versions[at + step] === undefined, onClick: () => go(step),
  }, icon(picture));
  const node = h('div', { class: 'versions', role: 'group', 'aria-label': t('versions'), 'data-testid': 'versions' },
    button(-1, 'left', 'versionBefore'),
    h('span', { class: 'version-at', text: `${at + 1}/${versions.length}` }),
    button(1, 'right', 'versionNext'));
  onKeys(node, { ArrowLeft: () => (go(-1), true), ArrowRight: () => (go(1), true) });
  return node;
}

/** Names of the files that go with a question; opened, what they say. */
const fileNodes = (files) => (files ?? []).map((f) => h('details', { class: 'file', 'data-testid': 'message-file' },
  h('summary', {}, icon('file'), h('span', { text: f.name })), h('pre', { tabindex: '0', role: 'group', 'aria-label': f.name, text: f.text })));

/** Shows a text that mostly grows: what is there of it stays. `shown`: the length of what el shows. Returns the new one. */
function showGrowing(el, text, shown) {
  if (shown > 0 && text.length >= shown) el.firstChild.appendData(text.slice(shown));
  else el.textContent = text;
  return text.length;
}

const END_NOTES = { stopped: 'endStopped', length: 'endLength', content_filter: 'endFilter', lost: 'endLost', gone: 'endGone' };

/** Whether the server refuses the message itself, and so every request that contains it. */
export const isRefused = (error) => error?.kind === 'http' && [400, 413, 422].includes(error.status);

/** What went wrong, in the page's language. */
export function errorTitle(error, hasKey) {
  if (error.kind === 'network') return t('eNetwork');
  if (error.kind === 'stream') return t('eStream');
  const { status } = error;
  if (error.code === 'context_length_exceeded') return t('e413');
  if (status === 401) return t(hasKey ? 'e401' : 'e401none');
  if ([400, 403, 404, 413, 429, 503].includes(status)) return t(`e${status}`);
  return t(status >= 500 ? 'e5xx' : 'e400');
}

export class UserView {
  constructor(entry, actions) {
    this.#take(entry);
    this.actions = actions;
    this.el = h('article', { class: 'message user', 'data-testid': 'message-user', 'aria-label': t('you') });
    this.show();
  }

  #take(entry) {
    this.entry = entry;
    this.message = entry.message;
  }

  /** The same message, as it is now. */
  update(entry) {
    this.#take(entry);
    if (!this.editing && this.shown !== this.state()) this.show();
  }

  /** The data that it was drawn from, to detect changes. */
  state() { return [Boolean(this.message.unsent), this.entry.at, this.entry.versions.length].join(); }

  show() {
    this.editing = false;
    this.shown = this.state();
    this.el.classList.toggle('unsent', Boolean(this.message.unsent));
    this.editButton = actionButton('edit', t('edit'), 'edit', () => this.edit());
    this.el.replaceChildren(
      ...fileNodes(this.message.files),
      this.message.text === '' ? '' : h('div', { class: 'bubble', text: this.message.text }),
      this.message.unsent ? h('p', { class: 'unsent-note', 'data-testid': 'unsent', text: t('unsent') }) : '',
      h('div', { class: 'actions' }, versionsNode(this.entry, this.actions), copyButton(() => this.message.text), this.editButton));
  }

  edit() {
    this.editing = true;
    const area = h('textarea', { class: 'edit-text', rows: '1', 'aria-label': t('editField'), 'data-testid': 'edit-text' });
    area.value = this.message.text;
    const send = () => {
      const text = area.value.trim();
      if (text || this.message.files) this.actions.onEdit(this.message, text);
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

export class AssistantView {
  #timer = 0;
  #lead = { text: '', reasoning: '', calls: '' }; // of what it continues
  #thoughtChars = 0; // shown

  constructor(entry, actions) {
    this.actions = actions;
    this.take(entry);
    this.answer = h('div', { class: 'prose', 'data-testid': 'answer-text' });
    this.status = h('div', { class: 'status' });
    this.foot = h('footer', { class: 'answer-foot' });
    this.thought = h('div', { class: 'thought' });
    this.thinking = h('details', { class: 'thinking', hidden: true }, h('summary', { text: t('thinking') }), this.thought);
    this.called = h('pre', { class: 'calls', 'data-testid': 'calls', tabindex: '0', role: 'group', 'aria-label': t('calls') });
    this.calling = h('details', { class: 'calling', hidden: true }, h('summary', { text: t('calls') }), this.called);
    this.el = h('article', { class: 'message assistant', 'data-testid': 'message-assistant', 'aria-label': 'Sluice' },
      h('div', { class: 'avatar' }, mark()),
      h('div', { class: 'answer' }, this.thinking, this.answer, this.calling, this.status, this.foot));
  }

  take(entry) {
    this.entry = entry;
    this.message = entry.message;
    for (const part of Object.keys(this.#lead)) this.#lead[part] = entry.before.map((m) => m[part] ?? '').join('');
  }

  get text() { return this.#lead.text + this.message.text; }

  #reasoning(own) {
    const text = this.#lead.reasoning + own;
    this.thinking.hidden = !text;
    if (this.#thoughtChars !== text.length) this.#thoughtChars = showGrowing(this.thought, text, this.#thoughtChars);
  }

  #calls(own) {
    const text = this.#lead.calls + own;
    this.calling.hidden = !text;
    if (this.called.textContent.length !== text.length) this.called.textContent = text;
  }

  /** The data that it was drawn from, to detect changes. */
  state(last) {
    const { text, end, reasoning, calls } = this.message;
    const { versions, at, before } = this.entry;
    return [text.length, reasoning?.length ?? 0, calls?.length ?? 0, end, last, versions.length, at, before.length].join();
  }

  /** A finished answer, or one that another tab reads. */
  finish(last, hasKey) {
    clearInterval(this.#timer);
    this.shown = this.state(last);
    const { end, error, stats, reasoning, calls } = this.message;
    const { text } = this;
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
    const actions = h('div', { class: 'actions' }, versionsNode(this.entry, this.actions));
    if (text) actions.append(copyButton(() => text));
    if (last && end !== 'error' && end !== null) actions.append(actionButton('again', t('regenerate'), 'regenerate', () => this.actions.onRegenerate()));
    const parts = statsNodes(this.message, stats, false);
    const goesOn = last && this.message.text && ['length', 'stopped', 'lost', 'gone'].includes(end);
    this.foot.replaceChildren(
      note ? h('p', { class: `end end-${end}`, 'data-testid': 'end' }, t(note)) : '',
      goesOn ? h('button', { type: 'button', class: 'button', 'data-testid': 'continue', text: t('continue'), onClick: () => this.actions.onContinue() }) : '',
      h('div', { class: 'foot-row' }, actions,
        parts.length > 0 && text ? h('p', { class: 'stats', 'data-testid': 'stats' }, parts) : ''));
  }

  #showError(error, last, hasKey) {
    const wait = h('p', { class: 'error-wait' });
    const again = h('button', { type: 'button', class: 'button', 'data-testid': 'try-again', onClick: () => this.actions.onRegenerate() }, icon('again'), t('tryAgain'));
    const refused = isRefused(error) && !this.message.joins;
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
      const tick = () => {
        const percent = this.actions.loading();
        text.textContent = percent === null ? t('waiting', { n: Math.max(1, Math.ceil((run.retryAt - Date.now()) / 1000)) }) : t('loading', { n: percent });
      };
      tick();
      this.#timer = setInterval(tick, 500);
      this.status.replaceChildren(h('p', { class: 'opening', 'data-testid': 'waiting' }, text,
        h('button', { type: 'button', class: 'link-button', 'data-testid': 'waiting-cancel', text: t('cancel'), onClick: () => run.stop() })));
    } else {
      this.status.replaceChildren();
    }
  }

  draw(run) {
    this.stream?.update(this.#lead.text + run.text);
    this.#reasoning(run.reasoning);
    this.#calls(run.calls);
    if (run.state === 'streaming' && this.status.firstChild) this.status.replaceChildren();
    const now = performance.now();
    if (now - (this.statsAt ?? 0) < 250) return;
    this.statsAt = now;
    this.foot.replaceChildren(h('div', { class: 'foot-row' },
      h('p', { class: 'stats', 'data-testid': 'stats' }, statsNodes(run, run.stats(), true))));
  }

  dispose() { clearInterval(this.#timer); }
}
