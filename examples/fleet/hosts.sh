#!/bin/sh
# Simulates a fleet by labels: exports the trace $1 once for each of $2 hosts, one in ten with a new version. The tables go
# below the directory $3; `nopal export` gets the other arguments.
set -e
trace=$1
hosts=$2
tables=$3
shift 3
host=1
while [ "$host" -le "$hosts" ]; do
	version=1.0
	[ $((host % 10)) -ne 0 ] || version=1.1
	nopal export --as parquet --label service=simulated --label version=$version --label host=n$host "$@" -o "$tables" "$trace"
	host=$((host + 1))
done
