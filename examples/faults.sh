#!/bin/sh
# Shows where and when a program touches pages of memory for the first time: its page faults, a dot each. As root.
set -e
cc -O2 -o strides "$(dirname "$0")/strides.c"
nopal record -e exceptions:page_fault_user -F 'saxpy*' -o faults.data -- ./strides
nopal plot scatter exceptions:page_fault_user.address faults.data --values 0x100000000000..0x100001800000 -o faults.svg
