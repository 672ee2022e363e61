// A stand-in for the gateway: serves the page with its security policy and speaks the part of the API the page uses,
// with programmable delays and faults.
//
//   const mock = await startMock();                       // fresh: true reads each file each time
//   mock.next({ text: '…', firstMs: 50, everyMs: 10 });   // how the next chat request behaves; else the default
//   mock.requests, mock.running, mock.aborted             // what it saw
//
// A behaviour's fields, all optional: text or pieces, firstMs, everyMs, status (with message, code, retryAfter),
// finish ('stop', 'length'), sluice (of the last chunk), reasoning, calls ([name, arguments]), errorAfter (pieces, then an error event), noDone, crlf,
// bytes (send the stream in writes of that many bytes), pings, hold ({ at: N, everyMs }: no piece from the N-th on before its test makes
// N larger; its everyMs, if set, counts).
//
// A client that sends x-sluice-events: 1 gets numbered events and may come back for the rest at /v1/streams/<id>. Fields
// of that: plain (as a server that cannot), cuts (numbers of events in whose middle the connection breaks, each once, after cutMs),
// graceMs (how long an answer without a reader goes on), resumeStatus (what the next returns are told, one each: a
// status, or 0 for a connection that is closed), forgets (no stream is known when the client returns).
//
// mock.health: what /health reports. mock.conversations: Map of what /v1/conversations holds; mock.conversationStatus
// ({status, code}) refuses all of it.
//
// Run by itself it serves a page to look at:  node page_mock.mjs [PORT]

import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const WWW = fileURLToPath(new URL('../../gateway/www/', import.meta.url));
const TYPES = {
  html: 'text/html; charset=utf-8', js: 'text/javascript; charset=utf-8', css: 'text/css; charset=utf-8', svg: 'image/svg+xml', ts: 'text/plain; charset=utf-8',
};
export const CSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
  + "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
export const KEYS = { free: 'sk-test-free-0001', paid: 'sk-test-paid-0002' };

const DEFAULT_TEXT = `Water finds its way, and so does this **answer**: it arrives in small pieces and grows as you read.

1. The request enters through the gate.
2. The engine computes one token after another.
3. Each token flows to you the moment it exists.

That is all there is to it.`;

/** Cuts a text into pieces the size of tokens. */
export const piecesOf = (text) => text.match(/\s*\S{1,5}|\s+$/gu) ?? [];

