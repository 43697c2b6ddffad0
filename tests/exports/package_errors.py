"""What the package of packaging/python says where something is missing or wrong: package_errors.py INCOMPLETE_TRACE"""

import os
import signal
import sys
import warnings

import nopal


def raised(kind, call, *words):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"no {kind}")


# The path begins as an option does.
os.rename(sys.argv[1], "-trace")
incomplete = nopal.open("-trace")
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    assert "losses" not in incomplete.functions().column_names
    incomplete.calls()
    none = incomplete.functions(function="climb", range=("0%", "0%"))
    assert none.num_rows == 0 and {"function", "calls"} <= set(none.column_names), none
found = [(one.category, one.filename) for one in said]
assert found == [(nopal.Incomplete, __file__)] * 3, found
assert all("this trace is incomplete" in str(one.message) for one in said), said

raised(FileNotFoundError, lambda: nopal.open("nowhere"), "nowhere")
raised(nopal.Error, lambda: incomplete.threads(range=("101%", None)), "101%")
raised(nopal.Error, lambda: nopal.record(["./nowhere"], "trace of it"), "127")

trace = nopal.record(["sh", "-c", "exit 7"], "-a shell's", options=["-F", "*"])
assert trace.status == 7 and trace.functions().num_rows > 0, trace
# An older trace must not pass for a new one.
raised(nopal.Error, lambda: nopal.record(["./nowhere"], "-a shell's"), "127")

# A trace is complete even if its program takes long to end after an interrupt, or ends only at the second one.
os.setpgid(0, 0)
signal.signal(signal.SIGINT, signal.default_int_handler)
group = "trap 'sleep 1; : >ended; exit' INT; kill -INT 0; sleep 100"
alone = f"trap ': >ended; exit' TERM; for second in $(seq 30); do kill -INT {os.getpid()}; sleep 1; done"
for script in (group, alone):
    raised(KeyboardInterrupt, lambda: nopal.record(["sh", "-c", script], "interrupted", options=["-F", "*"]))
    os.remove("ended")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert nopal.open("interrupted").functions().num_rows > 0

sys.modules["pyarrow"] = None
for table in (trace.functions, trace.threads, trace.calls):
    raised(ImportError, table, "pip install 'nopal[tables]'")
os.environ["PATH"] = ""
raised(FileNotFoundError, nopal.find_nopal, "nopal")
