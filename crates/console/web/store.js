// What all pages share: the rack's samples, one a second, and how it is asked.

const SAMPLES_MAX = 900;
const AGAIN_MS = 3000;

export const store = {
  /// The newest sample of /live, and those before it.
  live: null,
  samples: [],
  /// Why there is none, if so.
  trouble: "connecting",
  /// Allows commands; of this tab only.
  token: null,
};

const watching = new Set();

/// Calls `look` whenever the store has changed; returns what ends that.
export function watch(look) {
  watching.add(look);
  return () => watching.delete(look);
}

function changed() {
  for (const look of watching) look();
}

/// Follows the rack's samples while the page is in sight: a browser has few connections to a host
/// for all its tabs.
export function follow() {
  let source = null;
  let timer = null;
  const end = () => {
    clearTimeout(timer);
    source?.close();
    source = null;
  };
  const begin = () => {
    end();
    if (document.hidden) return;
    source = new EventSource("live");
    source.addEventListener("sample", (event) => {
      store.live = JSON.parse(event.data);
      store.trouble = null;
      store.samples.push(store.live);
      if (store.samples.length > SAMPLES_MAX) store.samples.shift();
      changed();
    });
    source.addEventListener("error", async () => {
      end();
      timer = setTimeout(begin, AGAIN_MS);
      // What the stream can't say: it may be full, or gone.
      store.trouble = await fetch("healthz").then(
        () => "no samples: too many programs watch, or the rack stops",
        () => "the rack does not answer",
      );
      changed();
    });
  };
  document.addEventListener("visibilitychange", begin);
  begin();
}

/// The answer to a GET, or an error that says why there is none.
export async function ask(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error((await answer.text()).trim()
    || `${answer.status} ${answer.statusText}`);
  return answer.json();
}

/// This process's samples of GET /metrics, as Prometheus reads them:
/// `{ name, labels, key, value }`, where `key` is the labels' text.
export async function samples() {
  const answer = await fetch("metrics");
  if (!answer.ok) throw new Error((await answer.text()).trim());
  const line = /^([a-z_]+)(?:\{(.*)\})? ([^ ]+)$/gm;
  const label = /([a-z_]+)="((?:[^"\\]|\\.)*)"/g;
  return [...(await answer.text()).matchAll(line)].map(([, name, key = "", value]) => ({
    name, key, value: Number(value),
    labels: Object.fromEntries([...key.matchAll(label)].map(([, name, value]) => [name, value])),
  }));
}

/// Carries out a command, with the token that the page was opened with.
export async function command(path) {
  const answer = await fetch(path,
    { method: "POST", headers: { Authorization: `Bearer ${store.token ?? ""}` } });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

/// Takes the token out of the address, so that it isn't in the history or a copied link.
export function take_token() {
  const found = /^#t=([0-9a-f]+)$/.exec(location.hash);
  if (found) {
    sessionStorage.setItem("token", found[1]);
    history.replaceState(null, "", "#/rack");
  }
  store.token = sessionStorage.getItem("token");
}

/// The page and its parameters, as the address says: `#/keys?node=2`.
export function place() {
  const [page, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { page: page || "rack", query: Object.fromEntries(new URLSearchParams(query)) };
}

/// The address of a page with parameters; empty ones are left out.
export function address(page, query = {}) {
  const said = Object.entries(query)
    .filter(([, value]) => value !== undefined && value !== "" && value !== null);
  const text = new URLSearchParams(said).toString();
  return `#/${page}${text ? `?${text}` : ""}`;
}

/// Changes parameters of the page that is shown.
export function refine(change) {
  const { page, query } = place();
  history.replaceState(null, "", address(page, { ...query, ...change }));
  changed();
}
