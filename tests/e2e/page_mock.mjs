// A stand-in for the gateway: serves the page with its security policy and speaks the part of the API the page uses,
// with programmable delays and faults.
//
//   const mock = await startMock();
//   mock.next({ text: '…', firstMs: 50, everyMs: 10 });   // how the next chat request behaves; else the default
//   mock.requests, mock.running, mock.aborted             // what it saw
//
// A behaviour's fields, all optional: text or pieces, firstMs, everyMs, status (with message, code, retryAfter),
// finish ('stop', 'length'), reasoning, errorAfter (pieces, then an error event), cutAfter (pieces, then the connection
// breaks), noDone, crlf, bytes (send the stream in writes of that many bytes), pings.
//
// Run by itself it serves a page to look at:  node page_mock.mjs [PORT]

import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const WWW = fileURLToPath(new URL('../../gateway/www/', import.meta.url));
const TYPES = {
  html: 'text/html; charset=utf-8', js: 'text/javascript; charset=utf-8', css: 'text/css; charset=utf-8', svg: 'image/svg+xml',
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

export async function startMock({ port = 0, trustedTypes = false, keys = Object.values(KEYS), models = ['demo-small', 'demo-large'] } = {}) {
  const queue = [];
  const mock = {
    requests: [], running: 0, aborted: 0, finished: 0, fallback: {}, models,
    next: (...behaviours) => { queue.push(...behaviours); },
    clear: () => { queue.length = 0; mock.requests.length = 0; },
    chats: () => mock.requests.filter((r) => r.path === '/v1/chat/completions'),
  };
  const csp = trustedTypes ? `${CSP}; require-trusted-types-for 'script'; trusted-types 'none'` : CSP;

  const sendError = (res, status, message, code, headers = {}) => {
    res.writeHead(status, { 'content-type': 'application/json', ...headers });
    res.end(JSON.stringify({ error: { message, type: status === 401 ? 'authentication_error' : 'invalid_request_error', param: null, code } }));
  };

  async function chat(req, res, body) {
    const b = { ...mock.fallback, ...(queue.shift() ?? {}) };
    if (b.status) {
      sendError(res, b.status, b.message ?? 'a fault made for a test', b.code ?? null, b.retryAfter === undefined ? {} : { 'retry-after': String(b.retryAfter) });
      return;
    }
    const pieces = b.pieces ?? piecesOf(b.text ?? DEFAULT_TEXT);
    const eol = b.crlf ? '\r\n' : '\n';
    const id = 'chatcmpl-test';
    const frame = (extra) => `data: ${JSON.stringify({ id, object: 'chat.completion.chunk', created: 1, model: body.model, ...extra })}${eol}${eol}`;
    const delta = (d, finish = null) => frame({ choices: [{ index: 0, delta: d, finish_reason: finish }], usage: null });
    let open = true;
    mock.running++;
    const onClose = () => {
      if (!open) return;
      open = false;
      mock.running--;
      mock.aborted++;
      mock.abortedAt = Date.now();
    };
    res.on('close', onClose);
    const write = async (text) => {
      if (!open) return;
      const bytes = Buffer.from(text);
      const step = b.bytes ?? bytes.length;
      for (let i = 0; i < bytes.length && open; i += step) {
        res.write(bytes.subarray(i, i + step));
        if (b.bytes) await sleep(1);
      }
    };
    res.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache, no-transform', 'x-accel-buffering': 'no' });
    res.flushHeaders();
    if (b.pings) await write(`: ping${eol}`);
    await sleep(b.firstMs ?? 30);
    await write(delta({ role: 'assistant', content: '' }));
    for (const piece of b.reasoning ? piecesOf(b.reasoning) : []) await write(delta({ reasoning_content: piece }));
    for (const [i, piece] of pieces.entries()) {
      if (!open) return;
      if (b.cutAfter === i) { res.destroy(); return; }
      if (b.errorAfter === i) {
        await write(`data: ${JSON.stringify({ error: { message: 'the device stopped answering', type: 'server_error', param: null, code: 'device_lost' } })}${eol}${eol}`);
        break;
      }
      await write(delta({ content: piece }));
      if (b.pings) await write(`: ping${eol}`);
      if (b.everyMs !== 0) await sleep(b.everyMs ?? 8);
    }
    if (!open) return;
    if (b.errorAfter === undefined) {
      await write(delta({}, b.finish ?? 'stop'));
      const prompt = body.messages.reduce((n, m) => n + Math.ceil(m.content.length / 4), 6);
      await write(frame({ choices: [], usage: { prompt_tokens: prompt, completion_tokens: pieces.length, total_tokens: prompt + pieces.length } }));
    }
    if (!b.noDone) await write(`data: [DONE]${eol}${eol}`);
    if (!open) return;
    open = false;
    mock.running--;
    mock.finished++;
    res.end();
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
    if (path.startsWith('/v1/')) {
      const key = (req.headers.authorization ?? '').replace(/^Bearer /, '');
      if (!keys.includes(key)) { sendError(res, 401, 'Incorrect API key provided.', 'invalid_api_key'); return; }
      if (path === '/v1/models') {
        if (mock.modelsStatus) { sendError(res, mock.modelsStatus, 'starting', null, { 'retry-after': '1' }); return; }
        res.writeHead(200, { 'content-type': 'application/json' });
        res.end(JSON.stringify({ object: 'list', data: mock.models.map((id) => ({ id, object: 'model', created: 1, owned_by: 'sluice' })) }));
        return;
      }
      if (path === '/v1/chat/completions' && req.method === 'POST') { await chat(req, res, JSON.parse(raw)); return; }
      sendError(res, 404, 'no such endpoint', null);
      return;
    }
    const name = path === '/' ? 'index.html' : /^\/www\/([a-z0-9_]+\.[a-z]+)$/.exec(path)?.[1];
    try {
      const body = await readFile(join(WWW, name ?? '?'));
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
  const mock = await startMock({ port: Number(process.argv[2] ?? 8080) });
  mock.fallback = { firstMs: 250, everyMs: 25 };
  console.log(mock.page);
}
