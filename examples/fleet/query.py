#!/usr/bin/env python3
"""Runs files of SQL on the tables of `nopal export --as parquet`: query.py [--spark] [--json] DIRECTORY FILE.sql...

Uses DuckDB (pip install duckdb), or Spark (pip install pyspark, and Java) on a small cluster on this machine."""

import argparse
import json
import os
import pathlib

TABLES = ("traces", "functions", "durations", "calls")


def duckdb_rows(root, queries):
    import duckdb

    connection = duckdb.connect()
    for table in TABLES:
        files = str(root / table / "**" / "*.parquet").replace("'", "''")
        # Labels are text, also if they look like numbers.
        connection.execute(
            f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{files}', hive_partitioning = true, hive_types_autocast = false)"
        )
    for query in queries:
        found = connection.execute(query)
        yield [column[0] for column in found.description], found.fetchall()


def spark_rows(root, queries):
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(os.environ.get("MASTER", "local-cluster[2,1,1024]")).appName("nopal")
    session = (
        builder.config("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    for table in TABLES:
        session.read.parquet(str(root / table)).createOrReplaceTempView(table)
    for query in queries:
        found = session.sql(query)
        yield found.columns, [tuple(row) for row in found.collect()]
    session.stop()


def write(columns, rows):
    cells = [columns] + [["" if value is None else str(value) for value in row] for row in rows]
    widths = [max(len(row[at]) for row in cells) for at in range(len(columns))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--json", action="store_true", help="an array of objects for each file, one a line")
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("files", type=pathlib.Path, nargs="+")
    arguments = parser.parse_args()
    run = spark_rows if arguments.spark else duckdb_rows
    queries = [file.read_text() for file in arguments.files]
    for columns, rows in run(arguments.directory, queries):
        if arguments.json:
            print(json.dumps([dict(zip(columns, row)) for row in rows]))
        else:
            write(columns, rows)


main()
