/* The example, with roles that are processes. */
#include "../../examples/request.c"