export async function startMock({ port = 0, trustedTypes = false, keys = Object.values(KEYS), models = ['demo-small', 'demo-large'], anonymous = false, fresh = false } = {}) {
  const queue = [];
  const answers = new Map();
  const kept = {}; // files by name: a page asks for forty
  let made = 0;
  const mock = {
    requests: [], conversations: new Map(), running: 0, aborted: 0, finished: 0, cuts: 0, fallback: {}, models, keys, anonymous,
    next: (...behaviours) => { queue.push(...behaviours); },
    clear: () => { queue.length = 0; mock.requests.length = 0; },
    chats: () => mock.requests.filter((r) => r.path === '/v1/chat/completions'),
    streams: (method) => mock.requests.filter((r) => r.path.startsWith('/v1/streams/') && r.method === method),
  };
  const csp = trustedTypes ? `${CSP}; require-trusted-types-for 'script'; trusted-types 'none'` : CSP;

  const sendError = (res, status, message, code, headers = {}) => {
    res.writeHead(status, { 'content-type': 'application/json', ...headers });
    res.end(JSON.stringify({ error: { message, type: status === 401 ? 'authentication_error' : 'invalid_request_error', param: null, code } }));
  };

  // An answer: its events as they come to be, and who reads them. It does not depend on a reader, but ends without one.
  class Answer {
    events = [];
    readers = 0;
    over = false; // nothing will be added
    #wake = [];
    #grace = null;

    constructor(behaviour, numbered) {
      this.id = `stream-${++made}`;
      this.behaviour = behaviour;
      this.numbered = numbered;
      mock.running++;
    }

    get eol() { return this.behaviour.crlf ? '\r\n' : '\n'; }

    add(data) {
      const id = this.numbered ? `id: ${this.events.length}${this.eol}` : '';
      const text = typeof data === 'string' ? data : JSON.stringify(data);
      if (!this.over) this.events.push(`${id}data: ${text}${this.eol}${this.eol}`);
      this.#changed();
    }

    end(how) {
      if (this.over) return;
      this.over = true;
      mock.running--;
      mock[how]++;
      if (how === 'aborted') mock.abortedAt = Date.now();
      this.#changed();
    }

    left() {
      if (--this.readers > 0 || this.over) return;
      if (!this.numbered) this.end('aborted');
      else this.#grace = setTimeout(() => this.end('aborted'), this.behaviour.graceMs ?? 5000).unref();
    }

    /** Writes the events from number `from` on; resolves when all are written or the reader is gone. */
    async read(res, from) {
      const { cuts = [], cutMs = 100, bytes, pings } = this.behaviour;
      let open = true;
      this.readers++;
      clearTimeout(this.#grace);
      res.on('close', () => {
        open = false;
        this.left();
        this.#changed();
      });
      const write = async (text) => {
        const all = Buffer.from(text);
        for (let i = 0; i < all.length && open; i += bytes ?? all.length) {
          res.write(all.subarray(i, i + (bytes ?? all.length)));
          if (bytes) await sleep(1);
        }
      };
      res.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache, no-transform', 'x-accel-buffering': 'no',
        ...(this.numbered ? { 'x-sluice-stream-id': this.id } : {}) });
      res.flushHeaders();
      if (pings) await write(`: ping${this.eol}`);
      if (this.numbered) await write(`retry: ${this.behaviour.retryMs ?? 1000}${this.eol}`);
      for (let n = from; open; n++) {
        while (open && n >= this.events.length && !this.over) await new Promise((resolve) => { this.#wake.push(resolve); });
        if (!open || n >= this.events.length) break;
        if (cuts.includes(n)) {
          cuts.splice(cuts.indexOf(n), 1);
          mock.cuts++;
          const event = Buffer.from(this.events[n]);
          res.write(event.subarray(0, event.length - 1 - (n % event.length)));
          // A browser that learns of the break drops what it has not handed to the page yet.
          await sleep(cutMs);
          res.destroy();
          return;
        }
        await write(this.events[n]);
        if (pings) await write(`: ping${this.eol}`);
      }
      if (open) res.end();
    }

    #changed() { for (const wake of this.#wake.splice(0)) wake(); }
  }

  async function make(answer, body) {
    const b = answer.behaviour;
    const pieces = b.pieces ?? piecesOf(b.text ?? DEFAULT_TEXT);
    const chunk = (extra) => answer.add({ id: 'chatcmpl-test', object: 'chat.completion.chunk', created: 1, model: body.model, ...extra });
    const delta = (d, finish = null) => chunk({ choices: [{ index: 0, delta: d, finish_reason: finish }], usage: null });
    await sleep(b.firstMs ?? 30);
    delta({ role: 'assistant', content: '' });
    for (const piece of b.reasoning ? piecesOf(b.reasoning) : []) delta({ reasoning_content: piece });
    for (const [index, [name, args]] of (b.calls ?? []).entries()) {
      delta({ tool_calls: [{ index, id: `call_${index}`, type: 'function', function: { name, arguments: '' } }] });
      for (const piece of piecesOf(args)) delta({ tool_calls: [{ index, function: { arguments: piece } }] });
    }
    for (const [i, piece] of pieces.entries()) {
      while (b.hold && i >= b.hold.at && !answer.over) await sleep(10);
      if (answer.over) return;
      if (b.errorAfter === i) {
        answer.add({ error: { message: 'the device stopped answering', type: 'server_error', param: null, code: 'device_lost' } });
        break;
      }
      delta({ content: piece });
      const everyMs = b.hold?.everyMs ?? b.everyMs ?? 8;
      if (everyMs !== 0) await sleep(everyMs);
    }
    if (b.errorAfter === undefined) {
      chunk({ choices: [{ index: 0, delta: {}, finish_reason: b.finish ?? 'stop' }], usage: null, ...(b.sluice && { sluice: b.sluice }) });
      const prompt = body.messages.reduce((n, m) => n + Math.ceil(m.content.length / 4), 6);
      chunk({ choices: [], usage: { prompt_tokens: prompt, completion_tokens: pieces.length, total_tokens: prompt + pieces.length } });
    }
    if (!b.noDone) answer.add('[DONE]');
    answer.end('finished');
  }

  async function chat(req, res, body) {
    const b = { ...mock.fallback, ...(queue.shift() ?? {}) };
    if (b.status) {
      sendError(res, b.status, b.message ?? 'a fault made for a test', b.code ?? null, b.retryAfter === undefined ? {} : { 'retry-after': String(b.retryAfter) });
      return;
    }
    const answer = new Answer(b, req.headers['x-sluice-events'] === '1' && !b.plain);
    if (answer.numbered) answers.set(answer.id, { answer, key: req.headers.authorization });
    await Promise.all([answer.read(res, 0), make(answer, body)]);
  }

  async function stream(req, res, id) {
    const { answer, key } = answers.get(id) ?? {};
    if (!answer || key !== req.headers.authorization || answer.behaviour.forgets) {
      sendError(res, 404, 'There is no such stream.', 'stream_not_found');
      return;
    }
    if (req.method === 'DELETE') {
      answer.add({ id: 'chatcmpl-test', object: 'chat.completion.chunk', created: 1, model: 'demo', choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] });
      answer.add('[DONE]');
      answer.end('aborted');
      answers.delete(id);
      res.writeHead(204).end();
      return;
    }
    const status = answer.behaviour.resumeStatus?.shift();
    if (status === 0) { res.destroy(); return; }
    if (status) { sendError(res, status, 'a fault made for a test', null); return; }
    const last = req.headers['last-event-id'];
    const from = last === undefined ? 0 : Number(last) + 1;
    if (answer.over && from >= answer.events.length) { res.writeHead(204).end(); return; }
    await answer.read(res, from);
  }

  function conversation(req, res, [id, what, item], body) {
    const json = (value) => {
      res.writeHead(200, { 'content-type': 'application/json' });
      res.end(JSON.stringify(value));
    };
    const refusal = mock.conversationStatus;
    if (refusal) { sendError(res, refusal.status, 'a fault made for a test', refusal.code ?? null); return; }
    const key = req.headers.authorization;
    const mine = [...mock.conversations.values()].filter((c) => c.key === key).map((c) => c.object);
    if (id === undefined && req.method === 'GET') { json({ object: 'list', data: mine.reverse().map((o) => ({ id: o.id, created_at: o.created_at, bytes: 1 })) }); return; }
    if (id === undefined) {
      const object = { id: `conv_${++made}`, object: 'conversation', created_at: 1_700_000_000 + made, metadata: body.metadata ?? {} };
      mock.conversations.set(object.id, { key, object, items: [] });
      json(object);
      return;
    }
    const c = mock.conversations.get(id);
    if (c?.key !== key) { sendError(res, 404, 'There is no such conversation.', 'conversation_not_found'); return; }
    if (item !== undefined) c.items = c.items.filter((i) => i.id !== item);
    else if (req.method === 'DELETE') mock.conversations.delete(id);
    else if (req.method === 'POST' && what === 'items') c.items.push(...body.items.map((i) => ({ ...i, id: `msg_${++made}`, status: 'completed' })));
    else if (req.method === 'POST') c.object.metadata = body.metadata;
    json(what === 'export' ? { object: 'conversation.export', conversation: c.object, items: c.items } : c.object);
  }

  async function handle(req, res) {
    const { pathname: path, search } = new URL(req.url, 'http://local');
    let raw = '';
    for await (const part of req) raw += part;
    mock.requests.push({ method: req.method, url: req.url, path, search, headers: req.headers, body: raw, at: Date.now() });
    if (path === '/metrics') {
      res.writeHead(200, { 'content-type': 'text/plain' });
      res.end(`sluice_sequences_running ${mock.running}\n`);
      return;
    }
    if (path === '/health') {
      res.writeHead(200, { 'content-type': 'application/json' });
      res.end(JSON.stringify(mock.health ?? { status: 'ok', models: [] }));
      return;
    }
    if (path.startsWith('/v1/')) {
      const key = (req.headers.authorization ?? '').replace(/^Bearer /, '');
      if (mock.anonymous && !req.headers.authorization) { /* let in */ } else if (!mock.keys.includes(key)) { sendError(res, 401, 'Incorrect API key provided.', 'invalid_api_key'); return; }
      if (path === '/v1/models') {
        const status = mock.modelsStatus ?? mock.modelsOnce;
        delete mock.modelsOnce;
        if (status) { sendError(res, status, 'starting', null, { 'retry-after': '1' }); return; }
        res.writeHead(200, { 'content-type': 'application/json' });
        res.end(JSON.stringify({ object: 'list', data: mock.models.map((id) => ({ id, object: 'model', created: 1, owned_by: 'sluice' })) }));
        return;
      }
      if (path === '/v1/usage') {
        res.writeHead(200, { 'content-type': 'application/json' });
        res.end(JSON.stringify({ object: 'usage', remaining: mock.remaining ?? {} }));
        return;
      }
      if (path === '/v1/chat/completions' && req.method === 'POST') { await chat(req, res, JSON.parse(raw)); return; }
      if (/^\/v1\/conversations(\/|$)/.test(path)) { conversation(req, res, path.split('/').slice(3), raw === '' ? {} : JSON.parse(raw)); return; }
      if (path.startsWith('/v1/streams/')) { await stream(req, res, path.slice('/v1/streams/'.length)); return; }
      sendError(res, 404, 'no such endpoint', null);
      return;
    }
    const name = path === '/' ? 'index.html' : /^\/(?:www\/)?((?<=www\/)(?:vendor\/)?[a-z0-9_]+\.[a-z]+|client\.js|client\.d\.ts)$/.exec(path)?.[1];
    try {
      const body = await (kept[name] ?? readFile(join(WWW, name ?? '?')));
      if (!fresh) kept[name] = body;
      res.writeHead(200, {
        'content-type': TYPES[name.split('.').pop()], 'content-security-policy': csp,
        'x-content-type-options': 'nosniff', 'referrer-policy': 'no-referrer', 'cache-control': 'no-cache',
      });
      res.end(body);
    } catch {
      sendError(res, 404, 'no such page', null);
    }
  }

  const server = createServer((req, res) => {
    handle(req, res).catch((error) => { console.error(error); res.destroy(); });
  });
  await new Promise((resolve) => { server.listen(port, '127.0.0.1', resolve); });
  mock.origin = `http://localhost:${server.address().port}`;
  mock.page = `${mock.origin}/#${Object.entries(KEYS).map(([n, k]) => `${n}=${k}`).join('&')}`;
  mock.close = () => new Promise((resolve) => {
    server.close(resolve);
    server.closeAllConnections();
  });
  return mock;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const mock = await startMock({ port: Number(process.argv[2] ?? 8080), fresh: true });
  mock.fallback = { firstMs: 250, everyMs: 25 };
  console.log(mock.page);
}
