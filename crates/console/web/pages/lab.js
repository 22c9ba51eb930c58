// Plays what `switchback lab sim --trace FILE.json` wrote: which part sent what to which, until a
// promise broke. The file is read here, and sent nowhere.

import { Component } from "../preact.js";
import { html, Table, Trouble } from "../parts.js";
import { count, whole } from "../text.js";

const SHOWN = 24;
const LEFT = 110;
const SPACE = 26;
const FILE_BYTES_MAX = 256 << 20;

export class Lab extends Component {
  state = { trace: null, at: 0, key: "", messages: false };

  componentWillUnmount() {
    clearInterval(this.timer);
  }

  async read(file) {
    if (!file) return;
    try {
      if (file.size > FILE_BYTES_MAX) throw new Error("it is too large");
      const trace = JSON.parse(await file.text());
      if (!Array.isArray(trace.events) || typeof trace.seed !== "number") {
        throw new Error("it is no trace: write one by "
          + "switchback lab sim --seed N --scheme NAME --trace FILE.json");
      }
      const broken = trace.events.findIndex((event) => event.kind === "violation");
      this.setState({ trace, trouble: null, key: "",
        at: broken >= 0 ? broken : trace.events.length - 1 });
    } catch (error) {
      this.setState({ trouble: `${file.name}: ${error.message}` });
    }
  }

  drop(event) {
    event.preventDefault();
    this.setState({ over: false });
    this.read(event.dataTransfer.files[0]);
  }

  /// The events that pass the filters, by their places in the trace.
  wanted() {
    const { trace, key, messages } = this.state;
    const of_key = (event) => !key || event.key?.startsWith(key) || event.text.includes(key)
      || event.kind === "violation" || event.kind === "part";
    return trace.events.map((event, at) => ({ ...event, at }))
      .filter((event) => (messages || event.kind !== "message") && of_key(event));
  }

  step(by) {
    const events = this.wanted();
    const found = events.findLastIndex((event) => event.at <= this.state.at);
    const next = events[Math.min(events.length - 1, Math.max(0, found + by))];
    if (next) this.setState({ at: next.at });
    else this.play(false);
    if (found + by >= events.length - 1) this.play(false);
  }

  play(is_wanted) {
    clearInterval(this.timer);
    this.timer = is_wanted ? setInterval(() => this.step(1), 250) : null;
    this.setState({ plays: is_wanted });
  }

