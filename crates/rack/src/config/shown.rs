//! The settings in force, for those who look: sections and keys as `rack.toml` has them. Secrets
//! are left out.

use super::types::*;
use serde_json::{Map, Value, json};
use std::fmt::Display;
use std::path::Path;
use switchback_engine::Value as EngineValue;

impl RackConfig {
    /// Every setting: an object a section, of `[[switch]]` and `[[node]]` a list of objects. Of a
    /// password only whether there is one, under `has_password`.
    pub fn shown(&self) -> Value {
        let mut shown = json!({
            "rack": rack(&self.rack),
            "cache": cache(&self.cache),
            "controller": controller(&self.controller),
            "topology": { "chains": self.topology.chains, "layers": self.topology.layers },
            "gateway": gateway(&self.gateway),
            "client": client(&self.client),
            "console": {
                "access": self.console.access.name(), "keys": self.console.keys.name(),
            },
            "node": self.nodes.iter().map(node).collect::<Vec<_>>(),
        });
        match self.shape {
            Shape::Distributed => {
                shown["switch"] = self.switches.iter().map(switch).collect();
            }
            Shape::Embedded => {}
        }
        shown["links"] = json!({
            "kind": self.links.kind.name(),
            "receive_buffer_kb": self.links.receive_buffer_kb,
            "send_buffer_kb": self.links.send_buffer_kb,
        });
        shown
    }
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

fn text(value: Option<&impl Display>) -> Option<String> {
    value.map(ToString::to_string)
}

fn rack(rack: &Rack) -> Value {
    json!({
        "name": rack.name,
        "scheme": rack.scheme.name(),
        "partitions": rack.partitions,
        "replication": rack.replication,
        "data": path(&rack.data),
        "metrics": rack.metrics.to_string(),
        "metrics_hosts": rack.metrics_hosts,
        "heartbeat_ms": rack.heartbeat_ms,
        "switch_timeout_ms": rack.switch_timeout_ms,
        "lease_ms": rack.lease_ms,
        "snapshot_period_ms": rack.snapshot_period_ms,
        "preserve": rack.preserve.name(),
        "on_loss": rack.on_loss.name(),
        "drain_timeout_ms": rack.drain_timeout_ms,
    })
}

fn cache(cache: &Cache) -> Value {
    json!({
        "records": cache.records,
        "classes": cache.classes,
        "admissions_per_s": cache.admissions_per_s,
        "control_messages_per_s": cache.control_budget.messages_per_s,
        "control_bytes_per_s": cache.control_budget.bytes_per_s,
        "counted_per_s": cache.counted_per_s,
        "threshold": cache.threshold,
        "sampling": cache.sampling,
        "eviction_sample": cache.eviction_sample,
        "ageing_period_ms": cache.ageing_period_ms,
        "sketch_width": cache.sketch_width,
        "dirty_max_ms": cache.dirty_max_ms,
    })
}

fn controller(controller: &Controller) -> Value {
    json!({
        "listen": controller.listen.to_string(),
        "data": path(&controller.data),
        "lanes": controller.lanes,
        "spool_wait_ms": controller.spool_wait_ms,
        "witness_wait_ms": controller.witness_wait_ms,
        "bypass_ms": controller.bypass_ms,
    })
}

fn gateway(gateway: &Gateway) -> Value {
    let tls = gateway.tls.as_ref();
    let files = tls.map(|tls| &tls.files);
    json!({
        "resp": gateway.resp.to_string(),
        "metrics": text(gateway.metrics.as_ref()),
        "workers": gateway.workers,
        "durability": gateway.durability.name(),
        "spool": path(&gateway.spool),
        "spool_max_mb": gateway.spool_max_mb,
        "has_password": gateway.password.as_ref().is_some_and(|password| !password.is_empty()),
        "tls_certificate": files.map(|files| path(&files.certificate)),
        "tls_key": files.map(|files| path(&files.key)),
        "tls_client_ca": files.and_then(|files| files.client_ca.as_deref().map(path)),
        "tls_resp": text(tls.and_then(|tls| tls.resp.as_ref())),
        "max_clients": gateway.max_clients,
        "pipeline_max": gateway.pipeline_max,
        "transactions": gateway.transactions.name(),
        "cluster": gateway.cluster.name(),
        "wait_ms": gateway.wait_ms,
        "unread_max_mb": gateway.unread_max_mb,
        "buffers_max_mb": gateway.buffers_max_mb,
    })
}

fn client(client: &Client) -> Value {
    json!({
        "lanes": client.lanes,
        "deadline_ms": client.deadline_ms,
        "retry_ms": client.retry_ms,
        "preserve_max_mb": client.preserve_max_mb,
        "large_max_mb": client.large_max_mb,
    })
}

fn switch(switch: &Switch) -> Value {
    json!({
        "address": switch.address.to_string(),
        "layer": switch.layer,
        "domain": switch.domain,
        "metrics": text(switch.metrics.as_ref()),
    })
}

fn node(node: &Node) -> Value {
    let mut shown = Map::new();
    let mut say = |key: &str, value: Value| _ = shown.insert(key.to_owned(), value);
    say("address", text(node.address.as_ref()).into());
    say("data", path(&node.data).into());
    say("metrics", text(node.metrics.as_ref()).into());
    say("engine", node.engine.name.into());
    say("sync", node.sync.name().into());
    for setting in node.engine.settings {
        let value = match node.options.get(setting) {
            EngineValue::Integer(integer) => integer.into(),
            EngineValue::Flag(flag) => flag.into(),
            EngineValue::Text(text) => text.into(),
        };
        say(setting.key, value);
    }
    shown.into()
}
