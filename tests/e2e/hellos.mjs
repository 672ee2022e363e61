// SPDX-License-Identifier: Apache-2.0
// Clients that begin a TLS handshake and go no further. As a program it is the whole flood against a running gateway:
//   node tests/e2e/hellos.mjs PID https://127.0.0.1:PORT [TOTAL [AT_ONCE [SECONDS [whole]]]]
// tells how much memory the process PID has more than at the start, at most and SECONDS after the end.
import { readFileSync } from 'node:fs';
import net from 'node:net';
import tls from 'node:tls';
import { fileURLToPath } from 'node:url';

/** The bytes of a ClientHello. */
export function clientHello() {
  return new Promise((done, failed) => {
    const server = net.createServer((s) => s.once('data', (d) => { s.destroy(); server.close(); done(d); }));
    server.on('error', failed).listen(0, '127.0.0.1', () => {
      tls.connect({ port: server.address().port, host: '127.0.0.1', servername: 'localhost', ALPNProtocols: ['h2', 'http/1.1'] }).on('error', () => {});
    });
  });
}

/** Sends bytes from 127.0.0.`from` (limits are of addresses) and leaves the connection open: {socket, gone}. */
export function sendFrom(https, from, bytes) {
  const { hostname, port } = new URL(https);
  return new Promise((done) => {
    const socket = net.connect({ host: hostname, port: Number(port), localAddress: `127.0.0.${from}` });
    const c = { socket, gone: false };
    socket.on('connect', () => socket.write(bytes, () => done(c)));
    socket.on('data', () => {});
    socket.on('error', () => {});
    socket.on('close', () => { c.gone = true; done(c); });
  });
}

async function main(pid, https, total = '57000', atOnce = '12000', seconds = '60', what = 'half') {
  const hello = await clientHello();
  const bytes = what === 'whole' ? hello : hello.subarray(0, hello.length >> 1);
  const rss = () => Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) / 1024;
  const start = rss();
  let peak = start, open = new Set(), sent = 0;
  const sampling = setInterval(() => { peak = Math.max(peak, rss()); }, 50);
  while (sent < Number(total)) {
    if (open.size >= Number(atOnce)) { // the handshake's deadline ends them
      await new Promise((next) => setTimeout(next, 50));
      open = new Set([...open].filter((c) => !c.gone));
      continue;
    }
    const n = Math.min(100, Number(total) - sent);
    for (const c of await Promise.all(Array.from({ length: n }, (_, i) => sendFrom(https, 2 + (sent + i) % 240, bytes)))) open.add(c);
    sent += n;
  }
  while ([...open].some((c) => !c.gone)) await new Promise((next) => setTimeout(next, 50));
  await new Promise((next) => setTimeout(next, 1000 * Number(seconds)));
  clearInterval(sampling);
  process.stdout.write(`${sent} ${what} ClientHellos: from ${start.toFixed(1)} MiB, at most +${(peak - start).toFixed(1)}, `
    + `${seconds} s later ${(rss() - start).toFixed(1)} MiB more\n`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main(...process.argv.slice(2));
