#!/bin/sh
# Shows the pages of memory that programs hand to the kernel: the buffers of their reads and writes, by process.
set -e
nopal record --args -F read -F write -o addresses.data -- sh -c 'tar cf - /usr/share/doc | gzip -1 >/dev/null'
nopal plot table '{read,write}.arg2 >> 12' addresses.data
nopal plot table '{read,write}.arg2 >> 12' addresses.data -n 60 -o addresses.svg
