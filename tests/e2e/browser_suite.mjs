// SPDX-License-Identifier: Apache-2.0
// The built-in page in a browser, at any address: Chromium over playwright-core, Firefox over Marionette. The echo engine
// says the question's words, so every answer is known.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { launch } from './chromium.mjs';
import { until } from './client.mjs';
import { isIdle } from './client_suite.mjs';
import { FIREFOX, launchFirefox } from './firefox.mjs';

const COUNTED = Array.from({ length: 80 }, (_, i) => (i % 10 === 9 ? `물${i}` : `w${i}`)).join(' ');
const id = (name) => `[data-testid="${name}"]`;
const one = (name) => `document.querySelector('${id(name)}')`;
const answer = `[...document.querySelectorAll('${id('answer-text')}')].at(-1)`;
const done = `${one('regenerate')} || ${one('try-again')}`;
const longer = (n) => `${answer}?.textContent.length > ${n}`;

/** As launchFirefox: one page that is driven by selectors and by expressions evaluated in it. */
async function launchChromium() {
  const browser = await launch();
  const page = await (await browser.newContext({ ignoreHTTPSErrors: true })).newPage();
  page.setDefaultTimeout(60_000);
  return {
    goto: (url) => page.goto(url),
    reload: () => page.reload(),
    evaluate: (expression) => page.evaluate(expression),
    type: (selector, text) => page.fill(selector, text),
    enter: (selector) => page.press(selector, 'Enter'),
    click: (selector) => page.click(selector),
    close: () => browser.close(),
  };
}

export const BROWSERS = [['Chromium', launchChromium, true], ['Firefox', launchFirefox, FIREFOX !== undefined]];

const turns = new Map();

/** One at a time of those that use the same browser. */
function inTurn(name, act) {
  const mine = (turns.get(name) ?? Promise.resolve()).then(act);
  turns.set(name, mine.catch(() => {}));
  return mine;
}

/** x: {server, https}, known once the tests run; browsers: name → what was launched. */
export function browserSuite(x, browsers) {
  for (const [name, , there] of BROWSERS) {
    test(`${name}: the page streams, resumes after a reload, and stops`, { skip: !there && `${name} is not installed` }, () => inTurn(name, async () => {
      const page = browsers.get(name);
      const reached = async (expression) => {
        if (await until(() => page.evaluate(`Boolean(${expression})`), 60_000)) return;
        assert.fail(`never: ${expression}\n${await page.evaluate('document.body.innerText')}`);
      };
      const ask = async (text) => {
        await page.type(id('composer'), text);
        await page.enter(id('composer'));
      };
      await page.goto(`${x.https}/#paid=${x.server.keys.paid}`);
      await reached(`${one('model-select')} && !${one('model-select')}.disabled`);
      assert.equal(await page.evaluate('performance.getEntriesByType("navigation")[0].nextHopProtocol'), 'h2');
      await ask(COUNTED);
      await reached(done);
      assert.equal(await page.evaluate(`${answer}.textContent`), COUNTED);

      await page.click(id('new-chat'));
      await ask(COUNTED);
      await reached(longer(40));
      await page.reload();
      await reached(done);
      assert.equal(await page.evaluate(`${answer}.textContent`), COUNTED);

      await page.click(id('new-chat'));
      await page.evaluate(`(window.lengths = new Set(), new MutationObserver(() => { const a = ${answer}; if (a) window.lengths.add(a.textContent.length); })
        .observe(document.body, { childList: true, subtree: true, characterData: true }))`);
      await ask(`repeat ${COUNTED}`);
      await reached(longer(40));
      await reached('window.lengths.size >= 5'); // drawn as it comes
      await page.click(id('stop'));
      assert.ok(await isIdle(x.server), 'the engine goes on after Stop');
      await reached(done);
    }));
  }
}

/** Starts each browser that is there; the function closes them. */
export async function launchBrowsers(browsers) {
  await Promise.all(BROWSERS.filter(([, , there]) => there).map(async ([name, launch]) => { browsers.set(name, await launch()); }));
  return () => Promise.all([...browsers.values()].map((b) => b.close()));
}
