// What isn't as it should be, the settings in force, and commands.

import { Component } from "../preact.js";
import { Asked, html, Table, Trouble } from "../parts.js";
import { address, ask, command, store } from "../store.js";
import { bytes, count, duration, percent, UNKNOWN, whole } from "../text.js";

/// What is looked at: its name, and of status, events and settings whether it is well and what is said. The rules for
/// Prometheus watch for the same over time.
const CHECKS = [
  ["serves", ({ status }) => [["serving", "bypassing"].includes(status.phase), `the rack is ${status.phase}`]],
  ["switch", ({ status }) => (status.phase === "bypassing" ? [false, "no switch serves: clients send to the nodes, nothing is cached"] : [true, "a switch serves every chain"])],
  ["standby", ({ status }) => {
    const standby = status.switches.filter((it) => it.alive && !it.active && !it.drained && !it.error).length;
    if (status.shape === "embedded") return [true, "in one process none is needed: all parts end together"];
    return [standby > 0, standby > 0 ? `${count(standby, "switch", "es")} to take over` : "no switch stands by: the next failure of one stops what it serves"];
  }],
  ["links", ({ status }) => {
    const refused = status.switches.filter((it) => it.error);
    return [refused.length === 0, refused.map((it) => `switch ${it.index}: ${it.error}`).join("; ") || "no chain goes on without a switch that lives"];
  }],
  ["nodes", ({ status }) => {
    const down = status.nodes.filter((node) => node.alive === false).map((node) => node.index);
    return [down.length === 0, down.length ? `down: node ${down.join(", ")}; keys that aren't cached wait` : `all ${status.nodes.length} are up`];
  }],
  ["engines", ({ status }) => {
    const failing = status.nodes.filter((node) => node.error);
    return [failing.length === 0, failing.map((node) => `node ${node.index}: ${node.error}`).join("; ") || "no node reports an error"];
  }],
  ["snapshots", ({ status }) => {
    const { snapshots } = status;
    if (!snapshots) return [true, "known to the controller"];
    return [!snapshots.error, snapshots.error ?? `generation ${snapshots.durable_generation} and older are durable; the last took ${duration(snapshots.duration_seconds)}`];
  }],
  ["recoveries", ({ events }) => {
    const recent = events.events.filter((event) => event.kind === "recovery" && event.epoch > 1 && events.now_unix_seconds - event.unix_seconds < 600);
    return [recent.length === 0, recent.length ? `${recent.length} in the last 10 minutes` : "none in the last 10 minutes"];
  }],
  ["clients", ({ events }) => {
    const abandoned = events.events.filter((event) => event.kind === "recovery").reduce((sum, event) => sum + event.abandoned_clients, 0);
    return [abandoned === 0, abandoned ? `${count(abandoned, "client")} abandoned by recoveries: what only they had may be lost` : "no recovery has abandoned one"];
  }],
  ["losses", ({ chains }) => {
    if (!chains) return [true, "known to the controller"];
    const lost = chains.filter((it) => it.losses > 0);
    return [lost.length === 0, lost.map((it) => `chain ${it.chain}: ${count(it.losses, "loss", "es")} declared since the controller started`).join("; ") || "no acknowledged value was given up"];
  }],
  ["spool", ({ status }) => {
    const { preserved_records, preserved_bytes, spool_bytes } = status.clients;
    return [true, preserved_records === null ? "known to the gateway" : `${whole(preserved_records)} records preserved, ${bytes(preserved_bytes)}; ${spool_bytes === null ? "no spool" : `spool of ${bytes(spool_bytes)}`}`];
  }],
  ["admissions", ({ status }) => {
    const { control } = status;
    if (!control) return [true, "known to the controller"];
    const share = control.messages_per_s_max ? control.messages_per_s / control.messages_per_s_max : 0;
    return [share < 0.95, `${percent(share)} of the budget of control messages; waited for it ${whole(control.delays)} times`];
  }],
];

async function look() {
  // Chains are the controller's to tell; a part that can't ask it says the rest.
  const chains = ask("chains").catch(() => null);
  const [status, events, told] = await Promise.all([ask("status"), ask("events?limit=1000"), chains]);
  return { status, events, chains: told };
}

export class Health extends Component {
  state = {};

