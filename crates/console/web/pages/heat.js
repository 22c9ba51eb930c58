// Requests by hash range over time: a row a range, a column a time.

import { Component } from "../preact.js";
import { Asked, Choice, html, Table, Trouble } from "../parts.js";
import { address, ask, refine } from "../store.js";
import { clock, hex, rate } from "../text.js";

const SPANS = [
  ["225", "225 s"], ["900", "15 min"], ["3600", "1 h"], ["21600", "6 h"], ["86400", "24 h"],
];
const PLANES = [
  ["all", "all"], ["reads", "reads"], ["writes", "writes"], ["nodes", "reached a node"],
];
const ORDERS = [["hash", "by hash"], ["node", "by node"]];
const COLUMNS = 225;
const RANGES = 256;
const HEIGHT = 512;

/// From none to most, as red, green, blue; lightness tells the order in either.
const RAMPS = {
  dark: [
    [16, 20, 24], [58, 20, 102], [150, 38, 108], [224, 92, 54], [252, 180, 44], [252, 252, 190],
  ],
  light: [
    [255, 255, 255], [253, 224, 160], [250, 160, 70], [214, 70, 60], [130, 20, 90], [40, 8, 60],
  ],
};

function shade(ramp, value) {
  const at = Math.min(1, Math.max(0, value)) * (ramp.length - 1);
  const low = Math.min(ramp.length - 2, Math.floor(at));
  return ramp[low].map((from, part) => from + (at - low) * (ramp[low + 1][part] - from));
}

const plane_of = {
  reads: (column) => column.reads,
  writes: (column) => column.writes,
  nodes: (column) => column.nodes,
};
plane_of.all = (column) => column.all;

const within = (value, most) => Math.min(most - 1, Math.max(0, value));

/// Columns of an answer of /heat.
function columns_of(heat) {
  return heat.reads_per_s.map((reads, at) => ({
    begin: heat.first_unix_seconds + at * heat.step_seconds,
    reads, writes: heat.writes_per_s[at], nodes: heat.nodes_per_s[at],
    all: reads.map((rate, range) => rate + heat.writes_per_s[at][range]),
  }));
}

export class Heat extends Component {
  state = { columns: [], step: 0, at: null };

  componentDidMount() {
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.repaint = () => this.setState({});
    this.dark.addEventListener("change", this.repaint);
    this.load();
  }
  componentDidUpdate(before) {
    if ((before.query.seconds ?? "900") !== this.seconds()) this.load();
    this.paint();
  }
  componentWillUnmount() {
    this.over = true;
    clearTimeout(this.timer);
    this.dark.removeEventListener("change", this.repaint);
  }
  seconds() {
    return this.props.query.seconds ?? "900";
  }

  /// All columns; then, as time goes by, only the last ones.
  async load() {
    clearTimeout(this.timer);
    const seconds = this.seconds();
    try {
      const heat = await ask(`heat?seconds=${seconds}&columns=${COLUMNS}`);
      if (this.over || seconds !== this.seconds()) return;
      const columns = columns_of(heat);
      this.setState({ columns, step: heat.step_seconds, trouble: null, at: null });
      this.timer = setTimeout(() => this.go_on(seconds), 1000);
    } catch (error) {
      this.setState({ trouble: error.message });
      this.timer = setTimeout(() => this.load(), 5000);
    }
  }
  async go_on(seconds) {
    const { step } = this.state;
    // Before the first look there is no column yet.
    if (!step || this.state.columns.length === 0) return this.load();
    try {
      const heat = await ask(`heat?seconds=${2 * step}&columns=2`);
      if (this.over || seconds !== this.seconds()) return;
      if (heat.step_seconds !== step) return this.load();
      const fresh = columns_of(heat);
      const end = heat.first_unix_seconds - step / 2;
      const kept = this.state.columns.filter((column) => column.begin < end);
      this.setState({ columns: [...kept, ...fresh].slice(-COLUMNS), trouble: null });
    } catch (error) {
      this.setState({ trouble: error.message });
    }
    this.timer = setTimeout(() => this.go_on(seconds), Math.max(1000, 250 * step));
  }

