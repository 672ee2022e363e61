// SPDX-License-Identifier: Apache-2.0
// Panels of a Grafana dashboard as one page of SVG, in its grid of 24 columns.
const COLUMN = 49, ROW = 26, GAP = 8, MARGIN = 12; // pixels
const COLOURS = ['#73bf69', '#f2cc0c', '#5794f2', '#ff9830', '#f2495c', '#b877d9', '#8ab8ff', '#c4162a', '#37872d', '#e0b400', '#a352cc', '#ffa6b0'];

const escape = (s) => String(s).replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]);
const digits = (v) => (v === 0 ? '0' : v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1).replace(/\.0$/, '') : v.toPrecision(3).replace(/(\.\d*?)0+$/, '$1').replace(/\.$/, ''));
const scaled = (v, steps) => {
  const [at, unit] = steps.find(([least]) => v >= least) ?? steps.at(-1);
  return `${digits(v / at)}${unit}`;
};

/** A value in a unit of Grafana's. */
export function say(v, unit) {
  if (v === 0 && unit !== 'percentunit') return '0';
  if (v < 0) return `-${say(-v, unit)}`;
  switch (unit) {
    case 'percentunit': return `${digits(100 * v)} %`;
    case 's': return scaled(v, [[1, ' s'], [1e-3, ' ms'], [1e-6, ' µs']]);
    case 'bytes': return scaled(v, [[2 ** 30, ' GiB'], [2 ** 20, ' MiB'], [1024, ' KiB'], [1, ' B']]);
    case 'reqps': return `${digits(v)} req/s`;
    default: return scaled(v, [[1e6, ' M'], [1e3, ' k'], [1e-9, '']].map(([n, u]) => [n === 1e-9 ? 1 : n, u]));
  }
}

/** A round step so that about four lines cover [0, most]. Bytes are round in binary. */
function stepOf(most, unit) {
  const base = unit === 'bytes' ? 2 : 10;
  if (base === 2) return 2 ** Math.ceil(Math.log2(most / 4));
  const tens = 10 ** Math.floor(Math.log10(most / 4));
  return [1, 2, 2.5, 5, 10].map((m) => m * tens).find((s) => s >= most / 4);
}

const clock = (s) => new Date(1000 * s).toISOString().slice(11, 16);

/** Lines without what is not a number: there they break. */
function runs(points) {
  const all = [[]];
  for (const [at, v] of points) {
    if (!Number.isFinite(v)) all.push([]);
    else {
      const last = all.at(-1).at(-1);
      if (last && at - last[0] > 10) all.push([]);
      all.at(-1).push([at, v]);
    }
  }
  return all.filter((r) => r.length > 0);
}

function plot(p, width, height, from, to) {
  const unit = p.fieldConfig.defaults.unit, left = 66, bottom = 20;
  const series = p.series.map((s) => ({ ...s, runs: runs(s.points) })).filter((s) => s.runs.length > 0);
  if (series.length === 0) return { series, svg: `<text x="${width / 2}" y="${height / 2}" class="none">No data</text>` };
  const values = series.flatMap((s) => s.runs.flat().map(([, v]) => v));
  const least = Math.min(0, ...values), top = Math.max(...values);
  const most = p.fieldConfig.defaults.max ?? (top > 0 ? top : 1), step = stepOf(most - least, unit);
  const high = p.fieldConfig.defaults.max ?? Math.ceil((most * 1.02) / step) * step;
  const x = (at) => left + ((at - from) / (to - from)) * (width - left - 8), y = (v) => 6 + (1 - (v - least) / (high - least)) * (height - bottom - 6);
  let svg = '';
  for (let v = 0; v <= high * 1.001; v += step)
    svg += `<path class="line" d="M${left} ${y(v).toFixed(1)}H${width - 8}"/><text class="y" x="${left - 8}" y="${(y(v) + 4).toFixed(1)}">${escape(say(v, unit))}</text>`;
  for (let at = Math.ceil(from / 60) * 60; at < to; at += 60)
    svg += `<path class="line" d="M${x(at).toFixed(1)} 6V${height - bottom}"/><text class="x" x="${x(at).toFixed(1)}" y="${height - 4}">${clock(at)}</text>`;
  series.forEach((s, i) => {
    const d = s.runs.map((r) => `M${r.map(([at, v]) => `${x(at).toFixed(1)} ${y(v).toFixed(1)}`).join('L')}`).join('');
    svg += `<path class="of" stroke="${COLOURS[i % COLOURS.length]}" d="${d}"/>`;
  });
  return { series, svg };
}

