// Makes the picture for the README: 1280 × 800, light, a finished answer with a table and code.
//
//   node screenshot.mjs OUT.png            with the stand-in server and a fixed answer
//   SLUICE_PAGE='http://localhost:8080/#free=sk-…' node screenshot.mjs OUT.png      with a real model's
//
// OPTIONS, after OUT.png: --dark, --ko, --empty.

import { launch } from './chromium.mjs';
import { startMock } from './page_mock.mjs';

const [out, ...options] = process.argv.slice(2);
if (!out) {
  console.error('usage: node screenshot.mjs OUT.png [--dark] [--ko] [--empty]');
  process.exit(2);
}
const ko = options.includes('--ko');

const EARLIER = ['How does a sluice gate work?', 'Plan a rainy Saturday in Seoul', 'Rename files by date in bash'];
const QUESTION = ko ? '문자열을 제자리에서 뒤집는 C 함수를 보여 주고, 다른 방법과 비교해 주세요.' : 'Reverse a string in place in C. What are the alternatives?';
const CODE = `\`\`\`c
void reverse(char *s) {
    for (size_t i = 0, j = strlen(s); i + 1 < j; i++) {
        char c = s[i];
        s[i] = s[--j];
        s[j] = c;      /* the mirror of i */
    }
}
\`\`\``;
const ANSWER = ko
  ? `두 인덱스가 양 끝에서 출발해 **가운데에서 만날 때까지** 글자를 맞바꿉니다.\n\n${CODE}\n\n| 방법 | 시간 | 추가 공간 |\n|:--|:--|--:|\n| 제자리 교환 | O(n) | 1글자 |\n| 새 버퍼에 복사 | O(n) | n글자 |`
  : `Two indices start at the ends and swap what they meet, **until they meet each other**.\n\n${CODE}\n\n| Way | Time | Extra space |\n|:--|:--|--:|\n| Swap in place | O(n) | 1 char |\n| Copy to a new buffer | O(n) | n chars |`;

// What the demonstration pair knows.
const REAL = ['What is the capital of France?', 'Explain what gravity is.', 'Tell me a short story about a cat.'];
const REAL_KO = ['프랑스의 수도는 어디인가요?', '안녕하세요!'];

const real = process.env.SLUICE_PAGE;
const mock = real ? null : await startMock();
const browser = await launch();
const page = await browser.newPage({
  viewport: { width: 1280, height: 800 }, colorScheme: options.includes('--dark') ? 'dark' : 'light', locale: ko ? 'ko-KR' : 'en-US', reducedMotion: 'reduce',
});
await page.goto(real ?? mock.page);
await page.locator('[data-testid="model-select"]:enabled').waitFor();
const ask = async (text) => {
  await page.fill('[data-testid="composer"]', text);
  await page.press('[data-testid="composer"]', 'Enter');
  await page.locator('[data-testid="regenerate"]').waitFor({ timeout: 720_000 });
};
if (!options.includes('--empty')) {
  if (mock) {
    for (const question of ko ? [] : EARLIER) {
      mock.next({ text: 'Yes.', everyMs: 0 });
      await ask(question);
      await page.click('[data-testid="new-chat"]');
    }
    mock.next({ text: ANSWER, firstMs: 90, everyMs: 11 });
  }
  if (mock) await ask(QUESTION);
  else for (const question of ko ? REAL_KO : REAL) await ask(question);
}
await page.mouse.move(640, 5);
await page.waitForTimeout(300);
await page.screenshot({ path: out });
await browser.close();
await mock?.close();
