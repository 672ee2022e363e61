// How far the models are loaded, asked for while an answer or the list of models waits for them.

const ASK_EVERY_MS = 1000;

/** The percent of the model that is furthest behind; null where the report names none under way. */
export function percentOf(health) {
  const models = health?.models;
  const list = Array.isArray(models) ? models : Object.values(models !== null && typeof models === 'object' ? models : {});
  const under = list.map((m) => m?.percent).filter((p) => typeof p === 'number' && p >= 0 && p < 100);
  return under.length > 0 ? Math.floor(Math.min(...under)) : null;
}

export class Loading {
  #fetch;
  #percent = null;
  #askedAt = -Infinity;

  constructor(fetchFn = (...a) => fetch(...a)) { this.#fetch = fetchFn; }

  /** What was last heard; asks for it again, once a second at most. */
  percent(now = performance.now()) {
    if (now - this.#askedAt >= ASK_EVERY_MS) {
      this.#askedAt = now;
      this.ask();
    }
    return this.#percent;
  }

  async ask() {
    try {
      const response = await this.#fetch('health', { cache: 'no-store', credentials: 'omit', referrerPolicy: 'no-referrer', redirect: 'error' });
      this.#percent = percentOf(await response.json());
    } catch {
      this.#percent = null;
    }
    return this.#percent;
  }
}
