#!/bin/sh
# The way of requests through three processes: how long each took from the first to the last, and what the processes did
# meanwhile in the longest one.
set -e
cc -O2 -o request "$(dirname "$0")/request.c"
nopal record --args -F 'ask@request' -F 'look_up@request' -F 'serve@request' -F 'note@request' -o request.data -- \
	sh -c 'sleep 1 | ./request ask 20 | ./request serve | ./request note'
nopal hist ask.arg1..note.arg1 request.data
nopal plot timeline --section ask.arg1..note.arg1 request.data -o request.svg
