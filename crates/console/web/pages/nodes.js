// Each node's load, what it would be without the cache, with another one, and with other nodes.

import { Component } from "../preact.js";
import { Asked, Bar, Choice, html, Table } from "../parts.js";
import { refine } from "../store.js";
import { bytes, count, duration, rate, short, UNKNOWN, whole } from "../text.js";

const NODES_MAX = 1024;

export class Nodes extends Component {
  render({ live, query }) {
    return html`<div class="panels">
      <section class="panel">
        <h2>Nodes</h2>
        <${Asked} path="nodes" period=${2000}>${(nodes) => this.nodes(nodes, live)}<//>
      </section>
      <section class="panel"><h2>What if</h2>${this.what_if(query, live)}</section>
    </div>`;
  }

  nodes(nodes, live) {
    const now = (node) => live?.nodes.find((it) => it.index === node.index);
    return html`<${Table} caption="Nodes" rows=${nodes} key_of=${(node) => node.index} columns=${[
      { name: "node", right: true, of: (node) => node.index },
      { name: "state", of: (node) => {
        const state = now(node)?.state ?? null;
        return html`<span class=${state === "up" ? "good" : "bad"}>${state ?? UNKNOWN}</span>`;
      } },
      { name: "reads/s", right: true, of: (node) => rate(now(node)?.reads_per_s) },
      { name: "writes/s", right: true, of: (node) => rate(now(node)?.writes_per_s) },
      { name: "reads", right: true, of: (node) => short(node.reads) },
      { name: "writes", right: true, of: (node) => short(node.writes) },
      { name: "cached keys", right: true, of: (node) => whole(node.cached_keys) },
      { name: "disk", right: true, of: (node) => bytes(node.disk_bytes) },
      { name: "epoch", right: true, of: (node) => node.epoch ?? UNKNOWN },
      { name: "address", of: (node) => node.address ?? "in this process" },
      { name: "error", of: (node) => html`<span class="bad">${node.error}</span>` },
    ]}/>`;
  }

  what_if(query, live) {
    const { records = 256, scheme, nodes } = query;
    const path = `whatif?records=${records}${scheme ? `&scheme=${scheme}` : ""}`
      + (nodes ? `&nodes=${nodes}` : "");
    return html`<${Asked} path=${path} period=${2000}>
      ${(whatif) => this.loads(whatif, query, live)}<//>`;
  }

  loads(whatif, query, live) {
    const { sizes, nodes, nodes_now, nodes_asked } = whatif;
    const is_now = (node, shown) => (node.index < nodes_now ? shown : UNKNOWN);
    const would_be = (node, shown) => (node.index < nodes_asked ? shown : UNKNOWN);
    const largest = (of) => Math.max(...nodes.map(of), 0);
    const without = largest((node) => node.asked_per_s);
    const served = largest((node) => node.served_per_s);
    const would = largest((node) => node.would_serve_per_s);
    const most = Math.max(without, 1);
    const gain = (load) => (load >= 1 && without >= 1
      ? `${(without / load).toFixed(1)}×` : UNKNOWN);
    const at = sizes.findLastIndex((size) => size.records <= whatif.records);
    const counted = (node) => {
      const it = live?.nodes.find((it) => it.index === node.index);
      return it?.reads_per_s === null || !it ? null : it.reads_per_s + it.writes_per_s;
    };
    const schemes = whatif.schemes.map(({ name, policy }) => [name, policy]);
    const scheme = query.scheme ?? whatif.scheme;
    const policy = schemes.find(([name]) => name === whatif.scheme)[1];
    return html`
      <div class="tools"><${Choice} name="scheme" options=${schemes} value=${scheme}
        choose=${(scheme) => refine({ scheme })}/></div>
      <div class="tools">
        <label class="field">the hottest <input type="range" min="0" max=${sizes.length - 1}
          step="1" value=${at} aria-valuetext=${count(whatif.records, "record")}
          onInput=${(event) => refine({ records: sizes[event.target.value].records })}/>
          <b>${count(whatif.records, "record")}</b> cached</label>
        <label class="field">on <input type="range" min="1"
          max=${Math.min(NODES_MAX, Math.max(16, 4 * nodes_now))} step="1" value=${nodes_asked}
          aria-valuetext=${count(nodes_asked, "node")}
          onInput=${(event) => refine({ nodes: event.target.value })}/>
          <b>${count(nodes_asked, "node")}</b></label>
      </div>
      <p class="say">Busiest node: <b>${rate(without)}</b> requests/s without a cache,${" "}
        <b>${rate(served)}</b> now (${gain(served)} less),${" "}
        <b>${rate(would)}</b> with ${policy}, ${count(whatif.records, "record")}${" "}
        and ${count(nodes_asked, "node")} (${gain(would)} less).</p>
      <${Table} caption="Loads of nodes: without a cache, now, and what if" rows=${nodes}
        key_of=${(node) => node.index} columns=${[
        { name: "node", right: true, of: (node) => node.index },
        { name: "requests/s", wide: true, of: (node) => html`<div class="bars">
          <${Bar} label=${`${rate(node.asked_per_s)} without a cache`}
            parts=${[{ share: node.asked_per_s / most, kind: "without" }]}/>
          <${Bar} label=${`${rate(node.served_per_s)} now`}
            parts=${[{ share: node.served_per_s / most, kind: "node" }]}/>
          <${Bar} label=${`${rate(node.would_serve_per_s)} with what was chosen`}
            parts=${[{ share: node.would_serve_per_s / most, kind: "cache" }]}/></div>` },
        { name: "without a cache", right: true,
          of: (node) => is_now(node, rate(node.asked_per_s)) },
        { name: "now", right: true,
          of: (node) => is_now(node, html`<b>${rate(node.served_per_s)}</b>`) },
        { name: "counted by the node", right: true, of: (node) => rate(counted(node)) },
        { name: "what if", right: true,
          of: (node) => would_be(node, rate(node.would_serve_per_s)) },
      ]}/>
      <ul class="legend"><li><i class="part without"></i>without a cache</li>
        <li><i class="part node"></i>now</li>
        <li><i class="part cache"></i>what if</li></ul>
      <p class="dim">Of the last ${duration(whatif.window_seconds)}. Loads without a cache and now
        are counted; what a node counts itself has evictions and retries in it, too.
        “What if” takes the ${whatif.records_known} hottest keys that fit a slot, by their sampled
        rates: a larger cache takes more off the nodes than is known here.
        It is the best that a cache of that content can do. Another number of nodes has its
        partitions dealt anew.</p>`;
  }
}
