// What is left of the limits of the key in use: one line below the list of conversations, asked for anew when an answer
// has ended. No line where nothing is limited, or where it can't be found out.

import { createClient } from './client.js';
import { language, t } from './i18n.js';

/** {requests, tokens}: of the scarcer limit each, null where there is none; null: nothing is limited or known. */
export function leftOf(usage) {
  const left = usage?.remaining;
  if (typeof left !== 'object' || left === null) return null;
  const least = (names) => names.map((name) => left[name]?.remaining).filter(Number.isFinite)
    .reduce((a, b) => (a === null ? b : Math.min(a, b)), null);
  const requests = least(['requests_per_minute', 'subject_requests_per_minute']);
  const tokens = least(['tokens_per_minute', 'tokens_per_day']);
  return requests === null && tokens === null ? null : { requests, tokens };
}

export class UsageLine {
  #el;
  #keys;
  #mayAsk;
  #left = null;
  #request = null;

  /** mayAsk(): whether the server may be asked at all, which some let one do without a key. */
  constructor(el, keys, mayAsk) {
    this.#el = el;
    this.#keys = keys;
    this.#mayAsk = mayAsk;
  }

  /** Also after a change of the language. */
  show() {
    const number = new Intl.NumberFormat(language());
    const left = this.#left;
    const parts = [];
    if (left?.requests != null) parts.push(t('leftRequests', { n: number.format(left.requests) }));
    if (left?.tokens != null) parts.push(t('leftTokens', { n: number.format(left.tokens) }));
    this.#el.usage.textContent = parts.length > 0 ? t('left', { parts: parts.join(' · ') }) : '';
    this.#el.usage.hidden = parts.length === 0;
  }

  async refresh() {
    this.#request?.abort();
    const key = this.#keys.current()?.key;
    const request = this.#request = new AbortController();
    let left = null;
    if (this.#mayAsk()) {
      const client = createClient({ apiKey: key, maxRetries: 0 });
      left = leftOf(await client.request('v1/usage', { signal: request.signal }).catch(() => null));
    }
    if (request.signal.aborted) return;
    this.#left = left;
    this.show();
  }
}
