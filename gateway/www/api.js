// The gateway's OpenAI-compatible interface as this page uses it: the model list and one streamed answer.
//
// Ownership: a caller owns its AbortSignal; aborting it ends the request at once, which is how Stop works.
// The key travels in the Authorization header only, never in an address.

const MAX_LINE_CHARS = 4 << 20;

/** What went wrong, in a form the page can explain. `kind`: http, network, stream. */
export class ApiError extends Error {
  constructor(kind, message, extra = {}) {
    super(message);
    this.name = 'ApiError';
    this.kind = kind;
    this.status = extra.status ?? 0;
    this.code = extra.code ?? null;
    this.type = extra.type ?? null;
    this.retryAfterMs = extra.retryAfterMs ?? null;
  }
}

/**
 * Incremental parser of server-sent events. Takes decoded text cut anywhere; LF, CRLF and CR all end a line, also
 * when a cut falls between CR and LF. Calls onEvent({event, data}) at each blank line that follows data.
 * Only new text is scanned, so the cost is linear however small the pieces are.
 */
export class SseParser {
  #onEvent;
  #line = [];
  #lineChars = 0;
  #data = [];
  #event = '';
  #afterCr = false;

  constructor(onEvent) { this.#onEvent = onEvent; }

  push(text) {
    let from = 0;
    if (this.#afterCr && text.length > 0) {
      if (text[0] === '\n') from = 1;
      this.#afterCr = false;
    }
    for (let i = from; i < text.length; i++) {
      const c = text.charCodeAt(i);
      if (c !== 10 && c !== 13) continue;
      this.#take(text.slice(from, i));
      this.#endLine();
      if (c === 13) {
        if (i + 1 === text.length) this.#afterCr = true;
        else if (text.charCodeAt(i + 1) === 10) i++;
      }
      from = i + 1;
    }
    if (from < text.length) this.#take(text.slice(from));
  }

  #take(piece) {
    this.#lineChars += piece.length;
    if (this.#lineChars > MAX_LINE_CHARS) throw new ApiError('stream', 'a line of the stream is too long');
    if (piece) this.#line.push(piece);
  }

  #endLine() {
    const line = this.#line.length === 1 ? this.#line[0] : this.#line.join('');
    this.#line.length = 0;
    this.#lineChars = 0;
    if (line === '') {
      const { length } = this.#data;
      const data = this.#data.join('\n');
      const event = this.#event || 'message';
      this.#data = [];
      this.#event = '';
      if (length > 0) this.#onEvent({ event, data });
      return;
    }
    if (line[0] === ':') return;
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? '' : line.slice(colon + 1);
    if (value[0] === ' ') value = value.slice(1);
    if (field === 'data') this.#data.push(value);
    else if (field === 'event') this.#event = value;
  }
}

/** Milliseconds from Retry-After-Ms or Retry-After (seconds or a date); null when the server said nothing useful. */
export function retryAfterMs(headers, now = Date.now()) {
  const ms = headers.get('retry-after-ms');
  if (ms !== null && /^\d+(\.\d+)?$/.test(ms.trim())) return Number(ms);
  const value = headers.get('retry-after');
  if (value === null) return null;
  if (/^\d+(\.\d+)?$/.test(value.trim())) return Number(value) * 1000;
  const at = Date.parse(value);
  return Number.isNaN(at) ? null : Math.max(0, at - now);
}

async function errorOf(response) {
  let body = null;
  try { body = JSON.parse(await response.text()); } catch { body = null; }
  const error = body && typeof body === 'object' && body.error && typeof body.error === 'object' ? body.error : {};
  return new ApiError('http', String(error.message ?? ''), {
    status: response.status,
    code: error.code ?? null,
    type: error.type ?? null,
    retryAfterMs: retryAfterMs(response.headers),
  });
}