  componentDidMount() {
    const again = async () => {
      try {
        const seen = await look();
        this.setState({ seen, trouble: null });
      } catch (error) {
        this.setState({ trouble: error.message });
      }
      if (!this.over) this.timer = setTimeout(again, 2000);
    };
    again();
  }
  componentWillUnmount() {
    this.over = true;
    clearTimeout(this.timer);
  }

  render(_, { seen, trouble }) {
    return html`<div class="panels">
      <section class="panel half">
        <h2>Checks</h2>
        ${trouble && html`<${Trouble}>${trouble}<//>`}
        ${seen && html`<ul class="checks">${CHECKS.map(([name, check]) => {
          const [well, says] = check(seen);
          return html`<li><b class=${well ? "good" : "bad"}>${well ? "well" : "look"}</b><span>${name}</span><span>${says}</span></li>`;
        })}</ul>`}
        <p class="dim">Of this moment, and of <a href=${address("timeline")}>what has happened</a>. What has to wake a person is in${" "}
          <code>contrib/prometheus/switchback.rules.yml</code>; whether a machine fits is said by <code>switchback doctor</code> there.</p>
      </section>
      <section class="panel half"><h2>Commands</h2>
        <${Asked} path="config">${(config) => html`<${Commands} config=${config} status=${seen?.status}/>`}<//>
      </section>
      <section class="panel"><h2>Settings in force</h2><${Asked} path="config">${settings}<//></section>
    </div>`;
  }
}

function settings({ settings, changed, shape }) {
  const list = (section, keys, name = section) => Object.entries(keys).map(([key, value]) => ({
    name: `${name} ${key}`, value: value === null ? UNKNOWN : typeof value === "string" ? value : JSON.stringify(value), changed: changed.includes(`${section}.${key}`),
  }));
  const rows = Object.entries(settings).flatMap(([section, keys]) => (Array.isArray(keys)
    ? keys.flatMap((one, at) => list(section, one, `[[${section}]] ${at}`)) : list(section, keys, `[${section}]`)));
  rows.sort((a, b) => b.changed - a.changed);
  return html`<p class="dim">A rack in ${shape === "embedded" ? "one process" : "several processes"}; ${count(changed.length, "setting")} not the default, listed first. Secrets are left out.</p>
    <${Table} caption="Settings in force" rows=${rows} columns=${[
      { name: "key", of: (row) => html`<span class="mono">${row.name}</span>` },
      { name: "value", of: (row) => (row.changed ? html`<b class="mono">${row.value}</b>` : html`<span class="mono">${row.value}</span>`) },
    ]}/>`;
}

/// Snapshot and drain; the second asks for the rack's name.
class Commands extends Component {
  async send(path, say) {
    this.setState({ runs: path, said: null, trouble: null });
    try {
      this.setState({ said: say(await command(path)), typed: "" });
    } catch (error) {
      this.setState({ trouble: error.message });
    }
    this.setState({ runs: null });
  }

  render({ config, status }, { runs, said, trouble, typed = "" }) {
    if (config.console_access !== "control") {
      return html`<p>This console only looks. With <code>access = "control"</code> in <code>[console]</code> of rack.toml it takes commands, too; <code>switchback ctl</code> always does, on the rack's machine.</p>`;
    }
    if (!store.token) {
      return html`<p>Commands need the console's token: open this page with <code>#t=TOKEN</code>. It is in <code>${config.console_token_file}</code>.</p>`;
    }
    const name = status?.name ?? "";
    return html`
      <p><button disabled=${runs} onClick=${() => this.send("snapshot", (it) => `generation ${it.generation} is durable: ${count(it.records, "record")}, ${bytes(it.bytes)} in ${duration(it.duration_seconds)}`)}>Take a snapshot</button></p>
      <p><label class="field">To drain the cache, type the rack's name, ${name} <input type="text" value=${typed} onInput=${(event) => this.setState({ typed: event.target.value })}/></label></p>
      <p><button disabled=${runs || typed !== name} onClick=${() => this.send("drain", (it) => `${count(it.drained, "record")} brought to their nodes in ${duration(it.duration_seconds)}${it.remaining.length ? `; left: ${it.remaining.join("; ")}` : ""}`)}>Drain the cache</button></p>
      <p role="status">${runs ? `${runs}…` : said}</p>
      ${trouble && html`<${Trouble}>${trouble}<//>`}`;
  }
}
