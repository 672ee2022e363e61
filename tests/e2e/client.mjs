// SPDX-License-Identifier: Apache-2.0
// A plain client for the end-to-end tests: one chat request, every event kept with its time of arrival.
import { spawn } from 'node:child_process';
import http from 'node:http';

/**
 * Streams one chat completion over cleartext HTTP/1.1 and resolves when the response has ended, however it ended.
 * onEvent(event) may return 'abort' to tear the connection down. Never rejects: look at `status`, `error`, `aborted`.
 */
export function chat(base, key, body, { onEvent, headers } = {}) {
  const started = Date.now();
  const result = { status: 0, headers: {}, events: [], comments: 0, text: '', finish: null, usage: null,
    errors: [], done: false, aborted: false, error: null, body: '', started, times: [] };
  return new Promise((resolve) => {
    const url = new URL('/v1/chat/completions', base);
    const req = http.request(url, { method: 'POST', agent: false,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers } });
    const end = () => { result.ended = Date.now(); resolve(result); };
    req.on('error', (e) => { if (!result.aborted) result.error = e; end(); });
    req.on('response', (res) => {
      result.status = res.statusCode;
      result.headers = res.headers;
      res.setEncoding('utf8');
      let rest = '';
      const isStream = (res.headers['content-type'] ?? '').startsWith('text/event-stream');
      res.on('data', (piece) => {
        result.body += piece;
        if (!isStream) return;
        rest += piece;
        for (let i; (i = rest.indexOf('\n')) >= 0;) {
          const line = rest.slice(0, i);
          rest = rest.slice(i + 1);
          if (line.startsWith(':')) result.comments++;
          if (!line.startsWith('data: ')) continue;
          if (take(line.slice(6)) === 'abort') { result.aborted = true; req.destroy(); return end(); }
        }
      });
      res.on('error', (e) => { if (!result.aborted) result.error = e; end(); });
      res.on('end', end);
    });
    function take(data) {
      if (data === '[DONE]') { result.done = true; return undefined; }
      const event = JSON.parse(data);
      result.events.push(event);
      result.times.push(Date.now());
      if (event.error) result.errors.push(event.error);
      const choice = event.choices?.[0];
      if (choice?.delta?.content) result.text += choice.delta.content;
      if (choice?.finish_reason) result.finish = choice.finish_reason;
      if (event.usage) result.usage = event.usage;
      return onEvent?.(event, result);
    }
    req.end(JSON.stringify({ stream: true, ...body }));
  });
}

export const user = (content) => [{ role: 'user', content }];

/** Polls until probe() returns something truthy or `ms` have passed; returns the last value. */
export async function until(probe, ms, stepMs = 20) {
  const deadline = Date.now() + ms;
  for (;;) {
    const value = await probe();
    if (value || Date.now() > deadline) return value;
    await new Promise((r) => setTimeout(r, stepMs));
  }
}

/** One value of the Prometheus text: metric(text, 'sluice_engine_running'). NaN when absent. */
export function metric(text, name) {
  const line = text.split('\n').find((l) => l.startsWith(`${name} `) || l.startsWith(`${name}{`));
  return line ? Number(line.slice(line.lastIndexOf(' ') + 1)) : NaN;
}

/** How many generations a gateway has submitted, by its own metrics because the engine's come late. Those that joined another cost none. */
export function submittedGenerations(text) {
  const sum = (name) => text.split('\n').filter((l) => name.test(l)).reduce((n, l) => n + Number(l.slice(l.lastIndexOf(' ') + 1)), 0);
  return sum(/^sluice_generations(_ended_total)?\{/) - sum(/^sluice_twins_joined_total /);
}

/** Runs curl to its end: {status, stdout, stderr}. */
export function curl(args) {
  const child = spawn('curl', args, { stdio: ['ignore', 'pipe', 'pipe'] });
  const r = { status: null, stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr']) child[name].setEncoding('utf8').on('data', (d) => { r[name] += d; });
  return new Promise((done, failed) => {
    child.on('error', failed);
    child.on('close', (status) => done({ ...r, status }));
  });
}

/** The events of a stream without what differs by request; pieces of text in a row are one, as how many came together is chance. */
export function eventsOf(text) {
  const list = [];
  for (const l of text.split('\n').filter((line) => line.startsWith('data: '))) {
    if (l === 'data: [DONE]') { list.push(l); continue; }
    const { id, created, ...rest } = JSON.parse(l.slice(6));
    if (!/^chatcmpl-/.test(id) || !(created > 0)) throw new Error(`not a chunk: ${l}`);
    const text = (e) => (Object.keys(e?.choices?.[0]?.delta ?? {}).join() === 'content' ? e.choices[0] : null);
    const last = text(list.at(-1));
    if (last && text(rest)) last.delta.content += rest.choices[0].delta.content;
    else list.push(rest);
  }
  return list.map((e) => (typeof e === 'string' ? e : JSON.stringify(e)));
}
