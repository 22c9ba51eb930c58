// The hottest keys now.

import { Component } from "../preact.js";
import { Asked, Bar, Choice, html, Table } from "../parts.js";
import { refine } from "../store.js";
import { bytes, duration, percent, place, rate, UNKNOWN, whole } from "../text.js";

const SECONDS = [["1", "1 s"], ["2", "2 s"], ["5", "5 s"], ["10", "10 s"]];
const BY = [["all", "all"], ["reads", "reads"], ["writes", "writes"]];
const rate_of = {
  all: (key) => key.reads_per_s + key.writes_per_s,
  reads: (key) => key.reads_per_s,
  writes: (key) => key.writes_per_s,
};

export class Keys extends Component {
  render({ query }) {
    const seconds = query.seconds ?? "2";
    return html`<section class="panel">
      <div class="tools">
        <${Choice} name="window" options=${SECONDS} value=${seconds}
          choose=${(seconds) => refine({ seconds })}/>
        <${Choice} name="sorted by" options=${BY} value=${query.by ?? "all"}
          choose=${(by) => refine({ by })}/>
        <label class="field">beginning with <input type="search" class="mono" size="16"
          value=${query.prefix ?? ""}
          onInput=${(event) => refine({ prefix: event.target.value })}/></label>
        <label class="field">node <input type="text" inputmode="numeric" size="4"
          value=${query.node ?? ""}
          onInput=${(event) => refine({ node: event.target.value.trim() })}/></label>
        <label class="field">hash range <input type="text" class="mono" size="4"
          value=${query.range ?? ""}
          onInput=${(event) => refine({ range: event.target.value.trim().toLowerCase() })}/></label>
        <button
          onClick=${() => this.setState((state) => ({ held: state.held ? null : this.newest }))}
          aria-pressed=${Boolean(this.state.held)}>${this.state.held ? "go on" : "hold"}</button>
      </div>
      <${Asked} path=${`hot?limit=256&seconds=${seconds}`} period=${1000}>${(hot) => {
        this.newest = hot;
        return this.table(this.state.held ?? hot, query);
      }}<//>
    </section>`;
  }

  table(hot, query) {
    const by = query.by ?? "all";
    const is_wanted = (key) => (!query.prefix || key.key.startsWith(query.prefix))
      && (!query.node || String(key.node) === query.node)
      && (!query.range || key.hash.startsWith(query.range));
    const keys = hot.keys.filter(is_wanted).sort((a, b) => rate_of[by](b) - rate_of[by](a));
    const most = Math.max(...hot.keys.map((key) => rate_of.all(key)), 1);
    const lack = hot.uncounted_per_s_max >= 1
      ? `; each may lack up to ${rate(hot.uncounted_per_s_max)}/s` : "";
    return html`
      <p class="dim">${rate(hot.requests_per_s)} requests/s in the
        last ${duration(hot.window_seconds)}; rates are from ${whole(hot.samples)} samples, one
        in ${hot.sampled_one_in}${lack}. ${keys.length} of ${hot.keys.length} keys.</p>
      <${Table} caption="Hottest keys" rows=${keys}
        empty=${hot.keys.length ? "no such key among the hottest" : "nothing was asked for"}
        key_of=${(key) => key.hash} columns=${[
        { name: "#", right: true, of: (_, at) => at + 1 },
        { name: "key", of: (key) => html`<span class="mono">${key.key}
          ${key.cache === "key_too_long" ? `… (${bytes(key.key_bytes)})` : ""}</span>` },
        { name: "ops/s", right: true, of: (key) => html`<b>${rate(rate_of.all(key))}</b>` },
        { name: "reads and writes", wide: true, of: (key) => html`<${Bar}
          label=${`${rate(key.reads_per_s)} reads and ${rate(key.writes_per_s)} writes a second`}
          parts=${[{ share: key.reads_per_s / most, kind: "read" },
            { share: key.writes_per_s / most, kind: "write" }]}/>` },
        { name: "reads/s", right: true, of: (key) => rate(key.reads_per_s) },
        { name: "writes/s", right: true, of: (key) => rate(key.writes_per_s) },
        { name: "share", right: true, of: (key) => percent(key.share, 1) },
        { name: "by the cache", right: true, of: (key) => percent(key.cache_share, 1) },
        { name: "value", right: true, of: (key) => bytes(key.value_bytes) },
        { name: "range", of: (key) => html`<span class="mono">${key.hash.slice(0, 2)}</span>` },
        { name: "node", right: true, of: (key) => key.node ?? UNKNOWN },
        { name: "where, and why", of: (key) =>
          html`<span class=${key.cache === "cached" ? "good" : ""}>${place(key.cache)}</span>` },
      ]}/>
      <ul class="legend"><li><i class="part read"></i>reads</li>
        <li><i class="part write"></i>writes</li></ul>`;
  }
}
