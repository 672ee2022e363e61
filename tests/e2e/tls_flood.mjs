// SPDX-License-Identifier: Apache-2.0
// Worker thread: one full TLS handshake after the other on many sockets at once, each closed when it is done. Answers with how many.
import { parentPort, workerData } from 'node:worker_threads';
import tls from 'node:tls';

const { https, at_once: atOnce, ms } = workerData;
const { hostname, port } = new URL(https);
const end = Date.now() + ms;
let done = 0;

const one = () => new Promise((next) => {
  const s = tls.connect({ host: hostname, port: Number(port), rejectUnauthorized: false, session: undefined }, () => { done++; s.destroy(); });
  s.on('error', () => {});
  s.on('close', next);
});
await Promise.all(Array.from({ length: atOnce }, async () => { while (Date.now() < end) await one(); }));
parentPort.postMessage(done);
