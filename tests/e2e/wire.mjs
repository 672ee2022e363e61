// SPDX-License-Identifier: Apache-2.0
// Clients that speak HTTP by hand: any bytes on a socket, HTTP/2 frames one by one, with or without TLS. What comes back is
// kept; nothing is answered by itself, so that a test may break every rule.
import net from 'node:net';
import tls from 'node:tls';

export const T = { DATA: 0, HEADERS: 1, PRIORITY: 2, RST_STREAM: 3, SETTINGS: 4, PUSH_PROMISE: 5, PING: 6, GOAWAY: 7,
  WINDOW_UPDATE: 8, CONTINUATION: 9 };
export const F = { END_STREAM: 1, ACK: 1, END_HEADERS: 4, PADDED: 8 };
export const CALM = 11;
export const PREFACE = Buffer.concat([Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), frame(T.SETTINGS, 0, 0)]);

export function frame(type, flags, id, payload = Buffer.alloc(0)) {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(id, 5);
  return Buffer.concat([head, payload]);
}

export function u32(v) {
  const b = Buffer.alloc(4);
  b.writeUInt32BE(v);
  return b;
}

function hpackInt(n) {
  if (n < 127) return Buffer.from([n]);
  const out = [127];
  for (n -= 127; n >= 128; n >>= 7) out.push(128 | (n & 127));
  out.push(n);
  return Buffer.from(out);
}

/** HPACK: every field a literal that is not indexed, with its name. fields: an object, or pairs. */
export function block(fields) {
  return Buffer.concat((Array.isArray(fields) ? fields : Object.entries(fields)).flatMap(([name, value]) => [Buffer.from([0]), hpackInt(name.length),
    Buffer.from(name), hpackInt(Buffer.byteLength(value)), Buffer.from(value)]));
}

export function head(method, path, more = {}) {
  return block({ ':method': method, ':scheme': 'http', ':path': path, ':authority': 'localhost', ...more });
}

/** The address of one of a server's listeners. */
export function portOf(server, secure) {
  return Number(new URL(secure ? server.https : server.http).port);
}

/**
 * A connected socket: {socket, text() (all that came), closed (promise), isClosed(), openedAt, closedAt}. alpn: with TLS.
 * Errors are an end like any other.
 */
export async function connect(server, { secure = false, alpn = ['http/1.1'], read = true } = {}) {
  const port = portOf(server, secure);
  const socket = secure ? tls.connect({ host: '127.0.0.1', port, rejectUnauthorized: false, ALPNProtocols: alpn })
    : net.connect({ host: '127.0.0.1', port });
  socket.setNoDelay(true);
  const pieces = [];
  const c = { socket, openedAt: Date.now(), closedAt: 0, isClosed: () => c.closedAt > 0, bytes: () => Buffer.concat(pieces),
    text: () => Buffer.concat(pieces).toString('latin1') };
  c.closed = new Promise((done) => {
    const end = () => { c.closedAt ||= Date.now(); done(); };
    socket.once('close', end);
    socket.once('end', end);
  });
  socket.on('error', () => {});
  if (read) socket.on('data', (d) => { pieces.push(d); c.onBytes?.(); });
  else socket.pause();
  await new Promise((done) => { socket.once(secure ? 'secureConnect' : 'connect', done); socket.once('close', done); });
  return c;
}

/** Writes unless it is closed; resolves when the system has taken it, to false when it never will. */
export function write(c, data) {
  return new Promise((done) => {
    if (c.socket.destroyed || !c.socket.writable) return done(false);
    c.socket.write(data, (e) => done(!e));
    c.closed.then(() => done(false));
    return undefined;
  });
}

/** An HTTP/2 connection whose preface has been sent. frames: what came, [{type, flags, id, payload}]. */
export async function h2(server, { secure = false, read = true } = {}) {
  const c = await connect(server, { secure, alpn: ['h2'], read });
  c.frames = () => {
    const all = c.bytes();
    const out = [];
    for (let at = 0; at + 9 <= all.length;) {
      const n = all.readUIntBE(at, 3);
      if (at + 9 + n > all.length) break;
      out.push({ type: all[at + 3], flags: all[at + 4], id: all.readUInt32BE(at + 5) & 0x7fffffff,
        payload: all.subarray(at + 9, at + 9 + n) });
      at += 9 + n;
    }
    return out;
  };
  c.find = (type, id) => c.frames().find((f) => f.type === type && (id === undefined || f.id === id)
    && !(type === T.SETTINGS && f.flags & F.ACK));
  /** The first frame of that kind; undefined when the connection ends without one. */
  c.await = (type, id) => new Promise((done) => {
    c.onBytes = () => {
      const f = c.find(type, id);
      if (f) { c.onBytes = undefined; done(f); }
    };
    c.closed.then(() => done(c.find(type, id)));
    c.onBytes();
  });
  c.goaway = () => c.find(T.GOAWAY)?.payload.readUInt32BE(4);
  await write(c, PREFACE);
  return c;
}

/** Resolves to true when the promise does within ms, else to false. */
export async function within(promise, ms) {
  let timer;
  const ok = await Promise.race([promise.then(() => true), new Promise((done) => { timer = setTimeout(done, ms, false); })]);
  clearTimeout(timer);
  return ok;
}
