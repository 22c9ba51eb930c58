// The rack as it is: what flows from clients to nodes, and what the cache keeps from them.

import { Component } from "../preact.js";
import { arrange, shares } from "../chains.js";
import { Asked, Figure, html, Lines, Table, Trouble } from "../parts.js";
import { address, ask, command, store } from "../store.js";
import { count, duration, percent, place, rate, short, UNKNOWN, whole } from "../text.js";

/// Nodes that are drawn one by one; further ones are one box.
const DRAWN_MAX = 12;
const FLOW_MAX = 44;

const asked_of = (live) => (live.reads_per_s === null
  ? live.switch?.requests_per_s ?? null : live.reads_per_s + live.writes_per_s);
const served_by = (node) => (node.reads_per_s === null
  ? null : node.reads_per_s + node.writes_per_s);

export class Rack extends Component {
  async componentDidMount() {
    ask("config").then(({ demo }) => this.setState({ demo }), () => {});
    // What was before the page: the heat of a quarter of an hour, all ranges together.
    try {
      const heat = await ask("heat?seconds=900&columns=225");
      const sums = (plane) => plane.map((column) => column.reduce((sum, rate) => sum + rate, 0));
      const planes = [heat.reads_per_s, heat.writes_per_s, heat.nodes_per_s];
      const [reads, writes, nodes] = planes.map(sums);
      const times = reads.map((_, at) => heat.first_unix_seconds + (at + 0.5) * heat.step_seconds);
      const asked = reads.map((read, at) => read + writes[at]);
      this.setState({ before: { times, asked, nodes } });
    } catch {
      // Without a gateway there is none; the lines begin now.
    }
  }

  /// Times, requests, those that nodes answered.
  lines() {
    const { before } = this.state;
    const samples = store.samples.filter((sample) => asked_of(sample) !== null);
    const first = samples[0]?.unix_seconds ?? Infinity;
    const of_before = (time, at) => [time, before.asked[at], before.nodes[at]];
    const old = before ? before.times.map(of_before).filter(([time]) => time < first) : [];
    const since = (samples.at(-1)?.unix_seconds ?? 0) - 900;
    const of_sample = (it) => [it.unix_seconds, asked_of(it), it.nodes_per_s];
    const all = [...old, ...samples.map(of_sample)];
    const shown = all.filter(([time]) => time >= since);
    return [0, 1, 2].map((column) => shown.map((row) => row[column]));
  }

