"""Reads a trace by the package of packaging/python, and prints as JSON what it has found: package.py TRACE [FROM]"""

import json
import sys

import nopal
import pandas
import polars

path, *moment = sys.argv[1:]
span = (*moment, None) if moment else (None, None)
trace = nopal.open(path)
tables = {
    "functions": trace.functions(range=span),
    "threads": trace.threads(range=span),
    "calls": trace.calls(range=span),
    "calls_of_climb": trace.calls(range=span, function="climb"),
}
for name, table in tables.items():
    assert len(table.to_pandas()) == len(polars.from_arrow(table)) == table.num_rows, name
    assert isinstance(table.to_pandas(), pandas.DataFrame)
assert trace.functions((0, 1e9)).num_rows == trace.functions().num_rows
print(json.dumps({name: table.to_pylist() for name, table in tables.items()}))