const isRow = (p) => p.type === 'row';

function panel(p, from, to) {
  const { x, y, w, h } = p.gridPos;
  const width = w * COLUMN - GAP, height = h * ROW - GAP;
  const place = `left:${MARGIN + x * COLUMN}px;top:${50 + y * ROW}px;width:${width}px;height:${height}px`;
  if (isRow(p)) return `<h2 style="${place}">${escape(p.title)}</h2>`;
  const columns = w > 8 ? 4 : p.fieldConfig.defaults.unit === 'reqps' || p.series.some((s) => s.name.length > 9) ? 2 : 3, lines = Math.ceil(Math.max(1, p.series.length) / columns), chart = height - 40 - 18 * lines;
  const { series, svg } = plot(p, width - 16, chart, from, to);
  const unit = p.fieldConfig.defaults.unit;
  const legend = series.map((s, i) => `<span style="width:${Math.floor(100 / columns)}%"><i style="background:${COLOURS[i % COLOURS.length]}"></i>${escape(s.name)} <b>${escape(say(s.runs.at(-1).at(-1)[1], unit))}</b></span>`).join('');
  return `<section style="${place}"><h3>${escape(p.title)}</h3><svg width="${width - 16}" height="${chart}">${svg}</svg><p>${legend}</p></section>`;
}

/** A row at the end whose panels have no data, as on a machine without a device, is its title only. */
function withoutEmptyRow(panels) {
  const at = panels.map(isRow).lastIndexOf(true);
  const rest = panels.slice(at + 1);
  if (at < 0 || rest.some((p) => p.series.length > 0)) return panels;
  return [...panels.slice(0, at), { ...panels[at], title: `${panels[at].title}: no data on this machine (${rest.map((p) => p.title.replace(/^\w+: /, '')).join('; ')})` }];
}

/** all: the dashboard's panels, each with its `series`. from, to: seconds. */
export function page(title, all, from, to) {
  const panels = withoutEmptyRow(all);
  const height = 50 + MARGIN + ROW * Math.max(...panels.map((p) => p.gridPos.y + p.gridPos.h));
  return `<!DOCTYPE html><meta charset="utf-8"><style>
body { margin: 0; width: ${2 * MARGIN + 24 * COLUMN}px; height: ${height}px; background: #f4f5f5; color: #24292e; font: 12px 'DejaVu Sans', sans-serif; position: relative }
h1 { position: absolute; left: ${MARGIN + 4}px; top: 14px; margin: 0; font-size: 18px } h1 small { font-size: 12px; font-weight: normal; margin-left: 12px; color: #555 }
h2, section { position: absolute; box-sizing: border-box; margin: 0 } h2 { font-size: 15px; padding: 2px 4px }
section { background: #fff; border: 1px solid #d8dadd; border-radius: 2px; padding: 6px 8px; overflow: hidden }
h3 { margin: 0; font-size: 13px; height: 22px } svg { display: block } p { margin: 4px 0 0; line-height: 18px }
p span { display: inline-block; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; vertical-align: top; height: 18px; font-size: 11px; letter-spacing: -.2px } i { display: inline-block; width: 12px; height: 3px; margin: 0 5px 3px 0; vertical-align: middle } b { font-weight: 600 }
text { font-size: 11px; fill: #555 } .y { text-anchor: end } .x { text-anchor: middle } .none { text-anchor: middle; font-size: 14px; fill: #888 }
.line { stroke: #e3e5e8; fill: none; shape-rendering: crispEdges } .of { fill: none; stroke-width: 1.5 }
</style><h1>${escape(title)}<small>${clock(from)} to ${clock(to)} UTC; instance, tier, model: all</small></h1>${panels.map((p) => panel(p, from, to)).join('\n')}`;
}
