// SPDX-License-Identifier: Apache-2.0
// Reads the Prometheus text format as a scraper does, and computes what PromQL's histogram_quantile computes.

/** Of /metrics: [{name, labels, value}]. Throws on a line that is none. */
export function samples(text) {
  const list = [];
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('#')) continue;
    const m = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!m) throw new Error(`not a sample: ${line}`);
    const labels = {};
    for (const [, name, value] of (m[2] ?? '').matchAll(/([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g))
      labels[name] = value.replace(/\\(.)/g, (_, c) => (c === 'n' ? '\n' : c));
    list.push({ name: m[1], labels, value: Number(m[3]) });
  }
  return list;
}

const matches = (s, name, labels) => s.name === name && Object.entries(labels).every(([k, v]) => s.labels[k] === v);

/** The sum of all samples of that name with these labels; 0 if there are none. */
export const sum = (all, name, labels = {}) => all.filter((s) => matches(s, name, labels)).reduce((n, s) => n + s.value, 0);

/** A histogram, its other labels added up: {count, sum, buckets: [[upper bound, how many up to it]]}. */
export function histogram(all, name, labels = {}) {
  const up = new Map();
  for (const s of all.filter((x) => matches(x, `${name}_bucket`, labels))) {
    const le = s.labels.le === '+Inf' ? Infinity : Number(s.labels.le);
    up.set(le, (up.get(le) ?? 0) + s.value);
  }
  return { count: sum(all, `${name}_count`, labels), sum: sum(all, `${name}_sum`, labels), buckets: [...up].sort((a, b) => a[0] - b[0]) };
}

/** What a histogram has gained since `before`. */
export const gained = (h, before) => ({ count: h.count - before.count, sum: h.sum - before.sum,
  buckets: h.buckets.map(([le, n], i) => [le, n - (before.buckets[i]?.[1] ?? 0)]) });

/** The bounds of the bucket in which the q-th of its values lies: histogram_quantile interpolates between them. */
export function bucketOf(h, q) {
  const i = h.buckets.findIndex(([, n]) => n >= q * h.count);
  return [i > 0 ? h.buckets[i - 1][0] : 0, h.buckets[i][0]];
}