  /// Ranges from the bottom up, in the order that was chosen.
  rows(heads) {
    const rows = [...Array(RANGES).keys()];
    return this.props.query.order === "node" && heads
      ? rows.sort((a, b) => heads[a] - heads[b] || a - b) : rows;
  }

  paint() {
    const { columns } = this.state;
    if (!this.canvas || columns.length === 0) return;
    const values = columns.map(plane_of[this.props.query.plane ?? "all"]);
    const most = Math.max(1, ...values.map((column) => Math.max(...column)));
    const ramp = RAMPS[this.dark.matches ? "dark" : "light"];
    const context = this.canvas.getContext("2d");
    const image = context.createImageData(COLUMNS, RANGES);
    // Time goes on to the right; the last column is at the edge.
    const left = COLUMNS - columns.length;
    const empty = shade(ramp, 0);
    this.shown_rows.forEach((range, row) => {
      for (let x = 0; x < COLUMNS; x += 1) {
        const value = x < left ? 0 : values[x - left][range];
        const [r, g, b] = value > 0
          ? shade(ramp, 0.06 + (0.94 * Math.log1p(value)) / Math.log1p(most)) : empty;
        image.data.set([r, g, b, 255], 4 * ((RANGES - 1 - row) * COLUMNS + x));
      }
    });
    context.putImageData(image, 0, 0);
    const scale = this.ramp.getContext("2d");
    for (let x = 0; x < 120; x += 1) {
      scale.fillStyle = `rgb(${shade(ramp, x / 119).map(Math.round).join()})`;
      scale.fillRect(x, 0, 1, 10);
    }
  }

