#!/bin/sh
# Shows the sizes of reads and writes in a session: the results of read and write, as a cumulative distribution.
# `sizes.sh bash` records a session that you type.
set -e
nopal record --args -F read -F write -o sizes.data -- "${@:-sh}"
nopal hist '{read,write}.result' sizes.data
nopal plot cdf '{read,write}.result' sizes.data --by function -o sizes.svg