  render(_, { trace, trouble, over }) {
    const drop = html`<div class=${`drop ${over ? "over" : ""}`}
      onDragOver=${(event) => { event.preventDefault(); this.setState({ over: true }); }}
      onDragLeave=${() => this.setState({ over: false })} onDrop=${(event) => this.drop(event)}>
      <p>Drop a trace of the simulator here, or${" "}
        <label class="field">choose its file <input type="file" accept=".json,application/json"
        onChange=${(event) => this.read(event.target.files[0])}/></label></p>
      <p class="dim">Written
        by <code>switchback lab sim --seed N --scheme NAME --trace FILE.json</code>. It stays in
        this browser.</p>
    </div>`;
    return html`<div class="panels"><section class="panel">
      ${trouble && html`<${Trouble}>${trouble}<//>`}
      ${trace ? this.player(trace, drop) : drop}
    </section></div>`;
  }

  player(trace, drop) {
    const { at, key, messages, plays } = this.state;
    const events = this.wanted();
    const found = Math.max(0, events.findLastIndex((event) => event.at <= at));
    const first = Math.max(0, Math.min(found - Math.floor(SHOWN / 2), events.length - SHOWN));
    const shown = events.slice(first, first + SHOWN);
    const now = events[found];
    const jump = (places) => this.setState({ at: events[places]?.at ?? 0 });
    return html`
      <div class="tools">
        <b>seed ${trace.seed}, ${trace.scheme}
          ${trace.ablation ? `, ablation ${trace.ablation}` : ""}</b>
        <span class=${trace.violation ? "bad" : "good"}>
          ${trace.violation ? `broke: ${trace.violation.check}` : "kept every promise"}</span>
        ${trace.left_out > 0 && html`<span class="dim">its
          first ${count(trace.left_out, "event")} are left out</span>`}
      </div>
      <div class="tools">
        <button onClick=${() => jump(0)} aria-label="first event">|◁</button>
        <button onClick=${() => this.step(-1)} aria-label="event before">◁</button>
        <button onClick=${() => this.play(!plays)} aria-pressed=${Boolean(plays)}>
          ${plays ? "stop" : "play"}</button>
        <button onClick=${() => this.step(1)} aria-label="next event">▷</button>
        <button onClick=${() => jump(events.length - 1)} aria-label="last event">▷|</button>
        <label class="field">event <input type="range" min="0" max=${Math.max(0, events.length - 1)}
          value=${found} onInput=${(event) => jump(Number(event.target.value))}/>${" "}
          ${whole(found + 1)} of ${whole(events.length)}</label>
        <label class="field">of key, or with the text <input type="search" class="mono" size="18"
          value=${key}
          onInput=${(event) => this.setState({ key: event.target.value.trim() })}/></label>
        <label class="field"><input type="checkbox" checked=${messages} onChange=${(event) =>
          this.setState({ messages: event.target.checked })}/> control messages</label>
      </div>
      ${now && html`<p class="mono wrap">
        <b>${whole(now.at_us)} µs</b> ${now.from ? `${now.from} → ${now.to}: ` : ""}${now.text}
        ${now.from && now.arrives_us.length === 0 ? " (lost)" : ""}</p>`}
      <div class="beside">
        <${Space} events=${shown} at=${now?.at} choose=${(at) => this.setState({ at })}/>
      <${Table} caption="Events around the chosen one" rows=${shown} key_of=${(event) => event.at}
        row_class=${(event) => (event.at === now?.at ? "chosen" : "")} columns=${[
        { name: "µs", right: true, of: (event) => html`<button class="mono"
          onClick=${() => this.setState({ at: event.at })}>${whole(event.at_us)}</button>` },
        { name: "from", of: (event) => event.from ?? "" },
        { name: "to", of: (event) => event.to ?? "" },
        { name: "what",
          of: (event) => html`<span class=${`mono ${event.kind === "violation" ? "bad" : ""}`}>
            ${event.text.slice(0, 160)}</span>` },
        { name: "arrives", right: true, of: (event) => (event.from
          ? event.arrives_us.map(whole).join(", ") || html`<span class="bad">lost</span>` : "") },
      ]}/></div>
      <details><summary>Another trace</summary>${drop}</details>`;
  }
}

/// A space-time diagram: a line a part, downwards in time, an arrow a packet. One step an event,
/// not a microsecond.
function Space({ events, at, choose }) {
  const parts = [...new Set(events.flatMap((event) => [event.from, event.to, event.part])
    .filter(Boolean))].sort(by_role);
  const width = LEFT + 130 * Math.max(parts.length, 1) + 20;
  const height = 40 + SPACE * (events.length + 1);
  const x_of = (part) => LEFT + 65 + 130 * parts.indexOf(part);
  const y_of = (place) => 50 + SPACE * place;
  // An arrow ends at the event after which the packet arrives.
  const arrival = (event, place, us) => {
    const later = events.findIndex((other, index) => index > place && other.at_us >= us);
    return y_of(later < 0 ? events.length : later) - 4;
  };
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Space-time diagram">
    <svg class="space" viewBox=${`0 0 ${width} ${height}`}
      style=${{ width: `${width}px`, height: `${height}px` }} role="img"
      aria-label=${`Space-time diagram of ${parts.join(", ")}; `
        + "the table below has the same events"}>
    <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"
      orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="currentColor"/></marker></defs>
    ${parts.map((part) => html`<text x=${x_of(part)} y="18" text-anchor="middle">${part}</text>
      <line class="life" x1=${x_of(part)} x2=${x_of(part)} y1="26" y2=${height}/>`)}
    ${events.map((event, place) => {
      const y = y_of(place);
      const is_now = event.at === at;
      const time = html`<text x="4" y=${y + 4}>${whole(event.at_us)} µs</text>`;
      const pick = { onClick: () => choose(event.at) };
      if (event.kind === "violation") {
        return html`<g ...${pick}>${time}
          <line class="broken" x1=${LEFT} x2=${width} y1=${y} y2=${y}/>
          <text class="broken-text" x=${LEFT + 4} y=${y - 5}>
            ${event.text.slice(0, 110)}</text></g>`;
      }
      if (!event.from) {
        const x = event.part ? x_of(event.part) : LEFT + 4;
        return html`<g ...${pick}>${time}
          ${event.part && html`<circle class="mark" cx=${x} cy=${y} r=${is_now ? 6 : 4}/>`}
          <text x=${x + 9} y=${y + 4}>${event.text.slice(0, 70)}</text></g>`;
      }
      const [from, to] = [x_of(event.from), x_of(event.to)];
      const kind = `${event.kind === "message" ? "said" : "sent"} ${is_now ? "now" : ""}`;
      const lost = from + 0.6 * (to - from);
      return html`<g ...${pick}>${time}
        ${event.arrives_us.length === 0
          ? html`<line class=${kind} x1=${from} y1=${y} x2=${lost} y2=${y + 8}/>
            <path class="lost" d=${`M${lost - 5} ${y + 3} l10 10 M${lost + 5} ${y + 3} l-10 10`}/>`
          : event.arrives_us.map((us) => html`<line class=${kind} x1=${from} y1=${y} x2=${to}
            y2=${arrival(event, place, us)} marker-end="url(#tip)"/>`)}
        <text x=${(from + to) / 2} y=${y - 3} text-anchor="middle">
          ${event.text.split(" ", 2).join(" ").slice(0, 26)}</text></g>`;
    })}
  </svg></div>`;
}

const ROLES = ["client", "switch", "node", "controller"];
const role = (part) => ROLES.findIndex((role) => part.startsWith(role));
const by_role = (a, b) => role(a) - role(b) || a.localeCompare(b, "en", { numeric: true });
