#!/usr/bin/python3
"""Makes a wheel of the files that `make install` has put into a directory: wheel.py INSTALLED VERSION INTO

It needs only Python, and no network. pip installs the binary, unchanged, in the directory of scripts; the manual and the
completions in share/ of the environment; and the package of packaging/python, which runs that binary."""

import base64
import hashlib
import os
import pathlib
import sys
import zipfile

# The binary needs no libc: any that a wheel may ask for will do.
PLATFORM = "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64"
PACKAGE = pathlib.Path(__file__).parent / "python"


def main(installed, version, into):
    installed = pathlib.Path(installed)
    name = f"nopal-{version}"
    tag = f"py3-none-{PLATFORM}"
    files = {
        **{
            str(path.relative_to(PACKAGE)): path.read_text("utf-8")
            for path in sorted(PACKAGE.glob("nopal/*"))
            if path.is_file()
        },
        f"{name}.data/scripts/nopal": ((installed / "bin/nopal").read_bytes(), 0o755),
        f"{name}.dist-info/METADATA": (
            f"Metadata-Version: 2.1\nName: nopal\nVersion: {version}\n"
            "Summary: Trace any Linux program: every call of every function, without recompiling\n"
            "License: MIT OR Apache-2.0\nRequires-Python: >=3.10\n"
            "Provides-Extra: tables\nRequires-Dist: pyarrow>=20; extra == 'tables'\n"
            "Description-Content-Type: text/markdown\n\n"
            + pathlib.Path("README.md").read_text("utf-8")
        ),
        f"{name}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: nopal\nRoot-Is-Purelib: false\n"
        + "".join(f"Tag: py3-none-{one}\n" for one in PLATFORM.split(".")),
    }
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"]:
        files[f"{name}.dist-info/{licence}"] = pathlib.Path(licence).read_text("utf-8")
    files[f"{name}.dist-info/third-party"] = (installed / "third-party").read_text("utf-8")
    for path in sorted((installed / "share").rglob("*")):
        if path.is_file():
            files[f"{name}.data/data/{path.relative_to(installed)}"] = path.read_text("utf-8")

    record = ""
    with zipfile.ZipFile(pathlib.Path(into) / f"{name}-{tag}.whl", "w", zipfile.ZIP_DEFLATED) as wheel:

        def add(path, content, mode=0o644):
            # The entry has the earliest time that a zip file knows.
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)

        for path, content in files.items():
            content, mode = content if isinstance(content, tuple) else (content.encode(), 0o644)
            add(path, content, mode)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={digest},{len(content)}\n"
        add(f"{name}.dist-info/RECORD", record + f"{name}.dist-info/RECORD,,\n")


main(*sys.argv[1:])
