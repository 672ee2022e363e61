// The choices around the conversation: model, key, theme and language.

import { CALCULATOR } from './calculator.js';
import { createClient } from './client.js';
import { h, icon } from './dom.js';
import { language, t } from './i18n.js';
import { Keyring } from './keyring.js';
import { isKey } from './keys.js';
import { describe } from './run.js';

const OTHER = '\u0000other';
const MANAGE = '\u0000manage';
const THEMES = [['auto', 'theme', 'themeAuto'], ['light', 'sun', 'themeLight'], ['dark', 'moon', 'themeDark']];
const KEY_LABELS = { free: 'keyFree', paid: 'keyPaid' };

const TYPED = 'key-'; // a typed key is named by its last four characters

export function keyLabel(name) {
  if (Object.hasOwn(KEY_LABELS, name)) return t(KEY_LABELS[name]);
  if (name.startsWith(TYPED)) return `… ${name.slice(TYPED.length)}`;
  return name.charAt(0).toUpperCase() + name.slice(1);
}

/** The ids, the large model first: it is what somebody who has not chosen should meet. */
export function largeFirst(models) {
  return [...models].sort((a, b) => (b.role === 'large') - (a.role === 'large')).map((m) => m.id);
}

export class Settings {
  #el;
  #store;
  #keys;
  #progress; // health.js' Loading
  #actions;
  #models = null; // null while unknown
  #again = 0;
  #request = null;
  #loading = Promise.resolve(); // settles with the latest list
  #loadedWith = null; // the key of that list; '' for none
  #open = null; // whether the server lets one in without a key; null while unknown
  #keyring;
  #checking = null; // the request that tries a typed key

