#!/usr/bin/env python3
"""Makes an OCI image of a directory: layout.py ROOT IMAGE.tar NAME VERSION

The image is an OCI layout in a tar file (https://github.com/opencontainers/image-spec), with one
layer. The same directory makes the same bytes: times are SOURCE_DATE_EPOCH or 0, files are in the
order of their names. `podman load`, `skopeo copy oci-archive:IMAGE.tar ...`, `docker load` and
`ctr images import` take it.
"""

import gzip
import hashlib
import io
import json
import os
import platform
import sys
import tarfile
from datetime import datetime, timezone

# The user of the Kubernetes manifests, and what it owns.
USER = 10001
DATA = "var/lib/switchback"
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", 0))
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def settled(entry):
    """An entry of a tar file without the time and the users of this machine."""
    entry.mtime, entry.uname, entry.gname = EPOCH, "", ""
    if entry.name == DATA:
        entry.uid = entry.gid = USER
    elif os.geteuid() != 0:
        entry.uid = entry.gid = 0
    return entry


def layer_of(root):
    """A directory as a tar file."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(os.listdir(root)):
            # Below directories `add` goes in the order of names.
            tar.add(os.path.join(root, name), arcname=name, filter=settled)
    return layer.getvalue()


class Layout:
    """An OCI layout that is written to a tar file."""

    def __init__(self, tar):
        self.tar = tar

    def write(self, name, content):
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(content), 0o644
        self.tar.addfile(settled(entry), io.BytesIO(content))

    def blob(self, kind, content):
        """Adds a blob. Returns its descriptor."""
        digest = hashlib.sha256(content).hexdigest()
        self.write(f"blobs/sha256/{digest}", content)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}",
                "size": len(content)}


def encoded(value):
    return json.dumps(value, sort_keys=True).encode()


def write_image(root, path, name, version):
    layer = layer_of(root)
    created = datetime.fromtimestamp(EPOCH, timezone.utc).isoformat().replace("+00:00", "Z")
    config = {
        "created": created,
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
            "Entrypoint": ["switchback"],
            "Cmd": ["--help"],
            "WorkingDir": f"/{DATA}",
            "Volumes": {f"/{DATA}": {}},
            "StopSignal": "SIGTERM",
            "Labels": {"org.opencontainers.image.title": name,
                       "org.opencontainers.image.version": version},
        },
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
        "history": [{"created": created, "created_by": "contrib/oci/image.sh"}],
    }
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        layout = Layout(tar)
        layout.write("oci-layout", encoded({"imageLayoutVersion": "1.0.0"}))
        layers = [layout.blob("layer.v1.tar+gzip", gzip.compress(layer, mtime=0))]
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": layout.blob("config.v1+json", encoded(config)),
            "layers": layers,
        }
        described = layout.blob("manifest.v1+json", encoded(manifest))
        described["annotations"] = {
            "org.opencontainers.image.ref.name": f"{name}:{version}",
            "io.containerd.image.name": f"docker.io/library/{name}:{version}",
        }
        index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
                 "manifests": [described]}
        layout.write("index.json", encoded(index))


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    write_image(*sys.argv[1:])
