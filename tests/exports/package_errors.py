"""What the package of packaging/python says where something is missing or wrong: package_errors.py INCOMPLETE_TRACE"""

import os
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


incomplete = nopal.open(sys.argv[1])
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    assert "losses" not in incomplete.functions().column_names
    incomplete.calls()
found = [(one.category, one.filename) for one in said]
assert found == [(nopal.Incomplete, __file__)] * 2, found
assert all("this trace is incomplete" in str(one.message) for one in said), said

raised(FileNotFoundError, lambda: nopal.open("nowhere"), "nowhere")
raised(nopal.Error, lambda: incomplete.threads(range=("101%", None)), "101%")
raised(nopal.Error, lambda: nopal.record(["./nowhere"], "trace of it"), "127")

trace = nopal.record(["sh", "-c", "exit 7"], "a shell's", options=["-F", "*"])
assert trace.status == 7 and trace.functions().num_rows > 0, trace
# An older trace is not taken for a new one.
raised(nopal.Error, lambda: nopal.record(["./nowhere"], "a shell's"), "127")

sys.modules["pyarrow"] = None
for table in (trace.functions, trace.threads, trace.calls):
    raised(ImportError, table, "pip install 'nopal[tables]'")
os.environ["PATH"] = ""
raised(FileNotFoundError, nopal.find_nopal, "nopal")
