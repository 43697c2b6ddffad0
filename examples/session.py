#!/usr/bin/python3
"""Draws a session in a terminal: session.py FILE.svg. Runs the commands below in a terminal, with the nopal in PATH, and draws
their output. Viewers that support animation show the commands one after the other."""

import html
import os
import pathlib
import pty
import re
import shutil
import struct
import sys
import tempfile
from fcntl import ioctl
from termios import TIOCSWINSZ

COMMANDS = [
    "cc -O2 -fno-inline words.c -o words",
    "nopal record -- ./words < text",
    "nopal report -n 5 -s self",
    "nopal report --callers find",
    "nopal graph find",
]
COLUMNS, SIZE, HEIGHT, MARGIN = 96, 14, 19, 16
WIDTH = SIZE * 0.602
COLOURS = {1: "font-weight:bold", 2: "opacity:.6", 31: "fill:#f47067", 32: "fill:#8ddb8c", 33: "fill:#f69d50", 36: "fill:#76e3ea"}
HERE = pathlib.Path(__file__).resolve().parent


def run(command, directory):
    """Runs a command, and returns its output to a terminal."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(directory)
        os.environ["TERM"] = "xterm"
        os.execvp("sh", ["sh", "-c", f"stty -onlcr; {command}"])
    ioctl(terminal, TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    printed = b""
    try:
        while part := os.read(terminal, 4096):
            printed += part
    except OSError:
        pass
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert status == 0, f"{command}: {status}\n{printed.decode()}"
    return printed.decode()


def rows(line):
    """The rows that a line of text takes in the terminal. A line with codes is drawn in one row."""
    if "\x1b" in line:
        return [line]
    return [line[at : at + COLUMNS] for at in range(0, len(line.rstrip()), COLUMNS)]


def spans(line):
    """Text with the codes of colours as SVG. Of text that is overwritten, the last remains."""
    line = re.sub(r"\x1b\[[0-9;]*[^0-9;m]", "", line.rstrip("\r").rsplit("\r", 1)[-1])
    drawn, style = "", ""
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if part.startswith("\x1b["):
            numbers = [int(number or 0) for number in part[2:-1].split(";")]
            style = ";".join(COLOURS[number] for number in numbers if number in COLOURS)
        elif part:
            drawn += f'<tspan style="{style}">{html.escape(part)}</tspan>' if style else html.escape(part)
    return drawn


def main(path):
    lines, seconds = [], 0.0
    with tempfile.TemporaryDirectory() as directory:
        shutil.copy(HERE / "words.c", directory)
        shutil.copy(HERE.parent / "LICENSE-GPL-2.0", pathlib.Path(directory, "text"))
        for command in COMMANDS:
            prompt = '<tspan style="fill:#8ddb8c">$</tspan> '
            lines.append((seconds, f'{prompt}<tspan style="font-weight:bold">{html.escape(command)}</tspan>'))
            seconds += 0.8
            for line in run(command, directory).rstrip("\n").split("\n"):
                for row in rows(line):
                    lines.append((seconds, spans(row)))
            seconds += 1.7
            lines.append((seconds, ""))
    lines.pop()
    width, height = MARGIN * 2 + WIDTH * COLUMNS, MARGIN * 2 + HEIGHT * len(lines)
    texts = "".join(
        f'<text x="{MARGIN}" y="{MARGIN + HEIGHT * number + SIZE}" style="animation-delay:{when:.1f}s">{line}</text>\n'
        for number, (when, line) in enumerate(lines)
    )
    pathlib.Path(path).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}">\n'
        "<style>text{font-family:ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;"
        f"font-size:{SIZE}px;fill:#d1d7e0;white-space:pre;animation:appear .1s backwards}}"
        "@keyframes appear{from{opacity:0}}</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="#22272e"/>\n{texts}</svg>\n'
    )


main(*sys.argv[1:])