  /** actions: onLanguage(language), model() (the one of the conversation shown), onModel(id), onModelsError(error | null). */
  constructor(el, store, keys, progress, actions) {
    this.#el = el;
    this.#store = store;
    this.#keys = keys;
    this.#progress = progress;
    this.#actions = actions;
    el.modelSelect.addEventListener('change', () => {
      store.setPref('model', el.modelSelect.value);
      actions.onModel(el.modelSelect.value);
    });
    this.#keyring = new Keyring(el, keys, { label: keyLabel, onAdd: () => this.askKey(), onChange: () => this.#keysEdited() });
    el.keySelect.addEventListener('change', () => this.#pickKey());
    el.keyForm.addEventListener('submit', (event) => {
      event.preventDefault();
      this.#takeKey();
    });
    el.keyCancel.addEventListener('click', () => el.keyDialog.close());
    el.keyDialog.addEventListener('close', () => {
      this.#checking?.abort();
      el.keyInput.value = '';
      el.composer.focus();
      if (this.mayAsk() && this.#models?.length === 0) this.loadModels();
    });
    el.keyShow.addEventListener('change', () => { el.keyInput.type = el.keyShow.checked ? 'text' : 'password'; });
    el.keyInput.addEventListener('input', () => this.#keyError(''));
    el.theme.addEventListener('click', () => {
      const at = THEMES.findIndex(([name]) => name === this.#theme);
      const next = THEMES[(at + 1) % THEMES.length][0];
      store.setPref('theme', next === 'auto' ? null : next);
      window.dispatchEvent(new Event('sluice-theme'));
      this.translate();
    });
    el.calculator.addEventListener('click', () => {
      store.setPref('calculator', this.tools ? null : 'on');
      this.translate();
    });
    el.language.addEventListener('click', () => actions.onLanguage(language() === 'ko' ? 'en' : 'ko'));
  }

  /** What is offered to the model; undefined for nothing. */
  get tools() { return this.#store.pref('calculator') === 'on' ? [CALCULATOR] : undefined; }

  get #theme() { return this.#store.pref('theme') ?? 'auto'; }

  /** The model to ask, or '' while none is known. */
  get model() { return this.#el.modelSelect.value; }

  /** The model to ask, wanted() if it is there, once the list is; asks for the list again when it could not be had. */
  async modelWhenKnown(wanted) {
    if (this.#models?.length === 0) this.loadModels();
    await this.#loading;
    return this.#modelFor(wanted());
  }

  /** The one that is wanted, else the one chosen last, else the first; '' while none is known. */
  #modelFor(wanted) {
    const models = this.#models ?? [];
    return [wanted, this.#store.pref('model')].find((id) => models.includes(id)) ?? models[0] ?? '';
  }

  /** Shows the model of the conversation on screen. */
  showModel() {
    if (this.#models?.length > 0) this.#el.modelSelect.value = this.#modelFor(this.#actions.model());
  }

  /** Whether the server has said which models there are. */
  get hasModels() { return this.#models !== null && this.#models.length > 0; }

  /** Whether there is a key, or none may be needed. */
  mayAsk() { return this.#keys.current() !== null || this.#open !== false; }

  /** Redraws everything that has words in it. */
  translate() {
    const [, picture, label] = THEMES.find(([n]) => n === this.#theme) ?? THEMES[0];
    this.#el.theme.replaceChildren(icon(picture), h('span', { text: t(label) }));
    this.#el.calculator.replaceChildren(icon('code'), h('span', { text: t(this.tools ? 'calculatorOn' : 'calculatorOff') }));
    this.#el.calculator.setAttribute('aria-pressed', String(Boolean(this.tools)));
    const other = language() === 'ko' ? ['en', 'English'] : ['ko', '한국어'];
    this.#el.language.replaceChildren(icon('globe'), h('span', { lang: other[0], text: other[1] }));
    this.showKeys();
    this.#showModels();
  }

  showKeys() {
    const current = this.#keys.current();
    const options = this.#keys.names().map((name) => h('option', { value: name, text: keyLabel(name) }));
    if (!current || this.#open) options.unshift(h('option', { value: '', text: t('keyNone') }));
    if (this.#keys.names().length > 0) options.push(h('option', { value: MANAGE, text: t('keyManage') }));
    options.push(h('option', { value: OTHER, text: t('keyOther') }));
    this.#el.keySelect.replaceChildren(...options);
    this.#el.keySelect.value = current?.name ?? '';
  }

  #pickKey() {
    const name = this.#el.keySelect.value;
    if (name === MANAGE) {
      this.showKeys();
      this.#keyring.open();
      return;
    }
    if (name === OTHER || (name === '' && !this.#open)) {
      this.#el.keySelect.value = this.#keys.current()?.name ?? '';
      this.askKey();
      return;
    }
    this.#keys.select(name);
    this.loadModels();
  }

  /** Opens the dialog. `why`: what is wrong with the key that was used until now. */
  askKey(why = '') {
    if (!this.#el.keyDialog.open) {
      this.#el.keyText.textContent = t(this.#open ? 'keyTextOpen' : 'keyText');
      this.#keyError('');
      this.#el.keyDialog.showModal();
    }
    if (why) this.#keyError(why);
    this.#el.keyInput.focus();
  }

  /** The server did not accept a key, or none: '' . What it did not accept is not kept. */
  refused(key, error) {
    if (key === '') {
      this.#open = false;
      this.askKey();
      return;
    }
    this.#keys.drop(key);
    this.showKeys();
    this.#models = [];
    this.#showModels();
    this.askKey(t('keyRefused', { why: error.message }));
    if (this.#keys.current() === null && this.#open === null) this.#tryWithout();
  }

  /** Finds out whether the server lets one in without a key, while it is asked for. */
  async #tryWithout() {
    try {
      this.#models = largeFirst(await createClient({ maxRetries: 0 }).models());
      this.#setOpen(true);
      this.#showModels();
    } catch (error) {
      if (describe(error).status === 401) this.#setOpen(false);
    }
  }

  #setOpen(open) {
    this.#open = open;
    this.showKeys();
  }

  /** Keys came from the address or from another tab. */
  keysChanged() {
    this.#keys.reload();
    this.showKeys();
    const now = this.#keys.current()?.key ?? '';
    if (now === this.#loadedWith) return;
    if (now !== '' && this.#el.keyDialog.open) this.#el.keyDialog.close();
    this.loadModels();
  }

  /** The keys were changed here. */
  #keysEdited() {
    this.showKeys();
    if ((this.#keys.current()?.key ?? '') !== this.#loadedWith) this.loadModels();
  }

  #keyError(text) {
    this.#el.keyWrong.textContent = text;
    this.#el.keyInput.setAttribute('aria-invalid', String(text !== ''));
  }

  /** A typed key is kept once the server has not refused it. That it is busy or away says nothing about the key. */
  async #takeKey() {
    const key = this.#el.keyInput.value.trim();
    if (!isKey(key)) {
      this.#keyWrong(t('keyWrong'));
      return;
    }
    this.#checking?.abort();
    const check = this.#checking = new AbortController();
    this.#keyError('');
    this.#el.keyUse.disabled = true;
    try {
      await createClient({ apiKey: key, maxRetries: 0 }).models({ signal: check.signal });
    } catch (error) {
      const { status, message } = describe(error);
      if (!check.signal.aborted && (status === 401 || status === 403)) this.#keyWrong(t('keyNotTaken', { why: message }));
      if (check.signal.aborted || status === 401 || status === 403) return;
    } finally {
      if (this.#checking === check) this.#el.keyUse.disabled = false;
    }
    const name = TYPED + key.slice(-4).replace(/[^A-Za-z0-9_-]/g, '_');
    this.#keys.add([{ name, key }], name);
    this.showKeys();
    this.loadModels();
    this.#el.keyDialog.close();
  }

  #keyWrong(text) {
    this.#keyError(text);
    this.#el.keyInput.focus();
    this.#el.keyInput.select();
  }

  /** Takes the list; asks for it again while a model is being loaded. */
  #take(models) {
    this.#models = largeFirst(models);
    this.#progress.take({ models });
    clearTimeout(this.#again);
    if (models.some((m) => m.state === 'loading')) this.#again = setTimeout(() => this.#refresh(), 1000);
  }

  async #refresh() {
    try {
      this.#take(await createClient({ apiKey: this.#loadedWith, maxRetries: 0 }).models());
      this.#showModels();
    } catch { /* the next request says why */ }
  }

  #showModels() {
    const { modelSelect } = this.#el;
    const models = this.#models ?? [];
    if (models.length === 0) {
      modelSelect.replaceChildren(h('option', { value: '', text: t(this.#models === null ? 'modelsLoading' : 'modelsNone') }));
    } else {
      modelSelect.replaceChildren(...models.map((id) => {
        const n = this.#progress.of(id);
        return h('option', { value: id, text: n !== null ? `${id} – ${t('loading', { n })}` : id });
      }));
      modelSelect.value = this.#modelFor(this.#actions.model());
    }
    modelSelect.disabled = models.length === 0;
  }

  /** Asks which models the key in use may use. Where one is needed and none is there, the dialog is shown. */
  loadModels() {
    this.#loading = this.#load();
    return this.#loading;
  }

  async #load() {
    this.#request?.abort();
    const current = this.#keys.current();
    const request = this.#request = new AbortController();
    this.#loadedWith = current?.key ?? '';
    const client = createClient({ apiKey: this.#loadedWith, maxRetries: 0 }); // the waits below are shown
    this.#models = null;
    this.#showModels();
    for (let attempt = 0; ; attempt++) {
      try {
        this.#take(await client.models({ signal: request.signal }));
        if (!current) this.#setOpen(true);
        this.#actions.onModelsError(null);
        break;
      } catch (error) {
        if (request.signal.aborted) return;
        const { status, kind } = describe(error);
        if ((status === 503 || kind === 'network') && attempt < 20) {
          this.#actions.onModelsError(describe(error));
          await new Promise((resolve) => { setTimeout(resolve, Math.min(10_000, Math.max(1000, error.retryAfterMs ?? 2000))); });
          if (request.signal.aborted) return;
          continue;
        }
        this.#models = [];
        this.#actions.onModelsError(describe(error));
        const other = current ? null : this.#keys.names()[0];
        if (status === 401 && other) { // none was wanted, but one is needed
          this.#setOpen(false);
          this.#keys.select(other);
          this.showKeys();
          return this.#load();
        }
        if (status === 401) this.refused(this.#loadedWith, describe(error));
        break;
      }
    }
    this.#showModels();
  }
}
