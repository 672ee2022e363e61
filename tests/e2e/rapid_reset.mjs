// SPDX-License-Identifier: Apache-2.0
// Worker thread: rapid reset on one connection after the other, 5,000 requests each that are reset at once. Answers with what
// the GOAWAY of each said.
import { parentPort, workerData } from 'node:worker_threads';
import { F, frame, h2, T, u32, within, write } from './wire.mjs';

const { server, secure, connections, head, body } = workerData;
const CANCEL = 8;
const pieces = [];
for (let i = 0; i < 5000; i++) {
  const id = 2 * i + 1;
  pieces.push(frame(T.HEADERS, F.END_HEADERS, id, Buffer.from(head)), frame(T.DATA, F.END_STREAM, id, Buffer.from(body)),
    frame(T.RST_STREAM, 0, id, u32(CANCEL)));
}
const all = Buffer.concat(pieces);
const codes = [];
for (let i = 0; i < connections; i++) {
  const c = await h2(server, { secure });
  write(c, all);
  codes.push(await within(c.closed, 60_000) ? c.goaway() : 'open');
  c.socket.destroy();
}
parentPort.postMessage(codes);
