// The message box: what is typed, kept as a draft of its conversation, and the text files that go with it.

import { fit, h, icon, onKeys } from './dom.js';
import { formatNumber, t } from './i18n.js';
import { LIMITS } from './records.js';

const KEEP_MS = 300;
const FILE_BYTES = 256 * 1024;

/** The text of a file; null where it is none. */
export function textOfBytes(bytes) {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    return text.includes('\0') ? null : text;
  } catch {
    return null;
  }
}

export class Composer {
  #el;
  #store;
  #actions;
  #id = 'new'; // the conversation that the draft belongs to
  #files = new Map(); // of each conversation; they do not outlive the page
  #timer = 0;

  /** actions: onSend(text, files), onUp() (a true result consumes the key), onInput(), onNotice(text). */
  constructor(el, store, actions) {
    this.#el = el;
    this.#store = store;
    this.#actions = actions;
    el.form.addEventListener('submit', (event) => {
      event.preventDefault();
      if (!this.isEmpty) actions.onSend(el.composer.value.trim(), this.files);
    });
    el.composer.addEventListener('input', () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.keep(), KEEP_MS);
      fit(el.composer);
      actions.onInput();
    });
    onKeys(el.composer, {
      Enter: (event) => !event.shiftKey && (el.form.requestSubmit(), true),
      ArrowUp: () => el.composer.value === '' && actions.onUp(),
    });
    el.attach.addEventListener('click', () => el.fileInput.click());
    el.fileInput.addEventListener('change', () => {
      this.#add([...el.fileInput.files]);
      el.fileInput.value = '';
    });
    el.composer.addEventListener('paste', (event) => {
      const files = [...event.clipboardData?.files ?? []];
      if (files.length === 0) return;
      event.preventDefault();
      this.#add(files);
    });
    const dropped = (event) => event.dataTransfer?.types.includes('Files');
    el.main.addEventListener('dragover', (event) => {
      if (!dropped(event)) return;
      event.preventDefault();
      el.form.classList.add('over');
    });
    document.addEventListener('dragover', (event) => { // elsewhere the browser would leave the page for the file
      if (!dropped(event) || event.defaultPrevented) return;
      event.preventDefault();
      event.dataTransfer.dropEffect = 'none';
    });
    el.main.addEventListener('dragleave', (event) => { if (!el.main.contains(event.relatedTarget)) el.form.classList.remove('over'); });
    el.main.addEventListener('drop', (event) => {
      if (!dropped(event)) return;
      event.preventDefault();
      el.form.classList.remove('over');
      this.#add([...event.dataTransfer.files]);
    });
  }

  get files() { return this.#files.get(this.#id) ?? []; }

  get isEmpty() { return this.#el.composer.value.trim() === '' && this.files.length === 0; }

  /** Writes the draft as it is now. */
  keep() {
    clearTimeout(this.#timer);
    this.#store.setDraft(this.#id, this.#el.composer.value.trim() === '' ? '' : this.#el.composer.value);
  }

  /** Shows the draft of another conversation. */
  open(id) {
    if (id !== this.#id) this.keep();
    this.#id = id;
    this.put(this.#store.draft(id));
    this.showFiles();
  }

  /** What is typed belongs to that conversation from now on. */
  moveTo(id) {
    if (id === this.#id) return;
    this.#store.setDraft(this.#id, '');
    this.#id = id;
  }

  /** A conversation was deleted. */
  drop(id) { this.#files.delete(id); }

  put(text, files = null) {
    this.#el.composer.value = text;
    if (files !== null) this.#files.set(this.#id, files);
    fit(this.#el.composer);
    this.showFiles();
    this.#actions.onInput();
  }

  clear() {
    this.put('', []);
    this.keep();
  }

  async #add(list) {
    const id = this.#id;
    const given = await Promise.all(list.slice(0, LIMITS.files + 1).map(async (file) => {
      const isLarge = file.size > FILE_BYTES;
      const bytes = isLarge ? null : await file.arrayBuffer().catch(() => null);
      return { name: file.name.slice(-LIMITS.fileNameChars) || t('file'), isLarge, text: bytes === null ? null : textOfBytes(bytes) };
    }));
    const files = [...this.#files.get(id) ?? []]; // as they are now: others were added or removed while these were read
    let chars = files.reduce((sum, f) => sum + f.text.length, 0);
    for (const { name, isLarge, text } of given) {
      if (files.length >= LIMITS.files) this.#actions.onNotice(t('fileMany', { n: LIMITS.files }));
      else if (isLarge) this.#actions.onNotice(t('fileLarge', { name, n: FILE_BYTES / 1024 }));
      else if (text === null) this.#actions.onNotice(t('fileNoText', { name }));
      else if (chars + text.length > LIMITS.fileChars) this.#actions.onNotice(t('fileLarge', { name, n: formatNumber(LIMITS.fileChars / 1024) }));
      else {
        files.push({ name, text });
        chars += text.length;
      }
    }
    this.#files.set(id, files);
    this.showFiles();
    this.#actions.onInput();
    if (id === this.#id) this.#el.composer.focus();
  }

  /** Also after a change of the language. */
  showFiles() {
    const { files } = this;
    this.#el.files.hidden = files.length === 0;
    this.#el.files.replaceChildren(...files.map((f, i) => h('li', { class: 'chip', 'data-testid': 'file-chip' }, icon('file'),
      h('span', { class: 'chip-text', text: f.name }),
      h('button', { type: 'button', class: 'chip-remove', 'aria-label': t('fileRemove', { name: f.name }), title: t('fileRemove', { name: f.name }), 'data-testid': 'file-remove',
        onClick: () => {
          this.#files.set(this.#id, files.filter((_, j) => j !== i));
          this.showFiles();
          this.#actions.onInput();
          this.#el.composer.focus();
        } }, icon('cross')))));
  }
}
