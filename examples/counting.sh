#!/bin/sh
# Counting calls without reading a record: a session that runs keeps the counts, and its control file shows them.
# `counting.sh PID FUNCTION` counts for ten seconds.
set -e
nopal attach --for 10s -F "$2" -o counting.data "$1" &
sleep 9
nopal ctl "$1" | grep '^#'
wait
