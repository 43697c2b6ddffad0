"""Makes `python -m nopal` run nopal."""

import os
import sys

from nopal import find_nopal

path = find_nopal()
os.execv(path, [path, *sys.argv[1:]])
