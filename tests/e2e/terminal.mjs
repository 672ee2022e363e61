// SPDX-License-Identifier: Apache-2.0
// Commands on a terminal of their own, made by script(1).
import { spawn } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';

const PATIENCE = 120_000;
const quoted = (word) => `'${word.replaceAll("'", "'\\''")}'`;

/**
 * words on a terminal: type(text), until(pattern) → what was shown up to its end, ended → exit status, over([text]) → the same with
 * a deadline, pid of script, shown() → all of it, kill().
 */
export function onTerminal(words, options) {
  // exec: a shell between them would end by the terminal's SIGINT.
  return shellOnTerminal(`exec ${words.map(quoted).join(' ')}`, options);
}

/** The same of a shell's line. */
export function shellOnTerminal(line, { cwd, env } = {}) {
  const child = spawn('script', ['-qfec', line, '/dev/null'], { cwd, env: { ...process.env, TERM: 'xterm', ...env } });
  let shown = '', from = 0;
  const wakes = new Set(), wake = () => { for (const w of wakes) w(); wakes.clear(); };
  const ended = new Promise((done) => child.once('close', (status) => { wake(); done(status); }));
  child.stdin.on('error', () => {}); // it has ended
  child.stdout.setEncoding('utf8').on('data', (d) => { shown += d; wake(); });
  return {
    pid: child.pid,
    ended,
    kill: () => child.kill('SIGKILL'),
    shown: () => shown,
    type: (text) => child.stdin.write(text),
    /** Typed again and again until it ends, what may be lost. */
    async over(text) {
      for (const end = Date.now() + PATIENCE; Date.now() < end;) {
        if (text) child.stdin.write(text);
        if (await Promise.race([ended.then(() => true), sleep(text ? 200 : end - Date.now(), false, { ref: false })])) return ended;
      }
      throw new Error(`it does not end: ${shown}`);
    },
    async until(pattern) {
      for (const end = Date.now() + PATIENCE; ;) {
        const m = pattern.exec(shown.slice(from));
        if (m) { from += m.index + m[0].length; return m; }
        if (child.exitCode !== null || Date.now() > end) throw new Error(`${child.exitCode !== null ? 'ended' : 'two minutes'} before ${pattern}: ${shown}`);
        await new Promise((again) => { wakes.add(again); setTimeout(again, 1000).unref(); });
      }
    },
  };
}
