// SPDX-License-Identifier: Apache-2.0
// Drives an unchanged Firefox over Marionette, the protocol below geckodriver: a TCP connection with JSON arrays, each with
// its length before it. [0, id, command, parameters] is answered by [1, id, error, result]. Commands are WebDriver's
// (https://www.w3.org/TR/webdriver2/), framing as in Firefox's remote/marionette/transport.sys.mjs.
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { firefox } from 'playwright-core';
import { until } from './client.mjs';
import { freePorts } from './harness.mjs';

const START_MS = 60_000;
const QUIET = { 'browser.download.alwaysOpenPanel': false, // it takes the focus
  'app.update.disabledForTesting': true, 'app.normandy.enabled': false, 'browser.shell.checkDefaultBrowser': false,
  'browser.aboutwelcome.enabled': false, 'browser.safebrowsing.update.enabled': false, 'browser.search.update': false,
  'datareporting.policy.dataSubmissionEnabled': false, 'extensions.update.enabled': false, 'network.captive-portal-service.enabled': false,
  'network.connectivity-service.enabled': false, 'network.prefetch-next': false, 'services.settings.server': 'data:,', 'toolkit.telemetry.enabled': false,
  'ui.prefersReducedMotion': 1, // as the tests in Chromium ask for: what moves is drawn again and again
  'layout.frame_rate': 20, 'accessibility.force_disabled': 1, // nobody looks
  'ui.caretBlinkTime': 0, 'dom.ipc.processPrelaunch.enabled': false, 'browser.cache.disk.enable': false, 'browser.formfill.enable': false, 'places.history.enabled': false,
  'browser.sessionstore.interval': 86_400_000, 'browser.ml.enable': false, 'identity.fxaccounts.enabled': false, 'extensions.webcompat.enable_shims': false,
  'extensions.webcompat.perform_injections': false, 'extensions.webcompat.perform_ua_overrides': false };

/** The command of an installed Firefox; undefined when there is none. */
export const FIREFOX = [process.env.FIREFOX, 'firefox-esr', 'firefox'].find((name) => name
  && spawnSync('sh', ['-c', `command -v ${name}`]).status === 0);

/**
 * An unchanged Firefox as playwright-core drives one, over WebDriver BiDi (https://www.w3.org/TR/webdriver-bidi/). Pages are tabs
 * of one window, and no event tells of requests: playwright-core asks for a window each and for all events, which costs more of the
 * processor than what the pages do. page.on('request') and the like see nothing.
 */
export async function openFirefox(options = {}) {
  const browser = await firefox.launch({ executablePath: spawnSync('sh', ['-c', `command -v ${FIREFOX}`], { encoding: 'utf8' }).stdout.trim(),
    channel: 'moz-firefox', firefoxUserPrefs: QUIET, ...options });
  const session = browser._connection.toImpl(browser)._browserSession; // no public way; package-lock.json pins the version
  const { send } = session;
  session.send = (method, params) => send.call(session, method, method === 'browsingContext.create' ? { ...params, type: 'tab' } : params);
  await send.call(session, 'session.unsubscribe', { events: ['network'] });
  return browser;
}

async function marionette(port, ended) {
  const socket = await until(() => new Promise((done) => {
    const s = net.connect(port, '127.0.0.1', () => done(s)).on('error', () => done(null));
  }), START_MS);
  if (!socket) throw new Error('Firefox does not listen');
  let rest = Buffer.alloc(0), last = 0;
  const waiting = new Map();
  ended.then(() => { for (const w of waiting.values()) w.failed(new Error('Firefox has ended')); });
  await new Promise((greeted) => {
    socket.on('data', (d) => {
      rest = Buffer.concat([rest, d]);
      for (;;) {
        const colon = rest.indexOf(58);
        const n = colon < 0 ? NaN : Number(rest.subarray(0, colon));
        if (!(rest.length - colon - 1 >= n)) return;
        const message = JSON.parse(rest.subarray(colon + 1, colon + 1 + n));
        rest = rest.subarray(colon + 1 + n);
        if (!Array.isArray(message)) { greeted(); continue; }
        const [, id, error, result] = message;
        const { done, failed } = waiting.get(id);
        waiting.delete(id);
        if (error) failed(new Error(`${error.error}: ${error.message}`));
        else done(result);
      }
    });
  });
  const send = (command, parameters = {}) => new Promise((done, failed) => {
    const text = Buffer.from(JSON.stringify([0, ++last, command, parameters]));
    waiting.set(last, { done, failed });
    socket.write(Buffer.concat([Buffer.from(`${text.length}:`), text]));
  });
  return { send, close: () => socket.destroy() };
}

/** A browser with one page: see browser_suite.mjs for what each function is. */
export async function launchFirefox() {
  const profile = mkdtempSync(join(tmpdir(), 'sluice-firefox-'));
  process.once('exit', () => rmSync(profile, { recursive: true, force: true }));
  const [port] = await freePorts(1);
  writeFileSync(join(profile, 'user.js'), Object.entries({ ...QUIET, 'marionette.port': port })
    .map(([name, value]) => `user_pref(${JSON.stringify(name)}, ${JSON.stringify(value)});\n`).join(''));
  const child = spawn(FIREFOX, ['--headless', '--no-remote', '--marionette', '--profile', profile],
    { stdio: 'ignore', env: { ...process.env, HOME: profile } });
  const last = () => child.kill('SIGKILL');
  process.once('exit', last);
  const ended = new Promise((done) => child.once('close', done));
  const { send, close } = await marionette(port, ended);
  await send('WebDriver:NewSession', { acceptInsecureCerts: true });
  const run = async (script, args = []) => (await send('WebDriver:ExecuteScript', { script, args })).value;
  const element = async (selector) => Object.values((await send('WebDriver:FindElement', { using: 'css selector', value: selector })).value)[0];
  return {
    goto: (url) => send('WebDriver:Navigate', { url }),
    reload: () => send('WebDriver:Refresh'),
    evaluate: (expression) => run(`return (${expression});`),
    // At once, as playwright does: keys one by one take seconds.
    type: (selector, text) => run(`const e = document.querySelector(arguments[0]); e.focus(); e.value = arguments[1];
      e.dispatchEvent(new InputEvent('input', { bubbles: true }));`, [selector, text]),
    enter: async (selector) => send('WebDriver:ElementSendKeys', { id: await element(selector), text: '\ue007' }),
    click: async (selector) => send('WebDriver:ElementClick', { id: await element(selector) }),
    close: async () => {
      await send('Marionette:Quit', { flags: ['eForceQuit'] }).catch(() => {});
      const late = setTimeout(last, 5000);
      await ended;
      clearTimeout(late);
      process.removeListener('exit', last);
      close();
    },
  };
}