  /// The cell that is looked at: the pointer's, the one chosen by keys, or the hottest of now.
  point(event) {
    const box = event.currentTarget.getBoundingClientRect();
    const x = Math.floor(((event.clientX - box.left) / box.width) * COLUMNS);
    const row = RANGES - 1 - Math.floor(((event.clientY - box.top) / box.height) * RANGES);
    this.setState({ at: { x: within(x, COLUMNS), row: within(row, RANGES) } });
  }
  key(event) {
    const moves = {
      ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1],
      PageUp: [0, 16], PageDown: [0, -16], Home: [-COLUMNS, 0], End: [COLUMNS, 0],
    };
    if (event.key === "Enter" && this.state.at) {
      location.hash = address("keys", { range: hex(this.shown_rows[this.state.at.row]) });
    }
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    const { x, row } = this.state.at ?? { x: COLUMNS - 1, row: RANGES / 2 };
    this.setState({ at: { x: within(x + move[0], COLUMNS), row: within(row + move[1], RANGES) } });
  }

  render({ query }) {
    return html`<${Asked} path="partitions" period=${60000}>
      ${(partitions) => this.map(query, heads_of(partitions))}<//>
      ${this.props.live?.nodes.some((node) => node.state === null) && this.map(query, null)}`;
  }

  map(query, heads) {
    const { columns, step, at, trouble } = this.state;
    const plane = query.plane ?? "all";
    this.shown_rows = this.rows(heads);
    const left = COLUMNS - columns.length;
    const looked_at = at ?? { x: COLUMNS - 1 };
    const column = columns[looked_at.x - left] ?? columns.at(-1);
    const hotter = (a, b) => plane_of[plane](column)[b] - plane_of[plane](column)[a];
    const ranges = column ? [...Array(RANGES).keys()].sort(hotter) : [];
    const chosen = at ? this.shown_rows[at.row] : ranges[0];
    const row = this.shown_rows.indexOf(chosen);
    const top = ranges.slice(0, 14).filter((range) => plane_of.all(column)[range] > 0);
    const rows = at && !top.includes(chosen) ? [chosen, ...top] : top;
    const most = Math.max(0, ...columns.map((column) => Math.max(...plane_of[plane](column))));
    return html`<div class="panels">
      <section class="panel most">
        <div class="tools">
          <${Choice} name="last" options=${SPANS} value=${this.seconds()}
            choose=${(seconds) => refine({ seconds })}/>
          <${Choice} name="of" options=${PLANES} value=${plane}
            choose=${(plane) => refine({ plane })}/>
          <${Choice} name="rows" options=${ORDERS} value=${query.order ?? "hash"}
            choose=${(order) => refine({ order })}/>
          <span class="ramp">0 <canvas width="120" height="10" aria-hidden="true"
            ref=${(canvas) => { this.ramp = canvas ?? this.ramp; }}></canvas>${" "}
            ${rate(most)} requests/s, in steps of equal factors</span>
        </div>
        ${trouble && html`<${Trouble}>${trouble}<//>`}
        <div class="heat-frame">
          <div class="heat-rows" aria-hidden="true">${this.labels(heads, query.order)}</div>
          <div class="heat-at">
            <canvas class="heat" width=${COLUMNS} height=${RANGES} tabindex="0" role="img"
              aria-label=${"Requests by hash range over time. Arrow keys choose a cell, Enter "
                + "shows its keys; the table beside it has the hottest ranges of the chosen time."}
              ref=${(canvas) => { this.canvas = canvas ?? this.canvas; }}
              onMouseMove=${(event) => this.point(event)}
              onMouseLeave=${() => this.setState({ at: null })}
              onKeyDown=${(event) => this.key(event)}
              onClick=${() => {
                location.hash = address("keys", { range: hex(chosen) });
              }}></canvas>
            ${at && html`<i style=${{ left: 0, right: 0, height: "1px",
              top: `${(100 * (RANGES - 0.5 - at.row)) / RANGES}%` }}></i>
              <i style=${{ top: 0, bottom: 0, width: "1px",
                left: `${(100 * (at.x + 0.5)) / COLUMNS}%` }}></i>`}
          </div>
          <div class="heat-times" aria-hidden="true">
            ${columns.length > 0 && times(columns.at(-1).begin + step, step)}</div>
        </div>
      </section>
      <section class="panel third">
        <h2>Hottest ranges, ${column ? `${clock(column.begin)} (${step} s)` : "none yet"}</h2>
        <${Table} caption="Hottest ranges" rows=${rows} key_of=${(range) => range}
          row_class=${(range) => (range === chosen ? "chosen" : "")} columns=${[
          { name: "range", of: (range) => html`<a class="mono"
            href=${address("keys", { range: hex(range) })}>${hex(range)}</a>` },
          { name: "node", right: true, of: (range) => heads?.[range] ?? "–" },
          { name: "reads/s", right: true, of: (range) => rate(column.reads[range]) },
          { name: "writes/s", right: true, of: (range) => rate(column.writes[range]) },
          { name: "at the node", right: true, of: (range) => rate(column.nodes[range]) },
        ]}/>
        <p class="dim">A range is the first byte of a key's hash. Every request is
          counted. ${row >= 0 ? "Click, or Enter, shows the keys of a range." : ""}</p>
      </section>
    </div>`;
  }

  labels(heads, order) {
    const top = (row) => ({ top: `${(HEIGHT * (RANGES - row)) / RANGES}px` });
    if (order !== "node" || !heads) {
      return [...Array(9).keys()].map((at) => html`<span class="mono"
        style=${top(Math.min(32 * at, 253) + 1)}>${hex(Math.min(32 * at, 255))}</span>`);
    }
    const nodes = [...new Set(heads)].sort((a, b) => a - b).slice(0, 40);
    return nodes.map((node) => {
      const rows = this.shown_rows.flatMap((range, row) => (heads[range] === node ? [row] : []));
      return html`<span style=${top((rows[0] + rows.at(-1) + 1) / 2)}>node ${node}</span>`;
    });
  }
}

function times(end, step) {
  return [...Array(6).keys()].map((at) =>
    html`<span>${clock(end - (1 - at / 5) * COLUMNS * step, step < 60)}</span>`);
}

/// The node of each range; of one that several share, the first one's.
function heads_of(partitions) {
  const share = partitions.length / RANGES;
  const head = (range) => partitions[Math.floor(range * share)]?.replicas[0] ?? 0;
  return [...Array(RANGES).keys()].map(head);
}
