/* A library that is loaded late. */
#include "hard.h"

int late_calls;

KEPT void late(void) { late_calls += 0x1234; }
