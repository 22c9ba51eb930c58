// The frame of all pages: what the rack does now, and the way to each page.

import { Component, render } from "./preact.js";
import { html, Trouble } from "./parts.js";
import { address, follow, place, store, take_token, watch } from "./store.js";
import { percent, rate } from "./text.js";
import { Rack } from "./pages/rack.js";
import { Heat } from "./pages/heat.js";
import { Keys } from "./pages/keys.js";
import { Cache } from "./pages/cache.js";
import { Nodes } from "./pages/nodes.js";
import { Timeline } from "./pages/timeline.js";
import { Lab } from "./pages/lab.js";
import { Health } from "./pages/health.js";

const PAGES = [
  ["rack", "Rack", Rack],
  ["heat", "Heat", Heat],
  ["keys", "Keys", Keys],
  ["cache", "Cache", Cache],
  ["nodes", "Nodes", Nodes],
  ["timeline", "Timeline", Timeline],
  ["lab", "Lab", Lab],
  ["health", "Health", Health],
];

class App extends Component {
  componentDidMount() {
    const look = () => this.setState({});
    watch(look);
    addEventListener("hashchange", look);
  }
  render() {
    const { page, query } = place();
    const [name, title, Page] = PAGES.find(([name]) => name === page) ?? PAGES[0];
    const { live, trouble } = store;
    document.title = `${title} · ${live?.name ?? "Switchback"}`;
    return html`
      <a class="skip" href="#content"
        onClick=${(event) => {
          event.preventDefault();
          document.getElementById("content").focus();
        }}>to the content</a>
      <header>
        <h1>${live?.name ?? "Switchback"}</h1>
        <${Now} live=${live}/>
        <nav aria-label="Pages">
          ${PAGES.map(([key, text]) => html`<a href=${address(key)}
            aria-current=${key === name ? "page" : undefined}>${text}</a>`)}
        </nav>
      </header>
      ${trouble && html`<${Trouble}>${trouble}<//>`}
      <main id="content" tabindex="-1" aria-label=${title}>
        <${Page} live=${live} query=${query} key=${name}/>
      </main>`;
  }
}

/// The rack in a line. Its figures change each second, so only the phase is announced.
function Now({ live }) {
  if (!live) return html`<p class="now"></p>`;
  const asked = live.reads_per_s === null
    ? live.switch?.requests_per_s : live.reads_per_s + live.writes_per_s;
  const hits = live.nodes_per_s === null || !asked ? null : 1 - live.nodes_per_s / asked;
  const state = live.draining ? "draining" : live.phase;
  return html`<p class="now">
    <span class=${`phase ${state === "serving" ? "good" : "bad"}`} role="status">${state}</span>
    ${live.epoch !== null && html`<span>epoch <b>${live.epoch}</b></span>`}
    <span><b>${rate(asked)}</b> ops/s</span>
    ${hits !== null && html`<span><b>${percent(hits)}</b> by the cache</span>`}
  </p>`;
}

take_token();
addEventListener("hashchange", take_token);
follow();
render(html`<${App}/>`, document.getElementById("app"));
