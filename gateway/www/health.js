// How far the models are loaded: taken from the list of models, and asked for while an answer or the list of models waits for them.

const ASK_EVERY_MS = 1000;

/** [{id, percent}] of the models under way, out of what GET /health or GET /v1/models says. */
function underWay(report) {
  const models = Array.isArray(report?.models) ? report.models : [];
  return models.filter((m) => typeof m?.percent === 'number' && m.percent >= 0 && m.percent < 100).map((m) => ({ id: m.id, percent: Math.floor(m.percent) }));
}

export class Loading {
  #fetch;
  #models = [];
  #askedAt = -Infinity;

  constructor(fetchFn = (...a) => fetch(...a)) { this.#fetch = fetchFn; }

  /** Takes what a report says: {models: [{id, percent}]}. */
  take(report) { this.#models = underWay(report); }

  /** The percent of a model as last heard; null where it is not under way. */
  of(id) { return this.#models.find((m) => m.id === id)?.percent ?? null; }

  /** The percent of the model that is furthest behind, null where none is under way, as last heard. Asks again, once a second at most. */
  percent(now = performance.now()) {
    if (now - this.#askedAt >= ASK_EVERY_MS) {
      this.#askedAt = now;
      this.ask();
    }
    return this.#least();
  }

  #least() { return this.#models.reduce((least, m) => (least === null || m.percent < least ? m.percent : least), null); }

  async ask() {
    try {
      const response = await this.#fetch('health', { cache: 'no-store', credentials: 'omit', referrerPolicy: 'no-referrer', redirect: 'error' });
      this.take(await response.json());
    } catch {
      this.take(null);
    }
    return this.#least();
  }
}
