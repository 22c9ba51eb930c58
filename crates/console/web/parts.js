// What pages are made of.

import { Component, h } from "./preact.js";
import htm from "./htm.js";
import { ask } from "./store.js";
import { clock } from "./text.js";

export const html = htm.bind(h);

/// Asks a path again and again, and shows what came: `children(answer, again)`.
export class Asked extends Component {
  componentDidMount() {
    this.ask();
  }
  componentDidUpdate(before) {
    if (before.path !== this.props.path) this.ask();
  }
  componentWillUnmount() {
    this.over = true;
    clearTimeout(this.timer);
  }
  async ask() {
    clearTimeout(this.timer);
    const { path, period = 0 } = this.props;
    let next;
    try {
      next = { answer: await ask(path), trouble: null };
    } catch (error) {
      next = { trouble: error.message };
    }
    if (this.over || path !== this.props.path) return;
    this.setState(next);
    if (period) this.timer = setTimeout(() => this.ask(), period);
  }
  render({ children }, { answer, trouble }) {
    const shown = answer === undefined
      ? !trouble && html`<p class="dim">asking…</p>`
      : [children].flat()[0](answer, () => this.ask());
    return html`${trouble && html`<${Trouble}>${trouble}<//>`}${shown}`;
  }
}

export function Trouble({ children }) {
  return html`<p class="trouble" role="alert">${children}</p>`;
}

/// A table. `columns` are `{ name, of, right, width }`; `of` is a row's cell.
export function Table({ columns, rows, caption, key_of, empty = "nothing", row_class }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}>
    <table>
      <caption>${caption}</caption>
      <thead><tr>${columns.map((column) => html`<th scope="col"
        class=${column.right ? "right" : ""}>${column.name}</th>`)}</tr></thead>
      <tbody>
        ${rows.length === 0 && html`<tr><td class="dim" colspan=${columns.length}>
          ${empty}</td></tr>`}
        ${rows.map((row, at) => html`<tr key=${key_of ? key_of(row) : at}
          class=${row_class ? row_class(row) : ""}>
          ${columns.map((column) =>
            html`<td class=${`${column.right ? "right" : ""} ${column.wide ? "wide" : ""}`}>
              ${column.of(row, at)}</td>`)}
        </tr>`)}
      </tbody>
    </table>
  </div>`;
}

/// A bar of parts: `{ share, kind, name }`, from 0 to 1 of its width.
export function Bar({ parts, label }) {
  return html`<span class="bar" role="img" aria-label=${label}>
    ${parts.map((part) => html`<span class=${`part ${part.kind}`}
      style=${{ width: `${100 * Math.min(1, Math.max(0, part.share))}%` }}></span>`)}
  </span>`;
}

/// A figure with its name.
export function Figure({ name, value, more, kind = "" }) {
  return html`<div class=${`figure ${kind}`}><dt>${name}</dt><dd>${value}
    ${more && html` <small>${more}</small>`}</dd></div>`;
}

/// One of several choices, as radio buttons.
export function Choice({ name, options, value, choose }) {
  return html`<fieldset class="choice">
    <legend>${name}</legend>
    ${options.map(([key, text]) => html`<label class=${key === value ? "chosen" : ""}>
      <input type="radio" name=${name} value=${key} checked=${key === value}
        onChange=${() => choose(key)}/>${text}
    </label>`)}
  </fieldset>`;
}

/// A colour of the page's style.
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/// Lines over time by uPlot; `data` is `[times, ...values]`, `series` are `{ label, colour }`.
export class Lines extends Component {
  componentDidMount() {
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.draw = this.draw.bind(this);
    this.dark.addEventListener("change", this.draw);
    this.resized = new ResizeObserver(() => this.plot?.setSize(this.size()));
    this.resized.observe(this.place);
    this.draw();
  }
  componentDidUpdate() {
    this.plot.setData(this.props.data);
  }
  componentWillUnmount() {
    this.dark.removeEventListener("change", this.draw);
    this.resized.disconnect();
    this.plot.destroy();
  }
  size() {
    return { width: Math.max(200, this.place.clientWidth), height: this.props.height ?? 180 };
  }
  draw() {
    this.plot?.destroy();
    const { series, data, write } = this.props;
    const axis = {
      stroke: colour("dim"), grid: { stroke: colour("line"), width: 1 },
      ticks: { stroke: colour("line"), width: 1 },
      font: "12px system-ui, sans-serif",
    };
    const lines = series.map(({ label, kind, filled }) => ({
      label, stroke: colour(kind), width: 1.5, fill: filled && `${colour(kind)}22`,
      value: (_, value) => write(value), points: { show: false },
    }));
    const options = {
      ...this.size(),
      series: [{ value: "{HH}:{mm}:{ss}" }, ...lines],
      axes: [
        { ...axis,
          values: (_, times) => times.map((time) => clock(time, times[1] - times[0] < 60)) },
        { ...axis, size: 52,
          values: (_, values) => values.map((value) => write(value).replace(".0", "")) },
      ],
      scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.05)] } },
      cursor: { drag: { x: false, y: false } },
    };
    this.plot = new window.uPlot(options, data, this.place);
  }
  // What uPlot has drawn stays: only the place is Preact's.
  render({ label }) {
    return html`<div class="lines" role="img" aria-label=${label}
      ref=${(place) => { this.place = place ?? this.place; }}></div>`;
  }
}
