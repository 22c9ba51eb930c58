"""An OCI image: its layout, its digests, and the program in it."""

import gzip
import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from checks import check, finish

# Python has it from 3.11.4 on, and warns without it from 3.12 on.
FILTER = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def make(path):
    made = subprocess.run(["contrib/oci/image.sh", "small", str(path)], capture_output=True,
                          text=True)
    check("an image is made", made.returncode == 0, made.stdout + made.stderr)


class Image:
    """An OCI layout in a directory."""

    def __init__(self, path, directory):
        self.directory = Path(directory)
        with tarfile.open(path) as tar:
            tar.extractall(directory, **FILTER)

    def json(self, name):
        return json.loads((self.directory / name).read_bytes())

    def blob(self, descriptor):
        """The bytes that are described, which are checked."""
        algorithm, digest = descriptor["digest"].split(":")
        content = (self.directory / "blobs" / algorithm / digest).read_bytes()
        right = hashlib.sha256(content).hexdigest() == digest and len(content) == descriptor["size"]
        check(f"digest and size of {descriptor['mediaType']} are right", right, descriptor)
        return content


def check_image(path, directory):
    image = Image(path, directory)
    check("it says which layout it has",
          image.json("oci-layout") == {"imageLayoutVersion": "1.0.0"})
    (described,) = image.json("index.json")["manifests"]
    check("it has a name",
          described["annotations"]["org.opencontainers.image.ref.name"].startswith("switchback:"))
    manifest = json.loads(image.blob(described))
    config = json.loads(image.blob(manifest["config"]))
    layers = [gzip.decompress(image.blob(layer)) for layer in manifest["layers"]]
    found = ["sha256:" + hashlib.sha256(layer).hexdigest() for layer in layers]
    check("its configuration names its layers",
          config["rootfs"] == {"type": "layers", "diff_ids": found}, config)
    check("it doesn't run as root", config["config"]["User"] == "10001:10001", config)
    blobs = {file.name for file in (image.directory / "blobs/sha256").iterdir()}
    used = {blob["digest"][7:] for blob in [described, manifest["config"], *manifest["layers"]]}
    check("nothing else is in it", blobs == used, blobs ^ used)
    root = Path(directory, "root")
    for layer in layers:
        file = Path(directory, "layer.tar")
        file.write_bytes(layer)
        with tarfile.open(file) as tar:
            owner = tar.getmember("var/lib/switchback").uid
            tar.extractall(root, **FILTER)
    check("its data directory is its user's", owner == 10001, owner)
    return root


def check_running(path, root):
    """The program in the image: its root, and with a container runtime if there is one."""
    # By the loader in it, which finds no library elsewhere.
    (loader,) = root.glob("lib64/ld-linux-*")
    libraries = ":".join({str(file.parent) for file in root.glob("**/*.so*")})
    command = [loader, "--inhibit-cache", "--library-path", libraries, root / "usr/bin/switchback",
               "--version"]
    ran = subprocess.run(command, capture_output=True, text=True)
    check("the program runs with what is in it", ran.stdout.startswith("switchback "), ran)
    if not shutil.which("podman"):
        return  # image.sh says so
    loaded = subprocess.run(["podman", "load", "--input", str(path)], capture_output=True,
                            text=True)
    check("podman loads it", loaded.returncode == 0, loaded)
    name = loaded.stdout.split()[-1]
    ran = subprocess.run(["podman", "run", "--rm", name, "--version"], capture_output=True,
                         text=True)
    check("podman runs it", ran.stdout.startswith("switchback "), ran)


with tempfile.TemporaryDirectory() as directory:
    first, second = Path(directory, "first.tar"), Path(directory, "second.tar")
    make(first)
    make(second)
    check("made twice it is the same", first.read_bytes() == second.read_bytes())
    check_running(first, check_image(first, Path(directory, "image")))
finish()
