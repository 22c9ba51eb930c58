// What is cached: by size class, by prefix, and record by record.

import { Component } from "../preact.js";
import { Asked, Bar, Figure, html, Table } from "../parts.js";
import { refine } from "../store.js";
import { bytes, count, duration, percent, short, UNKNOWN, whole } from "../text.js";

const LIMIT = 5000;
const SHOWN_MAX = 300;

/// A key up to its first `:`, which many programs begin keys of a kind with.
const prefix_of = (key) => (key.includes(":") ? key.slice(0, key.indexOf(":") + 1) : "(none)");

function median(values) {
  const sorted = values.filter((value) => value !== null).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.floor(sorted.length / 2)] : null;
}

export class Cache extends Component {
  render({ query }) {
    return html`<${Asked} path="status" period=${5000}>${(status) => html`
      <${Asked} path=${`cached?limit=${LIMIT}`} period=${10000}>
        ${(cached, again) => this.page(status, cached, again, query)}<//>`}<//>`;
  }

  page(status, { total, records }, again, query) {
    const { classes, records_max, waiting_offers } = status.cache;
    const of_class = (index) => records.filter((record) => record.class === index).length;
    const all = records.length === total;
    const counted = records.reduce((sum, record) => sum + (record.count ?? 0), 0) || 1;
    const groups = Object.entries(Object.groupBy(records, (record) => prefix_of(record.key)))
      .map(([prefix, of]) => ({
        prefix, records: of.length, dirty: of.filter((record) => record.dirty).length,
        bytes: of.reduce((sum, record) => sum + (record.bytes ?? 0), 0),
        counted: of.reduce((sum, record) => sum + (record.count ?? 0), 0),
      }))
      .sort((a, b) => b.counted - a.counted);
    const shown = records.filter((record) => !query.prefix || record.key.startsWith(query.prefix));
    const dirty = records.filter((record) => record.dirty).length;
    return html`<div class="panels">
      <section class="panel third">
        <h2>In all <button onClick=${again}>look again</button></h2>
        <dl class="figures">
          <${Figure} name="cached" value=${short(total)} more=${`of ${short(records_max)}`}/>
          <${Figure} name="dirty" value=${percent(records.length ? dirty / records.length : 0)}
            more="at no node yet"/>
          <${Figure} name="median age"
            value=${duration(median(records.map((record) => record.age_seconds)))}/>
          <${Figure} name="waiting" value=${whole(waiting_offers)}/>
        </dl>
        ${!all && html`<p class="dim">Shares and ages are of the ${whole(records.length)} most
          counted.</p>`}
      </section>
      <section class="panel third">
        <h2>Size classes</h2>
        <${Table} caption="Size classes" rows=${classes} columns=${[
          { name: "values up to", right: true, of: ([size]) => bytes(size) },
          { name: "use", wide: true, of: ([, slots], at) =>
            html`<${Bar} label=${`${percent(of_class(at) / slots)} of the slots`}
              parts=${[{ share: of_class(at) / slots, kind: "cache" }]}/>` },
          { name: "records", right: true,
            of: (_, at) => `${all ? "" : "≥ "}${whole(of_class(at))}` },
          { name: "slots", right: true, of: ([, slots]) => whole(slots) },
        ]}/>
      </section>
      <section class="panel third">
        <h2>Prefixes</h2>
        <${Table} caption="Prefixes" rows=${groups.slice(0, 12)} key_of=${(group) => group.prefix}
          empty="nothing is cached" columns=${[
          { name: "up to the first :", of: (group) => html`<button class="mono"
            onClick=${() => refine({ prefix: group.prefix === "(none)" ? "" : group.prefix })}>
            ${group.prefix}</button>` },
          { name: "records", right: true, of: (group) => whole(group.records) },
          { name: "of the hits", right: true, of: (group) => percent(group.counted / counted) },
          { name: "dirty", right: true, of: (group) => percent(group.dirty / group.records) },
          { name: "size", right: true, of: (group) => bytes(group.bytes) },
        ]}/>
      </section>
      <section class="panel">
        <div class="tools">
          <h2>Records</h2>
          <label class="field">beginning with <input type="search" class="mono" size="20"
            value=${query.prefix ?? ""}
            onInput=${(event) => refine({ prefix: event.target.value })}/></label>
          <span class="dim">
            ${count(Math.min(shown.length, SHOWN_MAX), "record")} of ${whole(total)}, the most
            counted first</span>
        </div>
        <${Table} caption="Records" rows=${shown.slice(0, SHOWN_MAX)}
          key_of=${(record) => `${record.class}.${record.slot}`}
          empty="nothing is cached" columns=${[
          { name: "key", of: (record) => html`<span class="mono">${record.key}</span>` },
          { name: "count", right: true, of: (record) => whole(record.count) },
          { name: "age", right: true, of: (record) => duration(record.age_seconds) },
          { name: "dirty", of: (record) => (record.dirty === null
            ? UNKNOWN : record.dirty ? html`<b>yes</b>` : "no") },
          { name: "size", right: true, of: (record) => bytes(record.bytes) },
          { name: "node", right: true, of: (record) => record.node },
          { name: "class", right: true, of: (record) => bytes(classes[record.class]?.[0]) },
          { name: "slot", right: true, of: (record) => record.slot },
          { name: "stage", of: (record) => record.stage },
        ]}/>
      </section>
    </div>`;
  }
}
