// What has happened, the newest first; of a recovery its steps.

import { Component } from "../preact.js";
import { Asked, Choice, html } from "../parts.js";
import { address, refine } from "../store.js";
import { bytes, clock, count, duration, whole } from "../text.js";

const KINDS = [
  ["", "all"], ["recovery", "recoveries"], ["parts", "phases and parts"],
  ["sums", "snapshots, admissions"], ["error", "errors"],
];
const GROUPS = {
  parts: ["started", "phase", "epoch", "node", "switch", "drain"],
  sums: ["snapshots", "admissions"],
};

export class Timeline extends Component {
  render({ query }) {
    return html`<section class="panel">
      <div class="tools">
        <${Choice} name="show" options=${KINDS} value=${query.kind ?? ""}
          choose=${(kind) => refine({ kind })}/>
      </div>
      <${Asked} path="events?limit=1000" period=${1000}>${(told) => this.list(told, query)}<//>
    </section>`;
  }

  list(told, query) {
    const wanted = GROUPS[query.kind] ?? (query.kind ? [query.kind] : null);
    const all = [...told.events, ...told.under_way];
    const events = all.filter((event) => !wanted || wanted.includes(event.kind))
      .sort((a, b) => b.unix_seconds - a.unix_seconds);
    return html`
      ${!told.has_controller && html`<p class="dim">This process has no controller, which knows of
        most events.</p>`}
      ${events.length === 0 && html`<p class="dim">nothing of this kind</p>`}
      <ol class="events" reversed>
        ${events.map((event) => html`<li key=${event.number ?? event.kind}
          class=${String(event.number) === query.event ? "chosen" : ""}>
          <time datetime=${new Date(1000 * event.unix_seconds).toISOString()}>
            ${event.number === null ? `since ${clock(event.unix_seconds)}` : link(event)}</time>
          <b>${event.kind}</b>
          <div>${(SAY[event.kind] ?? unknown)(event)}</div>
        </li>`)}
      </ol>`;
  }
}

const link = (event) => html`<a
  href=${address("timeline", { event: event.number })}>${clock(event.unix_seconds)}</a>`;

const WELL = ["up", "serves", "serving", "spare"];
const state = (word) => html`<span class=${WELL.includes(word) ? "good" : "bad"}>${word}</span>`;

const SAY = {
  started: (event) => `the process that is asked, version ${event.version}`,
  phase: (event) => html`the rack is ${state(event.phase)}`,
  epoch: (event) => `epoch ${event.epoch} began`,
  recovery: (event) => html`<${Recovery} of=${event}/>`,
  snapshots: (event) => `${whole(event.completed)} durable`
    + (event.failed ? `, ${whole(event.failed)} taken again` : "")
    + ` in ${duration(event.seconds)}; `
    + `the longest took ${duration(event.duration_seconds_max)}; `
    + `the last has ${count(event.records, "record")}, ${bytes(event.bytes)}`,
  admissions: (event) => `${count(event.admitted, "key")} in, `
    + `${whole(event.evicted)} out of the cache in ${duration(event.seconds)}`,
  drain: (event) => html`${count(event.drained, "record")} brought to their nodes
    in ${duration(event.duration_seconds)}
    ${event.lacking_nodes > 0
      && html`; <span class="bad">${count(event.lacking_nodes, "node")} lack records</span>`}`,
  node: (event) => html`node ${event.node} is ${state(event.state)}`,
  switch: (event) => html`switch ${event.switch} ${event.state === "down" ? "is " : ""}
    ${state(event.state)}`,
  error: (event) => html`${event.part}: ${event.error === null
    ? html`<span class="good">mended</span>` : html`<span class="bad">${event.error}</span>`}`,
};
const unknown = (event) => html`<span class="mono wrap">${JSON.stringify(event)}</span>`;

const STEPS = [
  ["detect", "from the last sign of life of the old switch"],
  ["collect", "until all clients' records were there"],
  ["store", "until the newest of them were at the nodes"],
  ["readmit", "until every key was cached again"],
];

/// The steps one after the other, on one scale.
function Recovery({ of }) {
  const seconds = STEPS.map(([step]) => of[`${step}_seconds`]);
  const sum = seconds.reduce((sum, step) => sum + step, 0) || 1;
  const before = (at) => seconds.slice(0, at).reduce((sum, step) => sum + step, 0);
  return html`
    epoch ${of.epoch}: served again
    after <b>${duration(before(3))}</b>, ${count(of.records, "record")} stored
    ${of.abandoned_clients > 0
      ? html`, <span class="bad">${count(of.abandoned_clients, "client")} abandoned</span>`
      : ", no client abandoned"}
    ${of.complete ? "" : "; keys are still coming back"}
    <dl class="steps" data-epoch=${of.epoch}>
      ${STEPS.map(([step, what], at) => html`<dt>${step}</dt>
        <dd><span class="bar" role="img" aria-label=${`${step}: ${duration(seconds[at])}, ${what}`}
          title=${what}>
          <span class="part" style=${{ width: `${(100 * before(at)) / sum}%` }}></span>
          <span class=${`part ${at < 3 ? "node" : "cache"}`}
            data-step=${step} data-seconds=${seconds[at]}
            style=${{ width: `${(100 * seconds[at]) / sum}%`, minWidth: "2px" }}></span>
        </span></dd>
        <dd>${duration(seconds[at])}</dd>`)}
    </dl>`;
}