async function request(path, { key, signal, body, fetchFn }) {
  const headers = { Accept: body ? 'text/event-stream' : 'application/json' };
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body) headers['Content-Type'] = 'application/json';
  let response;
  try {
    response = await fetchFn(path, {
      method: body ? 'POST' : 'GET',
      headers,
      body: body ? JSON.stringify(body) : undefined,
      signal,
      cache: 'no-store',
      credentials: 'omit',
      referrerPolicy: 'no-referrer',
      redirect: 'error',
    });
  } catch (error) {
    if (error?.name === 'AbortError') throw error;
    throw new ApiError('network', String(error?.message ?? error));
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

/** The ids of the models this key may use. */
export async function listModels({ base = '', key, signal, fetchFn = fetch }) {
  const response = await request(`${base}v1/models`, { key, signal, fetchFn });
  const body = await response.json();
  const data = Array.isArray(body?.data) ? body.data : [];
  // The large model first: it is what somebody who has not chosen should meet.
  return data.filter((m) => typeof m?.id === 'string' && m.id !== '')
    .sort((a, b) => (b.role === 'large') - (a.role === 'large')).map((m) => m.id);
}

// After [DONE] the rest is read away for a moment, so that a finished request never looks cancelled to the server.
function drain(reader) {
  const timer = setTimeout(() => reader.cancel().catch(() => {}), 2000);
  (async () => {
    try { while (!(await reader.read()).done); } catch { /* nothing depends on it */ }
    clearTimeout(timer);
  })();
}

/**
 * One streamed answer. Calls onDelta({content, reasoning}) as text arrives. Returns
 * {finishReason, usage, model, done}; done is false when the stream ended without [DONE].
 * Throws ApiError, or AbortError after the signal was aborted.
 */
export async function streamChat({ base = '', key, model, messages, signal, onDelta, fetchFn = fetch }) {
  const body = { model, messages, stream: true, stream_options: { include_usage: true } };
  const response = await request(`${base}v1/chat/completions`, { key, signal, body, fetchFn });
  const result = { finishReason: null, usage: null, model: null, done: false };

  const onChunk = (chunk) => {
    if (chunk === null || typeof chunk !== 'object') return;
    if (chunk.error && typeof chunk.error === 'object') {
      throw new ApiError('stream', String(chunk.error.message ?? ''), {
        code: chunk.error.code ?? null, type: chunk.error.type ?? null,
      });
    }
    if (typeof chunk.model === 'string' && chunk.model) result.model = chunk.model;
    if (chunk.usage && typeof chunk.usage === 'object') result.usage = chunk.usage;
    const choice = Array.isArray(chunk.choices) ? chunk.choices[0] : undefined;
    if (!choice) return;
    if (choice.finish_reason) result.finishReason = String(choice.finish_reason);
    const delta = choice.delta ?? choice.message ?? {};
    const content = typeof delta.content === 'string' ? delta.content : '';
    const reasoning = typeof delta.reasoning_content === 'string' ? delta.reasoning_content : '';
    if (content || reasoning) onDelta({ content, reasoning });
  };

  if ((response.headers.get('content-type') ?? '').startsWith('application/json')) {
    onChunk(await response.json());
    result.done = true;
    return result;
  }

  const parser = new SseParser(({ data }) => {
    if (result.done) return;
    if (data.trim() === '[DONE]') { result.done = true; return; }
    let chunk;
    try { chunk = JSON.parse(data); } catch { throw new ApiError('stream', 'the stream holds a malformed event'); }
    onChunk(chunk);
  });
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  try {
    while (!result.done) {
      const { value, done } = await reader.read();
      parser.push(done ? decoder.decode() : decoder.decode(value, { stream: true }));
      if (done) break;
    }
  } catch (error) {
    if (signal?.aborted) throw new DOMException('aborted', 'AbortError');
    if (error instanceof ApiError) {
      reader.cancel().catch(() => {});
      throw error;
    }
    return result; // the connection broke: what came so far stands
  }
  if (result.done) drain(reader);
  return result;
}
