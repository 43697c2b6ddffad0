#!/usr/bin/python3
"""Prints the crates that are linked into nopal, with their licences."""

import collections
import json
import pathlib
import subprocess
import sys

TARGET = "x86_64-unknown-linux-gnu"


def main():
    metadata = json.loads(
        subprocess.check_output(
            ["cargo", "metadata", "--format-version=1", "--locked", "--filter-platform", TARGET]
        )
    )
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    linked = set()
    left = [id for id, package in packages.items() if package["name"] == "nopal"]
    while left:
        id = left.pop()
        if id in linked:
            continue
        linked.add(id)
        # Dependencies that only building or tests need are not linked.
        left += [
            dependency["pkg"]
            for dependency in nodes[id]["deps"]
            if any(kind["kind"] is None for kind in dependency["dep_kinds"])
        ]

    texts = collections.defaultdict(list)
    print("nopal is linked with these crates, and with the libraries of Rust (MIT or Apache-2.0) and, where it is one")
    print("file without libraries, the GNU C library (LGPL-2.1-or-later). Their licences follow.\n")
    for package in sorted((packages[id] for id in linked), key=lambda package: package["name"]):
        if package["source"] is None:
            continue
        title = f"{package['name']} {package['version']}"
        print(f"    {title}: {package['license'] or 'see below'}")
        directory = pathlib.Path(package["manifest_path"]).parent
        for path in sorted(directory.iterdir()):
            if path.is_file() and path.name.upper().startswith(("LICENSE", "LICENCE", "COPYING", "NOTICE")):
                texts[path.read_text(errors="replace").strip()].append(title)
    for text, titles in texts.items():
        print("\n" + "-" * 100 + "\n" + ", ".join(titles) + "\n\n" + text)


sys.exit(main())
