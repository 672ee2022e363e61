// The options of the conversation on screen: a dialog that sets them, and chips in the header that show which are set.

import { h } from './dom.js';
import { formatNumber, t } from './i18n.js';
import { cleanOptions, isAllowed, isSchema, OPTION_LIMITS } from './options.js';

const NUMBERS = ['temperature', 'top_p', 'max_tokens', 'seed'];

export class Panel {
  #el;
  #actions;
  #shown = {};

  /** actions: options(), isKept() (on the server), onOptions(options, isKept), onDefaults(options). */
  constructor(el, actions) {
    this.#el = el;
    this.#actions = actions;
    el.optionsOpen.addEventListener('click', () => this.open());
    el.optionsCancel.addEventListener('click', () => el.optionsDialog.close());
    el.optionsForm.addEventListener('submit', (event) => {
      event.preventDefault();
      const options = this.#read();
      if (options === null) return;
      if (el.optDefaults.checked) actions.onDefaults(options);
      el.optionsDialog.close();
      actions.onOptions(options, el.optServer.checked);
    });
    el.optionsReset.addEventListener('click', () => {
      this.#fill({});
      el.optSystem.focus();
    });
  }

  open(field = 'optSystem') {
    this.#shown = this.#actions.options();
    this.#fill(this.#shown);
    this.#el.optDefaults.checked = false;
    this.#el.optServer.checked = this.#actions.isKept();
    this.#el.optionsDialog.showModal();
    this.#el[field].focus();
  }

  #fill(options) {
    this.#wrong('', null);
    this.#el.optSystem.value = options.system ?? '';
    for (const name of NUMBERS) this.#field(name).value = options[name] ?? '';
    this.#el.optStop.value = (options.stop ?? []).join('\n');
    this.#el.optSchema.value = options.schema ?? '';
  }

  #field(name) { return this.#el[`opt${name.replace(/(?:^|_)(\w)/g, (_, c) => c.toUpperCase())}`]; }

  #wrong(text, field) {
    const { optionsWrong, optionsForm } = this.#el;
    optionsWrong.textContent = text;
    for (const f of optionsForm.querySelectorAll('[aria-invalid]')) f.removeAttribute('aria-invalid');
    field?.setAttribute('aria-invalid', 'true');
    field?.focus();
  }

  /** What the form says, with the model as it was; null where something of it can't be. */
  #read() {
    const { optSystem, optStop, optSchema } = this.#el;
    const options = { system: optSystem.value.trim(), model: this.#shown.model, server: this.#shown.server };
    for (const name of NUMBERS) {
      const field = this.#field(name);
      const text = field.value.trim().replace(',', '.');
      if (text === '') continue;
      options[name] = Number(text);
      if (!isAllowed(name, options[name])) { this.#wrong(t(`wrong_${name}`), field); return null; }
    }
    options.stop = optStop.value.split('\n').filter((s) => s !== '');
    if (options.stop.length > OPTION_LIMITS.STOPS || options.stop.some((s) => s.length > OPTION_LIMITS.STOP_CHARS)) {
      this.#wrong(t('wrong_stop', { n: OPTION_LIMITS.STOPS, chars: OPTION_LIMITS.STOP_CHARS }), optStop);
      return null;
    }
    options.schema = optSchema.value.trim();
    if (options.schema !== '' && !isSchema(options.schema)) { this.#wrong(t('wrong_schema'), optSchema); return null; }
    return cleanOptions(options);
  }

  /** The chips of the conversation on screen. */
  showChips() {
    const options = this.#actions.options();
    const chips = [];
    const chip = (name, field, text) => chips.push(h('button', {
      type: 'button', class: 'chip', 'data-testid': `chip-${name}`, title: t('options'), onClick: () => this.open(field),
    }, h('span', { class: 'chip-text', text })));
    if (options.system) chip('system', 'optSystem', `${t('system')}: ${options.system.slice(0, 40)}`);
    const digits = { temperature: 2, top_p: 2, max_tokens: 0, seed: 0 };
    for (const name of NUMBERS) {
      if (options[name] === undefined) continue;
      const value = name === 'seed' ? String(options[name]) : formatNumber(options[name], Number.isInteger(options[name]) ? 0 : digits[name]);
      chip(name, `opt${name.replace(/(?:^|_)(\w)/g, (_, c) => c.toUpperCase())}`, `${t(name)} ${value}`);
    }
    if (options.stop) chip('stop', 'optStop', `${t('stopStrings')}: ${options.stop.map((s) => JSON.stringify(s)).join(' ')}`);
    if (options.schema) chip('schema', 'optSchema', t('schemaChip'));
    if (this.#actions.isKept()) chip('server', 'optServer', t('serverChip'));
    this.#el.chips.replaceChildren(...chips.map((c) => h('li', {}, c)));
    this.#el.chips.hidden = chips.length === 0;
  }
}
