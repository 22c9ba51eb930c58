// What isn't as it should be, the settings in force, and commands.

import { Component } from "../preact.js";
import { Asked, html, Table, Trouble } from "../parts.js";
import { address, ask, command, samples, store } from "../store.js";
import { bytes, count, duration, percent, UNKNOWN, whole } from "../text.js";

/// How it is: well, or not known to the process that is asked. What isn't well is false.
const WELL = true;
const UNTOLD = null;

/// What the phase is called while nodes serve alone.
const BYPASSING = "serving without a switch";

/// What a process without the controller says of what only that one knows.
const CONTROLLERS = [UNTOLD, "known to the controller"];

/// Without a durable snapshot for longer than this, and than three periods, a chain is to be looked
/// at.
const SNAPSHOT_AGE_SECONDS = 300;

/// Whether the controller is elsewhere.
const is_untold = (status) => status.epoch === null;

const of_name = (metrics, name) => metrics.filter((it) => it.name === name);

/// What is looked at: its name, the alert of contrib/prometheus/switchback.rules.yml that watches
/// for it over time, if one does, and whether it is well and what is said. `rate` is of samples
/// between two looks; null before the second one.
const CHECKS = [
  ["serves", "SwitchbackNotServing", ({ status }) => (is_untold(status) ? CONTROLLERS
    : [["serving", BYPASSING].includes(status.phase), `the rack is ${status.phase}`])],
  ["switch", "SwitchbackBypassing", ({ status }) => {
    if (is_untold(status)) return CONTROLLERS;
    return status.phase === BYPASSING
      ? [false, "no switch serves: clients send to the nodes, nothing is cached"]
      : [WELL, "no chain is served by nodes alone"];
  }],
  ["spare", "SwitchbackNoSpare", ({ status, metrics }) => {
    if (status.shape === "embedded") return [WELL, "in one process none is needed: all parts end together"];
    if (is_untold(status)) return CONTROLLERS;
    const listed = of_name(metrics, "switchback_switch_up").length;
    const is_spare = (it) => it.alive && !it.active && !it.drained && !it.error;
    const spares = status.switches.filter(is_spare).length;
    if (spares) return [WELL, `${count(spares, "switch", "es")} to take over`];
    const serving = status.switches.filter((it) => it.active).length;
    if (listed <= serving) {
      return [WELL, "no spare is listed: all switches serve, "
        + "and the next failure of one stops what it serves"];
    }
    return [false, "no spare switch: the next failure of one stops what it serves"];
  }],
  ["links", "SwitchbackSwitchRefused", ({ status }) => {
    if (is_untold(status)) return CONTROLLERS;
    const refused = status.switches.filter((it) => it.error);
    return [refused.length === 0, refused.map((it) => `switch ${it.index}: ${it.error}`).join("; ")
      || "no chain goes on without a switch that lives"];
  }],
  ["copies", "SwitchbackOneCopy", ({ chains, metrics }) => {
    if (!chains) return CONTROLLERS;
    const listed = of_name(metrics, "switchback_listed_domains")[0]?.value;
    if (listed === undefined) {
      return [WELL, chains.some((it) => it.preserved)
        ? "one switch a chain: clients protect what it tells"
        : "none are needed: nodes have every write"];
    }
    if (listed < 2) {
      return [WELL,
        "all listed switches are in one failure domain: clients protect what they tell"];
    }
    const close = chains.filter((it) => it.domains === 1);
    const why = (it) => `chain ${it.chain}: all switches that serve are in one failure domain `
      + `of ${listed}, clients protect it`;
    return [close.length === 0,
      close.map(why).join("; ") || "no chain's switches are all in one failure domain"];
  }],
  ["nodes", "SwitchbackNodeDown", ({ status }) => {
    const down = status.nodes.filter((node) => node.alive === false).map((node) => node.index);
    if (is_untold(status)) return CONTROLLERS;
    return [down.length === 0, down.length
      ? `down: node ${down.join(", ")}; keys that aren't cached wait`
      : `all ${status.nodes.length} are up`];
  }],
  ["replicas", "SwitchbackUnderReplicated", ({ status }) => {
    const { replication } = status;
    if (!replication) return CONTROLLERS;
    const { replicas, lacking, joining, may_fail } = replication;
    if (replicas === 1) return [WELL, "one of each partition: [rack] replication asks for more"];
    const more = `${may_fail} more ${may_fail === 1 ? "node" : "nodes"} may fail`;
    if (lacking === 0) return [WELL, `${replicas} of each partition; ${more}`];
    return [false, `${lacking} partitions have fewer than ${replicas}, `
      + `${joining} are being copied; ${more}`];
  }],
  ["partitions", "SwitchbackUnavailable", ({ status }) => {
    const { replication } = status;
    if (!replication) return CONTROLLERS;
    const { unavailable } = replication;
    return [unavailable === 0, unavailable
      ? `${unavailable} wait for their nodes: their keys that aren't cached wait, too`
      : "each has a node that is up"];
  }],
  ["engines", "SwitchbackEngineErrors", ({ status }) => {
    const failing = status.nodes.filter((node) => node.error);
    const errors = failing.map((node) => `node ${node.index}: ${node.error}`);
    return [failing.length === 0, errors.join("; ") || "no node reports an error"];
  }],
  ["stalls", "SwitchbackWritesStall", ({ rate }) => {
    const stalled = rate("switchback_engine_stalled_seconds_total");
    if (!stalled) return [UNTOLD, UNKNOWN];
    const most = Math.max(0, ...stalled.map((it) => it.per_s));
    return stalled.length
      ? [most <= 0.1, `RocksDB holds writes back for ${percent(most)} of the time`]
      : [UNTOLD, "known to the nodes"];
  }],
  ["snapshots", "SwitchbackSnapshotsFail", ({ status, chains, metrics }) => {
    const { snapshots } = status;
    if (!snapshots || !chains) return CONTROLLERS;
    const periods = of_name(metrics, "switchback_snapshot_period_seconds");
    const ages = of_name(metrics, "switchback_snapshot_age_seconds");
    const age_of = (chain) => ages.find((it) => it.labels.chain === chain)?.value;
    const is_late = ({ labels, value }) =>
      age_of(labels.chain) > Math.max(SNAPSHOT_AGE_SECONDS, 3 * value);
    const late = periods.filter(is_late);
    if (snapshots.error) return [false, snapshots.error];
    if (status.phase === "serving" && late.length) {
      const why = ({ labels: { chain } }) =>
        `chain ${chain}: none was durable for ${duration(age_of(chain))}`;
      return [false, late.map(why).join("; ")];
    }
    if (!periods.length) {
      return [WELL, chains.some((it) => it.preserved)
        ? "taken only when asked for, or when clients run out of room: snapshot_period_ms is 0"
        : "none are taken: clients have nothing to preserve"];
    }
    return [WELL, `generation ${snapshots.durable_generation} and older are durable; `
      + `the last took ${duration(snapshots.duration_seconds)}`];
  }],
  ["recoveries", "SwitchbackRecovered", ({ events }) => {
    const recent = events.events.filter((event) => event.kind === "recovery"
      && events.now_unix_seconds - event.unix_seconds < 600);
    return [recent.length === 0,
      recent.length ? `${recent.length} in the last 10 minutes` : "none in the last 10 minutes"];
  }],
  ["clients", null, ({ events }) => {
    const abandoned = events.events.filter((event) => event.kind === "recovery")
      .reduce((sum, event) => sum + event.abandoned_clients, 0);
    return [abandoned === 0, abandoned
      ? `${count(abandoned, "client")} abandoned by recoveries: what only they had may be lost`
      : "no recovery has abandoned one"];
  }],
  ["losses", "SwitchbackLoss", ({ chains }) => {
    if (!chains) return CONTROLLERS;
    const lost = chains.filter((it) => it.losses > 0);
    const why = (it) =>
      `chain ${it.chain}: ${count(it.losses, "loss", "es")} declared since the controller started`;
    return [lost.length === 0,
      lost.map(why).join("; ") || "no acknowledged value was given up"];
  }],
  ["outcomes", "SwitchbackIndeterminate", ({ first, metrics }) => {
    const unknown = (samples) => samples.filter((it) =>
      it.name === "switchback_gateway_errors_total" && it.labels.kind === "indeterminate");
    const of = (samples) => unknown(samples).reduce((sum, it) => sum + it.value, 0);
    if (!unknown(metrics).length) return [UNTOLD, "known to the gateway"];
    const more = of(metrics) - of(first);
    return [more <= 0, more > 0
      ? `${count(more, "write")} of unknown outcome since this page was opened`
      : "no write of unknown outcome since this page was opened"];
  }],
  ["certificate", "SwitchbackCertificateExpires", ({ metrics }) => {
    const expires =
      metrics.find((it) => it.name === "switchback_gateway_certificate_expiry_timestamp_seconds");
    const is_gateways = metrics.some((it) => it.name === "switchback_gateway_errors_total");
    if (!expires) return is_gateways ? [WELL, "no TLS"] : [UNTOLD, "known to the gateway"];
    const left = expires.value - Date.now() / 1000;
    return [left >= 14 * 86_400, left > 0 ? `expires in ${duration(left)}` : "has expired"];
  }],
  ["spool", "SwitchbackSpoolErrors", ({ status, rate }) => {
    const { preserved_records, preserved_bytes, spool_bytes } = status.clients;
    const failing = rate("switchback_spool_errors_total")?.some((it) => it.per_s > 0);
    if (failing) return [false, "the spool can't be written: look at the gateway's disk"];
    if (preserved_records === null) return [UNTOLD, "known to the gateway"];
    const spool = spool_bytes === null ? "no spool" : `spool of ${bytes(spool_bytes)}`;
    return [WELL,
      `${whole(preserved_records)} records preserved, ${bytes(preserved_bytes)}; ${spool}`];
  }],
  ["admissions", null, ({ status }) => {
    const { control } = status;
    if (!control) return CONTROLLERS;
    const share = control.messages_per_s_max
      ? control.messages_per_s / control.messages_per_s_max : 0;
    return [share < 0.95, `${percent(share)} of the budget of control messages; `
      + `waited for it ${whole(control.delays)} times`];
  }],
];

