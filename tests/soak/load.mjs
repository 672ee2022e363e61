// SPDX-License-Identifier: Apache-2.0
// The clients of the chaos run: one request over HTTP/1.1, cleartext HTTP/2 or HTTP/2 over TLS, with everything that may be
// done to it on the way, and bytes that are no request at all. Nothing here judges: results say what came.
import http from 'node:http';
import http2 from 'node:http2';
import net from 'node:net';

/** mulberry32: the same numbers for the same seed on every machine. */
export class Random {
  constructor(seed) { this.state = seed >>> 0; }
  /** In [0, 1). */
  next() {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let t = this.state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }
  /** An integer in [0, n). */
  below(n) { return Math.floor(this.next() * n); }
  pick(list) { return list[this.below(list.length)]; }
  /** One value of [[weight, value], …]. */
  weighted(table) {
    let at = this.next() * table.reduce((sum, [w]) => sum + w, 0);
    for (const [w, value] of table) if ((at -= w) < 0) return value;
    return table.at(-1)[1];
  }
}

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

/** What one answer has said so far. take() gets the pieces of the body in order. */
class Answer {
  constructor() {
    Object.assign(this, { status: 0, isStream: false, body: '', rest: '', text: '', finishes: [], errors: [], dones: 0,
      afterEnd: 0, bad: null, clean: false, aborted: false, late: false, error: null, events: 0, started: performance.now(), ended: 0 });
  }
  head(status, contentType) {
    this.status = status;
    this.isStream = (contentType ?? '').startsWith('text/event-stream');
  }
  take(piece) {
    if (!this.isStream) { this.body += piece; return; }
    this.rest += piece;
    for (let i; (i = this.rest.indexOf('\n')) >= 0;) {
      const line = this.rest.slice(0, i);
      this.rest = this.rest.slice(i + 1);
      if (line.startsWith('data: ')) this.event(line.slice(6));
      else if (line !== '' && !line.startsWith(':')) this.bad ??= `a line that is no event: ${line.slice(0, 80)}`;
    }
  }
  event(data) {
    this.events++;
    if (this.dones || this.errors.length) this.afterEnd++;
    if (data === '[DONE]') { this.dones++; return; }
    let event;
    try { event = JSON.parse(data); } catch { this.bad ??= `an event that is no JSON: ${data.slice(0, 80)}`; return; }
    if (event.error) this.errors.push(event.error);
    const choice = event.choices?.[0];
    if (choice?.delta?.content) this.text += choice.delta.content;
    if (choice?.finish_reason) this.finishes.push(choice.finish_reason);
  }
}

/**
 * One client process's connections. `kind` is h1, h2c or h2; HTTP/2 sessions are shared by the requests of one worker and
 * replaced after `perSession` of them, while their last streams still run.
 */
export class Client {
  constructor(server, ca, kind, perSession, graceMs) {
    Object.assign(this, { server, ca, kind, perSession, graceMs, session: null, used: 0, goaways: 0 });
  }

  #session() {
    if (this.session && !this.session.closed && !this.session.destroyed && this.used < this.perSession) {
      this.used++;
      return this.session;
    }
    this.session?.close();
    const s = this.kind === 'h2' ? http2.connect(this.server.https, { ca: this.ca, servername: 'localhost' }) : http2.connect(this.server.http);
    s.on('error', () => {}); // the streams tell
    s.on('goaway', (code) => { if (code !== 0) this.goaways++; });
    // Node ends the streams of a connection that breaks as if they were whole; it hears of the break first, as do we.
    s.on('connect', (_, socket) => socket.on('close', () => { s.broken = true; }));
    this.session = s;
    this.used = 1;
    return s;
  }

  /** Ends the session; its open streams end with it when they haven't by then. */
  close() { this.session?.destroy(); this.session = null; }

  /**
   * → Answer. abort: {afterMs} or {afterEvents}, at which the request is torn down. slow: milliseconds of not reading after
   * each piece. Never rejects; one that has not ended after graceMs is torn down and called late.
   */
  request({ method = 'POST', path = '/v1/chat/completions', headers = {}, body, abort, slow }) {
    return new Promise((resolve) => {
      const a = new Answer();
      let stream, session, abortTimer, ended = false;
      const end = () => {
        if (ended) return;
        ended = true;
        a.ended = performance.now();
        clearTimeout(abortTimer);
        clearTimeout(lateTimer);
        resolve(a);
      };
      const tear = () => {
        if (ended) return;
        a.aborted = true;
        if (this.kind === 'h1') stream.destroy();
        else stream.close(http2.constants.NGHTTP2_CANCEL);
        end();
      };
      const lateTimer = setTimeout(() => { a.late = true; tear(); }, this.graceMs);
      const fail = (e) => { if (!a.aborted) a.error ??= e; end(); };
      const read = (from) => {
        from.setEncoding('utf8');
        from.on('data', (piece) => {
          if (a.aborted) return;
          a.take(piece);
          if (abort?.afterEvents && a.events >= abort.afterEvents) tear();
          else if (slow) { from.pause(); setTimeout(() => from.resume(), slow); }
        });
      };
      if (abort?.afterMs !== undefined) abortTimer = setTimeout(tear, abort.afterMs);
      if (this.kind === 'h1') {
        stream = http.request(this.server.http + path, { method, headers, agent: false });
        stream.on('response', (res) => {
          a.head(res.statusCode, res.headers['content-type']);
          read(res);
          res.on('error', fail);
          res.on('end', () => { a.clean = true; end(); });
        });
        // A refusal may come before the whole body was taken: what counts is the answer, when there is one.
        stream.on('error', (e) => { if (!a.status) fail(e); });
        stream.end(body);
      } else {
        try {
          session = this.#session();
          stream = session.request({ ':method': method, ':path': path, ...headers });
        } catch (e) { return fail(e); } // the session went between the look and the use
        stream.on('response', (h) => a.head(h[':status'], h['content-type']));
        read(stream);
        stream.on('error', fail);
        stream.on('end', () => { a.clean = a.status !== 0; });
        stream.on('close', () => {
          if (session.broken) a.clean = false;
          // NO_ERROR after a whole answer also tells that the rest of the request is not wanted.
          if (!a.clean || stream.rstCode !== 0) fail(new Error(`stream closed, code ${stream.rstCode}`));
          end();
        });
        stream.end(body);
      }
      return undefined;
    });
  }
}

/**
 * Sends bytes to a port and waits until the server has closed, at most `ms`. → {said, closed, refused}: closed false means
 * that the server kept the connection; refused that there was nobody to connect to.
 */
export function raw(base, bytes, ms, { leave = false } = {}) {
  return new Promise((resolve) => {
    const url = new URL(base);
    const out = { said: '', closed: false, refused: false, started: performance.now(), ended: 0 };
    const s = net.connect(Number(url.port), url.hostname);
    const end = () => { clearTimeout(timer); s.destroy(); out.ended = performance.now(); resolve(out); };
    const timer = setTimeout(end, ms);
    s.on('connect', () => s.write(bytes, () => { if (leave) { out.closed = true; end(); } }));
    s.on('data', (d) => { if (out.said.length < 4096) out.said += d.toString('latin1'); });
    s.on('end', () => { out.closed = true; end(); });
    s.on('error', (e) => { out.closed = true; out.refused = e.code === 'ECONNREFUSED'; end(); });
  });
}
