#!/bin/sh
# Counts calls without reading a record: a running session keeps the counts, and its control file shows them.
# `counting.sh PID FUNCTION` counts for ten seconds, from the first query of the session.
set -e
nopal attach --for 12s -F "$2" -o counting.data "$1" &
sleep 1
nopal ctl "$1" >/dev/null
sleep 10
nopal ctl "$1" | grep '^#'
wait
