# SPDX-License-Identifier: MIT OR Apache-2.0
"""frida_trace.py js|c off|on -- PROGRAM ARGUMENTS...: runs a program under Frida, which calls a function at the entry and the
exit of each of its functions.
frida_trace.py js|c attach PROCESS: does the same with a running process. Prints the milliseconds that attaching took, and for
each line of input those of removing all hooks and inserting them again."""
import os
import select
import sys
import time

import frida

SCRIPT = """
const js = { onEnter() { calls++; }, onLeave() { returns++; } };
let calls = 0, returns = 0;
const memory = { events: Memory.alloc(16 << 16), count: Memory.alloc(8) };
const c = new CModule(`
#include <gum/guminterceptor.h>
#include <glib.h>
typedef struct { gint64 time; gpointer function; } Event;
extern Event events[];
extern guint count;
static void keep(GumInvocationContext *context) {
  Event *event = &events[count++ & 0xffff];
  event->time = g_get_monotonic_time();
  event->function = (gpointer)context->function;
}
void onEnter(GumInvocationContext *context) { keep(context); }
void onLeave(GumInvocationContext *context) { keep(context); }
`, memory);
const callbacks = %s;
const functions = Process.mainModule.enumerateSymbols()
  .filter(symbol => symbol.type === 'function' && symbol.size > 0 && !/^_(?!Z)/.test(symbol.name)).map(symbol => symbol.address);
let hooks = [];
rpc.exports = {
  begin() {
    for (const address of functions)
      try { hooks.push(Interceptor.attach(address, callbacks)); } catch (e) {}
    Interceptor.flush();
    return hooks.length;
  },
  end() { hooks.forEach(hook => hook.detach()); Interceptor.flush(); hooks = []; },
};
"""


def load(session, kind):
    script = session.create_script(SCRIPT % kind)
    script.load()
    return script.exports_sync


def milliseconds(work):
    start = time.monotonic()
    work()
    return (time.monotonic() - start) * 1e3


kind, state = sys.argv[1:3]
if state == "attach":
    process = int(sys.argv[3])

    def attach():
        global hooks
        hooks = load(frida.attach(process), kind)
        hooks.begin()

    print(milliseconds(attach), flush=True)
    for line in sys.stdin:
        print(milliseconds(hooks.end), milliseconds(hooks.begin), flush=True)
else:
    device = frida.get_local_device()
    process = device.spawn(sys.argv[4:], stdio="inherit")
    hooks = load(device.attach(process), kind)
    if state == "on":
        hooks.begin()
    ended = os.pidfd_open(process)
    device.resume(process)
    select.select([ended], [], [])
