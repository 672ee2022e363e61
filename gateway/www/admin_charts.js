// Small charts of the last hour, drawn as SVG paths. A null is a gap.

import { h } from './dom.js';
import { formatNumber, t } from './i18n.js';

const WIDTH = 300;
const HEIGHT = 70;
const HOUR_S = 3600;
const LEAST_S = 300; // as wide a young server's charts are
const SVG = 'http://www.w3.org/2000/svg';

const percent = (v) => `${formatNumber(v * 100, 0)} %`;
const ms = (v) => (v >= 1000 ? `${formatNumber(v / 1000, 1)} s` : `${formatNumber(v, 0)} ms`);
const plain = (v) => formatNumber(v, v < 10 && v % 1 !== 0 ? 1 : 0);

/** The figures that are shown: [name in the samples, word, format, the scale's least upper end]. */
export const FIGURES = [
  ['answers_per_s', 'cAnswers', plain, 1], ['tokens_per_s', 'cTokens', plain, 10], ['ttft_p50_ms', 'cTtft50', ms, 100],
  ['ttft_p95_ms', 'cTtft95', ms, 100], ['good_share', 'cGood', percent, 1], ['running', 'cRunning', plain, 4],
  ['waiting', 'cWaiting', plain, 4], ['kv_used_share', 'cKv', percent, 1], ['prefix_hit_share', 'cHits', percent, 1],
  ['large_share', 'cLarge', percent, 1], ['refused_per_s', 'cRefused', plain, 1], ['failed_per_s', 'cFailed', plain, 1],
  ['prompt_tokens_per_s', 'cPrompt', plain, 10], ['preemptions', 'cPreemptions', plain, 4],
];

/** The path of values over times, from `from` to `to`; '' where there is none. Apart by more than `gap`, they are not joined. */
export function pathOf(times, values, { from, to, top, gap }) {
  let path = '', last = null;
  values.forEach((v, i) => {
    if (typeof v !== 'number') { last = null; return; }
    const x = ((times[i] - from) / Math.max(1, to - from)) * WIDTH;
    const y = HEIGHT - (Math.min(v, top) / top) * HEIGHT;
    path += `${last !== null && times[i] - last <= gap ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}`;
    if (last === null || times[i] - last > gap) path += 'h0.1'; // a lone value is a dot
    last = times[i];
  });
  return path;
}

function draw(path) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', `0 -2 ${WIDTH} ${HEIGHT + 4}`);
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('aria-hidden', 'true');
  const line = document.createElementNS(SVG, 'line');
  for (const [name, v] of [['x1', 0], ['x2', WIDTH], ['y1', HEIGHT], ['y2', HEIGHT]]) line.setAttribute(name, v);
  const curve = document.createElementNS(SVG, 'path');
  curve.setAttribute('d', path);
  svg.append(line, curve);
  return svg;
}

function chart([name, word, format, least], samples, stepS) {
  const times = samples.at ?? [], values = samples[name] ?? [];
  const known = values.filter((v) => typeof v === 'number');
  const last = values.at(-1);
  const say = (v) => (typeof v === 'number' ? format(v) : t('adminNoValue'));
  const top = Math.max(least, ...known);
  const to = times.at(-1) ?? 0, from = Math.max(to - HOUR_S, Math.min(times[0] ?? to, to - LEAST_S));
  const label = known.length === 0 ? `${t(word)}: ${t('adminNoValue')}`
    : t('adminChart', { name: t(word), last: say(last), least: format(Math.min(...known)), most: format(Math.max(...known)) });
  return h('div', { class: 'chart', role: 'img', 'aria-label': label, 'data-testid': `chart-${name}` },
    h('p', { class: 'chart-head' }, h('span', { text: t(word) }), h('strong', { text: say(last) })),
    draw(pathOf(times, values, { from, to, top, gap: 2.5 * stepS })));
}

/** Charts of GET /v1/admin/history. */
export function charts(history) {
  const samples = history?.samples ?? {};
  return FIGURES.map((f) => chart(f, samples, (history?.step_ms ?? 5000) / 1000));
}