/// What one look has seen; `before` is the look before it, if there was one.
async function look(before) {
  // Chains are the controller's to tell; a part that can't ask it says the rest.
  const chains = ask("chains").catch(() => null);
  const [status, events, told, metrics] =
    await Promise.all([ask("status"), ask("events?limit=1000"), chains, samples()]);
  const at = performance.now();
  const rate = (name) => before && metrics.filter((it) => it.name === name).map((it) => {
    const earlier = before.metrics.find((other) => other.name === name && other.key === it.key);
    // A counter that fell began anew.
    const more = Math.max(0, it.value - (earlier?.value ?? it.value));
    return { ...it, per_s: (1000 * more) / (at - before.at) };
  });
  return { status, events, chains: told, metrics, at, rate, first: before?.first ?? metrics };
}

export class Health extends Component {
  state = {};

  componentDidMount() {
    const again = async () => {
      try {
        const seen = await look(this.state.seen);
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
      <section class="panel">
        <h2>Checks</h2>
        ${trouble && html`<${Trouble}>${trouble}<//>`}
        ${seen && html`<${Table} caption="Checks" rows=${CHECKS} key_of=${([name]) => name}
          columns=${[
          { name: "state", of: ([, , check]) => mark(check(seen)[0]) },
          { name: "check", of: ([name]) => name },
          { name: "found", of: ([, , check]) => says(check(seen)[1]) },
          { name: "alert", of: ([, alert]) => html`<span class="mono">${alert}</span>` },
        ]}/>`}
        <p class="dim">Of this moment, and of <a href=${address("timeline")}>what has happened</a>.
          An alert of${" "}
          <code>contrib/prometheus/switchback.rules.yml</code> fires when Prometheus has seen the
          same for long enough.</p>
      </section>
      <section class="panel"><h2>Machines</h2><${Asked} path="machines" period=${10_000}>
        ${machines}<//></section>
      <section class="panel"><h2>Commands</h2>
        <${Asked} path="config">
          ${(config) => html`<${Commands} config=${config} status=${seen?.status}/>`}<//>
      </section>
      <section class="panel"><h2>Settings in force</h2><${Asked} path="config">
        ${settings}<//></section>
    </div>`;
  }
}

/// A word for how it is: colour alone tells some people nothing.
function mark(well) {
  if (well === UNTOLD) return UNKNOWN;
  return html`<b class=${well ? "good" : "bad"}>${well ? "well" : "look"}</b>`;
}

/// Text that may be longer than a line.
function says(text) {
  return html`<span class="says">${text}</span>`;
}

const VERDICTS = { fits: "good", optional: "", missing: "bad" };

/// What `switchback doctor` looks at while a rack runs.
function machines(told) {
  const rows = told.flatMap(({ host, checks }) => checks.map((check) => ({ host, ...check })));
  return html`<${Table} caption="Machines" rows=${rows} columns=${[
    { name: "machine", of: (row) => row.host },
    { name: "state", of: (row) => html`<b class=${VERDICTS[row.verdict]}>${row.verdict}</b>` },
    { name: "check", of: (row) => row.name },
    { name: "found", of: (row) => says(row.found) },
    { name: "to mend it", of: (row) => says(row.mend) },
  ]}/>
  <p class="dim">As <code>switchback doctor</code> says it of a machine, which besides looks at
    ports, the disk and the kernel before a start.</p>`;
}

function settings({ settings, changed, shape }) {
  const list = (section, keys, name = section) => Object.entries(keys).map(([key, value]) => ({
    name: `${name} ${key}`,
    value: value === null ? UNKNOWN : typeof value === "string" ? value : JSON.stringify(value),
    changed: changed.includes(`${section}.${key}`),
  }));
  const rows = Object.entries(settings).flatMap(([section, keys]) => (Array.isArray(keys)
    ? keys.flatMap((one, at) => list(section, one, `[[${section}]] ${at}`))
    : list(section, keys, `[${section}]`)));
  rows.sort((a, b) => b.changed - a.changed);
  const where = shape === "embedded" ? "one process" : "several processes";
  return html`<p class="dim">A rack in ${where}; ${count(changed.length, "setting")} not the
      default, listed first. Secrets are left out.</p>
    <${Table} caption="Settings in force" rows=${rows} columns=${[
      { name: "key", of: (row) => html`<span class="mono">${row.name}</span>` },
      { name: "value", of: (row) => (row.changed
        ? html`<b class="mono">${row.value}</b>` : html`<span class="mono">${row.value}</span>`) },
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
      return html`<p>This console only looks.
        With <code>access = "control"</code> in <code>[console]</code> of rack.toml it takes
        commands, too; <code>switchback ctl</code> always does, on the rack's machine.</p>`;
    }
    if (!store.token) {
      return html`<p>Commands need the console's token: open this page with <code>#t=TOKEN</code>.
        It is in <code>${config.console_token_file}</code>.</p>`;
    }
    const name = status?.name ?? "";
    return html`
      <p><button disabled=${runs} onClick=${() => this.send("snapshot", (it) =>
        `generation ${it.generation} is durable: ${count(it.records, "record")}, `
        + `${bytes(it.bytes)} in ${duration(it.duration_seconds)}`)}>Take a snapshot</button></p>
      <p><label class="field">To drain the cache, type the rack's name, ${name} <input type="text"
        value=${typed}
        onInput=${(event) => this.setState({ typed: event.target.value })}/></label></p>
      <p><button disabled=${runs || typed !== name} onClick=${() => this.send("drain", (it) =>
        `${count(it.drained, "record")} brought to their nodes in ${duration(it.duration_seconds)}`
        + (it.remaining.length ? `; left: ${it.remaining.join("; ")}` : ""))}>
        Drain the cache</button></p>
      <p role="status">${runs ? `${runs}…` : said}</p>
      ${trouble && html`<${Trouble}>${trouble}<//>`}`;
  }
}
