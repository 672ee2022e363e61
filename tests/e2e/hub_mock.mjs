// SPDX-License-Identifier: Apache-2.0
// A stand-in for the Hugging Face hub: its listing of files, its redirects to a host of files (another port), ranges, and
// faults that a test asks for. Content is made from a seed, so that no large file need exist.
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import http from 'node:http';

const BLOCK = 1 << 20;

/** size bytes that depend on the seed only: a source for a file of any size. */
export function seeded(seed, size) {
  const block = Buffer.alloc(BLOCK);
  for (let x = seed >>> 0 || 1, i = 0; i < BLOCK; i += 4) {
    x ^= x << 13; x ^= x >>> 17; x ^= x << 5; // xorshift32
    block.writeUInt32LE(x >>> 0, i);
  }
  /** Bytes [from, to), at most to the end of a block, which begins with its number. */
  const read = (from, to) => {
    const n = Math.floor(from / BLOCK), out = Buffer.from(block);
    out.writeUInt32LE(n, 0);
    return out.subarray(from - n * BLOCK, Math.min(to, (n + 1) * BLOCK) - n * BLOCK);
  };
  return { size, read };
}

/** The bytes of a buffer as a source. */
export const literal = (buffer) => ({ size: buffer.length, read: (from, to) => buffer.subarray(from, Math.min(to, from + BLOCK)) });

/** One source after the other. */
export function joined(a, b) {
  const read = (from, to) => (from < a.size ? a.read(from, Math.min(to, a.size)) : b.read(from - a.size, to - a.size));
  return { size: a.size + b.size, read };
}

function hashed(source, algorithm, head = '') {
  const h = createHash(algorithm);
  h.update(head);
  for (let at = 0; at < source.size;) {
    const piece = source.read(at, source.size);
    h.update(piece);
    at += piece.length;
  }
  return h.digest('hex');
}

function drained(res) {
  return new Promise((done) => {
    const over = () => { res.off('drain', over).off('close', over); done(); };
    res.on('drain', over).on('close', over);
  });
}

async function listen(handler) {
  const server = http.createServer(handler);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { server, url: `http://127.0.0.1:${server.address().port}` };
}

/**
 * repos: {'OWNER/NAME': {PATH: source}}; small ones (up to 1 MiB) are git's, others LFS. hub.on(request) may answer a
 * request itself (true), or return changes: {cut: n}: the connection ends after n bytes of the file; {stall: n}: silence
 * after n bytes, when reached() is called; {hold: n, until}: the same until that promise is kept; {drip: n}: n bytes every
 * 20 ms; {length: n}: what Content-Length says (null: chunked); {extra}: bytes after the end. A source's `listed` is its
 * entry in the listing.
 */
export async function startHub(repos) {
  const hub = { on: () => null, requests: [], page: 1000, redirects: true };
  const digests = new Map();

  function entry(path, source) {
    if (!digests.has(source)) {
      const large = source.size > BLOCK;
      digests.set(source, { large, hex: large ? hashed(source, 'sha256') : hashed(source, 'sha1', `blob ${source.size}\0`) });
    }
    const { large, hex } = digests.get(source);
    return { type: 'file', path, size: source.size, oid: large ? '0'.repeat(40) : hex,
      ...(large ? { lfs: { oid: hex, size: source.size, pointerSize: 134 } } : {}) };
  }

  function list(files, url, res, base) {
    const all = Object.entries(files).map(([path, source]) => (source.listed ?? entry(path, source)));
    const from = Number(url.searchParams.get('cursor') ?? 0), next = from + hub.page;
    if (next < all.length) res.setHeader('link', `<${base}${url.pathname}?recursive=1&cursor=${next}>; rel="next"`);
    res.setHeader('x-repo-commit', 'c0ffee'.padEnd(40, '0'));
    res.end(JSON.stringify(all.slice(from, next)));
  }

  async function send(source, req, res, change) {
    const range = /^bytes=(\d+)-(\d*)$/.exec(req.headers.range ?? ''), etag = `"${source.size}-${source.tag ?? 'one'}"`;
    const valid = range && (!req.headers['if-range'] || req.headers['if-range'] === etag);
    let at = valid ? Number(range[1]) : 0;
    const end = valid && range[2] ? Number(range[2]) + 1 : source.size;
    const length = change?.length === undefined ? end - at : change.length;
    res.setHeader('etag', etag);
    if (length !== null) res.setHeader('content-length', length);
    if (valid) res.setHeader('content-range', `bytes ${at}-${end - 1}/${change?.total ?? source.size}`);
    res.writeHead(valid ? 206 : 200);
    const stop = change?.cut ?? change?.stall ?? change?.hold ?? Infinity, began = at;
    let held = false;
    for (;;) {
      const to = Math.min(end, held ? end : began + stop, at + (change?.drip ?? BLOCK));
      if (at < to) {
        const piece = source.read(at, to);
        at += piece.length;
        if (!res.write(piece)) await drained(res);
      }
      if (res.destroyed) return;
      if (at >= end) break;
      if (at - began >= stop && !held) {
        if (change.cut !== undefined) res.destroy();
        change.reached?.();
        if (!change.until) return;
        await change.until;
        held = true;
      }
      if (change?.drip) await new Promise((done) => setTimeout(done, 20));
    }
    if (change?.extra) res.write(change.extra);
    res.end();
  }

  const repoOf = (path) => Object.entries(repos).find(([name]) => path.startsWith(`/${name}/`) || path.startsWith(`/api/models/${name}/`));

  function handle(which, base, other) {
    return async (req, res) => {
      const url = new URL(req.url, base());
      const asked = { host: which, path: decodeURIComponent(url.pathname), headers: req.headers };
      hub.requests.push(asked);
      const change = hub.on(asked, res, req);
      if (change === true) return;
      const repo = repoOf(url.pathname);
      if (!repo) {
        res.writeHead(404).end('Repository not found');
      } else if (url.pathname.startsWith('/api/')) {
        list(repo[1], url, res, base());
      } else {
        const path = decodeURIComponent(url.pathname).replace(`/${repo[0]}/resolve/main/`, '');
        const source = repo[1][path];
        if (!source) {
          res.writeHead(404).end('Entry not found');
        } else if (which === 'hub' && source.size > BLOCK && hub.redirects) {
          res.setHeader('x-linked-size', source.size).setHeader('x-linked-etag', `"${entry(path, source).lfs.oid}"`);
          res.setHeader('x-repo-commit', 'c0ffee'.padEnd(40, '0'));
          res.writeHead(302, { location: `${other()}${req.url}` }).end('Found');
        } else {
          await send(source, req, res, change);
        }
      }
    };
  }

  let front, files;
  front = await listen(handle('hub', () => front.url, () => files.url));
  files = await listen(handle('files', () => files.url, () => front.url));
  hub.url = front.url;
  hub.files = files.url;
  hub.stop = () => {
    for (const { server } of [front, files]) {
      server.closeAllConnections();
      server.close();
    }
  };
  return hub;
}
