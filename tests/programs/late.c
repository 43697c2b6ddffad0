/* A library that is loaded late. */
#include "hard.h"

KEPT void late(void) { EFFECT(); }
