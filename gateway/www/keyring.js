// The dialog of the access keys that this browser knows: which is used, their names, adding and removing.

import { h, icon } from './dom.js';
import { t } from './i18n.js';
import { isName } from './keys.js';

export class Keyring {
  #el;
  #keys;
  #actions;

  /** actions: label(name), onChange(), onAdd(). */
  constructor(el, keys, actions) {
    this.#el = el;
    this.#keys = keys;
    this.#actions = actions;
    el.keysClose.addEventListener('click', () => el.keysDialog.close());
    el.keysAdd.addEventListener('click', () => {
      el.keysDialog.close();
      actions.onAdd();
    });
  }

  open() {
    this.#show();
    this.#el.keysDialog.showModal();
  }

  #show(focus = null) {
    const current = this.#keys.current()?.name;
    this.#el.keysWrong.textContent = '';
    this.#el.keysList.replaceChildren(...this.#keys.names().map((name) => this.#row(name, name === current)));
    (focus === null ? null : this.#el.keysList.querySelector(`[data-name="${CSS.escape(focus)}"] input`) ?? this.#el.keysAdd)?.focus();
  }

  #row(name, isUsed) {
    const label = this.#actions.label(name);
    const used = h('input', { type: 'radio', name: 'key-used', 'aria-label': t('keyUseOf', { name: label }), 'data-testid': 'key-used', checked: isUsed,
      onChange: () => {
        this.#keys.select(name);
        this.#actions.onChange();
      } });
    const input = h('input', { type: 'text', class: 'key-name', maxlength: '32', spellcheck: 'false', 'aria-label': t('keyName', { name: label }), 'data-testid': 'key-name' });
    input.value = name;
    input.addEventListener('change', () => {
      const wanted = input.value.trim();
      if (wanted === name) return;
      if (!isName(wanted) || !this.#keys.rename(name, wanted)) {
        this.#el.keysWrong.textContent = t('keyNameWrong');
        input.value = name;
        return;
      }
      this.#actions.onChange();
      this.#show(wanted);
    });
    const remove = h('button', { type: 'button', class: 'action', 'aria-label': t('keyRemoveOf', { name: label }), title: t('remove'), 'data-testid': 'key-remove',
      onClick: () => {
        this.#keys.dropName(name);
        this.#actions.onChange();
        this.#show('');
      } }, icon('trash'));
    return h('li', { class: 'key-row', 'data-name': name }, used, input, h('code', { class: 'key-end', text: `…${this.#keys.endOf(name)}` }), remove);
  }
}