  render({ live }) {
    if (!live) return html`<p class="dim">waiting for the first sample…</p>`;
    const asked = asked_of(live);
    const hits = live.nodes_per_s === null || !asked ? null : 1 - live.nodes_per_s / asked;
    return html`<div class="panels">
      ${this.state.demo && html`<${Demo}/>`}
      <section class="panel">
        <h2>Flow</h2>
        <${Asked} path="status" period=${2000}>
          ${(status) => html`<${Flow} live=${live} status=${status}/>`}<//>
        <${Asked} path="whatif" period=${5000}>
          ${(whatif) => html`<${Without} whatif=${whatif}/>`}<//>
      </section>
      <section class="panel most">
        <h2>Requests a second</h2>
        <${Lines} label=${"Requests a second over the last 15 minutes, and those that nodes "
            + "answered; the figures are beside"}
          data=${this.lines()} write=${rate}
          series=${[{ label: "asked", kind: "cache", filled: true },
            { label: "answered by nodes", kind: "node", filled: true }]}/>
      </section>
      <section class="panel third">
        <h2>Now</h2>
        <dl class="figures">
          <${Figure} name="requests a second" value=${rate(asked)}/>
          <${Figure} name="reads" value=${rate(live.reads_per_s)}/>
          <${Figure} name="writes" value=${rate(live.writes_per_s)}/>
          <${Figure} name="by the cache" value=${percent(hits, 1)} kind="cache"/>
          <${Figure} name="absorbed writes" value=${rate(live.switch?.absorbed_per_s)}/>
          <${Figure} name="cached" value=${short(live.cached)}
            more=${`of ${short(live.cached_max)}`}/>
          <${Figure} name="in / out a second"
            value=${`${rate(live.admissions_per_s)} / ${rate(live.evictions_per_s)}`}/>
          <${Figure} name="waiting for a slot" value=${whole(live.waiting_offers)}/>
          <${Figure} name="connections" value=${whole(live.connections)}/>
        </dl>
      </section>
      <section class="panel half">
        <h2>Nodes <small><a href=${address("nodes")}>what if</a></small></h2>
        <${Table} caption="Nodes" rows=${live.nodes} key_of=${(node) => node.index} columns=${[
          { name: "node", right: true, of: (node) => node.index },
          { name: "state", of: (node) => html`<span class=${node.state === "up" ? "good" : "bad"}>
            ${node.state ?? UNKNOWN}</span>` },
          { name: "reads/s", right: true, of: (node) => rate(node.reads_per_s) },
          { name: "writes/s", right: true, of: (node) => rate(node.writes_per_s) },
          { name: "cached keys", right: true, of: (node) => whole(node.cached_keys) },
        ]}/>
      </section>
      <section class="panel half">
        <h2>Hottest keys <small><a href=${address("keys")}>all</a></small></h2>
        <${Table} caption="Hottest keys" rows=${live.hot ?? []}
          empty=${live.hot ? "no requests" : "known to the gateway"} key_of=${(key) => key.hash}
          columns=${[
          { name: "key", of: (key) => html`<span class="mono">${key.key}</span>` },
          { name: "ops/s", right: true, of: (key) => rate(key.reads_per_s + key.writes_per_s) },
          { name: "writes", right: true,
            of: (key) => percent(key.writes_per_s / (key.reads_per_s + key.writes_per_s || 1)) },
          { name: "share", right: true, of: (key) => percent(key.share, 1) },
          { name: "where", of: (key) => place(key.cache) },
        ]}/>
      </section>
      ${store.live && html`<section class="panel"><${Asked} path="status" period=${5000}>
        ${(status) => html`<${Recovery} status=${status}/>`}<//></section>`}
    </div>`;
  }
}

/// The demo's button.
class Demo extends Component {
  async kill() {
    this.setState({ said: null, trouble: null });
    try {
      await command("demo/kill");
      this.setState({ said: "The demo was asked to kill it; its terminal and the timeline say what comes of it." });
    } catch (error) {
      this.setState({ trouble: error.message });
    }
  }

  render(_, { said, trouble }) {
    return html`<section class="panel">
      <h2>Demo</h2>
      ${store.token
        ? html`<p><button onClick=${() => this.kill()}>Kill the switch that serves (kill -9)</button></p>`
        : html`<p>To kill the switch from here, open the address that the demo names: it has the token.</p>`}
      <p role="status">${said ?? "The other switch takes over, and every record that was written is read once more."}</p>
      ${trouble && html`<${Trouble}>${trouble}<//>`}
    </section>`;
  }
}

function Recovery({ status }) {
  const { recovery, snapshots } = status;
  const sum = recovery
    && recovery.detect_seconds + recovery.collect_seconds + recovery.store_seconds;
  return html`<p class="say">
    ${recovery
      ? html`Last recovery: epoch ${recovery.epoch}, served again
        after <b>${duration(sum)}</b>, ${count(recovery.records, "record")} stored.
        <a href=${address("timeline")}>Its steps</a>`
      : "No recovery since the start."}
    ${snapshots && html` Last
      snapshot: ${count(snapshots.records, "record")} in ${duration(snapshots.duration_seconds)}.`}
    ${snapshots?.error && html` <span class="bad">${snapshots.error}</span>`}
  </p>`;
}

/// What the busiest node would get.
function Without({ whatif }) {
  const busier = (most, node) => (node.asked_per_s > most.asked_per_s ? node : most);
  const busiest = whatif.nodes.reduce(busier, whatif.nodes[0]);
  if (!busiest || busiest.asked_per_s < 1) {
    return html`<p class="say dim">No requests in the last ${duration(whatif.window_seconds)}.</p>`;
  }
  const most = Math.max(...whatif.nodes.map((node) => node.served_per_s));
  const times = busiest.asked_per_s / most;
  const less = times >= 1.05 && html`, <b>${times.toFixed(1)} times</b> less`;
  return html`<p class="say">Without the cache node ${busiest.index} would
    get <b>${rate(busiest.asked_per_s)}</b> requests a second.
    ${most >= 1
      ? html` The busiest node gets <b>${rate(most)}</b>${less}.`
      : " The nodes get next to nothing."}</p>`;
}

/// Clients, gateway, switches, nodes; as wide as they are asked.
function Flow({ live, status }) {
  const asked = asked_of(live);
  const shown = live.nodes.slice(0, live.nodes.length > DRAWN_MAX ? DRAWN_MAX - 1 : DRAWN_MAX);
  const rest = live.nodes.slice(shown.length);
  const sum = (nodes, of) => nodes.reduce((sum, node) => sum + (of(node) ?? 0), 0);
  const boxes = shown.map((node) => ({
    name: `node ${node.index}`, state: node.state, rate: served_by(node),
  }));
  if (rest.length) {
    const down = rest.filter((node) => node.state !== "up").length;
    boxes.push({
      name: count(rest.length, "more node"),
      state: down ? `${down} not up` : "up",
      rate: sum(rest, served_by),
    });
  }
  const switches = status.switches.length
    ? status.switches : [{ index: 0, layer: 1, chain: 0, active: true, alive: true }];
  const { layers, chains, apart, is_known } = arrange(switches, live.switches, asked);
  const serving = chains.flat();
  const rows = chains.length + Math.max(...apart.map((of_layer) => of_layer.length));
  const height = Math.max(150, 20 + 40 * boxes.length, 30 + 58 * rows);
  const middle = height / 2;
  const most = Math.max(asked ?? 0, sum(chains, (members) => members[0].load), 1);
  const width = (rate) => (rate ? Math.max(1.2, (FLOW_MAX * rate) / most) : 0);
  const y_of = (at, all, space) => middle + (at - (all - 1) / 2) * space;
  const curve = (x1, y1, x2, y2) => {
    const x = (x1 + x2) / 2;
    return `M${x1} ${y1} C${x} ${y1} ${x} ${y2} ${x2} ${y2}`;
  };
  const row_y = (at) => y_of(at, rows, Math.min(70, (height - 40) / rows));
  const node_y = (at) => y_of(at, boxes.length, 40);
  const switch_width = layers === 1 ? 140 : 120;
  const x_of = (it) => (layers === 1 ? 500 : 240 + 180 * it.layer);
  const nodes_x = 790 + 180 * Math.max(0, layers - 2);
  const of_chain = shares(chains);
  const hits = live.nodes_per_s === null || asked === null
    ? live.switch?.by_switch_per_s ?? null : asked - live.nodes_per_s;
  const of_switches = is_known
    ? serving.map((it) => `switch ${it.index} of chain ${it.chain}: ${rate(it.load)}`)
    : ["what each switch gets isn't known, and is drawn as equal shares"];
  const label = [
    `${rate(asked)} requests a second from clients`, `${rate(hits)} answered by the cache`,
    ...(serving.length > 1 ? of_switches : []),
    ...boxes.map((box) => `${box.name} ${box.state ?? ""}: ${rate(box.rate)}`),
  ].join("; ");
  const load = (it) => (is_known ? `${rate(it.load)}/s` : "serves");
  const serves = (it) => (serving.length === 1 ? `answers ${rate(hits)}/s` : load(it));
  const waits = (it) => (it.drained ? "drained" : "spare");
  return html`<svg class="rack" viewBox=${`0 0 ${nodes_x + 210} ${height}`} role="img"
    aria-label=${label}>
    ${asked > 0 && html`<path class="flow" d=${`M110 ${middle} H250`}
      stroke-width=${width(asked)}/>`}
    ${chains.map((members, row) => members.map((it, at) => it.load > 0 && html`<path class="flow"
      d=${at ? `M${x_of(members[at - 1]) + switch_width} ${row_y(row)} H${x_of(it)}`
        : curve(360, middle, x_of(it), row_y(row))} stroke-width=${width(it.load)}/>`))}
    ${boxes.map((box, at) => chains.map((members, row) => box.rate > 0
      && html`<path class="flow node" stroke-width=${width(box.rate * of_chain[row])}
        d=${curve(x_of(members.at(-1)) + switch_width, row_y(row), nodes_x, node_y(at))}/>`))}
    <${Box} x=${10} y=${middle} w=${100} name="clients"
      more=${live.connections === null ? "" : `${whole(live.connections)} open`}/>
    <text class="sub" x="180" y=${middle - FLOW_MAX / 2 - 8} text-anchor="middle">
      ${rate(asked)}/s</text>
    <${Box} x=${250} y=${middle} w=${110} name="gateway" more=${live.reads_per_s === null
      ? "" : `${percent(asked ? live.writes_per_s / asked : 0)} writes`}/>
    ${chains.map((members, row) => members.map((it) => html`<${Box} x=${x_of(it)} y=${row_y(row)}
      w=${switch_width} chain=${it.chain} name=${`switch ${it.index}`} more=${serves(it)}/>`))}
    ${apart.map((others) => others.map((it, at) => html`<${Box} x=${x_of(it)}
      y=${row_y(chains.length + at)} w=${switch_width} down=${!it.alive}
      name=${`switch ${it.index}`} more=${it.alive ? waits(it) : "down"}/>`))}
    ${boxes.map((box, at) => html`<${Box} x=${nodes_x} y=${node_y(at)} w=${200}
      low=${true} down=${box.state !== "up" && box.state !== null} name=${box.name}
      more=${`${box.state === "up" ? "" : `${box.state ?? ""} `}${rate(box.rate)}/s`}/>`)}
  </svg>`;
}

function Box({ x, y, w, name, more, low, down, chain }) {
  const h = low ? 32 : 48;
  return html`<g data-chain=${chain}>
    <rect class=${`box ${down ? "down" : ""}`} x=${x} y=${y - h / 2} width=${w} height=${h} rx="4"/>
    ${low
      ? html`<text x=${x + 10} y=${y + 4.5}>${name}</text>
        <text x=${x + w - 10} y=${y + 4.5} text-anchor="end">${more}</text>`
      : html`<text x=${x + w / 2} y=${y - 4} text-anchor="middle">${name}</text>
        <text class="sub" x=${x + w / 2} y=${y + 14} text-anchor="middle">${more}</text>`}
  </g>`;
}
