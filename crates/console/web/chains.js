// How switches are drawn: layers as columns from clients to nodes, chains as rows.

/// The switches that serve, by chain from the clients to the nodes, each with its `load`: what it
/// was asked for, or if that isn't known of all, an equal share of what the chains were; then
/// `is_known` is false. `apart` are the others, by layer.
export function arrange(switches, loads, asked) {
  const layers = Math.max(1, ...switches.map((it) => it.layer));
  const by_layer = (one, other) => one.layer - other.layer;
  const load_of = (it) => loads.find((load) => load.index === it.index)?.requests_per_s ?? null;
  const serving = switches.filter((it) => it.active && it.alive);
  const numbers = [...new Set(serving.map((it) => it.chain))].sort((one, other) => one - other);
  const is_known = serving.every((it) => load_of(it) !== null);
  const equal = (asked ?? 0) / Math.max(1, numbers.length);
  const chains = numbers.map((chain) => serving.filter((it) => it.chain === chain).sort(by_layer)
    .map((it) => ({ ...it, load: is_known ? load_of(it) : equal })));
  const others = switches.filter((it) => !serving.includes(it));
  const apart = Array.from({ length: layers },
    (_, at) => others.filter((it) => it.layer === at + 1));
  return { layers, chains, apart, is_known };
}

/// The share of each chain in what its last switches, which decide, were asked for.
export function shares(chains) {
  const loads = chains.map((members) => members.at(-1).load);
  const sum = loads.reduce((sum, load) => sum + load, 0);
  return loads.map((load) => (sum > 0 ? load / sum : 1 / loads.length));
}
